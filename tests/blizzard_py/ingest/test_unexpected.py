"""Fields without a column, of one source and of several that share batches."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.settings.load import load_config
from blizzard_py.app.workers import build
from blizzard_py.ingest.unexpected import with_reported_fields
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.state.source_state import SourceState
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario

ID, AMOUNT = FieldSpec("id", "int64", nullable=True), FieldSpec("amount", "int64", nullable=True)


def unexpected(name: str, path: str) -> UnexpectedField:
    return UnexpectedField(name, path, ())


def test_a_column_of_one_source_is_none_of_another() -> None:
    state = SourceState(members={"app": SourceState(), "web": SourceState()})
    columns = {"app": (ID, AMOUNT), "web": (ID,)}
    found = [unexpected("amount", "web:1"), unexpected("x", "app:2"), unexpected("x", "web:3")]
    state, told = with_reported_fields(state, found, (ID, AMOUNT), columns)
    assert told == [(("x",), "app:2"), (("amount", "x"), "web:1")]
    assert {name: each.summary.unexpected for name, each in state.members.items()} == {
        "app": ("x",),
        "web": ("amount", "x"),
    }
    again, told = with_reported_fields(state, found, (ID, AMOUNT), columns)
    assert (again, told) == (state, [])


def test_single_source_reports_each_unexpected_field_once() -> None:
    state, told = with_reported_fields(
        SourceState(), [unexpected("x", "1"), unexpected("y", "2")], (ID,), {}
    )
    assert (state.summary.unexpected, told) == (("x", "y"), [(("x", "y"), "1")])
    assert with_reported_fields(state, [unexpected("x", "3")], (ID,), {}) == (state, [])


def reported(tmp_path: Path, **schema: Any) -> list[str]:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source["format"] = "csv"
    fields = [{"name": "id", "from": "number", "type": "int64"}]
    scenario.document["pipelines"]["events"]["schema"] = {"fields": fields, **schema}
    scenario.write_config()
    scenario.put("date=2024-01-01/1.csv", b"number,id,more\n1,2,3\n")
    [worker] = build(load_config(scenario.config), DirectEngine())
    worker.cycle(threading.Event())
    [path] = tmp_path.rglob("*_checkpoint.json")
    return json.loads(path.read_text()).get("unexpected", [])  # type: ignore[no-any-return]  # JSON


def test_field_of_a_columns_name_is_reported_if_it_fills_none(tmp_path: Path) -> None:
    assert reported(tmp_path) == ["id", "more"]


@pytest.mark.parametrize("mode", ["capture", "fail"])
def test_no_field_is_reported_unless_it_is_ignored(tmp_path: Path, mode: str) -> None:
    assert reported(tmp_path, unexpected_fields=mode) == []

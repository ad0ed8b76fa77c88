"""Settings of keyed tables: defaults, and a refusal for each that cannot work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config
from penguin_py.settings import keyed_tables_of
from tests.support.keyed_configuration import FIELDS, write


def table_source(**more: Any) -> dict[str, Any]:
    source = {"kind": "table", "connection": "shop", "table": "orders", "id": "shop-orders"}
    return {
        "kind_of_source": "table",
        "sources": {"shop": {**source, "watermark": {"columns": ["seq"]}, **more}},
    }


def test_a_keyed_table_has_defaults(tmp_path: Path) -> None:
    (found,) = keyed_tables_of(load_config(write(tmp_path, deletes="op = 'd'", leave_out=["op"])))
    assert found.name == "orders_keyed"
    assert found.changes.name == "orders"
    assert (found.keys, found.sequence, found.leave_out) == (("id",), ("seq",), ("op",))
    assert found.every == 300
    assert found.table.settings.optimize is not None
    assert found.table.settings.vacuum is None


def test_a_table_source_has_a_default_sequence(tmp_path: Path) -> None:
    (found,) = keyed_tables_of(load_config(write(tmp_path, table_source(), sequence_by=None)))
    assert found.sequence == ("seq", "_ingested_at")


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "key": ({}, {"keys": ["nothing"]}, "'nothing' is no column"),
    "floating key": ({}, {"keys": ["amount"]}, "'amount' is float64"),
    "nullable sequence": ({}, {"sequence_by": ["maybe"]}, "'maybe' may be null"),
    "no sequence": ({}, {"sequence_by": None}, "sequence_by.*is required"),
    "key twice": ({}, {"keys": ["id", "id"]}, "keys names a column twice"),
    "no key": ({}, {"keys": []}, "keys"),
    "condition": ({}, {"deletes": "op > 3"}, "must be a condition on one column"),
    "column of deletes": ({}, {"deletes": "gone"}, "'gone' is no column"),
    "left out": ({}, {"leave_out": ["nothing"]}, "'nothing' is no column"),
    "left out key": ({}, {"leave_out": ["id"]}, "leave_out names 'id'"),
    "interval": ({}, {"every": "0"}, "must be more than 0"),
    "snapshot": (table_source(watermark=None, snapshot=True), {}, "'shop' replaces its rows"),
    "event time": (
        {
            "schema": {"fields": [*FIELDS, {"name": "t", "type": "timestamp", "nullable": False}]},
            "event_time": {"column": "t", "delay": "1m", "deduplicate": ["id"]},
        },
        {},
        "does not go with a query over event_time",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_work_is_refused(tmp_path: Path, name: str) -> None:
    pipeline, keyed, message = REFUSALS[name]
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, pipeline, **keyed))


@pytest.mark.parametrize("place", ["changes", "changes/below", "raw"])
def test_a_keyed_table_has_a_place_of_its_own(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="overlaps with the"):
        load_config(write(tmp_path, table_uri=str(tmp_path / place)))


def test_two_keyed_tables_have_two_places(tmp_path: Path) -> None:
    path = write(tmp_path)
    document = yaml.safe_load(path.read_text())
    other = yaml.safe_load(path.read_text())["pipelines"]["orders"]
    other["sources"] = {"main": {"path": str(tmp_path / "more")}}
    other["sink"]["table_uri"] = str(tmp_path / "others")
    document["pipelines"]["others"] = other
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=r"is the keyed table of .* as well"):
        load_config(path)


def test_the_name_of_a_keyed_table_is_free(tmp_path: Path) -> None:
    path = write(tmp_path)
    document = yaml.safe_load(path.read_text())
    document["tables"] = {
        "orders": {"table_uri": str(tmp_path / "changes")},
        "orders_keyed": {"table_uri": str(tmp_path / "else")},
    }
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="its table is called 'orders_keyed'"):
        load_config(path)

"""Keyed tables by the command line: run, plan, status, rebuild."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from penguin_py.__main__ import main
from penguin_py.keyed.pipeline import wait_secs
from tests.support.keyed_configuration import write
from tests.support.table_harness import parquet

Values = tuple[int, int, str, float]


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result


def publish(folder: Path, name: str, *rows: Values) -> None:
    """Publish a file as Blizzard does."""
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(c) for c in columns], names=("id", "seq", "op", "amount"))
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.parquet").write_bytes(parquet(table, f"orders/main/{name}/1/0"))


def rows(folder: Path) -> dict[int, float]:
    found = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return {row["id"]: row["amount"] for row in found}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write(tmp_path, deletes="op = 'd'", leave_out=["op"])


def keyed(*arguments: object) -> dict[str, Any]:
    return json.loads(call(*arguments, "--json").stdout)["keyed"]["orders_keyed"]


def test_commands_tell_of_merges(config: Path, tmp_path: Path) -> None:
    assert "orders_keyed: no changes yet" in call("plan", config).output
    publish(tmp_path / "changes", "a", (1, 1, "u", 1.0), (2, 1, "u", 2.0), (3, 1, "u", 3.0))
    call("run", config, "--once")
    assert rows(tmp_path / "current") == {1: 1.0, 2: 2.0, 3: 3.0}
    publish(tmp_path / "changes", "b", (1, 2, "u", 10.0), (2, 2, "d", 0.0), (3, 0, "u", 0.0))
    document = yaml.safe_load(config.read_text())
    current = document["pipelines"]["orders"].pop("keyed")
    config.write_text(yaml.safe_dump(document))
    call("run", config, "--once")  # Penguin without the keyed table
    document["pipelines"]["orders"]["keyed"] = current
    config.write_text(yaml.safe_dump(document))
    found = keyed("plan", config)
    assert (found["merged"], found["version"]) == (0, 1)
    assert found["next"]["rows"] == found["next"]["keys"] == 3
    assert (found["next"]["touched_files"], found["next"]["files"]) == (1, 1)
    assert "touches 1 of 1 file (100%); next merge in" in call("plan", config).output
    assert keyed("status", config)["lag_secs"] > 0
    call("run", config, "--once")
    assert rows(tmp_path / "current") == {1: 10.0, 3: 3.0}
    found = keyed("status", config)
    assert (found["merged"], found["lag_secs"], found["starts_over"]) == (1, 0.0, False)
    expected = {"new": 0, "changed": 1, "deleted": 1, "older": 1, "tied": 0, "without_key": 0}
    assert found["outcomes"] == expected
    line = "orders_keyed: 2 rows; merged up to change version 1, up to date; last merge at 20"
    assert line in call("status", config).output
    assert "Z: 0 new, 1 changed, 1 deleted, 1 older" in call("status", config).output
    assert DeltaTable(str(tmp_path / "current")).schema().to_arrow().names == [
        "id",
        "seq",
        "amount",
    ]


def test_rebuild_replaces_all_rows(config: Path, tmp_path: Path) -> None:
    publish(tmp_path / "changes", "a", (1, 1, "u", 1.0), (2, 1, "u", 2.0))
    call("run", config, "--once")
    DeltaTable(str(tmp_path / "current")).delete("id = 1")
    asked = ("keyed", "rebuild", config, "--table", "orders_keyed")
    assert "would be rebuilt from 2 rows of changes" in call(*asked, "--dry-run").output
    assert rows(tmp_path / "current") == {2: 2.0}
    assert "was rebuilt from 2 rows of changes" in call(*asked).output
    assert rows(tmp_path / "current") == {1: 1.0, 2: 2.0}


def test_rebuild_of_another_table_is_refused(config: Path) -> None:
    result = CliRunner().invoke(main, ["keyed", "rebuild", str(config), "--table", "orders"])
    assert result.exit_code
    assert "there are: orders_keyed" in result.output


def test_validate_notes_what_may_not_be_meant(tmp_path: Path) -> None:
    assert "note: orders_keyed" not in call("validate", write(tmp_path)).output
    fields = [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "at", "type": "timestamp", "nullable": False},
    ]
    odd = {"schema": {"fields": fields}, "deduplicate_by": ["id"]}
    told = call("validate", write(tmp_path, odd, sequence_by=["at"])).output
    assert "leave deduplicate_by out" in told
    assert "add a column to sequence_by that tells them apart" in told


def test_validate_and_doctor_know_the_table(config: Path, tmp_path: Path) -> None:
    call("validate", config)
    (tmp_path / "current").mkdir()
    assert str(tmp_path / "current") in call("doctor", config).output


@pytest.mark.parametrize(
    ("last", "wait"),
    [
        ({}, 0),
        ({"updated": 1000, "share": 0.0, "rewritten": 0}, 290),
        ({"updated": 1000, "share": 0.5, "rewritten": 50 << 30}, 1790),
        ({"updated": 1000, "share": 1.0, "rewritten": 1 << 20}, 290),
        ({"updated": 1000, "share": 1.0, "rewritten": 1 << 29}, 1790),
        ({"updated": 1000, "share": 1.0, "rewritten": 1 << 30, "behind": True}, 0),
        ({"updated": 2000, "share": 1.0, "rewritten": 1 << 30}, 0),
    ],
)
def test_the_next_merge_waits_for_what_the_last_cost(last: dict[str, Any], wait: float) -> None:
    assert wait_secs(last, 300.0, 1010.0) == wait

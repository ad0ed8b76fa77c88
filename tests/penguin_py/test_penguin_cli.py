"""The command line, end to end in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from blizzard_core.cli import cell, printable_lines
from blizzard_core.settings.document import Config
from blizzard_core.text import printable
from penguin_py.__main__ import main
from tests.support.flat_settings import nested
from tests.support.table_harness import parquet


@pytest.fixture
def config(tmp_path: Path) -> Path:
    document = {
        "tables": {
            "one": {
                "table_uri": str(tmp_path / "one"),
                "own_prefixes": [""],
                "partition_by": {"prefix_template": "date=%Y-%m-%d"},
            },
            "two": {"table_uri": str(tmp_path / "two"), "own_prefixes": [""]},
        }
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(nested(Config, document)))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def answer(*arguments: object) -> dict[str, Any]:
    result = call(*arguments, "--json", "--log-level", "error")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["tables"]


def put(root: Path, path: str, data: bytes) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def test_plan_run_and_status_tell_one_story(config: Path, tmp_path: Path) -> None:
    none = {"count": 0, "example": None, "remedy": None}
    nothing: dict[str, Any] = {
        "txn_version": None,
        "watermark": None,
        "files": [],
        "refused": [],
        "waiting": [],
        "unreadable": [],
        "not_looked_into": 0,
        "groups": {},
        "left_out": none,
    }
    assert answer("plan", config) == {"one": nothing, "two": nothing}
    path = "date=2024-01-01/a.parquet"
    put(tmp_path / "one", path, parquet({"id": [1]}))
    assert answer("plan", config)["one"] == {**nothing, "files": [path]}
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["date=2024-01-01"]

    assert call("run", config, "--once").exit_code == 0
    assert answer("plan", config)["one"] == {**nothing, "txn_version": 1, "watermark": path}
    status = answer("status", config)
    assert status["one"].pop("last_update_ts") > 1_700_000_000
    assert status["one"]["committer"].pop("saved") > 1_700_000_000
    nobody = {"state": "unknown", "at": None, "host": None, "pid": None}
    zero = {"files": 0, "rows": 0, "batches": 0, "complete": True, "oldest_secs": None}
    all_is_well = {"uncommitted": zero, "sources": {}, "problems": []}
    assert status == {
        "one": {
            **all_is_well,
            "committer": {**nobody, "version": 0},
            "delta_version": 0,
            "txn_version": 1,
            "state": "Idle",
            "watermark": path,
            "partition_watermarks": {"date=2024-01-01": "a.parquet"},
            "quarantine": {"count": 0, "settled": 0, "newest": None},
            "missing": [],
            "groups": {},
        },
        "two": {
            **all_is_well,
            "committer": {**nobody, "saved": None, "version": None},
            "delta_version": None,
            "txn_version": None,
            "state": "Initial",
            "watermark": None,
            "partition_watermarks": {},
            "last_update_ts": None,
            "quarantine": {"count": 0, "settled": 0, "newest": None},
            "missing": [],
            "groups": {},
        },
    }
    for command in ("plan", "status"):
        assert call(command, config).exit_code == 0


def test_duckdb_files_become_a_table_with_a_wider_pattern(
    tmp_path: Path,
) -> None:
    root = tmp_path / "orders"
    with duckdb.connect() as db:
        db.execute(
            "COPY (SELECT range AS id, '2024-01-0' || (1 + range % 2) AS day, range % 3 AS shop"
            f" FROM range(60)) TO '{root}' (FORMAT parquet, PARTITION_BY (day, shop),"
            " FILENAME_PATTERN 'part-{i}')"
        )
    block: dict[str, Any] = {"table_uri": str(root), "own_prefixes": [""]}
    config = tmp_path / "orders.yaml"
    config.write_text(yaml.safe_dump(nested(Config, {"tables": {"orders": block}})))
    # The default pattern leaves them to the engines that write such names, and says so.
    found = answer("plan", config)["orders"]
    assert found["files"] == []
    assert found["left_out"]["count"] == 6
    assert found["left_out"]["example"].startswith("day=2024-01-01/shop=0/part-")
    shown = call("plan", config, "--log-level", "error").output
    assert "orders: 6 files left out, such as day=" in shown
    assert "widen it" in shown
    result = call("run", config, "--once", "--log-level", "warning")
    assert result.exit_code == 0
    assert "files_left_out" in result.output
    assert not (root / "_delta_log").exists()

    block["file_pattern"] = r".*\.parquet"
    block["partition_filter"] = {"prefix_template": "day=%Y-%m-%d", "lookback": 36500}
    config.write_text(yaml.safe_dump(nested(Config, {"tables": {"orders": block}})))
    assert len(answer("plan", config)["orders"]["files"]) == 6
    assert call("run", config, "--once", "--log-level", "error").exit_code == 0
    assert answer("plan", config)["orders"]["left_out"] == {**found["left_out"], "count": 0} | {
        "example": None,
        "remedy": None,
    }
    table = DeltaTable(root)
    assert table.metadata().partition_columns == ["day", "shop"]
    rows = pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()
    assert sorted(int(row["id"]) for row in rows) == list(range(60))
    assert all(int(row["shop"]) == row["id"] % 3 for row in rows)


@pytest.mark.unreadable_tables("one log is junk")
def test_one_broken_table_fails_the_command_and_spares_the_other(
    config: Path, tmp_path: Path
) -> None:
    put(tmp_path / "one", "_delta_log/00000000000000000000.json", b"junk{")
    put(tmp_path / "two", "a.parquet", parquet({"id": [1]}))
    assert call("run", config, "--once").exit_code == 1
    result = call("status", config, "--json")
    assert result.exit_code == 1
    assert "_delta_log" in result.stderr
    assert json.loads(result.stdout)["tables"]["two"]["txn_version"] == 1


def test_a_state_of_a_time_that_no_calendar_has_is_shown(config: Path, tmp_path: Path) -> None:
    put(tmp_path / "one", "date=2024-01-01/a.parquet", parquet({"id": [1]}))
    assert call("run", config, "--once").exit_code == 0
    mirror = tmp_path / "one/_penguin/one_checkpoint.json"
    mirror.write_text(json.dumps({**json.loads(mirror.read_text()), "last_update_ts": 10**30}))
    result = call("status", config)
    assert result.exit_code == 0, result.output
    assert "no calendar" in result.output


def test_validate_says_all_that_is_wrong(tmp_path: Path, config: Path) -> None:
    assert call("validate", config).exit_code == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text("tables: {t: {table_uri: s3://b/t, max_files_per_commit: 0, nope: 1}}")
    result = call("validate", bad)
    assert result.exit_code == 2
    assert "max_files_per_commit" in result.stderr
    assert "nope" in result.stderr


def test_validate_warns_streaming_readers_of_replacing_sources(tmp_path: Path) -> None:
    document = """
pipelines:
  p:
    sources:
      plain: {source_uri: s3://raw/plain}
      drops: {source_uri: s3://raw/drops, use_watermark: false, units: {cooldown: 7d}}
    schema: {fields: [{name: id, type: int64}]}
    sink: {table_uri: s3://lake/t, metadata_columns: [_source_file]}
"""
    config = tmp_path / "units.yaml"
    config.write_text(document)
    result = call("validate", config)
    assert result.exit_code == 0
    [note] = [line for line in result.stderr.splitlines() if "skipChangeCommits" in line]
    assert note.startswith("note: p: p_drops replaces rows")


def test_foreign_text_cannot_drive_a_terminal() -> None:
    assert printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert cell("[red]x") == "\\[red]x"
    assert cell(None) == "-"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"

"""The command line, end to end in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_py.core.cli import cell, printable, printable_lines
from penguin_py.__main__ import main
from tests.penguin_world import parquet


@pytest.fixture
def config(tmp_path: Path) -> Path:
    document = {
        "tables": {
            "one": {
                "table_uri": str(tmp_path / "one"),
                "partition_by": {"prefix_template": "date=%Y-%m-%d"},
            },
            "two": {"table_uri": str(tmp_path / "two")},
        }
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def answer(*arguments: object) -> dict[str, Any]:
    result = call(*arguments, "--json", "--log-level", "error")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)["tables"]
    return found


def put(root: Path, path: str, data: bytes) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def test_plan_run_and_status_tell_one_story(config: Path, tmp_path: Path) -> None:
    nothing: dict[str, Any] = {"txn_version": None, "watermark": None, "files": []}
    assert answer("plan", config) == {"one": nothing, "two": nothing}
    path = "date=2024-01-01/a.parquet"
    put(tmp_path / "one", path, parquet({"id": [1]}))
    assert answer("plan", config)["one"] == {**nothing, "files": [path]}
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["date=2024-01-01"]

    assert call("run", config, "--once").exit_code == 0
    assert answer("plan", config)["one"] == {"txn_version": 1, "watermark": path, "files": []}
    status = answer("status", config)
    assert status["one"].pop("last_update_ts") > 1_700_000_000
    assert status == {
        "one": {
            "delta_version": 0,
            "txn_version": 1,
            "state": "Idle",
            "watermark": path,
            "partition_watermarks": {"date=2024-01-01": "a.parquet"},
            "quarantine": {"count": 0, "newest": None},
        },
        "two": {
            "delta_version": None,
            "txn_version": None,
            "state": "Initial",
            "watermark": None,
            "partition_watermarks": {},
            "last_update_ts": None,
            "quarantine": {"count": 0, "newest": None},
        },
    }
    for command in ("plan", "status"):
        assert call(command, config).exit_code == 0


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


def test_validate_says_all_that_is_wrong(tmp_path: Path, config: Path) -> None:
    assert call("validate", config).exit_code == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text("tables: {t: {table_uri: s3://b/t, max_files_per_commit: 0, nope: 1}}")
    result = call("validate", bad)
    assert result.exit_code == 2
    assert "max_files_per_commit" in result.stderr
    assert "nope" in result.stderr


def test_foreign_text_cannot_drive_a_terminal() -> None:
    assert printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert cell("[red]x") == "\\[red]x"
    assert cell(None) == "-"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"

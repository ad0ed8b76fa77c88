"""The demo as a stranger sees it, and the table it leaves, read by other engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from errno import ENOSPC
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.settings.load import load_config
from blizzard_py.demo.edits import configuration
from blizzard_py.demo.report import measure, table_size
from blizzard_py.demo.stage import staged
from tests.support.scenario import ROOT

# From the attribution beside the data: rows, sum of added, sum of delta, users, robots.
FACTS = (39_244, 9_385_573, 8_991_275, 10_531, 15_420)


def call(place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
def test_the_demo_ends_with_every_row_and_running_again_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    done = call(tmp_path, "blizzard_py", "demo", place.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "39,244" in done.stdout
    table = place / "lake/wikipedia"
    dataset = DeltaTable(table).to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("edits", dataset)
    counts = """select count(*), sum(added), sum("delta"), count(distinct "user"),
                count(*) filter ("isRobot") from edits"""
    assert connection.execute(counts).fetchone() == FACTS
    frame = pl.read_delta(str(table))
    assert (
        frame.height,
        frame["added"].sum(),
        frame["delta"].sum(),
        frame["user"].n_unique(),
        frame["isRobot"].sum(),
    ) == FACTS
    assert frame.filter(pl.col("channel") == "#en.wikipedia").height == 11_549

    before = {p: p.stat().st_mtime_ns for p in table.rglob("*.parquet")}
    version = DeltaTable(table).version()
    for program in ("blizzard_py", "penguin_py"):
        again = call(place, program, "run", "demo.yaml", "--once")
        assert again.returncode == 0, again.stderr
        assert "batch_started" not in again.stderr
    assert {p: p.stat().st_mtime_ns for p in table.rglob("*.parquet")} == before
    assert DeltaTable(table).version() == version
    status = json.loads(call(place, "blizzard_py", "status", "demo.yaml", "--json").stdout)
    source = status["pipelines"]["wikipedia"]["sources"]["main"]
    assert (source["state"], source["totals"]["rows"]) == ("Idle", 39_244)


@pytest.mark.unreadable_tables("polars opens none in a folder with a space")
def test_any_folder_will_do(tmp_path: Path) -> None:
    place = tmp_path / "my: #demo ${X}"
    place.mkdir()
    path = place / "demo.yaml"
    path.write_text(configuration(place))
    pipeline = load_config(path, {}).pipelines["wikipedia"]
    assert pipeline.sink.table_uri == str(place / "lake/wikipedia")
    table = place / "lake/wikipedia"
    table.mkdir(parents=True)
    edits = {"added": [1, 2], "delta": [3, 4], "day": ["a b", "c"]}
    write_deltalake(table, pa.table(edits), partition_by=["day"])
    assert table_size(table) == (2, 2)
    assert measure(table) == {"rows": 2, "sum(added)": 3, "sum(delta)": 7}


@pytest.mark.parametrize("place", ["/proc/x", "/dev/full"])
def test_a_folder_that_cannot_be_made_is_named(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert staged(Path(place), lambda *_: True, "table", "Done") == 1
    assert f"demo: {place}: " in capsys.readouterr().out


def test_a_full_disk_is_told_with_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scenes(*_: object) -> bool:
        raise OSError(ENOSPC, "No space left on device")

    assert staged(tmp_path, scenes, "table", "Done") == 1
    told = capsys.readouterr().out
    assert f"{tmp_path}: No space left on device; give another folder" in told

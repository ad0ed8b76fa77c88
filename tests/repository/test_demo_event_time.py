"""The event-time demo from a stranger's view, and duckdb's own results."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from blizzard_py.demo.edits import SAMPLE
from demo.arrivals import Edit, arriving
from demo.event_time_report import answer
from tests.support.forked_process import call_forked

NOON = datetime(2024, 1, 28, 12, tzinfo=UTC)
EDITS = 39_244


@pytest.mark.promise("G-069")
@pytest.mark.timeout(1200)  # a loaded machine takes ten times as long
def test_the_demo_finds_windows_and_late_edits_as_duckdb_does(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    done = call_forked("demo.event_time", [], DEMO_DIR=str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "differs" not in done.stdout
    assert "late, the watermark was 2015-09-12T" in done.stdout
    files = DeltaTable(place / "lake/edits_per_channel").file_uris()
    with duckdb.connect() as db:
        found = db.execute(
            "SELECT sum(edits), count(*), count(DISTINCT (window_start, channel))"
            " FROM read_parquet(?)",
            [files],
        ).fetchone()
    assert found is not None
    letters = sum(
        len(path.read_text().splitlines())
        for path in (place / "lake/edits_per_channel/_blizzard/dlq").rglob("*.records.ndjson")
    )
    assert letters > 100
    # The last edit keeps its window open.
    assert found[0] + letters == EDITS - 1
    assert found[1] == found[2] > 5000
    # A clean end: queries are stopped before Spark is.
    logs = [path.read_text() for path in (place / "logs").glob("*-blizzard.log")]
    assert not any("Exception in thread" in log for log in logs)


def test_edits_arrive_out_of_order_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = (arriving(SAMPLE, tmp_path / name) for name in "ab")
    assert first == second
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    names = [file[0].file for file in first]
    assert names == sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(names)
    times = [edit.time for file in first for edit in file]
    assert len(times) == EDITS
    assert sum(later < earlier for earlier, later in pairwise(times)) > 10_000


def test_duckdb_query_defines_late_and_over() -> None:
    def edit(line: int, minutes: float, channel: str = "a") -> Edit:
        return Edit("f", line, NOON + timedelta(minutes=minutes), channel, line)

    # After the first batch the watermark is 12:20, after the second 12:50.
    found = answer(
        [
            [edit(1, 30), edit(2, 2), edit(3, 4.9)],
            [edit(4, 14.99), edit(5, 15), edit(6, 60, "b")],
            [edit(7, 20), edit(8, 51)],
        ]
    )
    at = NOON.replace(tzinfo=None)
    assert found.late == {("f", 4), ("f", 5), ("f", 7)}
    assert found.windows == Counter([(at, "a", 2, 5), (at + timedelta(minutes=30), "a", 1, 1)])
    assert found.open == 2

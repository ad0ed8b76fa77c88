"""Intervals of a table's properties, as Spark reads them, and what follows from them."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.errors import CommitError, StateError
from penguin_py.delta.messages import interval_secs
from penguin_py.delta.table import DeltaLog
from tests.support.table_harness import TableHarness

HOUR = 3600.0
DAY = 24 * HOUR
KEPT = "delta.deletedFileRetentionDuration"


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    return TableHarness(str(tmp_path / "table"), pool, now=time.time() + 1)


def log_of(world: TableHarness) -> DeltaLog:
    return DeltaLog(world.table(), world.storage, world.pool)


@pytest.mark.promise("G-179")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 7 * DAY),
        ("interval 2 days", 2 * DAY),
        ("INTERVAL 30 minutes", HOUR / 2),
        ("1 week", 7 * DAY),
        ("interval 1 week 2 days", 9 * DAY),
        ("interval 1 WEEK  2 Days 3 hour", 9 * DAY + 3 * HOUR),
        ("interval 0 hours", 0.0),
        ("interval 2 months", 56 * DAY),
        ("interval 1 year 1 month", 393 * DAY),
        ("interval 2 days -3 hours", 2 * DAY - 3 * HOUR),
        ("interval + 2 days", 2 * DAY),
        ("interval 1.5 seconds", 1.5),
        ("interval .5 second 500 milliseconds 1000000 microseconds", 2.0),
        ("1000000000 nanoseconds", 1.0),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str | None, expected: float) -> None:
    assert interval_secs(text) == pytest.approx(expected)


@pytest.mark.promise("G-179")
@pytest.mark.parametrize(
    "text",
    [
        *("whenever", "", "interval", "7", "P7D", "interval 7 fortnights", "interval 1.5 days"),
        *("interval -2 days", "interval 2 days 3", "interval days 2", "interval 2 dayss"),
    ],
)
def test_an_interval_that_is_not_understood_is_named(world: TableHarness, text: str) -> None:
    assert interval_secs(text) is None
    DeltaTable.create(world.uri, pa.schema([("id", pa.int64())]), configuration={KEPT: text})
    with pytest.raises(StateError, match=f"{KEPT} is '{text}', which is not understood.*7 days"):
        log_of(world).refresh()


@pytest.mark.promise("G-179")
@pytest.mark.parametrize(
    "text", ["interval 1 week 2 days", "interval 0 hours", "interval 2 months"]
)
def test_a_table_with_any_interval_takes_new_files(world: TableHarness, text: str) -> None:
    write_deltalake(world.uri, pa.table({"id": [1]}), configuration={KEPT: text})
    for number in (2, 3):
        world.now = time.time() + 1
        world.put(f"{number}.parquet", {"id": [number]}, output_id=f"p/{number}")
        world.run(own_prefixes=[])
        assert not world.quarantined()
    assert [row["id"] for row in world.rows()] == [1, 2, 3]


def test_a_file_older_than_the_table_stays_on_record(world: TableHarness) -> None:
    """The table was made anew in its place: such a file may have been another one's."""
    world.put("2.parquet", {"id": [2]}, output_id="p/2")
    time.sleep(0.01)  # so that the table is younger
    write_deltalake(world.uri, pa.table({"id": [1]}), configuration={KEPT: "interval 0 hours"})
    world.now = time.time() + 1
    world.run()
    assert "2.parquet" in world.quarantined()
    assert KEPT in world.quarantined()["2.parquet"]


@pytest.mark.promise("G-179")
def test_vacuum_keeps_what_an_interval_of_two_units_keeps(world: TableHarness) -> None:
    """delta-rs reads no such interval and would go by its own seven days."""
    write_deltalake(
        world.uri, pa.table({"id": [1]}), configuration={KEPT: "interval 1 week 2 days"}
    )
    log = log_of(world)
    log.refresh()
    assert log.vacuum(None) == 0
    with pytest.raises(CommitError, match=r"168 hours.*keeps for 216"):
        log.vacuum(168 * 3600)

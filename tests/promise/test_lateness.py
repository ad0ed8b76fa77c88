"""Late files: recognised by the processed names, then reported or ingested once.

No modification time, no clock that was wrong and no sweep that fails decides it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import uuid
from collections.abc import Iterator

import pytest

from blizzard_core.errors import AccessDenied, StorageError
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.protocol import ListingPage, order_key
from tests.support.checkpoint_edits import set_to
from tests.support.letter_harness import FIRST, SECOND, FailedFilesHarness
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import (
    DAY,
    at,
    killed,
    letter_paths,
    one_cycle,
    poll,
    polls,
    sweeps,
)
from tests.support.request_harness import submit


def minutes(world: PipelineHarness) -> None:
    """Run a daemon for eight minutes, a file each, so that it passes the first name."""
    pipeline = poll(world)
    for number in range(8):
        world.now += 60
        world.put(f"d=1/{160 + 60 * number}.ndjson", f"m{number}")
        poll(world, pipeline)


@pytest.mark.parametrize("age", [0, 490, 3 * DAY])
@pytest.mark.parametrize("late_files", ["quarantine", "ingest"])
def test_late_file_is_reported_or_ingested_whatever_its_time(age: float, late_files: str) -> None:
    # A multipart upload carries the time of its beginning, a replica that of its original.
    world = PipelineHarness(late_files=late_files)
    at(world, "d=1/100.ndjson", "100")
    minutes(world)
    at(world, "d=1/090.ndjson", "late", age)
    sweeps(world, polls(world, times=2))
    told = late_files == "quarantine"
    assert ("late" in world.rows()) != told
    assert letter_paths(world) == ["d=1/090.ndjson"] * told
    assert len(world.rows()) == 10 - told


@pytest.mark.parametrize("ahead", [10 * DAY, 3650 * DAY])
def test_a_file_dated_ahead_of_now_hides_no_late_file(ahead: float) -> None:
    # One object with a time of the future: an NFS client's clock, `touch -d`.
    world = PipelineHarness(late_files="quarantine")
    at(world, "d=1/100.ndjson", "100")
    at(world, "d=1/050.ndjson", "050", -ahead)
    minutes(world)
    world.now += 60
    world.put("d=1/090.ndjson", "late")
    sweeps(world, polls(world, times=2))
    assert "late" not in world.rows()
    assert letter_paths(world) == ["d=1/090.ndjson"]


@pytest.mark.parametrize("behind", [-600.0, 600.0, 86_400.0])
def test_wrong_machine_clock_hides_no_late_file(behind: float) -> None:
    # Our clock and that of the store differ by minutes or a day.
    world = PipelineHarness(late_files="quarantine")
    for store in (world.source, world.sink, world.dlq):
        store.clock = lambda: world.now - behind
    world.put("d=1/100.ndjson", "100")
    minutes(world)
    world.now += 60
    world.put("d=1/090.ndjson", "late")
    sweeps(world, polls(world, times=2))
    assert letter_paths(world) == ["d=1/090.ndjson"]


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_file_below_the_start_is_ingested_once_by_backfill(rounds: int) -> None:
    # A file appears below where the live daemon began; sweeps later a backfill takes its range.
    template = PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=2)
    world = PipelineHarness(partition_filter=template, late_files="ingest")
    world.now = dt.datetime(2024, 1, 28, 12, tzinfo=dt.UTC).timestamp()
    world.put("date=2024-01-19/1.json", "history")
    world.put("date=2024-01-28/1.json", "live")
    pipeline = poll(world)
    world.now += 3600
    poll(world, pipeline)
    world.put("date=2024-01-20/1.json", "late")
    polls(world, pipeline, times=1, secs=DAY)
    assert world.rows() == ["live"]
    for _ in range(rounds):
        world.now += DAY + 60
        today = dt.datetime.fromtimestamp(world.now, dt.UTC)
        world.put(f"date={today:%Y-%m-%d}/1.json", "live")
        poll(world, pipeline)
    submit(world.parts(), {"range": ["date=2024-01-01", "date=2024-01-25"]})
    poll(world, pipeline)
    assert world.rows() == ["history", "late", *["live"] * (rounds + 1)]


def test_a_watermark_set_by_hand_brings_no_queued_file_twice() -> None:
    # A late file waits for another try when `checkpoint set` makes it new again.
    day = "date=2024-01-01"
    world = PipelineHarness(grace_period="1s", late_files="ingest", late_sweep_interval="1000s")
    world.put(f"{day}/2.json", "2")
    world.put("date=2024-01-02/1.json", "x")
    pipeline = poll(world)
    for name in ("3", "4"):
        world.now += 10
        world.put(f"{day}/{name}.json", name)
        poll(world, pipeline)
    world.now += 10
    world.put(f"{day}/1.json", "late")
    world.engine.flaky[f"{day}/1.json"] = 1
    world.now += 1000
    with contextlib.suppress(StorageError):
        one_cycle(pipeline)
    assert "late" not in world.rows()
    assert set_to(world, "", day).again == tuple(f"{day}/{name}.json" for name in "1234")
    polls(world)
    assert world.rows() == ["2", "2", "3", "3", "4", "4", "late", "x"]


@pytest.mark.parametrize("days", [1, 29, 32, 100])
def test_replay_after_journal_pruning_doubles_nothing(
    days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Quarantined files are mended where they lie; sweeps pass, the journal is pruned weeks
    # later, and only then their letters are replayed.
    monkeypatch.setattr(
        PipelineHarness, "begins", time.time() - 1000
    )  # ids of batches carry the real time
    world = FailedFilesHarness(late_files="ingest", late_sweep_interval="1000s")
    world.now += 100
    world.put("date=2024-01-01/70.json", "x")
    world.put("date=2024-01-02/3.json", "y")
    pipeline = poll(world)
    polls(world, pipeline, times=2, secs=100)
    world.mend()
    world.put("date=2024-01-01/0.json", "late")
    polls(world, pipeline, times=2, secs=2000)
    assert "late" in world.rows()
    world.now += days * DAY
    polls(world, times=2, secs=2000)  # a restart, which prunes the journal
    expected = ["1", "5", "52", "b", "c", "d", "late", "x", "y"]
    assert world.replay() == {FIRST: "ingested", SECOND: "ingested"}
    for _ in range(2):
        assert world.rows() == expected
        polls(world, times=2, secs=2000)
    assert world.rows() == expected


def closed(**source: object) -> PipelineHarness:
    """Three partitions of which two are closed, and a sweep every 1,000 seconds."""
    world = PipelineHarness(
        late_sweep_interval="1000s", max_tracked_partitions=1, grace_period="1s", **source
    )
    for number in range(1, 4):
        world.put(f"y={1970 + number}/1.ndjson", f"r{number}")
    pipeline = poll(world)
    for name in ("2", "3"):
        world.now += 10
        world.put(f"y=1973/{name}.ndjson", f"r3-{name}")
        poll(world, pipeline)
    return world


def test_failed_sweep_stops_nothing_and_finds_late_files_next() -> None:
    # An old directory was archived with chmod 700, or the store keeps failing a page of it.
    world = closed(late_files="quarantine")
    world.put("y=1971/0.ndjson", "late")
    real = world.source.list_range

    def denied(after: str, until: str | None) -> Iterator[ListingPage]:
        if order_key(after) < order_key("y=1971/") and (until is None or until > "y=1971/"):
            raise AccessDenied("mem://raw/d=1: permission denied")
        yield from real(after, until)

    world.source.list_range = denied
    pipeline = world.pipeline()
    for number in range(50):
        world.put(f"y=1973/5{number:02}.ndjson", f"new {number}")
        world.now += 300
        one_cycle(pipeline)
    assert sum(row.startswith("new") for row in world.rows()) == 50
    world.source.list_range = real
    sweeps(world, pipeline)
    assert letter_paths(world) == ["y=1971/0.ndjson"]


@pytest.mark.parametrize("dies", range(0, 60, 4))
def test_sweep_reports_a_file_once_after_any_death(dies: int) -> None:
    # Death at any change of a sweep that writes a letter, then a restart.
    world = closed(late_files="quarantine")
    world.put("y=1971/0.ndjson", "late")
    world.put("y=1973/9.ndjson", "new")
    world.now += 1000
    changes = 0

    def when(_op: str, _path: str) -> bool:
        nonlocal changes
        changes += 1
        return changes > dies

    killed(world, when)
    sweeps(world, polls(world))
    assert letter_paths(world) == ["y=1971/0.ndjson"]
    assert "new" in world.rows()
    assert "late" not in world.rows()


def test_partitions_below_a_time_are_never_odd() -> None:
    """``date=…/run=<id>``: four new partitions an hour, all of them are looked at."""
    world = PipelineHarness()
    pipeline = world.pipeline()
    for number in range(4 * 48):
        day = dt.datetime.fromtimestamp(world.now, dt.UTC).strftime("%Y-%m-%d")
        run = uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC834 % 2**128)
        at(world, f"date={day}/run={run}/a.ndjson", f"{number:03d}")
        world.now += 900
        poll(world, pipeline)
    assert world.rows() == [f"{number:03d}" for number in range(4 * 48)]
    assert not letter_paths(world)

"""Late files: found for certain, never a file that was ingested, dealt with once."""

from __future__ import annotations

import contextlib
import threading

import pytest
from blizzard_py.late import (
    AUTO_GRACE_SECS,
    TIMELINE_ENTRIES,
    LateFile,
    Passed,
    auto_grace,
    find_late,
    late_by,
    lateness_of,
    observed,
    partitions_behind,
    recorded,
)
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.core.errors import Unavailable
from blizzard_py.core.metrics import LATE_FILES
from blizzard_py.core.model import Entry
from blizzard_py.core.watermark import PartitionProgress, Progress, advance
from tests.memory_store import Died, Dying
from tests.pipeline_world import World

DAY = 86_400.0
INTERVAL = 1000.0


def late_world(**source: object) -> World:
    return World(late_sweep_interval_secs=INTERVAL, grace_period_secs=100, **source)


def with_a_late_file(world: World) -> None:
    """``d=1/2`` is passed for good, then ``d=1/1`` appears."""
    world.put("d=1/2.ndjson", "r2")
    pipeline = world.drain()
    for _ in range(3):
        world.now += 101
        world.drain(pipeline)
    # A save after the grace period: the scan start has moved.
    world.put("d=1/3.ndjson", "r3")
    world.drain(pipeline)
    world.now += 10
    world.put("d=1/1.ndjson", "late")
    world.drain(pipeline)
    assert world.rows() == ["r2", "r3"]
    world.now += INTERVAL
    with contextlib.suppress(Unavailable):
        world.drain(pipeline)


def late_letters(world: World) -> list[str]:
    return [letter["path"] for letter in world.letters() if letter["stage"] == "late"]


def test_a_late_file_is_reported_once_and_not_ingested() -> None:
    world = late_world()
    counter = LATE_FILES.labels("events/main")
    before = counter._value.get()
    with_a_late_file(world)
    assert counter._value.get() == before + 1
    for _ in range(3):
        world.now += INTERVAL
        world.drain()
    assert counter._value.get() == before + 1
    assert world.rows() == ["r2", "r3"]
    assert world.letters() == []


def test_a_late_file_is_quarantined_when_told_so() -> None:
    world = late_world(late_files="quarantine")
    with_a_late_file(world)
    assert late_letters(world) == ["mem://raw/d=1/1.ndjson"]
    assert "'2.ndjson' was passed" in world.letters()[0]["error"]


def test_a_late_file_is_ingested_once_when_told_so() -> None:
    world = late_world(late_files="ingest")
    with_a_late_file(world)
    assert world.rows() == ["late", "r2", "r3"]
    watermarks = world.checkpoint()["partition_watermarks"]
    assert watermarks == {"d=1": "3.ndjson"}
    for _ in range(3):
        world.now += INTERVAL
        world.drain()
    assert world.rows() == ["late", "r2", "r3"]


def test_a_late_file_that_cannot_be_read_is_tried_again() -> None:
    world = late_world(late_files="ingest")
    world.engine.flaky["d=1/1.ndjson"] = 2
    with_a_late_file(world)
    pipeline = world.pipeline()
    for _ in range(3):
        with contextlib.suppress(Unavailable):
            pipeline.cycle(threading.Event())
    assert world.rows() == ["late", "r2", "r3"]


@pytest.mark.parametrize("at", range(40))
def test_death_while_a_late_file_is_ingested(at: int) -> None:
    world = late_world(late_files="ingest")
    world.put("d=1/2.ndjson", "r2")
    pipeline = world.drain()
    world.now += 101
    world.put("d=1/3.ndjson", "r3")
    world.drain(pipeline)
    world.now += 101
    world.put("d=1/4.ndjson", "r4")
    world.drain(pipeline)
    world.now += 10
    world.put("d=1/1.ndjson", "late")
    world.now += INTERVAL
    dying = Dying(world.sink, world.dlq)
    dying.arm(at)
    with contextlib.suppress(Died):
        world.drain()
    dying.arm(-1)
    world.drain()
    world.now += INTERVAL
    world.drain()
    assert world.rows() == ["late", "r2", "r3", "r4"]


def test_a_late_file_in_a_closed_partition_is_found() -> None:
    world = late_world(max_tracked_partitions=2, late_files="ingest")
    for day in range(1, 6):
        world.put(f"d={day}/5.ndjson", f"r{day}")
        world.drain()
        world.now += 101
    world.put("d=6/5.ndjson", "r6")
    world.drain()
    world.drain()
    world.now += 10
    assert world.checkpoint()["floor"] >= "d=4"
    world.put("d=1/9.ndjson", "late above what was done there")
    world.put("d=0/1.ndjson", "late in a partition that never was")
    world.now += INTERVAL
    world.drain()
    assert len(world.rows()) == 8
    assert set(world.checkpoint()["partition_watermarks"]) <= {"d=4", "d=5", "d=6"}


def test_what_a_cold_start_left_out_is_old_and_not_late() -> None:
    progress = Progress("Active", "d=5/1", {"d=5": PartitionProgress("1", "1")}, 1, "d=4")
    passed = recorded(Passed(listed=1000.0), Progress(), progress)
    listed = [Entry("d=1/1", 1, 500.0), Entry("d=1/2", 1, 2000.0)]
    assert [found.entry.path for found in find_late(passed, progress, listed)] == ["d=1/2"]


def test_a_store_whose_clock_runs_ahead_makes_no_file_late() -> None:
    """A file that was ingested may carry a time after the scan that found it."""
    ahead = 120.0
    found = [Entry("d=1/a", 1, 1000.0 + ahead)]
    passed = observed(Passed(), Progress(depth=1), found, 1000.0)
    old = Progress(depth=1)
    new = advance(old, found, (), 1000.0, 0)
    passed = recorded(passed, old, new)
    assert find_late(passed, new, found) == ()


names = st.integers(0, 30).map("{:02d}".format)


@given(
    arrivals=st.lists(st.tuples(names, st.integers(6, 200)), min_size=1, max_size=25),
    grace=st.sampled_from([0, 50, 300]),
)
def test_the_sweep_finds_exactly_what_was_not_ingested(
    arrivals: list[tuple[str, int]], grace: int
) -> None:
    """Each arrival is followed by a poll; at the end, ingested + late = everything."""
    now = DAY
    progress, passed = Progress(depth=1), Passed()
    listed: dict[str, Entry] = {}
    done: set[str] = set()
    for name, pause in arrivals:
        now += pause
        path = f"d=1/{name}"
        listed.setdefault(path, Entry(path, 1, now))
        now += 10  # beyond the slack that clocks are allowed
        from_scan = [
            e
            for e in listed.values()
            if e.path not in done
            and (
                "d=1" not in progress.partitions
                or e.path[4:] > (progress.partitions["d=1"].before or "")
            )
        ]
        passed = observed(passed, progress, from_scan, now)
        moved = advance(progress, from_scan, (), now, grace)
        passed = recorded(passed, progress, moved)
        done |= {e.path for e in from_scan}
        progress = moved
    late = {found.entry.path for found in find_late(passed, progress, listed.values())}
    assert not late & done
    if len(arrivals) <= TIMELINE_ENTRIES:  # nothing was thinned
        assert late | done == set(listed)


def test_a_timeline_stays_short_and_thins_towards_later_times() -> None:
    progress, passed = Progress(depth=1), Passed()
    for step in range(500):
        passed = observed(passed, progress, (), float(step))
        moved = advance(progress, [Entry(f"d=1/{step:05d}", 1, 0)], (), step + 2 * DAY, 0)
        passed = recorded(passed, progress, moved)
        progress = moved
    timeline = passed.partitions["d=1"]
    assert len(timeline) <= TIMELINE_ENTRIES
    assert timeline[-1] == ("00499", 499.0)
    assert list(timeline) == sorted(timeline)
    for name, at in timeline:
        assert at >= int(name)


def test_the_grace_period_sizes_itself_within_bounds() -> None:
    low, first, high = AUTO_GRACE_SECS
    assert auto_grace(Passed()) == first

    def after(secs: float) -> float:
        return auto_grace(late_by(Passed(), [LateFile(Entry("a", 1, 0), "b", secs)], DAY))

    assert after(1) == low
    assert after(400) == 800
    assert after(DAY) == high
    # A week later it is forgotten.
    old = late_by(Passed(), [LateFile(Entry("a", 1, 0), "b", 400)], DAY)
    assert auto_grace(late_by(old, [LateFile(Entry("a", 1, 0), "b", 100)], 9 * DAY)) == 200


def test_lateness_is_measured_on_files_found_within_the_grace_period() -> None:
    progress = advance(Progress(depth=1), [Entry("d=1/m", 1, DAY)], (), DAY, 300)
    assert lateness_of(progress, Entry("d=1/c", 1, DAY + 40)) == 40
    assert lateness_of(progress, Entry("d=1/z", 1, DAY + 40)) == 0
    assert lateness_of(progress, Entry("d=2/c", 1, DAY + 40)) == 0


def test_status_shows_the_grace_period_that_is_used() -> None:
    world = World(grace_period_secs="auto")
    world.put("d=1/5.ndjson", "r5")
    pipeline = world.drain()
    world.now += 200
    world.put("d=1/1.ndjson", "within the first 300 s")
    world.drain(pipeline)
    assert world.rows() == ["r5", "within the first 300 s"]
    assert auto_grace(pipeline.load().passed) == 400


def test_how_far_behind_is_counted_in_partitions() -> None:
    progress = Progress(
        depth=1, partitions={f"d={n}": PartitionProgress("a", "a") for n in range(5)}
    )
    assert partitions_behind(progress, LateFile(Entry("d=1/a", 1, 0), "a", 1)) == 3

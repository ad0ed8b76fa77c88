"""Foreign influences: future dates, odd folders, failing files, wrong clocks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from blizzard_core.settings.sources import CheckpointSettings
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import DAY, at, letter_paths, one_cycle, poll, polls, sweeps

TODAY = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC).timestamp()


def ahead(number: int) -> str:
    return f"date=9999-{1 + number // 28:02}-{1 + number % 28:02}/x.json"


def undated(number: int) -> str:
    return f"zzz-{number:03}/x.json"


def impossible(number: int) -> str:
    return f"date=2026-13-{number:02}/x.json"


@pytest.mark.parametrize("name", [ahead, undated, impossible])
@pytest.mark.parametrize("restarts", [True, False])
def test_66_tiny_objects_close_no_partition_in_use(
    name: Callable[[int], str], *, restarts: bool
) -> None:
    # Somebody puts objects of one byte into more directories than are tracked, all of which
    # sort above the real ones.
    world = PipelineHarness()
    world.now = TODAY
    world.put("date=2026-11-20/a.json", "20a")
    world.put("date=2026-11-21/a.json", "21a")
    pipeline = poll(world)
    for number in range(66):
        world.put(name(number), "evil")
    poll(world, pipeline)
    for number in (0, 1):
        world.now += 301
        world.put(name(number).replace("x.json", "y.json"), "evil")
        poll(world, pipeline)
    honest = ["date=2026-11-21/b.json", "date=2026-11-22/a.json", "date=2026-11-23/a.json"]
    for path in honest:
        world.put(path, path)
    world.now += 3600
    pipeline = poll(world, None if restarts else pipeline)
    polls(world, pipeline, times=3, secs=DAY)
    world.put("date=2026-11-24/a.json", "24a")
    poll(world, pipeline)
    assert [row for row in world.rows() if row != "evil"] == sorted([*honest, "20a", "21a", "24a"])
    assert letter_paths(world) == []


@pytest.mark.parametrize("name", [ahead, undated, impossible])
def test_odd_directories_do_not_close_real_partitions(
    name: Callable[[int], str],
) -> None:
    # The same objects lie there before the first poll.
    world = PipelineHarness()
    world.now = TODAY
    for number in range(66):
        world.put(name(number), "evil")
    world.put("date=2026-11-20/a.json", "20a")
    pipeline = poll(world)
    for day in range(21, 28):
        world.put(f"date=2026-11-{day}/a.json", f"{day}a")
        pipeline = polls(world, pipeline, times=2, secs=DAY / 2)
    sweeps(world, pipeline)
    honest = [row for row in world.rows() if row != "evil"]
    assert honest == [f"{day}a" for day in range(20, 28)]


def test_partition_ahead_of_time_is_ingested_in_its_time() -> None:
    # A writer's clock is ten days ahead; the partition is left alone, and not for ever.
    world = PipelineHarness(max_ahead="2d")
    world.now = TODAY
    world.put("date=2026-11-21/a.json", "21a")
    world.put("date=2026-12-01/a.json", "ahead")
    pipeline = poll(world)
    assert world.rows() == ["21a"]
    for number in range(12):
        day = dt.datetime.fromtimestamp(world.now, dt.UTC)
        world.put(f"date={day:%Y-%m-%d}/b.json", f"day {number:02}")
        poll(world, pipeline)
        world.now += DAY
    assert world.rows() == sorted(["21a", "ahead", *(f"day {n:02}" for n in range(12))])
    assert letter_paths(world) == []


def test_file_dated_ahead_is_ingested_and_delays_nothing() -> None:
    # `min_age`, and a first name that stays young for ten years by its time.
    world = PipelineHarness(min_age="10s", checkpoint=CheckpointSettings(interval_files=100))
    at(world, "d=1/000.ndjson", "from the future", -3650 * DAY)
    pipeline = None
    for day in range(4):
        for number in range(500):
            at(world, f"d=1/{day}-{number:04}.ndjson", "r")
        world.now += 3600
        pipeline = poll(world, pipeline)
        polls(world, pipeline, times=1, secs=DAY - 3600)
    assert world.rows().count("r") == 2000
    assert world.rows().count("from the future") == 1
    assert world.checkpoint()["watermark"]["value"] == "d=1/3-0499.ndjson"
    names = world.checkpoint().get("recent", {}).get("d=1", {}).get("done", {})
    assert len(names) <= 500


def test_file_that_fails_for_a_minute_is_retried() -> None:
    # Tries without a pause between them are used up in seconds.
    world = PipelineHarness()
    world.errors = {"max_retries": 3}
    world.engine.flaky["d=1/000.ndjson"] = 10**6
    world.put("d=1/000.ndjson", "slow")
    pipeline = world.pipeline()
    for number in range(120):
        world.put(f"d=1/{number + 1:03}.ndjson", "r")
        one_cycle(pipeline)
        world.now += 0.5
    assert letter_paths(world) == []
    del world.engine.flaky["d=1/000.ndjson"]
    polls(world, pipeline, times=10)
    assert world.rows() == [*["r"] * 120, "slow"]


@pytest.mark.parametrize("years", [-10, 10])
@pytest.mark.parametrize("whose", ["machine", "store"])
def test_clock_wrong_once_stops_no_sweep_and_no_floor(whose: str, years: int) -> None:
    # For two polls a clock is ten years off; then it is right for six hours.
    world = PipelineHarness(
        late_sweep_interval="1000s",
        max_tracked_partitions=2,
        grace_period="100s",
        late_files="quarantine",
    )
    true = world.now
    error = 0.0

    def store() -> float:
        return true + (error if whose == "store" else 0)

    for storage in (world.source, world.sink, world.dlq):
        storage.clock = store
    world.put("y=1970/1.ndjson", "r")
    poll(world)
    error = years * 365 * DAY
    world.now = true + (error if whose == "machine" else 0)
    world.put("y=1971/1.ndjson", "r")
    pipeline = poll(world)
    world.now += 2000
    true += 2000
    poll(world, pipeline)
    error = 0.0
    world.now = true
    pipeline = None
    for number in range(2, 40):
        true += 600
        world.now = true
        world.put(f"y={1970 + number}/1.ndjson", "r")
        pipeline = poll(world, pipeline)
        if number == 20:
            world.put("y=1970/0.ndjson", "late")
    polls(world, pipeline, times=3, secs=600)
    assert world.rows() == ["r"] * 40
    assert letter_paths(world) == ["y=1970/0.ndjson"]
    assert len(world.checkpoint()["partition_watermarks"]) <= 3

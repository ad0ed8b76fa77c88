"""Grace periods: they count from scans; unobserved time closes no name.

Every scenario lost files with an earlier release; each says what must become of them.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_py.job import IngestJob, IngestResult
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import (
    DAY,
    at,
    disk,
    is_running_batch,
    killed,
    letter_paths,
    poll,
    polls,
    sweeps,
)


def started() -> PipelineHarness:
    """Two files of a partition are done, then a third one comes."""
    world = PipelineHarness()
    world.put("d=1/100.ndjson", "r100")
    world.put("d=1/105.ndjson", "r105")
    poll(world)
    world.now += 5
    world.put("d=1/110.ndjson", "r110")
    return world


@pytest.mark.parametrize("late_by", [2, 4, 6, 10, 299])
def test_file_in_grace_is_ingested_after_ten_minutes_down(
    late_by: int,
) -> None:
    # The last listing is followed by a kill, a straggler, and a downtime longer than the grace.
    world = started()
    killed(world, is_running_batch(world))
    world.now += late_by
    world.put("d=1/103.ndjson", "straggler")
    world.now += 600
    sweeps(world, polls(world))
    assert world.rows() == ["r100", "r105", "r110", "straggler"]
    assert letter_paths(world) == []


@pytest.mark.parametrize("secs", [100, 400, 4000])
def test_file_is_ingested_after_a_long_job(secs: int) -> None:
    # One Spark job is longer than the grace period; nobody lists meanwhile.
    world = started()
    ingest = world.engine.ingest

    def slow(job: IngestJob) -> IngestResult:
        result = ingest(job)
        world.now += 5
        world.put("d=1/103.ndjson", "straggler")
        world.now += secs
        world.engine.ingest = ingest
        return result

    world.engine.ingest = slow
    sweeps(world, polls(world))
    assert world.rows() == ["r100", "r105", "r110", "straggler"]
    assert letter_paths(world) == []


def test_file_is_ingested_during_backlog_of_another_partition() -> None:
    # A cold start whose batches take longer than the grace period altogether.
    world = PipelineHarness()
    world.put("region=eu/100.ndjson", "eu100")
    world.put("region=eu/105.ndjson", "eu105")
    for number in range(12):
        world.put(f"region=us/{number:03}.ndjson", f"us{number:03}")
    ingest = world.engine.ingest

    def slow(job: IngestJob) -> IngestResult:
        result = ingest(job)
        if len(world.engine.jobs) == 1:
            world.now += 10
            world.put("region=eu/103.ndjson", "eu103")
        world.now += 60
        return result

    world.engine.ingest = slow
    sweeps(world, polls(world))
    assert [row for row in world.rows() if row.startswith("eu")] == ["eu100", "eu103", "eu105"]
    assert len(world.rows()) == 15
    assert letter_paths(world) == []


def test_long_sweep_ends_no_grace_period() -> None:
    # A late sweep lists for longer than the grace period; a straggler comes meanwhile.
    world = PipelineHarness(late_sweep_interval="1000s")
    for number in range(10):
        world.put(f"d=1/{number + 100}.ndjson", f"r{number}")
    pipeline = poll(world)
    world.now += 990
    world.put("d=1/150.ndjson", "before")
    poll(world, pipeline)
    world.now += 20
    world.put("d=1/160.ndjson", "new")
    pages = 0

    def slow() -> None:
        nonlocal pages
        pages += 1
        world.now += 400
        if pages == 1:
            world.put("d=1/140.ndjson", "straggler")

    world.source.between_pages = slow
    poll(world, pipeline)
    world.source.between_pages = lambda: None
    assert pages
    sweeps(world, polls(world, pipeline))
    assert {"before", "new", "straggler"} <= set(world.rows())
    assert letter_paths(world) == []


@pytest.mark.parametrize("grace", [0, 300])
@pytest.mark.parametrize("dies", [False, True])
def test_young_file_is_ingested_after_any_death(grace: int, *, dies: bool) -> None:
    # The first of three names is still being written; recovery knows nothing of it.
    world = PipelineHarness(min_age="1m", grace_period=f"{grace}s")
    age = 100 + (90_000 if grace else 0)
    at(world, "d=1/2.ndjson", "r2", age)
    at(world, "d=1/3.ndjson", "r3", age)
    at(world, "d=1/1.ndjson", "young", 10)
    if dies:
        killed(world, is_running_batch(world))
        assert world.rows() == []
    sweeps(world, polls(world, secs=61))
    assert world.rows() == ["r2", "r3", "young"]
    assert letter_paths(world) == []


HOURLY = PartitionFilter(prefix_template="date=%Y-%m-%d/hour=%H", lookback=1)


def hourly(**source: object) -> PipelineHarness:
    """Ten seconds before the hour turns, with a file in the oldest hour that is looked at."""
    world = PipelineHarness(partition_filter=HOURLY, **source)
    world.now = dt.datetime(2024, 1, 28, 11, 59, 50, tzinfo=dt.UTC).timestamp()
    world.put("date=2024-01-28/hour=10/a.ndjson", "a")
    return world


def test_cold_start_floor_stays_below_a_file_to_retry() -> None:
    # Nothing is done yet, the only file fails for now, and the lookback moves on.
    world = hourly()
    world.engine.flaky["date=2024-01-28/hour=10/a.ndjson"] = 1
    pipeline = poll(world)
    world.now += 15
    sweeps(world, poll(world, pipeline))
    assert world.rows() == ["a"]
    assert letter_paths(world) == []


def test_a_cold_starts_floor_does_not_pass_a_young_file() -> None:
    # Nothing is done yet, the only file is too young, and the lookback moves on.
    world = hourly(min_age="1m")
    pipeline = poll(world)
    world.now += 70
    sweeps(world, poll(world, pipeline))
    assert world.rows() == ["a"]
    assert letter_paths(world) == []


def test_source_with_root_files_first_gets_partitions_later() -> None:
    # A manifest at the root is all that the first poll sees; hours of data follow out of order.
    world = PipelineHarness()
    world.put("manifest.json", "m")
    pipeline = poll(world)
    world.now += 400
    poll(world, pipeline)
    world.put("manifest2.json", "m2")
    poll(world, pipeline)
    for hour in range(3):
        for number in range(2):
            world.put(f"date=2024-01-28/hour={hour:02}/{number}.ndjson", f"h{hour}-{number}")
        world.now += 400
        poll(world, pipeline)
    sweeps(world, pipeline)
    assert world.rows() == ["h0-0", "h0-1", "h1-0", "h1-1", "h2-0", "h2-1", "m", "m2"]
    assert world.checkpoint()["partition_depth"] == 2


@pytest.mark.parametrize("age", [0.0, 3 * DAY, -3 * DAY])
def test_copied_file_with_old_time_is_ingested_within_grace(tmp_path: Path, age: float) -> None:
    # `cp -p`, `rsync -t`, `tar x`: names appear out of order, with times of long ago or ahead.
    world = PipelineHarness()
    copied = disk(world, tmp_path / "raw")
    copied("d=1/b.ndjson", age)
    pipeline = poll(world)
    world.now += 5
    copied("d=1/a.ndjson", age)
    copied("d=1/c.ndjson", age)
    sweeps(world, polls(world, pipeline))
    assert world.rows() == ["d=1/a.ndjson", "d=1/b.ndjson", "d=1/c.ndjson"]
    assert letter_paths(world) == []


@pytest.mark.promise("G-005")
@pytest.mark.parametrize("change", ["max_ahead", "clock"])
def test_used_partition_is_scanned_when_its_time_is_ahead(
    change: str,
) -> None:
    world = PipelineHarness(grace_period="1h")
    tomorrow = dt.datetime.fromtimestamp(world.now + DAY, dt.UTC).strftime("date=%Y-%m-%d")
    at(world, "date=2024-01-01/1.json", "today's")
    at(world, f"{tomorrow}/5.json", "5")
    poll(world)
    world.now += 60
    if change == "clock":
        world.now -= 2 * DAY
    else:
        world.settings["max_ahead"] = 0
    daemon = poll(world)
    at(world, f"{tomorrow}/3.json", "3")
    for _ in range(4):
        world.now += 1800
        poll(world, daemon)
    sweeps(world, daemon)
    assert (world.rows(), letter_paths(world)) == (["3", "5", "today's"], [])

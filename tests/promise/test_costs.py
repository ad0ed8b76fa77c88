"""Cost of a source: independent of its history, and at most linear in its backlog.

Counted are requests, bytes and calls; processor time only as a ratio of two sizes.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.limits import SCAN_FILES
from blizzard_core.settings.sources import CheckpointSettings, SourceSettings
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range
from blizzard_core.watermark.progress import PartitionProgress, Progress, ScanTimes
from blizzard_py.job import FinishedFile
from blizzard_py.sources.files.advance import FileWork, FloorRules, end_scan, finish_batch
from blizzard_py.sources.files.discovery import FirstSeen, discover
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.checkpoint_document import state_to_json
from blizzard_py.state.lateness import EarlierScans, measure_lateness
from blizzard_py.state.processed_set import ProcessedSet
from blizzard_py.state.source_state import Position, SourceState
from blizzard_py.state.transitions import begin_batch, end_batch, prepare_batch
from tests.support.flat_settings import settings_of
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import at, one_cycle, poll

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


def test_a_checkpoint_stays_small_without_sweeps() -> None:
    # Hundreds of hourly partitions go by, and no late sweep ever cleans up behind them.
    world = PipelineHarness(late_sweep_interval=0, max_tracked_partitions=2, grace_period="10s")
    pipeline = None
    sizes = []
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    for hour in range(300):
        moment = begin + dt.timedelta(hours=hour)
        for half in range(2):
            name = f"{int(moment.timestamp()) + half * 1800}-3f2a9c51.ndjson"
            world.put(f"date={moment:%Y-%m-%d}/hour={moment:%H}/{name}", "r")
            world.now += 1800
            pipeline = poll(world, pipeline)
        gone = f"date={moment - dt.timedelta(days=1):%Y-%m-%d}"
        world.source.objects = {k: v for k, v in world.source.objects.items() if k >= gone}
        if hour in (20, 299):
            sizes.append(len(world.sink.read(CHECKPOINT)))
    assert sizes[1] < sizes[0] + 500


class Counted:
    """Counter of the LIST requests that a source answers."""

    def __init__(self, world: PipelineHarness) -> None:
        self.requests = 0
        self._real = world.source.list_range
        world.source.list_range = self

    def __call__(self, after: str, until: str | None) -> Iterator[ListingPage]:
        for page in self._real(after, until):
            self.requests += page.requests
            yield page


def hour(number: int) -> str:
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=number)
    return f"{moment:date=%Y-%m-%d/hour=%H}"


@pytest.mark.parametrize("restarts", [True, False])
def test_cold_start_of_3000_partitions_costs_64_lists_a_poll(*, restarts: bool) -> None:
    # History in 3,000 partitions; polls follow within and beyond the grace period.
    world = PipelineHarness(
        checkpoint=CheckpointSettings(interval_files=500), late_sweep_interval=0
    )
    world.source.page_keys = 1000
    for number in range(3000):
        at(world, f"{hour(number)}/{number % 7}-3f2a9c51.ndjson", "r", 1e6)
    counted = Counted(world)
    pipeline = world.pipeline()
    one_cycle(pipeline)
    assert len(world.rows()) == 3000
    for secs in (0, 60, 300, 60, 300, 60):
        world.now += secs
        if restarts:
            pipeline = world.pipeline()
        counted.requests = 0
        one_cycle(pipeline)
        assert counted.requests <= 64 + 3
    at(world, f"{hour(3000)}/0-3f2a9c51.ndjson", "r")
    one_cycle(pipeline)
    assert len(world.rows()) == 3001
    assert len(world.checkpoint()["partition_watermarks"]) <= 65
    assert len(world.sink.read(CHECKPOINT)) < 20_000


def waiting(count: int) -> list[Entry]:
    return [
        Entry(f"date=2024-01-01/hour={i // 5000:03}/{1700000000 + i}-3f2a9c51.ndjson.gz", 1000, 1.0)
        for i in range(count)
    ]


def worked_off(files: list[Entry], saved: Callable[[SourceState], object]) -> SourceState:
    """Apply the decisions of a backlog, a hundred files a batch and second; save each state."""
    state = SourceState(position=Position(Progress(depth=2)))
    now = 1e9
    for start in range(0, len(files), SCAN_FILES):
        part = files[start : start + SCAN_FILES]
        last = None if start + SCAN_FILES >= len(files) else part[-1].path
        scanned = ScanTimes(now, now + 1, last)
        paths = [entry.path for entry in part]
        state = end_scan(state, state.position.progress, paths, scanned, FloorRules(300, 64, None))
        work = FileWork(part, 0, (), 2)
        while work:
            chosen = work.take(BatchLimits(100, 1 << 30, 60), None)
            batch = Batch(f"{now}", 1, "running", now, chosen, scanned.ended)
            state = begin_batch(state, batch)
            saved(state)
            done = tuple(FinishedFile(entry.path, "ingested") for entry in chosen)
            state, ready = prepare_batch(
                state, batch, BatchResults(finished=done, committed_ts=now)
            )
            saved(state)
            now += 1
            state = end_batch(finish_batch(state, ready, work.lowest, now), ready, now)
            saved(state)
    return state


def cpu_secs(action: Callable[[], object]) -> float:
    """Return the processor time of an action, the best of two."""
    best = float("inf")
    for _ in range(2):
        gc.collect()
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return best


def nothing(_state: SourceState) -> None:
    pass


def document(state: SourceState) -> dict[str, Any]:
    return state_to_json(state, 1e9)


def test_cost_of_a_backlog_is_linear_up_to_400_000_files() -> None:
    # What is decided of a whole backlog, batch by batch.
    small, large = waiting(40_000), waiting(400_000)
    once = cpu_secs(lambda: worked_off(small, nothing))
    began = time.process_time()
    state = worked_off(large, nothing)
    assert state.summary.totals.files == 400_000
    assert time.process_time() - began < 3 * 10 * once


def test_batch_of_a_full_scan_costs_little_more() -> None:
    # Decisions and checkpoints of a batch, in a scan of 1,000 files and in one of 20,000.
    def per_batch(count: int) -> float:
        files = waiting(count)
        return cpu_secs(lambda: worked_off(files, document)) / count

    assert per_batch(20_000) < 6 * per_batch(1000)


def test_lateness_costs_by_new_files() -> None:
    # 100 files a second in one partition, five minutes of them in grace, a minute of new ones.
    def progress(names: int) -> Progress:
        done = {f"{i:09}-3f2a9c51.ndjson": 1e9 + i // 1000 for i in range(names)}
        return Progress("Active", "x", {"d=1": PartitionProgress("9", None, done)}, 1)

    def secs(names: int) -> float:
        known = progress(names)
        found = [Entry(f"d=1/{names + i:09}-3f2a9c51.ndjson", 1, 5.0) for i in range(6000)]
        before, scanned = EarlierScans(1e9 + 300), ScanTimes(1e9 + 360, 1e9 + 361)
        return cpu_secs(lambda: measure_lateness((), known, found, before, scanned))

    assert secs(30_000) < 20 * secs(1000)


class Listing:
    """A source that makes its names as they are listed, so that none is held by the test."""

    uri = "mem://raw"

    def __init__(self, count: int) -> None:
        self.count = count

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:  # noqa: ARG002  # the protocol's
        for start in range(0, self.count, 1000):
            numbers = range(start, min(self.count, start + 1000))
            yield ListingPage(
                tuple(
                    Entry(f"d=1/{1700000000 + i}-3f2a9c51-7d3e-4c8a.ndjson", 1000 + i, 1.7e9 + i)
                    for i in numbers
                ),
                1,
                1000,
            )

    def list_ranges(self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None) -> None:
        """Return None: a listing begins at any key."""


def traced(action: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that are left of what an action returns, and that were held at its peak."""
    gc.collect()
    tracemalloc.start()
    kept = action()
    gc.collect()
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return now, peak


@pytest.mark.parametrize("count", [SCAN_FILES + 1, 3 * SCAN_FILES])
def test_discovery_memory_is_bounded_by_the_scan(count: int) -> None:
    # Cold starts over more files than one scan takes.
    settings = settings_of(SourceSettings, source_uri="mem://raw", compression="none")
    seen = FirstSeen()

    def found() -> Any:
        return discover(Listing(count), settings, Progress(), lambda: 1e9, 1, seen)

    kept, peak = traced(found)
    # Documented: some 300 bytes a file while it is listed.
    assert kept < 300 * SCAN_FILES
    assert peak < 500 * SCAN_FILES


def test_a_set_of_names_keeps_16_bytes_of_each_between_polls() -> None:
    # 50,000 names done, and a poll that finds nothing new.
    count = 50_000
    world = PipelineHarness(use_watermark=False)
    listing = Listing(0)
    world.source = listing
    pipeline = world.pipeline()
    one_cycle(pipeline)
    paths = (entry.path for page in Listing(count).list_range("", None) for entry in page.entries)
    segments = _loaded(world.sink, ()).adding(paths)
    assert segments is not None
    document = {**world.checkpoint(), "processed": msgspec.to_builtins(segments)}
    world.sink.put_atomic("_blizzard/events_main_checkpoint.json", json.dumps(document).encode())
    pipeline = world.pipeline()
    one_cycle(pipeline)
    kept, _ = traced(lambda: _loaded(world.sink, segments))
    assert kept < 16.5 * count
    listing.count = count
    kept, peak = traced(lambda: one_cycle(pipeline))
    assert kept < 1 * count
    # The digests of the listing, and once more while they are put together.
    assert peak < 40 * count


def _loaded(sink: MemoryStorage, segments: Any) -> ProcessedSet:
    tracker = ProcessedSet(sink, "_blizzard/events_main_processed")
    tracker.load(segments)
    return tracker


def test_unreadable_source_is_not_tried_file_by_file() -> None:
    world = PipelineHarness(checkpoint=CheckpointSettings(interval_files=2))
    for number in range(40):
        world.put(f"d=1/{number:02}.ndjson", f"r{number}")
        world.engine.flaky[f"d=1/{number:02}.ndjson"] = 1
    pipeline = world.pipeline()
    with pytest.raises(Unavailable):
        pipeline.cycle(threading.Event())
    assert sum(len(job.files) for job in world.engine.jobs) == 2
    assert len(world.checkpoint()["retries"]) == 2
    world.engine.flaky.clear()
    world.drain(pipeline)
    assert world.rows() == sorted(f"r{number}" for number in range(40))


def test_a_set_tracked_source_takes_so_many_files_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("blizzard_py.sources.files.discovery.SCAN_FILES", 10)
    world = PipelineHarness(use_watermark=False, checkpoint=CheckpointSettings(interval_files=5))
    for number in range(40):
        world.put(f"{number:02}.ndjson", f"r{number}")
    pipeline = world.pipeline()
    assert len(pipeline.discover(pipeline.load()).files) <= 10 + world.source.page_keys
    world.drain(pipeline)
    assert world.rows() == sorted(f"r{number}" for number in range(40))


@pytest.mark.promise("G-120")
def test_source_without_directories_is_flat_with_enough_files() -> None:
    # No scan ever finds a thousand at once, and each poll would list all there are.
    checkpoint = CheckpointSettings(interval_files=5000)
    world = PipelineHarness(grace_period="1m", checkpoint=checkpoint)
    world.source.page_keys = world.sink.page_keys = 1000
    pipeline = None
    for hour in range(4):
        for number in range(600):
            world.put(f"{hour}-{number:03}.ndjson", f"{hour}-{number:03}")
        for _ in range(2):
            pipeline = poll(world, pipeline)
            world.now += 600
    found = pipeline.discover(pipeline.load())
    assert found.requests == 1
    assert found.keys <= 600  # those of the last hour at most
    # A directory that comes now is a part of names, above all that is done.
    world.put("date=2024-01-01/1.ndjson", "in a directory")
    poll(world, pipeline)
    assert len(world.rows()) == len(set(world.rows())) == 4 * 600 + 1

"""Names of source files, the begin of a cold start, and the cost of polls on S3."""

from __future__ import annotations

import datetime as dt
import io
import json

import pytest

from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.log import configure
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.progress import Progress, mark_done
from blizzard_py.sources.files.discovery import (
    Discovery,
    FirstSeen,
    discover_named,
    starting_point,
)
from blizzard_py.sources.files.discovery import discover as discover_with
from blizzard_py.sources.files.file_names import accepts
from blizzard_py.sources.ignored_names import SkippedItems
from blizzard_py.state.source_state import Position, SourceState
from tests.support.azurite_server import AzuriteServer
from tests.support.flat_settings import settings_of
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.s3_server import S3Server
from tests.support.watermarks import nothing_waits, passed

NOW = dt.datetime(2024, 1, 28, 1, 30, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("compression", "taken"),
    [
        ("auto", {f"a.{kind}{packed}" for kind in ("ndjson", "jsonl", "json")
                  for packed in ("", ".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy")}),
        ("gzip", {"a.ndjson.gz", "a.jsonl.gz", "a.json.gz"}),
        ("zstd", {"a.ndjson.zst", "a.jsonl.zst", "a.json.zst"}),
        ("bzip2", {"a.ndjson.bz2", "a.jsonl.bz2", "a.json.bz2"}),
        ("xz", {"a.ndjson.xz", "a.jsonl.xz", "a.json.xz"}),
        ("lz4", {"a.ndjson.lz4", "a.jsonl.lz4", "a.json.lz4"}),
        ("snappy", {"a.ndjson.snappy", "a.jsonl.snappy", "a.json.snappy"}),
        ("none", {"a.ndjson", "a.jsonl", "a.json"}),
    ],
)  # fmt: skip
def test_endings_follow_the_compression(compression: str, taken: set[str]) -> None:
    names = {
        f"a.{kind}{packed}"
        for kind in ("ndjson", "jsonl", "json", "csv", "parquet")
        for packed in ("", ".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".br", ".bz")
    }
    accept = accepts(settings_of(SourceSettings, source_uri="x", compression=compression))
    assert {name for name in names if accept(f"date=1/{name}")} == taken


@pytest.mark.parametrize(
    ("template", "lookback", "floor"),
    [
        ("date=%Y-%m-%d", 400_000, None),  # the name of the year 929 sorts above all others
        ("date=%Y-%m-%d", 10**11, None),
        ("date=%Y-%m-%d/hour=%H", 10**9, None),
        ("month=%Y-%m", 10**6, None),
        ("year=%Y", 1200, None),
        ("date=%Y-%m-%d", 7, "date=2024-01-21"),
        ("date=%Y-%m-%d", 0, "date=2024-01-28"),
        ("date=%Y-%m-%d/hour=%H", 3, "date=2024-01-27/hour=22"),
        ("%Y/%m/%d", 28, "2023/12/31"),
        ("month=%Y-%m", 1, "month=2023-12"),
        ("%Y/%m", 13, "2022/12"),
        ("year=%Y", 2, "year=2022"),
        ("%Y/%j", 28, "2023/365"),
        ("date=%Y-%m-%d", None, None),
    ],
)
def test_a_cold_start_looks_back_days_or_hours(
    template: str, lookback: int | None, floor: str | None
) -> None:
    chosen = PartitionFilter(prefix_template=template, lookback=lookback)
    assert lookback_floor(chosen, NOW) == floor


def source(lookback: int | None) -> SourceSettings:
    return SourceSettings(
        source_uri="mem://raw",
        partition_filter=PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=lookback),
    )


def discover(
    storage: Storage,
    settings: SourceSettings,
    progress: Progress,
    now: float = NOW,
    first_seen: FirstSeen | None = None,
    limit: int = 1000,
) -> Discovery:
    seen = FirstSeen() if first_seen is None else first_seen
    return discover_with(storage, settings, progress, lambda: now, 4, seen, limit=limit)


def test_filtered_cold_start_sets_a_floor_that_later_polls_keep() -> None:
    storage = MemoryStorage()
    for day in range(1, 29):
        storage.objects[f"date=2024-01-{day:02d}/a.json"] = (b"", NOW)
    start = starting_point(SourceState(), source(2), NOW, "x")
    found = discover(storage, source(2), start)
    assert [f.path for f in found.files] == [f"date=2024-01-{d}/a.json" for d in (26, 27, 28)]
    later = passed(found.progress, [file.path for file in found.files])
    known = SourceState(position=Position(later, origin=start.floor))
    a_month_on = starting_point(known, source(2), NOW + 30 * 86400, "x")
    assert a_month_on.floor == "date=2024-01-26"
    assert discover(storage, source(2), a_month_on).files == ()


def test_cold_start_without_lookback_reads_everything() -> None:
    storage = MemoryStorage()
    for day in range(1, 29):
        storage.objects[f"date=2024-01-{day:02d}/a.json"] = (b"", NOW)
    start = starting_point(SourceState(), source(None), NOW, "x")
    assert len(discover(storage, source(None), start).files) == 28


@pytest.mark.promise("G-120")
@pytest.mark.parametrize("history", [10, 500])
def test_poll_cost_depends_on_new_files_not_on_stored_files(s3: S3Server, history: int) -> None:
    bucket = s3.new_bucket()
    storage = open_storage(f"s3://{bucket}/raw", s3.options)
    names = [f"date=2024-01-0{day}/{n:05d}.json" for day in (1, 2) for n in range(history)]
    for name in names:
        storage.put_atomic(name, b"")
    progress = passed(Progress(depth=1), names)
    found = discover(storage, source(None), progress)
    assert found.files == ()
    assert found.requests == 3
    assert found.keys <= 3 * FIRST_PAGE_KEYS
    storage.put_atomic("date=2024-01-01/99999.json", b"")
    storage.put_atomic("date=2024-01-09/00000.json", b"")
    found = discover(storage, source(None), progress)
    assert [f.path for f in found.files] == [
        "date=2024-01-01/99999.json",
        "date=2024-01-09/00000.json",
    ]
    assert found.requests == 3


# -- what is left alone ------------------------------------------------------------


def stored(*paths: str, modified: float = NOW) -> MemoryStorage:
    storage = MemoryStorage()
    for path in paths:
        storage.objects[path] = (b"", modified)
    return storage


@pytest.mark.parametrize("depth", [None, 1])
def test_a_partition_ahead_of_time_is_left_alone_until_then(depth: int | None) -> None:
    storage = stored("date=2024-01-30/1.json", "date=2024-01-31/1.json", "date=9999-12-31/1.json")
    settings = settings_of(SourceSettings, source_uri="x", max_ahead="2d")
    found = discover(storage, settings, Progress(depth=depth))
    assert [f.path for f in found.files] == ["date=2024-01-30/1.json"]
    assert found.skipped == SkippedItems(2, "date=2024-01-31/1.json")
    later = discover(storage, settings, Progress(depth=depth), NOW + 86_400)
    assert [f.path for f in later.files] == ["date=2024-01-30/1.json", "date=2024-01-31/1.json"]


def test_only_some_odd_partitions_are_read_among_dated_ones() -> None:
    storage = stored("date=2024-01-28/1.json", *(f"odd-{n}/1.json" for n in range(5)))
    settings = settings_of(SourceSettings, source_uri="x", max_tracked_partitions=2)
    known = passed(Progress(depth=1), ["date=2024-01-27/1.json"])
    found = discover(storage, settings, known)
    assert [f.path for f in found.files] == [
        "date=2024-01-28/1.json",
        "odd-0/1.json",
        "odd-1/1.json",
    ]
    assert found.skipped == SkippedItems(3, "odd-2/1.json")
    # Where all are odd none is: they are what the writers write.
    found = discover(storage, settings, passed(Progress(depth=1), ["odd-0/0.json"]))
    assert len(found.files) == 6


def test_age_of_a_future_dated_file_counts_from_first_sight() -> None:
    storage = stored("d=1/1.json", modified=NOW + 3600)
    settings = settings_of(SourceSettings, source_uri="x", min_age="1m")
    first_seen = FirstSeen()
    start = Progress(depth=1)
    assert discover(storage, settings, start, NOW, first_seen).files == ()
    assert discover(storage, settings, start, NOW + 59, first_seen).files == ()
    [file] = discover(storage, settings, start, NOW + 60, first_seen).files
    assert file.path == "d=1/1.json"
    storage.objects["d=1/1.json"] = (b"more", NOW + 3700)
    found = discover(storage, settings, start, NOW + 61, first_seen)
    assert (found.files, [f.path for f in found.young]) == ((), ["d=1/1.json"])


def test_limited_scan_returns_its_end_and_the_next_continues() -> None:
    storage = stored(*(f"d={day}/{n}.json" for day in range(4) for n in range(4)))
    settings = SourceSettings(source_uri="x")
    progress = Progress(depth=1)
    taken: list[str] = []
    scans = 0
    until: str | None = ""
    while until is not None:
        found = discover(storage, settings, progress, limit=5)
        until = found.scanned.until
        assert len(found.files) <= 5 + storage.page_keys
        assert all(until is None or f.path <= until for f in found.files)
        taken += [f.path for f in found.files]
        progress = mark_done(found.progress, taken, NOW, nothing_waits)
        scans += 1
    assert taken == sorted(storage.objects)
    assert scans > 2


@pytest.mark.promise("G-002")
def test_an_empty_component_makes_no_later_file_late() -> None:
    world = PipelineHarness(grace_period="10s")
    world.put("date=2024-01-28//0.json", "odd")
    world.put("date=2024-01-28/hour=10/1.json", "10")
    worker = world.drain()
    for hour in ("11", "09"):  # the second sorts below what was passed an hour ago
        world.now += 3600
        world.put(f"date=2024-01-28/hour={hour}/1.json", hour)
        world.drain(worker)
    world.put("date=2024-01-28//1.json", "odd too")
    world.drain(worker)
    assert world.rows() == ["09", "10", "11", "odd", "odd too"]


@pytest.mark.promise("G-121")
def test_partitions_without_a_time_are_ingested_and_noted() -> None:
    world = PipelineHarness(grace_period="10s", max_tracked_partitions=4)
    rows = []
    worker = world.pipeline()
    for offset in range(3):
        for partition in range(10):
            rows.append(f"{partition}-{offset}")
            world.put(f"partition={partition}/{offset:05}.json", rows[-1])
        world.drain(worker)
        world.now += 3600
    assert world.rows() == sorted(rows)
    [note] = worker.source.status_fields(worker.load())["notes"]
    assert note.startswith("10 partitions have names without a time, such as partition=0. ")
    assert worker.discover(worker.load()).notes == (note,)


def test_closing_an_active_partition_is_logged() -> None:
    out = io.StringIO()
    configure("info", out)
    world = PipelineHarness(grace_period="10s", max_tracked_partitions=2)
    worker = world.pipeline()
    for turn in range(3):
        for month in range(1, 7):
            world.put(f"date=2024-{month:02}-01/{turn}.json", "r")
        world.drain(worker)
        world.now += 60
    world.put("date=2024-06-01/3.json", "r")
    world.drain(worker)
    told = {line["event"]: line for line in map(json.loads, out.getvalue().splitlines())}
    assert told["partitions_closed"]["partitions"] == 4
    assert told["active_partitions_closed"]["partitions"] == 4
    assert "max_tracked_partitions" in told["active_partitions_closed"]["remedy"]


@pytest.mark.promise("G-222")
def test_name_that_azure_takes_for_another_is_not_found(azurite: AzuriteServer) -> None:
    container = azurite.new_container()
    azurite.put(container, "d/a.ndjson", b"{}")
    storage = open_storage(f"az://{container}", azurite.options)
    found = discover_named(
        storage,
        storage,
        SourceSettings(source_uri="x", use_watermark=False),
        ["d/a.ndjson", "d\\a.ndjson"],
        lambda: 0.0,
        2,
    )
    assert [entry.path for entry in found.files] == ["d/a.ndjson"]

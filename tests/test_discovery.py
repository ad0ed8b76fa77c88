"""What a source file is called, where a cold start begins, and what polls cost on S3."""

from __future__ import annotations

import datetime as dt

import pytest

from blizzard_py.core.config import PartitionFilter, SourceSettings
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import FIRST_PAGE_KEYS
from blizzard_py.core.stores import open_storage
from blizzard_py.core.watermark import Progress, advance
from blizzard_py.discovery import accepts, discover, starting_point
from tests.memory_store import MemoryStorage
from tests.s3_server import S3Server

NOW = dt.datetime(2024, 1, 28, 1, 30, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("compression", "taken"),
    [
        ("auto", {"a.ndjson", "a.jsonl", "a.json", "a.ndjson.gz", "a.jsonl.gz", "a.json.gz",
                  "a.ndjson.zst", "a.jsonl.zst", "a.json.zst"}),
        ("gzip", {"a.ndjson.gz", "a.jsonl.gz", "a.json.gz"}),
        ("zstd", {"a.ndjson.zst", "a.jsonl.zst", "a.json.zst"}),
        ("none", {"a.ndjson", "a.jsonl", "a.json"}),
    ],
)  # fmt: skip
def test_endings_follow_the_compression(compression: str, taken: set[str]) -> None:
    names = {
        f"a.{kind}{packed}"
        for kind in ("ndjson", "jsonl", "json", "csv", "parquet")
        for packed in ("", ".gz", ".zst", ".bz2")
    }
    accept = accepts(SourceSettings(source_uri="x", compression=compression).compression)
    assert {name for name in names if accept(f"date=1/{name}")} == taken


@pytest.mark.parametrize(
    ("template", "lookback", "floor"),
    [
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


def test_a_filtered_cold_start_reads_recent_partitions_and_later_polls_keep_the_floor() -> None:
    storage = MemoryStorage()
    for day in range(1, 29):
        storage.objects[f"date=2024-01-{day:02d}/a.json"] = (b"", NOW)
    start = starting_point(Progress(), source(2), NOW, "x")
    found = discover(storage, source(2), start, NOW, 2)
    assert [f.path for f in found.files] == [f"date=2024-01-{d}/a.json" for d in (26, 27, 28)]
    later = advance(found.progress, found.files, (), NOW, 0)
    a_month_on = starting_point(later, source(2), NOW + 30 * 86400, "x")
    assert a_month_on.floor == "date=2024-01-26"
    assert discover(storage, source(2), a_month_on, NOW, 2).files == ()


def test_a_whole_cold_start_reads_everything() -> None:
    storage = MemoryStorage()
    for day in range(1, 29):
        storage.objects[f"date=2024-01-{day:02d}/a.json"] = (b"", NOW)
    start = starting_point(Progress(), source(None), NOW, "x")
    assert len(discover(storage, source(None), start, NOW, 2).files) == 28


@pytest.mark.parametrize("history", [10, 500])
def test_polls_of_a_bucket_cost_what_is_new_and_not_what_is_stored(
    s3: S3Server, history: int
) -> None:
    bucket = s3.new_bucket()
    storage = open_storage(f"s3://{bucket}/raw", s3.options)
    names = [f"date=2024-01-0{day}/{n:05d}.json" for day in (1, 2) for n in range(history)]
    for name in names:
        storage.put_atomic(name, b"")
    now = max(e.modified for page in storage.list_range("", None) for e in page.entries)
    progress = advance(Progress(depth=1), [Entry(n, 0, now) for n in names], (), now, 0)
    found = discover(storage, source(None), progress, NOW, 4)
    assert found.files == ()
    assert found.requests == 3
    assert found.keys <= 3 * FIRST_PAGE_KEYS
    storage.put_atomic("date=2024-01-01/99999.json", b"")
    storage.put_atomic("date=2024-01-09/00000.json", b"")
    found = discover(storage, source(None), progress, NOW, 4)
    assert [f.path for f in found.files] == [
        "date=2024-01-01/99999.json",
        "date=2024-01-09/00000.json",
    ]
    assert found.requests == 3

"""Lag for a bounded number of requests, and single lines out of large files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.limits import EXPANSION, LINE_BYTES
from blizzard_core.settings.formats import NdjsonOptions
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.watermark.progress import PartitionProgress, Progress
from blizzard_py.job import JobFile
from blizzard_py.sources.files import watermark_files
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.ignored_names import SkippedItems
from blizzard_py.sources.protocol import Backlog
from tests.support.flat_settings import settings_of
from tests.support.memory_store import MemoryStorage

EVERYTHING = Progress()
NOW = 1_750_000_000.0


def backlog(storage: Storage, progress: Progress, *queued: Entry, **source: Any) -> Backlog:
    settings = settings_of(SourceSettings, source_uri="x", **source)
    return watermark_files.backlog(storage, progress, settings, NOW, queued)


def stored(*paths: str) -> MemoryStorage:
    storage = MemoryStorage()
    for moment, path in enumerate(paths, 100):
        storage.objects[path] = (b"x", float(moment))
    return storage


def test_backlog_counts_waiting_files_and_dates_the_oldest() -> None:
    storage = stored("d=1/1.json", "d=1/2.json", "d=2/1.json", "d=2/_SUCCESS", "d=2/x.csv")
    done = {"d=1": PartitionProgress("1.json", "1.json")}
    progress = Progress("Active", "d=1/1.json", done, depth=1)
    found = backlog(storage, progress)
    assert (found.files, found.oldest_ts, found.complete) == (2, 101.0, True)
    queued = Entry("d=1/0.json", 1, 7.0)
    assert backlog(storage, progress, queued).oldest_ts == 7.0
    nothing = backlog(stored(), EVERYTHING)
    assert (nothing.files, nothing.oldest_ts, nothing.complete) == (0, None, True)


def test_long_backlog_is_counted_to_a_limit_and_is_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watermark_files, "NAMES_PER_GAP", 5)
    storage = stored(*(f"{number:03}.json" for number in range(50)))
    found = backlog(storage, EVERYTHING)
    assert (found.files, found.complete) == (2 * storage.page_keys, False)


def test_many_ranges_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark_files, "REQUESTS", 3)
    days = [f"d={day:02}" for day in range(10)]
    storage = stored(*(f"{day}/{n}.json" for day in days for n in range(2)))
    progress = Progress(
        "Active", "d=09/0.json", {d: PartitionProgress("0.json", "0.json") for d in days}, depth=1
    )
    found = backlog(storage, progress)
    assert not found.complete
    assert 0 < found.files < 10


def test_directories_of_a_disk_are_all_looked_at(tmp_path: Path) -> None:
    for day in range(20):
        folder = tmp_path / f"d={day:02}"
        folder.mkdir()
        (folder / "1.json").write_text("x")
    found = backlog(LocalStorage(str(tmp_path)), EVERYTHING)
    assert (found.files, found.complete) == (20, True)


@pytest.mark.parametrize("depth", [None, 1])
def test_backlog_counts_future_partitions_separately(depth: int | None) -> None:
    storage = stored("d=2025-06-15/1.json", "d=9999-12-31/1.json", "d=9999-12-31/2.json")
    found = backlog(storage, Progress(depth=depth))
    assert (found.files, found.oldest_ts) == (1, 100.0)
    assert found.skipped == SkippedItems(2, "d=9999-12-31/1.json")


def read(storage: MemoryStorage, size: int, *wanted: int, name: str = "a.json") -> dict[int, bytes]:
    found = read_records(storage, JobFile(name, size), wanted, EXPANSION, NdjsonOptions())
    return {number: record.raw for number, record in found.items()}


def test_lines_are_found_wherever_blocks_end() -> None:
    lines = [b"%d:" % number + b"x" * (number * 7919 % 40_000) for number in range(1, 301)]
    text = b"\n".join(lines)
    storage = MemoryStorage()
    for name, data in (("a.json", text), ("b.json.gz", gzip.compress(text, 1))):
        storage.objects[name] = (data, 0.0)
        wanted = [1, 2, 150, 151, 300, 301, 9999]
        found = read(storage, len(data), *wanted, name=name)
        assert found == {number: lines[number - 1] for number in (1, 2, 150, 151, 300)}
    assert read(storage, len(text)) == {}


def test_a_line_that_could_not_be_ingested_is_not_read() -> None:
    storage = MemoryStorage()
    data = b"short\n" + b"x" * (LINE_BYTES + (2 << 20)) + b"\n"
    storage.objects["a.json"] = (data, 0.0)
    assert read(storage, len(data), 1) == {1: b"short"}
    with pytest.raises(ValueError, match="line 2 is longer than 67108864 bytes"):
        read(storage, len(data), 2)

"""The parts of `benchmarks.penguin` that run in a process of their own.

So that peak memory is a part's own as well.

    python -m benchmarks.penguin_parts PART TABLE COUNT ROUNDS

Works on the table, which is a copy, and prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import structlog
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.penguin_table import (
    NEW_DAY,
    THREADS,
    Counting,
    drop,
    path_of,
    penguin,
    sample,
    sample_stats,
)
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range
from penguin_py.intake.quarantine import Quarantine
from penguin_py.model import Rejection


def peak_mb() -> int:
    """Return the peak. Not ``ru_maxrss``: a process inherits that from its parent."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def now_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def commit_by_penguin(root: Path, count: int, rounds: int) -> dict[str, Any]:
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        worker, storage = penguin(str(root), pool)
        began = time.perf_counter()
        worker.cycle(stop)
        start_secs = time.perf_counter() - began
        taken, cpu = [], []
        for round_ in range(rounds):
            drop(root, count, round_)
            storage.requests = 0
            began, busy = time.perf_counter(), time.process_time()
            assert worker.cycle(stop)
            requests = storage.requests
            worker.cycle(stop)  # reads its own commit, which delta-rs's handle does not know yet
            taken.append(time.perf_counter() - began)
            cpu.append(time.process_time() - busy)
    return {
        "secs": taken,
        "cpu": cpu,
        "start_secs": start_secs,
        "requests": requests,
        "peak_mb": peak_mb(),
    }


def commit_by_delta_rs(root: Path, count: int, rounds: int) -> dict[str, Any]:
    """Measure the commit alone, and reading the same files' footers with pyarrow alone."""
    data = sample()
    _, stats = sample_stats(data)
    began = time.perf_counter()
    table = DeltaTable(root)
    start_secs = time.perf_counter() - began
    taken, cpu, footers_taken = [], [], []
    for round_ in range(rounds):
        values = {"date": NEW_DAY.removeprefix("date=")}
        names = drop(root, count, round_)
        adds: list[AddAction | RemoveAction] = [
            AddAction(name, len(data), values, 0, data_change=True, stats=stats) for name in names
        ]
        properties = CommitProperties(app_transactions=[Transaction("raw", round_, 0)])
        began, busy = time.perf_counter(), time.process_time()
        table.create_write_transaction(
            adds, "append", table.schema(), ["date"], commit_properties=properties
        )
        table.update_incremental()
        taken.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
        began = time.perf_counter()
        for name in names:
            assert pq.read_metadata(root / name).num_rows
        footers_taken.append(time.perf_counter() - began)
    return {
        "secs": taken,
        "cpu": cpu,
        "footer_secs": footers_taken,
        "start_secs": start_secs,
        "peak_mb": peak_mb(),
    }


class Full(Counting):
    """A storage in which every file of the log lies; to make them would take minutes."""

    files = 0

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        if not after.startswith("_penguin/"):
            yield from self._made()
        yield from super().list_range(after, until)

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        pages = super().list_ranges(ranges, may_be_wanted)
        return None if pages is None else chain(self._made(), pages)

    def _made(self) -> Iterator[ListingPage]:
        for start in range(0, self.files, 1000):
            paths = (path_of(number, self.files) for number in range(start, start + 1000))
            yield ListingPage(tuple(Entry(path, 1000, 0.0) for path in paths), 1, 1000)


def sweep(root: Path, files: int, _rounds: int) -> dict[str, Any]:
    """Measure the comparison of the whole directory with the whole log."""
    with ThreadPoolExecutor(THREADS) as pool:
        worker, _ = penguin(str(root), pool, make=Full)
        worker.cycle(threading.Event())
        before = peak_mb()
        Full.files = files
        began = time.perf_counter()
        assert not worker.reconcile(dry_run=True).orphans
        secs = time.perf_counter() - began
    return {"secs": secs, "peak_mb": peak_mb(), "before_mb": before}


def rebuild(root: Path, _count: int, _rounds: int) -> dict[str, Any]:
    """Measure a start without mirror and commitInfo: the state comes from the log's paths."""
    shutil.rmtree(root / "_penguin")
    last = DeltaTable(root).version()
    for version in range(last + 1):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    with ThreadPoolExecutor(THREADS) as pool:
        worker, _ = penguin(str(root), pool)
        began = time.perf_counter()
        worker.cycle(threading.Event())
        secs = time.perf_counter() - began
    return {"secs": secs, "peak_mb": peak_mb()}


def poll_idle(root: Path, polls: int, _rounds: int) -> dict[str, Any]:
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        worker, storage = penguin(str(root), pool)
        drop(root, 1, 0)
        while worker.cycle(stop):
            pass
        for _ in range(20):
            worker.cycle(stop)
        before, beyond, listing = now_mb(), [], []
        for _ in range(polls):
            storage.listing_secs()
            began = time.perf_counter()
            worker.cycle(stop)
            taken = time.perf_counter() - began
            listing.append(storage.listing_secs())
            beyond.append(taken - listing[-1])
    return {
        "beyond_ms": 1000 * statistics.median(beyond),
        "worst_ms": 1000 * max(beyond),
        "listing_ms": 1000 * statistics.median(listing),
        "grown_mb": now_mb() - before,
        "peak_mb": peak_mb(),
    }


def quarantine(root: Path, count: int, rounds: int) -> dict[str, Any]:
    """Adding one file to so many on record, each time as a process would that just started."""
    storage = open_storage(str(root), {})
    Quarantine(storage, "events").keep([refused(number) for number in range(count)], 1e9)
    taken = []
    for round_ in range(rounds):
        began = time.perf_counter()
        assert Quarantine(storage, "events").keep([refused(count + round_)], 1e9)
        taken.append(time.perf_counter() - began)
    return {"ms": 1000 * statistics.median(taken), "worst_ms": 1000 * max(taken)}


def refused(number: int) -> Rejection:
    return Rejection(Entry(f"{NEW_DAY}/{number:09d}.parquet", 100, 1.0), "read", "is not Parquet")


PARTS = {
    "quarantine": quarantine,
    "penguin": commit_by_penguin,
    "delta-rs": commit_by_delta_rs,
    "idle": poll_idle,
    "sweep": sweep,
    "rebuild": rebuild,
}


def measured(part: str, template: Path, count: int, rounds: int) -> dict[str, Any]:
    """Run a part in its own process, on its own copy of the table."""
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        root = Path(folder, "table")
        shutil.copytree(template, root)
        command = [sys.executable, "-m", "benchmarks.penguin_parts", part, str(root)]
        done = subprocess.run(
            [*command, str(count), str(rounds)],
            check=True,
            capture_output=True,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("table", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("rounds", type=int)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    print(json.dumps(PARTS[options.part](options.table, options.count, options.rounds)))


if __name__ == "__main__":
    main()

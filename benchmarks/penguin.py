"""What a Penguin cycle costs, beside delta-rs doing nothing but the commit.

* commits of 1, 100 and 1,000 files into tables of 1 k, 100 k and 1 M files;
* idle polls of those tables: time beyond the listing, requests, memory over 1,000 polls;
* footers by ranged GET beside downloading whole files, through an S3 API (moto).

    python -m benchmarks.penguin [--quick]

Each figure comes from a process of its own, so that peak memory is its own as well.
The large tables have log entries without files behind them: no poll and no commit
looks at those.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from blizzard_py.core.config import Config
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Page, Storage
from blizzard_py.core.stores import open_storage
from penguin_py.delta import DeltaLog
from penguin_py.incoming import read_footers
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import tables_of
from penguin_py.statistics import file_statistics

DAYS = [f"date=2024-{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 29)]
NEW_DAY = "date=2025-01-01"
# A closed partition costs no request; late files in it wait for the sweep.
TRACKED = 2
THREADS = 32
BATCH = 100_000


def sample() -> bytes:
    """One small file of three columns."""
    sink = io.BytesIO()
    moment = pa.array([1_700_000_000_000_000] * 100, pa.timestamp("us", tz="UTC"))
    table = pa.table({"id": list(range(100)), "name": ["x" * 10] * 100, "moment": moment})
    pq.write_table(table, sink)
    return sink.getvalue()


def sample_stats(data: bytes) -> tuple[pa.Schema, str]:
    metadata = pq.read_metadata(io.BytesIO(data))
    schema = metadata.schema.to_arrow_schema()
    return schema, file_statistics(metadata, schema, schema)


def make_table(root: Path, files: int) -> None:
    """A table whose log has that many adds, in a checkpoint."""
    data = sample()
    schema, stats = sample_stats(data)
    root.mkdir()
    whole = Schema.from_arrow(pa.schema([*schema, pa.field("date", pa.date32())]))
    for start in range(0, files, BATCH):
        adds = [
            AddAction(
                f"{(day := DAYS[number * len(DAYS) // files])}/{number:09d}.parquet",
                len(data),
                {"date": day.removeprefix("date=")},
                0,
                data_change=True,
                stats=stats,
            )
            for number in range(start, min(files, start + BATCH))
        ]
        if start == 0:
            create_table_with_add_actions(str(root), whole, adds, partition_by=["date"])
        else:
            table = DeltaTable(root)
            table.create_write_transaction(adds, "append", whole, ["date"])
    # One commit of Penguin's own, as in a table that it has looked after for long.
    with ThreadPoolExecutor(THREADS) as pool:
        worker, _ = penguin(str(root), pool)
        drop(root, 1, -1)  # sorts below what the measurements drop
        while worker.cycle(threading.Event()):
            pass
    DeltaTable(root).create_checkpoint()


class Counting:
    """A storage that counts requests and the time that listings take."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.requests = 0
        self.listing_secs = 0.0

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if name in ("read", "read_range", "stat", "put_atomic"):
            self.requests += 1
        return found

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        began = time.perf_counter()
        pages = list(self._inner.list_range(after, until))
        self.listing_secs += time.perf_counter() - began
        self.requests += sum(page.requests for page in pages)
        yield from pages


def penguin(
    uri: str, pool: ThreadPoolExecutor, options: dict[str, str] | None = None
) -> tuple[TablePipeline, Counting]:
    block = {
        "table_uri": uri,
        "storage_options": options or {},
        "max_tracked_partitions": TRACKED,
        "reconcile_interval_secs": 0,
        "grace_period_secs": 0,
    }
    table = tables_of(Config.model_validate({"tables": {"bench": block}}))[0]
    storage: Any = Counting(open_storage(table.uri, table.storage_options))
    return TablePipeline(table, storage, DeltaLog(table, storage, pool), pool, time.time), storage


def peak_mb() -> int:
    """Not ``ru_maxrss``, which a process takes over from the one that started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def now_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def drop(root: Path, count: int, round_: int) -> list[str]:
    data = sample()
    names = [f"{NEW_DAY}/{round_:03d}-{number:06d}.parquet" for number in range(count)]
    (root / NEW_DAY).mkdir(exist_ok=True)
    for name in names:
        (root / name).write_bytes(data)
    return names


def commit_by_penguin(root: Path, count: int, rounds: int) -> dict[str, Any]:
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        worker, storage = penguin(str(root), pool)
        began = time.perf_counter()
        worker.cycle(stop)
        start_secs = time.perf_counter() - began
        taken = []
        for round_ in range(rounds):
            drop(root, count, round_)
            storage.requests = 0
            began = time.perf_counter()
            assert worker.cycle(stop)
            requests = storage.requests
            worker.cycle(stop)  # reads its own commit, which delta-rs's handle does not know yet
            taken.append(time.perf_counter() - began)
    return {
        "secs": statistics.median(taken),
        "start_secs": start_secs,
        "requests": requests,
        "peak_mb": peak_mb(),
    }


def commit_by_delta_rs(root: Path, count: int, rounds: int) -> dict[str, Any]:
    data = sample()
    _, stats = sample_stats(data)
    began = time.perf_counter()
    table = DeltaTable(root)
    start_secs = time.perf_counter() - began
    taken = []
    for round_ in range(rounds):
        values = {"date": NEW_DAY.removeprefix("date=")}
        adds = [
            AddAction(name, len(data), values, 0, data_change=True, stats=stats)
            for name in drop(root, count, round_)
        ]
        properties = CommitProperties(app_transactions=[Transaction("raw", round_, 0)])
        began = time.perf_counter()
        table.create_write_transaction(
            adds, "append", table.schema(), ["date"], commit_properties=properties
        )
        table.update_incremental()
        taken.append(time.perf_counter() - began)
    return {
        "secs": statistics.median(taken),
        "start_secs": start_secs,
        "requests": 0,
        "peak_mb": peak_mb(),
    }


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
            storage.requests, storage.listing_secs = 0, 0.0
            began = time.perf_counter()
            worker.cycle(stop)
            beyond.append(time.perf_counter() - began - storage.listing_secs)
            listing.append(storage.listing_secs)
    return {
        "beyond_ms": 1000 * statistics.median(beyond),
        "worst_ms": 1000 * max(beyond),
        "listing_ms": 1000 * statistics.median(listing),
        "requests": storage.requests,
        "grown_mb": now_mb() - before,
        "peak_mb": peak_mb(),
    }


PARTS = {"penguin": commit_by_penguin, "delta-rs": commit_by_delta_rs, "idle": poll_idle}


def measured(part: str, template: Path, count: int, rounds: int) -> dict[str, Any]:
    """A part in a process and on a copy of the table of its own."""
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        root = Path(folder, "table")
        shutil.copytree(template, root)
        command = [sys.executable, "-m", "benchmarks.penguin", "--part", part, "--root", str(root)]
        done = subprocess.run(
            [*command, "--count", str(count), "--rounds", str(rounds)],
            check=True,
            capture_output=True,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def footers(count: int, megabytes: int) -> None:
    """One ranged GET per footer beside the whole file, through an S3 API."""
    # The test suite's server; only this part needs it.
    from tests.s3_server import s3_server  # noqa: PLC0415

    noise = pa.table({"x": pa.array(range(megabytes << 17), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(noise, sink, compression="none", use_dictionary=False)
    data = sink.getvalue()
    with s3_server() as server, ThreadPoolExecutor(THREADS) as pool:
        inner = open_storage(f"s3://{server.new_bucket()}/t", server.options)
        for number in range(count):
            inner.put_atomic(f"{number}.parquet", data)
        storage: Any = Counting(inner)
        entries = [Entry(f"{number}.parquet", len(data), 0.0) for number in range(count)]
        began = time.perf_counter()
        found = read_footers(storage, entries, pool)
        ranged = time.perf_counter() - began
        assert len(found.sound) == count
        began = time.perf_counter()
        for raw in pool.map(lambda entry: inner.read(entry.path), entries):
            assert pq.read_metadata(pa.BufferReader(raw)).num_rows
        whole = time.perf_counter() - began
    size = len(data) / 2**20
    print(f"\nfooters of {count} files of {size:.0f} MiB each, {THREADS} at once, S3 API (moto)")
    print(f"  ranged GET    {ranged:7.2f} s  {storage.requests} requests  64 KiB each")
    print(f"  whole files   {whole:7.2f} s  {count} requests  {size:.0f} MiB each")


def report(sizes: list[int], counts: list[int], rounds: int, polls: int) -> None:
    header = f"{'table':>9} {'files':>6} {'penguin s':>10} {'delta-rs s':>11} {'ratio':>6}"
    with tempfile.TemporaryDirectory(prefix="bench-penguin-") as folder:
        for files in sizes:
            template = Path(folder, str(files))
            began = time.perf_counter()
            make_table(template, files)
            print(f"\ntable of {files:,} files (made in {time.perf_counter() - began:.1f} s)")
            print(f"{header} {'requests':>9} {'peak MB':>8} {'raw MB':>7} {'open s':>7} {'raw':>6}")
            for count in counts:
                ours = measured("penguin", template, count, rounds)
                raw = measured("delta-rs", template, count, rounds)
                print(
                    f"{files:9,} {count:6,} {ours['secs']:10.3f} {raw['secs']:11.3f}"
                    f" {ours['secs'] / raw['secs']:6.2f} {ours['requests']:9,}"
                    f" {ours['peak_mb']:8,} {raw['peak_mb']:7,}"
                    f" {ours['start_secs']:7.2f} {raw['start_secs']:6.2f}",
                    flush=True,
                )
            idle = measured("idle", template, polls, 1)
            print(
                f"  {polls:,} idle polls: {idle['beyond_ms']:.2f} ms beyond the listing"
                f" (worst {idle['worst_ms']:.1f}), {idle['listing_ms']:.2f} ms listing,"
                f" {idle['requests']} requests besides delta-rs's one,"
                f" memory {idle['grown_mb']:+.1f} MB, peak {idle['peak_mb']:,} MB",
                flush=True,
            )
            shutil.rmtree(template)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small tables, seconds")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if options.part:
        print(json.dumps(PARTS[options.part](options.root, options.count, options.rounds)))
    elif options.quick:
        report([1_000, 10_000], [1, 100], 2, 100)
        footers(8, 2)
    else:
        report([1_000, 100_000, 1_000_000], [1, 100, 1_000], options.rounds, 1_000)
        footers(24, 16)


if __name__ == "__main__":
    main()

"""What a Penguin cycle costs, beside delta-rs doing nothing but the commit.

* commits of 1, 100 and 1,000 files into tables of 1 k, 100 k and 1 M files, beside
  delta-rs with ready-made actions, and beside delta-rs after somebody read the footers;
* idle polls of those tables: time beyond the listing, memory over 1,000 polls;
* the same through an S3 API (moto), with every request counted on the wire;
* a sweep, and a start with nothing but the log: seconds and peak memory;
* footers by ranged GET beside downloading whole files, through an S3 API.

    python -m benchmarks.penguin [--quick]

Prints Markdown.

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
from contextlib import contextmanager
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
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.s3_server import S3Server, s3_server

DAYS = [f"date=2024-{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 29)]
NEW_DAY = "date=2025-01-01"
# A closed partition costs no request; late files in it wait for the sweep.
TRACKED = 2
THREADS = 32
BATCH = 100_000
# How often Penguin and delta-rs take turns.
TURNS = 2
# Seconds by the clock and seconds of the processor: other work on the machine lengthens
# the first, and hardly the second.
TIMES = ("secs", "cpu")


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
                path_of(number, files),
                len(data),
                {"date": path_of(number, files)[5:15]},
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
        self.listings: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if name in ("read", "read_range", "stat", "put_atomic"):
            self.requests += 1
        return found

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        began = time.perf_counter()
        pages = list(self._inner.list_range(after, until))
        self.listings.append((began, time.perf_counter()))
        self.requests += sum(page.requests for page in pages)
        yield from pages

    def listing_secs(self) -> float:
        """Time since it was asked last in which at least one listing was under way."""
        found, at = 0.0, 0.0
        for began, ended in sorted(self.listings):
            found += max(0.0, ended - max(began, at))
            at = max(at, ended)
        self.listings.clear()
        return found


def penguin(
    uri: str,
    pool: ThreadPoolExecutor,
    options: dict[str, str] | None = None,
    make: type[Counting] = Counting,
) -> tuple[TablePipeline, Counting]:
    block = {
        "table_uri": uri,
        "storage_options": options or {},
        "max_tracked_partitions": TRACKED,
        "reconcile_interval_secs": 0,
        "grace_period_secs": 0,
    }
    table = tables_of(Config.model_validate({"tables": {"bench": block}}))[0]
    storage: Any = make(open_storage(table.uri, table.storage_options))
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
    """The commit alone, and what reading the same files' footers takes with pyarrow alone."""
    data = sample()
    _, stats = sample_stats(data)
    began = time.perf_counter()
    table = DeltaTable(root)
    start_secs = time.perf_counter() - began
    taken, cpu, footers_taken = [], [], []
    for round_ in range(rounds):
        values = {"date": NEW_DAY.removeprefix("date=")}
        names = drop(root, count, round_)
        adds = [
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


def path_of(number: int, files: int) -> str:
    """The path of one of a table's files, in order."""
    return f"{DAYS[number * len(DAYS) // files]}/{number:09d}.parquet"


class Full(Counting):
    """A storage in which every file of the log lies; to make them would take minutes."""

    files = 0

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        for start in range(0, self.files, 1000):
            paths = (path_of(number, self.files) for number in range(start, start + 1000))
            yield Page(tuple(Entry(path, 1000, 0.0) for path in paths), 1, 1000)
        yield from super().list_range(after, until)


def sweep(root: Path, files: int, _rounds: int) -> dict[str, Any]:
    """The comparison of the whole directory with the whole log."""
    with ThreadPoolExecutor(THREADS) as pool:
        worker, storage = penguin(str(root), pool, make=Full)
        worker.cycle(threading.Event())
        before = peak_mb()
        storage.files = files
        began = time.perf_counter()
        assert not worker.reconcile(dry_run=True).orphans
        secs = time.perf_counter() - began
    return {"secs": secs, "peak_mb": peak_mb(), "before_mb": before}


def rebuild(root: Path, _count: int, _rounds: int) -> dict[str, Any]:
    """A start with no mirror and no commitInfo: what is done comes from the log's paths."""
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


PARTS = {
    "penguin": commit_by_penguin,
    "delta-rs": commit_by_delta_rs,
    "idle": poll_idle,
    "sweep": sweep,
    "rebuild": rebuild,
}


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


@contextmanager
def s3_api() -> Iterator[tuple[S3Server, FaultProxy]]:
    """An S3 API, and a proxy before it that counts what is asked."""
    with s3_server() as server, fault_proxy(server.endpoint) as proxy:
        yield server, proxy


def idle_on_the_wire(template: Path, polls: int) -> str:
    """Idle polls of the same table in a bucket; every request goes through the proxy."""
    with s3_api() as (server, proxy), ThreadPoolExecutor(THREADS) as pool:
        uri = f"s3://{server.new_bucket()}/t"
        bucket = open_storage(uri, server.options)
        for path in sorted(template.rglob("*")):
            if path.is_file():
                bucket.put_atomic(str(path.relative_to(template)), path.read_bytes())
        options = {**server.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        worker, storage = penguin(uri, pool, options)
        stop = threading.Event()
        for _ in range(10):
            worker.cycle(stop)
        beyond, listing, requests = [], [], set()
        for _ in range(polls):
            proxy.seen.clear()
            storage.listing_secs()
            began = time.perf_counter()
            worker.cycle(stop)
            taken = time.perf_counter() - began
            listing.append(1000 * storage.listing_secs())
            beyond.append(1000 * taken - listing[-1])
            requests.add(len(proxy.seen))
    counts = " or ".join(map(str, sorted(requests)))
    return f"{counts} | {statistics.median(beyond):.1f} | {statistics.median(listing):.1f}"


def footers(count: int, megabytes: int) -> None:
    """One ranged GET per footer beside the whole file, through an S3 API."""
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
        ranged, whole = [], []
        for _ in range(3):
            storage.requests = 0
            began = time.perf_counter()
            found = read_footers(storage, entries, pool)
            ranged.append(time.perf_counter() - began)
            assert len(found.sound) == count
            began = time.perf_counter()
            for raw in pool.map(lambda entry: inner.read(entry.path), entries):
                assert pq.read_metadata(pa.BufferReader(raw)).num_rows
            whole.append(time.perf_counter() - began)
    size = len(data) / 2**20
    print(f"\n## Footers\n\n{count} files of {size:.0f} MiB, {THREADS} at once.\n")
    print("| | seconds | requests | of each file |\n|---|---|---|---|")
    print(f"| ranged GET | {statistics.median(ranged):.2f} | {storage.requests} | 64 KiB |")
    print(f"| whole files | {statistics.median(whole):.2f} | {count} | {size:.0f} MiB |")


def commits(template: Path, files: int, counts: list[int], rounds: int) -> list[str]:
    """A line for each count. Penguin and delta-rs take turns, so that both meet the same load."""
    lines = []
    for count in counts:
        ours, raws = [], []
        for _ in range(TURNS):
            ours.append(measured("penguin", template, count, rounds))
            raws.append(measured("delta-rs", template, count, rounds))
        secs, cpu = (statistics.median(t for turn in ours for t in turn[k]) for k in TIMES)
        raw, raw_cpu = (statistics.median(t for turn in raws for t in turn[k]) for k in TIMES)
        both = statistics.median(
            sum(pair)
            for turn in raws
            for pair in zip(turn["secs"], turn["footer_secs"], strict=True)
        )
        lines.append(
            f"| {files:,} | {count:,} | {secs:.3f} | {raw:.3f} | {secs / raw:.2f}"
            f" | {cpu:.3f} | {raw_cpu:.3f} | {cpu / raw_cpu:.2f} | {both:.3f}"
            f" | {secs / both:.2f} | {ours[0]['requests']:,}"
            f" | {max(turn['peak_mb'] for turn in ours):,}"
            f" | {max(turn['peak_mb'] for turn in raws):,}"
            f" | {statistics.median(turn['start_secs'] for turn in ours):.2f}"
            f" | {statistics.median(turn['start_secs'] for turn in raws):.2f} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def report(sizes: list[int], counts: list[int], rounds: int, polls: int) -> None:
    committed: list[str] = []
    idle: list[str] = []
    wire: list[str] = []
    care: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-penguin-") as folder:
        for files in sizes:
            template = Path(folder, str(files))
            make_table(template, files)
            committed += commits(template, files, counts, rounds)
            found = measured("idle", template, polls, 1)
            idle.append(
                f"| {files:,} | {found['beyond_ms']:.2f} | {found['worst_ms']:.1f}"
                f" | {found['listing_ms']:.2f} | {found['grown_mb']:+.1f} | {found['peak_mb']:,} |"
            )
            wire.append(f"| {files:,} | {idle_on_the_wire(template, polls // 10)} |")
            swept = measured("sweep", template, files, 1)
            rebuilt = measured("rebuild", template, 0, 1)
            care.append(
                f"| {files:,} | {swept['secs']:.1f} | {swept['before_mb']:,}"
                f" | {swept['peak_mb']:,} | {rebuilt['secs']:.1f} | {rebuilt['peak_mb']:,} |"
            )
            shutil.rmtree(template)
    table(
        f"Commits (medians of {TURNS * rounds})",
        "files in table | files committed | Penguin s | delta-rs s | ratio | CPU s | CPU s"
        " delta-rs | ratio | delta-rs and footers s"
        " | ratio | requests | peak MB | peak MB delta-rs | start s | open s delta-rs",
        committed,
    )
    table(
        f"{polls:,} idle polls, local disk",
        "files in table | ms beyond listing | worst | ms listing | MB grown | peak MB",
        idle,
    )
    table(
        f"{polls // 10:,} idle polls, S3 API",
        "files in table | requests, delta-rs's included | ms beyond listing | ms listing",
        wire,
    )
    table(
        "A sweep, and a start from the log alone",
        "files in table | sweep s | peak MB before | peak MB | rebuild s | peak MB",
        care,
    )


def table(title: str, columns: str, lines: list[str]) -> None:
    print(f"\n## {title}\n\n| {columns} |\n|{'---|' * (columns.count('|') + 1)}")
    print("\n".join(lines), flush=True)


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
        report([1_000, 10_000], [1, 100], 3, 100)
        footers(8, 2)
    else:
        report([1_000, 100_000, 1_000_000], [1, 100, 1_000], options.rounds, 1_000)
        footers(24, 16)


if __name__ == "__main__":
    main()

"""Cost of a Penguin cycle, beside delta-rs that does only the commit.

* commits of 1, 100 and 1,000 files into tables of 1 k, 100 k and 1 M files, beside
  delta-rs with ready-made actions, and beside delta-rs after somebody read the footers;
* idle polls of those tables: time beyond the listing, memory over 1,000 polls;
* the same through an S3 API (moto), with every request counted on the wire;
* a sweep, and a start with nothing but the log: seconds and peak memory;
* a start beside the commits of others, through an S3 API, by its requests on the wire;
* adding a file to a quarantine of 100,000;
* footers by ranged GET beside downloading whole files, through an S3 API.

    python -m benchmarks.penguin [--quick]

Prints Markdown.

What is measured on a disk comes from processes of their own (`benchmarks.penguin_parts`).
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
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
from deltalake import DeltaTable

from benchmarks.penguin_parts import measured
from benchmarks.penguin_table import THREADS, Counting, make_table, penguin, sample
from blizzard_core.storage.opening import delta_options, open_storage
from blizzard_core.storage.protocol import Entry
from penguin_py.intake.footers import read_footers
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.s3_server import S3Server, s3_server

# A commit of another engine that is none of our business.
FOREIGN = b'{"commitInfo": {"timestamp": 1700000000000, "operation": "WRITE"}}\n'
# How often Penguin and delta-rs take turns.
TURNS = 2
# Seconds by the clock and seconds of the processor: other work on the machine lengthens
# the first, and hardly the second.
TIMES = ("secs", "cpu")


@contextmanager
def s3_api() -> Iterator[tuple[S3Server, FaultProxy]]:
    """Run an S3 API and a proxy before it that counts requests."""
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


def starts_on_the_wire(foreign: int) -> None:
    """Count the requests of a start before and after so many commits of other writers."""
    with s3_api() as (server, proxy), ThreadPoolExecutor(THREADS) as pool:
        uri = f"s3://{server.new_bucket()}/t"
        bucket = open_storage(uri, server.options)
        for number in range(2):
            bucket.put_atomic(f"{number}.parquet", sample())
            started(uri, pool, server.options)
        table = DeltaTable(uri, storage_options=delta_options(uri, server.options, {}))
        options = {**server.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        counts = []
        for commits in (0, foreign):
            for version in range(table.version() + 1, table.version() + 1 + commits):
                bucket.put_atomic(f"_delta_log/{version:020d}.json", FOREIGN)
            table.update_incremental()
            table.create_checkpoint()
            proxy.seen.clear()
            started(uri, pool, options)
            counts.append(len(proxy.seen))
    title = "A start beside the commits of others, S3 API"
    table_of(
        title,
        "commits of others since ours | requests, delta-rs's included",
        [f"| {commits:,} | {count} |" for commits, count in zip((0, foreign), counts, strict=True)],
    )


def started(uri: str, pool: ThreadPoolExecutor, options: dict[str, str]) -> None:
    """Start a Penguin that commits all files and ends."""
    worker, _ = penguin(uri, pool, options)
    while worker.cycle(threading.Event()):
        pass


def on_record(count: int) -> None:
    """Measure the cost of one more file in the quarantine."""
    with tempfile.TemporaryDirectory(prefix="bench-penguin-") as folder:
        Path(folder, "table").mkdir()
        found = measured("quarantine", Path(folder, "table"), count, 20)
    table_of(
        "Adding one file to the record of quarantine, local disk",
        "files on record | ms | worst",
        [f"| {count:,} | {found['ms']:.1f} | {found['worst_ms']:.1f} |"],
    )


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
    """Return a line for each count. Penguin and delta-rs take turns under the same load."""
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
    table_of(
        f"Commits (medians of {TURNS * rounds})",
        "files in table | files committed | Penguin s | delta-rs s | ratio | CPU s | CPU s"
        " delta-rs | ratio | delta-rs and footers s"
        " | ratio | requests | peak MB | peak MB delta-rs | start s | open s delta-rs",
        committed,
    )
    table_of(
        f"{polls:,} idle polls, local disk",
        "files in table | ms beyond listing | worst | ms listing | MB grown | peak MB",
        idle,
    )
    table_of(
        f"{polls // 10:,} idle polls, S3 API",
        "files in table | requests, delta-rs's included | ms beyond listing | ms listing",
        wire,
    )
    table_of(
        "A sweep, and a start from the log alone",
        "files in table | sweep s | peak MB before | peak MB | rebuild s | peak MB",
        care,
    )


def table_of(title: str, columns: str, lines: list[str]) -> None:
    print(f"\n## {title}\n\n| {columns} |\n|{'---|' * (columns.count('|') + 1)}")
    print("\n".join(lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small tables, seconds")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        report([1_000, 10_000], [1, 100], 3, 100)
        starts_on_the_wire(100)
        on_record(100_000)
        footers(8, 2)
    else:
        report([1_000, 100_000, 1_000_000], [1, 100, 1_000], options.rounds, 1_000)
        starts_on_the_wire(1_000)
        on_record(100_000)
        footers(24, 16)


if __name__ == "__main__":
    main()

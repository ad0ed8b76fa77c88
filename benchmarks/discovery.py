"""Cost of a poll beside a full listing, at growing history.

    python -m benchmarks.discovery            # 1 k to 1 M old objects, a few minutes
    python -m benchmarks.discovery --quick    # a small part of it, under half a minute

Three ways to find the new files among the old ones, on the same in-memory S3:

* **ours**: `scan` with the progress of a daemon that is up to date, through s3fs, with
  eight listings at once, all as in production;
* **(a) full**: one recursive listing in pages of 1,000 keys, the cheapest form of what
  Spark's file source does;
* **(b) full + partitions**: that listing to find the partitions, then each partition, eight
  at once, as the Rust original does.

(a) and (b) use the leanest client there can be, so their times are lower bounds; ours carries s3fs.

Exits with 1 if a poll needs more requests than `request_bound` allows, if their number depends on
history, if anything is found but the new files, or if a budget (`benchmarks.discovery_budget`) is
exceeded in an hour or does not make waits `GOAL` times shorter than polls do, or if a poll of one
selected tenant takes more than one request.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from benchmarks.discovery_budget import HEADER as BUDGET_HEADER
from benchmarks.discovery_budget import measure_budgets
from benchmarks.discovery_cases import EDGE_HISTORY, NOW, BucketHistory, edge_cases
from benchmarks.discovery_selection import HEADER as SELECTION_HEADER
from benchmarks.discovery_selection import measure_selections
from benchmarks.discovery_small import HEADER, measure_small
from benchmarks.s3_stand_in import Counters, StandIn, stand_in
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import Scan, scan

BUCKET = "bench"
ROOT = "raw/events"
CONCURRENCY = 8  # the default of global.advanced.total_concurrency
LATENCIES = (0.0, 0.05)
# (a) and (b) run once and not three times where one run takes longer than this.
LONG_SECS = 20.0


def request_bound(active: int, new: int) -> int:
    """Return the promised limit: tracked partitions + 1 + new / 1000, rounded down."""
    return active + 1 + new // 1000


# --- The contestants ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests, keys and time of one way to find new files; ``seconds`` by latency."""

    requests: int
    keys: int
    bytes_sent: int
    seconds: dict[float, float]


def poll(storage: Storage, progress: Progress) -> Scan:
    return scan(storage, progress, lambda entry: entry.path.endswith(".ndjson.gz"), CONCURRENCY)


_KEY = re.compile(rb"<Key>([^<]*)")
_TOKEN = re.compile(rb"<NextContinuationToken>([^<]*)")


def full_listing(endpoint: str, prefix: str) -> list[bytes]:
    """Every key below the prefix, url-encoded, one page after the other."""
    parts = urlsplit(endpoint)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    base = f"/{BUCKET}?list-type=2&encoding-type=url&prefix={quote(prefix, safe='')}"
    keys: list[bytes] = []
    target = base
    while True:
        connection.request("GET", target)
        body = connection.getresponse().read()
        keys += _KEY.findall(body)
        token = _TOKEN.search(body)
        if token is None:
            connection.close()
            return keys
        target = f"{base}&continuation-token={token[1].decode()}"


def partition_listings(endpoint: str, keys: Sequence[bytes]) -> int:
    """List each partition of the keys; return the number of files."""
    partitions = dict.fromkeys(unquote(key.rpartition(b"/")[0].decode()) for key in keys)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        listed = pool.map(lambda partition: full_listing(endpoint, f"{partition}/"), partitions)
        return sum(map(len, listed))


# --- Measuring ------------------------------------------------------------------------


class Wrong(Exception):
    """A contestant did not find what is there; its figures mean nothing."""


@contextmanager
def latency(server: StandIn, seconds: float) -> Iterator[None]:
    server.set_latency(seconds)
    try:
        yield
    finally:
        server.set_latency(0)


def change(endpoint: str, method: str, paths: Sequence[str]) -> None:
    """PUT or DELETE these files, empty."""
    parts = urlsplit(endpoint)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    for path in paths:
        connection.request(method, f"/{BUCKET}/{ROOT}/{quote(path)}")
        connection.getresponse().read()
    connection.close()


@contextmanager
def arrived(server: StandIn, paths: Sequence[str]) -> Iterator[None]:
    """Put the files for the time of the block."""
    change(server.endpoint, "PUT", paths)
    try:
        yield
    finally:
        change(server.endpoint, "DELETE", paths)


def load(server: StandIn, old: Sequence[Entry]) -> None:
    server.load(BUCKET, {f"{ROOT}/{entry.path}": entry.modified for entry in old})


def source_on(server: StandIn) -> Storage:
    return open_storage(f"s3://{BUCKET}/{ROOT}", server.options)


def counted_poll(
    server: StandIn, storage: Storage, progress: Progress, expected: Sequence[str]
) -> Counters:
    """One poll, checked against what it must find and against its own account of its cost."""
    server.reset()
    found = poll(storage, progress)
    counted = server.reset()
    if {entry.path for entry in found.entries} != set(expected):
        raise Wrong(f"found {len(found.entries)} files instead of {len(expected)}")
    if (found.requests, found.keys) != (counted.requests, counted.keys):
        raise Wrong(
            f"reports {found.requests} requests and {found.keys} keys,"
            f" the store counted {counted.requests} and {counted.keys}"
        )
    return counted


def measure_scan(
    server: StandIn, storage: Storage, progress: Progress, expected: Sequence[str], rounds: int
) -> Cost:
    counted = counted_poll(server, storage, progress, expected)  # the warm-up, too
    seconds = {}
    for delay in LATENCIES:
        with latency(server, delay):
            seconds[delay] = statistics.median(
                timed(lambda: poll(storage, progress)) for _ in range(rounds)
            )
    return Cost(counted.requests, counted.keys, counted.bytes_sent, seconds)


def measure_listings(server: StandIn, files: int, rounds: int) -> tuple[Cost, Cost]:
    """Measure (a) and (b). The first step of (b) is (a), so it runs once for both."""
    first: Counters | None = None
    both: Counters | None = None
    seconds_a: dict[float, float] = {}
    seconds_b: dict[float, float] = {}
    for delay in LATENCIES:
        runs: list[tuple[float, float]] = []
        with latency(server, delay):
            while len(runs) < rounds and sum(map(max, runs)) < LONG_SECS:
                server.reset()
                start = time.perf_counter()
                keys = full_listing(server.endpoint, f"{ROOT}/")
                middle = time.perf_counter()
                first = server.reset()
                resumed = time.perf_counter()
                listed = partition_listings(server.endpoint, keys)
                end = time.perf_counter()
                both = server.reset()
                if len(keys) != files or listed != files:
                    raise Wrong(f"listed {len(keys)} and {listed} files instead of {files}")
                runs.append((middle - start, middle - start + end - resumed))
        seconds_a[delay], seconds_b[delay] = (statistics.median(s) for s in zip(*runs, strict=True))
    assert first is not None
    assert both is not None
    return (
        Cost(first.requests, first.keys, first.bytes_sent, seconds_a),
        Cost(
            first.requests + both.requests,
            first.keys + both.keys,
            first.bytes_sent + both.bytes_sent,
            seconds_b,
        ),
    )


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Row:
    old: int
    active: int
    new: int
    ours: Cost
    full: Cost
    each: Cost


def measure_rows(
    server: StandIn,
    sizes: Sequence[int],
    news: Sequence[int],
    actives: Sequence[int],
    rounds: int,
) -> Iterator[Row]:
    """Measure all combinations; (a) and (b) ignore activity: one measurement per layout."""
    storage = source_on(server)
    for size in sizes:
        listings: dict[tuple[int, int], tuple[Cost, Cost]] = {}
        loaded = 0
        for active in actives:
            world = BucketHistory(size, active)
            old = world.old_files()
            count = len(world.partitions)
            if count != loaded:
                load(server, old)
                loaded = count
            progress = world.progress(old)
            for new in news:
                fresh = world.new_files(new)
                with arrived(server, fresh):
                    ours = measure_scan(server, storage, progress, fresh, rounds)
                    if (count, new) not in listings:
                        listings[count, new] = measure_listings(server, size + new, rounds)
                full, each = listings[count, new]
                yield Row(size, active, new, ours, full, each)


# --- Where more is paid ---------------------------------------------------------------


def measure_edges(server: StandIn, world: BucketHistory) -> list[tuple[str, int, Counters]]:
    """Label, new files and cost of each case."""
    old = world.old_files()
    storage = source_on(server)
    measured = []
    for case in edge_cases(world, old):
        load(server, [*old, *(Entry(path, 0, NOW) for path in case.new)])
        counted = counted_poll(server, storage, case.progress, case.new)
        measured.append((case.label, len(case.new), counted))
    return measured


# --- Reporting ------------------------------------------------------------------------


def broken(rows: Sequence[Row]) -> list[str]:
    """Return the rows that break the promise, in words."""
    found = [
        f"{row.old:,} old, {row.active} active, {row.new} new: {row.ours.requests} requests,"
        f" {request_bound(row.active, row.new)} allowed"
        for row in rows
        if row.ours.requests > request_bound(row.active, row.new)
    ]
    rows = [row for row in rows if BucketHistory(row.old, row.active).has_large_partitions]
    for active, new in dict.fromkeys((row.active, row.new) for row in rows):
        seen = {
            row.old: row.ours.requests for row in rows if (row.active, row.new) == (active, new)
        }
        if len(set(seen.values())) > 1:
            told = ", ".join(f"{requests} at {old:,} old" for old, requests in seen.items())
            found.append(f"{active} active, {new} new: requests depend on history: {told}")
    return found


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown with aligned columns; the first column is text if its cells are no numbers."""
    widths = [max(len(line[at]) for line in (header, *lines)) for at in range(len(header))]
    textual = not lines[0][0][:1].isdigit()
    first = ":" + "-" * (widths[0] - 1) if textual else "-" * (widths[0] - 1) + ":"
    rule = [first, *("-" * (width - 1) + ":" for width in widths[1:])]

    def render(cells: Sequence[str]) -> str:
        head = cells[0].ljust(widths[0]) if textual else cells[0].rjust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "| " + " | ".join([head, *rest]) + " |"

    return "\n".join([render(header), render(rule), *map(render, lines)])


def transfer_table(rows: Sequence[Row]) -> str:
    header = ["old", "active", "new", "LIST ours", "(a)", "(b)", "a/ours", "b/ours"]
    header += ["keys ours", "(a)", "(b)", "a/ours", "kB ours", "(a)", "(b)"]
    return table(
        header,
        [
            [
                *(f"{value:,}" for value in (row.old, row.active, row.new)),
                *(f"{cost.requests:,}" for cost in (row.ours, row.full, row.each)),
                ratio(row.full.requests, row.ours.requests),
                ratio(row.each.requests, row.ours.requests),
                *(f"{cost.keys:,}" for cost in (row.ours, row.full, row.each)),
                ratio(row.full.keys, row.ours.keys),
                *(f"{cost.bytes_sent / 1000:,.0f}" for cost in (row.ours, row.full, row.each)),
            ]
            for row in rows
        ],
    )


def time_table(rows: Sequence[Row]) -> str:
    header = ["old", "active", "new"]
    for delay in LATENCIES:
        header += [f"{delay * 1000:.0f} ms: ours", "(a)", "(b)", "a/ours", "b/ours"]
    lines = []
    for row in rows:
        line = [f"{value:,}" for value in (row.old, row.active, row.new)]
        for delay in LATENCIES:
            ours, full, each = (cost.seconds[delay] for cost in (row.ours, row.full, row.each))
            line += [f"{seconds:.3f}" for seconds in (ours, full, each)]
            line += [ratio(full, ours), ratio(each, ours)]
        lines.append(line)
    return table(header, lines)


def edge_table(edges: Sequence[tuple[str, int, Counters]]) -> str:
    active = EDGE_HISTORY.active
    polls = (
        (label, new, cost.requests, request_bound(active, new), cost.keys)
        for label, new, cost in edges
    )
    lines = [[label, *(f"{number:,}" for number in numbers)] for label, *numbers in polls]
    return table(["poll", "new", "LIST", "tracked + 1 + new/1000", "keys"], lines)


def show(title: str, found: str) -> None:
    """Print a table at once: the next one may be minutes away."""
    print(f"\n{title}\n\n{found}", flush=True)


def ratio(theirs: float, ours: float) -> str:
    quotient = theirs / ours
    return f"{quotient:,.0f}" if quotient >= 10 else f"{quotient:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 k and 10 k old objects only")
    options = parser.parse_args()
    sizes = [1_000, 10_000] if options.quick else [1_000, 10_000, 100_000, 1_000_000]
    actives = [2, 24] if options.quick else [2, 24, 100]
    start = time.perf_counter()
    print(f"\n{os.cpu_count()} cores, {CONCURRENCY} listings at once, medians of 3 polls")
    with stand_in() as server:
        rows = list(measure_rows(server, sizes, [0, 100], actives, rounds=3))
        show("Requests, keys and answers (kB) of one poll", transfer_table(rows))
        show("Seconds of one poll, by latency per request", time_table(rows))
        old, active = f"{EDGE_HISTORY.old:,}", EDGE_HISTORY.active
        edges = edge_table(measure_edges(server, EDGE_HISTORY))
        show(f"Where more is paid: {old} old, {active} active partitions", edges)
        small = list(measure_small(server, CONCURRENCY, 64 if options.quick else 2_000))
        show("Small partitions: each range alone, and a poll", table(HEADER, small))
        selections = list(measure_selections(server, sizes[-1]))
        selected = table(SELECTION_HEADER, [each.cells() for each in selections])
        show("A selection: a filter, and ranges", selected)
    costs, hours = ([5.0], 3) if options.quick else ([1.0, 5.0, 20.0], 12)
    budgets = list(measure_budgets(costs, hours))
    show("Budgets", table(BUDGET_HEADER, [row.cells() for row in budgets]))
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    problems = [*broken(rows), *(each for row in budgets for each in row.problems())]
    problems += [problem for each in selections for problem in each.problems()]
    for problem in problems:
        print(f"broken: {problem}")
    if problems:
        sys.exit(1)
    print("every poll: requests <= tracked partitions + 1 + new / 1000, the same at any history")


if __name__ == "__main__":
    main()

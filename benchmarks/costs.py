"""Cost of polls and batches at an object store: requests on the wire, and a month's price.

    python -m benchmarks.costs
    python -m benchmarks.costs --poll-secs 60 --partitions 24 --batches-a-day 1440 --files 20
    python -m benchmarks.costs --write-price 0.005 --read-price 0.0004      # per 1,000, of S3

Counted are, through an S3 API (moto) and a proxy before it, both daemons' polls that find nothing,
a batch of `--files` files into one Parquet file, and its commit. A start is counted as well. A
store charges PUT, COPY and LIST at one price, GET and HEAD at another, and DELETE not at all.

Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from blizzard_core.settings.load import load_config
from blizzard_py.app.workers import build
from penguin_py.app import build as tables_of
from tests.support.direct_engine import DirectEngine
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.s3_server import s3_server
from tests.support.scenario import Scenario

WRITES = ("LIST", "PUT", "POST", "COPY")
READS = ("GET", "HEAD")
DAYS = 30


@dataclass
class Requests:
    """Requests to the store, by kind."""

    kinds: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, seen: list[str]) -> Requests:
        return cls(Counter(map(_kind, seen)))

    def counts_text(self) -> str:
        kinds = (*WRITES, *READS, "DELETE")
        return ", ".join(f"{self.kinds[k]} {k}" for k in kinds if self.kinds[k]) or "none"

    def price(self, write: float, read: float) -> float:
        writes = sum(self.kinds[kind] for kind in WRITES)
        reads = sum(self.kinds[kind] for kind in READS)
        return (writes * write + reads * read) / 1000


def _kind(request: str) -> str:
    method, _, path = request.partition(" ")
    return "LIST" if method == "GET" and "list-type=2" in path else method


@dataclass
class Costs:
    """Requests of what the two daemons do over and over, and of a start."""

    start: Requests
    idle: Requests
    batch: Requests
    table_start: Requests
    table_idle: Requests
    commit: Requests


def counted(partitions: int, files: int) -> Costs:
    """One source with as many tracked partitions, and its table."""
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        proxy = stack.enter_context(fault_proxy(server.endpoint))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = {**server.options, "AWS_ENDPOINT_URL": proxy.endpoint}
        world = Scenario(folder, f"s3://{server.new_bucket()}", options)
        world.document["pipelines"]["events"]["sink"].pop("partition_by")
        world.main_source["advanced"] = {"checkpoint": {"interval_files": files}}
        world.write_config()
        for hour in range(partitions):
            world.put_rows(f"hour={hour:03}/1700000000-a.ndjson.gz", hour)
        config = load_config(world.config)
        # Once before, so that a start is one of a daemon that has worked already.
        (first,) = build(config, DirectEngine())
        _until_idle(first.cycle)
        (source,) = build(config, DirectEngine())
        start = _seen(proxy, lambda: source.cycle(threading.Event()))
        idle = _seen(proxy, lambda: source.cycle(threading.Event()))
        with tables_of(config) as tables:
            _until_idle(tables[0].cycle)
        (table,) = stack.enter_context(tables_of(config))
        table_start = _seen(proxy, lambda: table.cycle(threading.Event()))
        table_idle = _seen(proxy, lambda: table.cycle(threading.Event()))
        last = f"hour={partitions - 1:03}"
        for number in range(files):
            world.put_rows(f"{last}/{1700000001 + number}-a.ndjson.gz", number)
        batch = _seen(proxy, lambda: source.cycle(threading.Event()))
        commit = _seen(proxy, lambda: table.cycle(threading.Event()))
        for worker in (first, source):
            worker.close()
    return Costs(start, idle, batch, table_start, table_idle, commit)


def _until_idle(cycle: Callable[[threading.Event], bool]) -> None:
    while cycle(threading.Event()):
        pass


def _seen(proxy: FaultProxy, action: Callable[[], object]) -> Requests:
    proxy.seen.clear()
    action()
    return Requests.of(list(proxy.seen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=2, help="tracked, of the source")
    parser.add_argument("--files", type=int, default=20, help="of a batch")
    parser.add_argument("--poll-secs", type=float, default=60, help="of Blizzard, as by default")
    parser.add_argument("--table-poll-secs", type=float, default=10, help="of Penguin")
    parser.add_argument("--batches-a-day", type=float, default=1440)
    parser.add_argument("--write-price", type=float, default=0.005, help="1,000 PUT, COPY, LIST")
    parser.add_argument("--read-price", type=float, default=0.0004, help="1,000 GET, HEAD")
    given = parser.parse_args()
    found = counted(given.partitions, given.files)
    prices = (given.write_price, given.read_price)
    idle, table_idle = found.idle.price(*prices), found.table_idle.price(*prices)
    polls = DAYS * 86_400 / given.poll_secs
    table_polls = DAYS * 86_400 / given.table_poll_secs
    batches = DAYS * given.batches_a_day
    rows = (
        (f"Blizzard: a poll, {given.partitions} tracked partitions", found.idle, polls),
        (f"Blizzard: a batch of {given.files} files", found.batch, batches),
        ("Blizzard: a start", found.start, 1),
        ("Penguin: a poll", found.table_idle, table_polls),
        ("Penguin: a commit", found.commit, batches),
        ("Penguin: a start", found.table_start, 1),
    )
    print("| | requests | times a month | a month |\n|---|---|---|---|")
    total = 0.0
    for name, requests, times in rows:
        price = requests.price(*prices) * times
        total += price
        print(f"| {name} | {requests.counts_text()} | {times:,.0f} | {price:.2f} |")
    print(f"| | | | **{total:.2f}** |")
    print(f"\nWhile nothing arrives: {idle * polls + table_idle * table_polls:.2f} a month.")
    if found.idle.kinds["LIST"] > given.partitions + 1:
        sys.exit("a poll costs more LISTs than docs/guides/costs.md says")


if __name__ == "__main__":
    main()

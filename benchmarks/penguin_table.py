"""The tables that `benchmarks.penguin` measures, and a Penguin over one of them.

The large ones have log entries without files behind them: no poll and no commit
looks at those.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions

from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import ListingPage, NameTest, Range, Storage
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.file_statistics import file_statistics
from penguin_py.pipeline import TablePipeline
from penguin_py.settings import tables_of

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
    """Make a table whose log has that many adds, in a checkpoint."""
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
            table.create_write_transaction([*adds], "append", whole, ["date"])
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

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        yield from self._timed(self._inner.list_range(after, until))

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        pages = self._inner.list_ranges(ranges, may_be_wanted)
        return None if pages is None else self._timed(pages)

    def _timed(self, pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
        began = time.perf_counter()
        listed = list(pages)
        self.listings.append((began, time.perf_counter()))
        self.requests += sum(page.requests for page in listed)
        yield from listed

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
        "advanced": {
            "own_prefixes": [""],
            "max_tracked_partitions": TRACKED,
            "reconcile_interval": 0,
            "grace_period": 0,
        },
    }
    table = tables_of(Config.model_validate({"tables": {"bench": block}}))[0]
    storage: Any = make(open_storage(table.uri, table.storage_options))
    return TablePipeline(table, storage, DeltaLog(table, storage, pool), pool, time.time), storage


def path_of(number: int, files: int) -> str:
    """Return the path of one of a table's files, in order."""
    return f"{DAYS[number * len(DAYS) // files]}/{number:09d}.parquet"


def drop(root: Path, count: int, round_: int) -> list[str]:
    data = sample()
    names = [f"{NEW_DAY}/{round_:03d}-{number:06d}.parquet" for number in range(count)]
    (root / NEW_DAY).mkdir(exist_ok=True)
    for name in names:
        (root / name).write_bytes(data)
    return names

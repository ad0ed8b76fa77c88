"""Foreign Parquet files in a table's folder, as Penguin reads them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.protocol import Entry
from blizzard_core.threads import INLINE
from penguin_py.intake.footers import Footers, read_footers
from penguin_py.planning.commit_plan import SchemaRules, make_plan
from tests.fuzz.mutate import parquet as mutated
from tests.fuzz.target import Target, hold
from tests.support.memory_store import MemoryStorage
from tests.support.table_harness import parquet
from tests.support.thrift_footer import column, footer, group, parquet_file, root

_PATH = "date=2024-01-28/a.parquet"
_RULES = SchemaRules({"date": "date"}, "merge")


def footers(data: bytes) -> None:
    """Classify a file: sound, refused or too large. Sound ones are read and planned."""
    store = MemoryStorage()
    store.objects[_PATH] = (data, 1.0)
    found = read_footers(store, [Entry(_PATH, len(data), 1.0)], INLINE)
    hold("a file has one ending", _endings(found) == 1 and not found.failed, found)
    for rejection in found.rejected:
        hold("a reason is short", len(rejection.reason) < 5000, len(rejection.reason))
    for sound in found.sound:
        read = pq.ParquetFile(pa.BufferReader(data))
        hold("pyarrow reads as many rows", read.metadata.num_rows == sound.metadata.num_rows)
        hold("pyarrow reads the schema", read.schema_arrow.remove_metadata() is not None)
    plan = make_plan(None, found.sound, (), _RULES)
    told = len(plan.adds) + len(plan.rejections)
    hold("a sound file is taken or refused", told == len(found.sound), plan)


def _endings(found: Footers) -> int:
    return sum(map(len, (found.sound, found.rejected, found.failed, found.missing, found.unread)))


def _seeds() -> Iterator[bytes]:
    yield parquet({"id": [1, None, 3]}, "p/s/b/1/0")
    kinds = pa.table(
        {
            "s": ["a", None, "é"],
            "t": pa.array([dt.datetime(2024, 1, 28, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
            "d": pa.array([dt.date(2024, 1, 28)] * 3),
            "n": pa.array([Decimal("1.25")] * 3, pa.decimal128(9, 2)),
            "f": [1.5, float("nan"), None],
            "b": [b"\0", b"", None],
            "o": [True, False, None],
        }
    )
    yield parquet(kinds, compression="zstd")
    nested = pa.table({"l": [[1], [], None], "o": [{"a": 1, "b": ["x"]}] * 3})
    yield parquet(nested, row_group_size=1)
    yield parquet({"id": [1]}, use_deprecated_int96_timestamps=True, version="1.0")
    yield parquet_file(footer([root(1), column("id")], 7, [group(["id"], 7)]))


TARGETS = (Target("footers", footers, _seeds, mutated, max_bytes=8192),)

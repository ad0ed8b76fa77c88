"""Parquet files with columns of INT96, whatever their 12 bytes say."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.thrift_tree import Tree, edited

# The type of a column whose values `int96_file` stores as INT96.
STORED = pa.binary(12)
DAY_OF_1970 = 2_440_588
DAY_NANOS = 86_400_000_000_000


def stored(days: int, nanos: int = 0) -> bytes:
    """Return a value by its days since 1970 and its nanoseconds of a day."""
    return struct.pack("<qi", nanos, days + DAY_OF_1970)


def int96_file(table: pa.Table, **given: Any) -> bytes:
    """Return a file of the table in which values of the type `STORED` are INT96."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"store_schema": False, **given})
    return edited(sink.getvalue(), _as_int96)


def _as_int96(footer: Tree) -> None:
    values = [each for each in footer[2][1][1] if 1 in each]
    changed = [at for at, each in enumerate(values) if each.get(2) == (5, STORED.byte_width)]
    for at in changed:
        values[at][1] = (5, 3)
        del values[at][2]
        for group in footer[4][1][1]:
            group[1][1][1][at][3][1][1] = (5, 3)

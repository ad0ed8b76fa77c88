"""Arrow batches as drivers give them, made honest and small.

Batches of one task may differ in schema: a column of times is text in those batches that hold
a time outside the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_ROWS = 1 << 16
MAX_BYTES = 16 << 20

# 0001-01-01 and 9999-12-31, in the units that drivers give.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# PostgreSQL's infinities, the ends of its integers, as ADBC moves them from 2000 to 1970: they
# wrap around, to where PostgreSQL itself has no times.
_INFINITIES = {
    -(2**63) + 946_684_799_999_999: "infinity",
    -(2**63) + 946_684_800_000_000: "-infinity",
    -(2**31) + 10_956: "infinity",
    -(2**31) + 10_957: "-infinity",
}


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch without extension types and what nobody can hold, in bounded pieces.

    A row that is larger than a piece may be is one alone. Text that is no UTF-8 (SQLite
    checks nothing) makes its column one of bytes.
    """
    for part in sliced(batch):
        columns = [_honest(_storage(column)) for column in part.columns]
        yield pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most `MAX_ROWS` rows and about `MAX_BYTES`, sharing its memory."""
    if batch.num_rows == 0:
        return
    average = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(MAX_ROWS, MAX_BYTES // average))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _honest(column: pa.Array) -> pa.Array:
    """Times as they are if all can be held, else text that says what could not."""
    kind = column.type
    if pa.types.is_string(kind):
        return _readable(column)
    unit: Literal["us", "D"]
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        numbers, (least, most), unit = column.cast(pa.int64()), _MICROSECONDS, "us"
    elif pa.types.is_date32(kind):
        numbers, (least, most), unit = column.cast(pa.int32()), _DAYS, "D"
    else:
        return column
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low >= least and high <= most):
        return column
    outside = pc.or_(pc.less(numbers, least), pc.greater(numbers, most))
    good = pc.if_else(outside, pa.scalar(None, kind), column).cast(pa.string())
    told = [
        _told(number, unit) if beyond else None
        for number, beyond in zip(numbers.to_pylist(), outside.to_pylist(), strict=True)
    ]
    return pc.coalesce(good, pa.array(told, pa.string()))


def _readable(column: pa.Array) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return column.cast(pa.binary())
    return column


def _told(number: int, unit: Literal["us", "D"]) -> str:
    return _INFINITIES.get(number) or str(np.datetime64(number, unit))

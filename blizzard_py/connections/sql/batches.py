"""Arrow batches from drivers, converted to supported types and limited sizes.

Batches of one task may differ in schema: a time outside the years 1 to 9999 is text. Rows with such
a time are in separate batches, so that a row's form depends only on itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.schema.types import FIRST_DAY, LAST_DAY, MAX_MICROS, MIN_MICROS

Marks: TypeAlias = npt.NDArray[np.bool_]

MAX_ROWS = 1 << 16
MAX_BYTES = 16 << 20
# The first rows by whose size a session decides how many more come together.
SAMPLE_ROWS = 64

# PostgreSQL's infinities, the ends of its integers, as ADBC moves them from 2000 to 1970: they
# wrap around, to where PostgreSQL itself has no times.
_INFINITIES = {
    -(2**63) + 946_684_799_999_999: "infinity",
    -(2**63) + 946_684_800_000_000: "-infinity",
    -(2**31) + 10_956: "infinity",
    -(2**31) + 10_957: "-infinity",
}


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in pieces of limited size, without extension types and invalid times.

    A row that is larger than a piece is a piece by itself. Text that is not UTF-8 (SQLite does not
    check it) turns its column into bytes.

    The pieces are copies: a driver frees its buffers together, so one column that waits to be
    written would keep all other columns of the batch in memory.
    """
    for part in sliced(batch.copy_to(pa.default_cpu_memory_manager())):
        columns = [_storage(column) for column in part.columns]
        plain = pa.RecordBatch.from_arrays(columns, names=part.schema.names)
        odd = {
            place: marks for place, c in enumerate(columns) if (marks := _outside(c)) is not None
        }
        for rows, places in alike(plain, odd):
            columns = [
                _as_text(column) if place in places else _readable(column)
                for place, column in enumerate(rows.columns)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def alike(
    batch: pa.RecordBatch, odd: Mapping[int, Marks]
) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
    """Yield groups of rows that are odd in the same columns, with these columns' positions."""
    places = sorted(odd)
    if not places:
        yield batch, ()
        return
    kinds, group = np.unique(np.stack([odd[p] for p in places], 1), axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        rows = batch.filter(pa.array(group.reshape(-1) == number))
        yield rows, [place for place, is_odd in zip(places, kind, strict=True) if is_odd]


def rows_like(sample: pa.RecordBatch | pa.Table, most: int) -> int:
    """Return how many rows like these are about `MAX_BYTES`, at most ``most``."""
    average = max(1, sample.nbytes // max(1, sample.num_rows))
    return int(max(1, min(most, MAX_BYTES // average)))


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most `MAX_ROWS` rows and about `MAX_BYTES`, sharing its memory."""
    rows = rows_like(batch, MAX_ROWS)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _outside(column: pa.Array) -> Marks | None:
    """Return which times are out of range; None if none is."""
    if not _is_wide(column.type):
        return None
    numbers, (least, most), _ = _counted(column)
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low >= least and high <= most):
        return None
    outside = pc.or_(pc.less(numbers, least), pc.greater(numbers, most))
    return np.asarray(pc.fill_null(outside, fill_value=False))


def _as_text(column: pa.Array) -> pa.Array:
    """Return times that are out of range as text."""
    numbers, _, unit = _counted(column)
    return pa.array([_format_time(number, unit) for number in numbers.to_pylist()], pa.string())


def _is_wide(kind: pa.DataType) -> bool:
    return bool((pa.types.is_timestamp(kind) and kind.unit == "us") or pa.types.is_date32(kind))


def _counted(column: pa.Array) -> tuple[pa.Array, tuple[int, int], Literal["us", "D"]]:
    """Return times as numbers, with the limits of the supported range."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()), (FIRST_DAY, LAST_DAY), "D"
    return column.cast(pa.int64()), (MIN_MICROS, MAX_MICROS), "us"


def _readable(column: pa.Array) -> pa.Array:
    if not pa.types.is_string(column.type):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return column.cast(pa.binary())
    return column


def _format_time(number: int, unit: Literal["us", "D"]) -> str:
    return _INFINITIES.get(number) or str(np.datetime64(number, unit))

"""One Parquet file: what its footer says of a column, and its rows in bounded batches.

A footer is enough to leave row groups out. It is not always enough for a maximum: writers cut
long texts. `highest` reads the column where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_core.errors import SourceError
from blizzard_core.storage.protocol import Storage
from blizzard_core.storage.range_file import RangeFile
from blizzard_py.connections.lakes.values import Key, Ordered, ordered
from blizzard_py.connections.lakes.window import Range

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20
# Each column is read in pieces of this size: one request each, and no more is held.
_PIECE_BYTES = 1 << 20


@contextmanager
def opened(storage: Storage, path: str, size: int) -> Iterator[pq.ParquetFile]:
    """The file, its footer read. Raises `SourceError` if it is no whole Parquet file."""
    where = f"{storage.uri}/{path}"
    with damage_told(where):
        file = pq.ParquetFile(
            pa.PythonFile(RangeFile(storage, path, size), mode="r"),
            pre_buffer=False,
            buffer_size=_PIECE_BYTES,
        )
    with file, damage_told(where):
        yield file


@contextmanager
def damage_told(where: str) -> Iterator[None]:
    """What Arrow cannot read is a `SourceError` that names the file, not its rows."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{where}: cannot be read as Parquet ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:200]}); restore the file, or remove it from the table"
        ) from error


def batches(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of these row groups, of at most 64 Ki rows and about 16 MB.

    ``columns`` are top-level names; those that the file lacks are left out.
    """
    present = set(file.schema_arrow.names)
    wanted = [name for name in columns if name in present]
    for group in groups:
        about = file.metadata.row_group(group)
        width = max(1, about.total_byte_size // max(1, about.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // width))
        for batch in file.iter_batches(
            batch_size=rows, row_groups=[group], columns=wanted, use_threads=False
        ):
            yield from _cut(batch if batch.schema.names == wanted else batch.select(wanted))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Smaller ones where rows turned out larger than their footer let expect (dictionaries)."""
    pieces = -(-batch.nbytes // BATCH_BYTES)
    rows = -(-batch.num_rows // max(1, pieces))
    for start in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(start, rows)


def order_in(file: pq.ParquetFile, name: str) -> Ordered | None:
    """How the file's own column of that name is compared; None if it has none.

    Raises `SourceError` if it has a type without an order.
    """
    place = file.schema_arrow.get_field_index(name)
    if place < 0 or pa.types.is_null(file.schema_arrow.field(place).type):
        return None
    return ordered(name, file.schema_arrow.field(place).type)


def group_ranges(file: pq.ParquetFile, name: str) -> list[Range]:
    """What the footer says of a column, for each row group. A column that is not there is null."""
    metadata = file.metadata
    order = order_in(file, name)
    if order is None:
        return [Range(values=False)] * metadata.num_row_groups
    places = [
        place for place in range(metadata.num_columns) if file.schema.column(place).path == name
    ]
    if len(places) != 1:
        return [Range()] * metadata.num_row_groups
    return [
        _range(metadata.row_group(group).column(places[0]), order)
        for group in range(metadata.num_row_groups)
    ]


def _range(chunk: Any, order: Ordered) -> Range:
    told = chunk.statistics
    if told is None:
        return Range()
    # NaN and times beyond Python's count as null here, and no footer counts them.
    nulls = not told.has_null_count or told.null_count > 0 or order.has_other_nulls
    if not told.has_min_max:
        values = not told.has_null_count or told.null_count < chunk.num_values
        return Range(nulls=nulls, values=values)
    try:
        return Range(_key(order, told.min), _key(order, told.max), nulls)
    except (OverflowError, ValueError):  # a time that is beyond Python's
        return Range(nulls=nulls)


def _key(order: Ordered, value: Any) -> Key | None:
    """The key of a footer's value; None if it is of another kind than expected, or NaN."""
    try:
        array = pa.array([value]).cast(order.type) if order.order != "text" else pa.array([value])
        keys = order.keys(array)
    except (pa.ArrowException, OverflowError):
        return None
    found: Key | None = keys[0].as_py()
    return found


def united(ranges: Sequence[Range]) -> Range:
    """What is known of all of them together."""
    valued = [each for each in ranges if each.values]
    lows = [each.low for each in valued]
    highs = [each.high for each in valued]
    return Range(
        None if None in lows or not lows else min(lows),  # type: ignore[type-var]  # one type
        None if None in highs or not highs else max(highs),  # type: ignore[type-var]  # one type
        any(each.nulls for each in ranges),
        bool(valued),
    )


def highest(file: pq.ParquetFile, name: str) -> Key | None:
    """The highest key of a column, exact: from the footer where it is, else from the column."""
    order = order_in(file, name)
    if order is None:
        return None
    ranges = group_ranges(file, name)
    found = united(ranges)
    if not found.values:
        return None
    if order.order != "text" and found.high is not None:
        return found.high
    best: Key | None = None
    for batch in batches(file, range(len(ranges)), [name]):
        best = later(best, pc.max(order.keys(batch.column(0))).as_py())
    return best


def later(one: Key | None, other: Key | None) -> Key | None:
    """The higher of two keys of one column; None counts as lower than all."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def column_range(file: pq.ParquetFile, name: str) -> Range:
    """What the footer says of a column in the whole file."""
    return united(group_ranges(file, name))

"""Statistics of a column in a Parquet file's footer. Only `process` may use this module.

If a footer contradicts itself, pyarrow ends the process that reads the statistics.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, Key, column_order


def order_in(file: pq.ParquetFile, name: str) -> ColumnOrder | None:
    """Return how the file's own column of that name is compared; None if there is none.

    Raises `SourceError` if its type has no order.
    """
    place = file.schema_arrow.get_field_index(name)
    if place < 0 or pa.types.is_null(file.schema_arrow.field(place).type):
        return None
    return column_order(name, file.schema_arrow.field(place).type)


def group_ranges(file: pq.ParquetFile, name: str) -> list[ColumnRange]:
    """Return the column's range in each row group, from the footer.

    A missing column is null.
    """
    metadata = file.metadata
    order = order_in(file, name)
    if order is None:
        return [ColumnRange(values=False)] * metadata.num_row_groups
    places = [
        place for place in range(metadata.num_columns) if file.schema.column(place).path == name
    ]
    if len(places) != 1:
        return [ColumnRange()] * metadata.num_row_groups
    return [
        _range(metadata.row_group(group).column(places[0]), order)
        for group in range(metadata.num_row_groups)
    ]


def _range(chunk: Any, order: ColumnOrder) -> ColumnRange:
    statistics = chunk.statistics
    if statistics is None:
        return ColumnRange()
    # NaN and times beyond Python's range count as null here; no footer counts them.
    nulls = not statistics.has_null_count or statistics.null_count > 0 or order.has_other_nulls
    if not statistics.has_min_max:
        values = not statistics.has_null_count or statistics.null_count < chunk.num_values
        return ColumnRange(nulls=nulls, values=values)
    try:
        return ColumnRange(_key(order, statistics.min), _key(order, statistics.max), nulls)
    except (OverflowError, ValueError):  # a time that is beyond Python's
        return ColumnRange(nulls=nulls)


def _key(order: ColumnOrder, value: Any) -> Key | None:
    """Return the key of a footer's value; None if it has another type than expected, or is NaN."""
    try:
        array = pa.array([value]).cast(order.type) if order.order != "text" else pa.array([value])
        keys = order.keys(array)
    except (pa.ArrowException, OverflowError):
        return None
    found: Key | None = keys[0].as_py()
    return found


def as_batch(ranges: list[ColumnRange]) -> pa.RecordBatch:
    """Return ranges as a batch to send to another process; `from_batch` reads it."""
    columns = {
        name: pa.array([getattr(each, name) for each in ranges]) for name in ColumnRange.__slots__
    }
    return pa.RecordBatch.from_pydict(columns)


def from_batch(batch: pa.RecordBatch) -> list[ColumnRange]:
    """Return the ranges of `as_batch`."""
    return [ColumnRange(**row) for row in batch.to_pylist()]

"""One Parquet file: what its footer says of a column, and the highest value of one.

A footer is enough to leave row groups out. It is not always enough for a maximum: writers cut
long texts. `highest` reads the column where that matters.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blizzard_py.connections.lakes.parquet_rows import batches
from blizzard_py.connections.lakes.table_file import TableFile
from blizzard_py.connections.lakes.values import Key, Ordered, ordered
from blizzard_py.connections.lakes.window import Range

# A daemon asks several files at a time, which would take as many times as much.
_ONE_AT_A_TIME = threading.Lock()


def order_in(file: pq.ParquetFile, name: str) -> Ordered | None:
    """How the file's own column of that name is compared; None if it has none.

    Raises `SourceError` if it has a type without an order.
    """
    place = file.schema_arrow.get_field_index(name)
    if place < 0 or pa.types.is_null(file.schema_arrow.field(place).type):
        return None
    return ordered(name, file.schema_arrow.field(place).type)


def group_ranges(file: TableFile, name: str) -> list[Range]:
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
    for group in range(metadata.num_row_groups):
        file.check(group, [name])
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


def highest(file: TableFile, name: str) -> Key | None:
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
    with _ONE_AT_A_TIME:
        for batch in batches(file, range(len(ranges)), [name]):
            best = later(best, pc.max(order.keys(batch.column(0))).as_py())
    return best


def later(one: Key | None, other: Key | None) -> Key | None:
    """The higher of two keys of one column; None counts as lower than all."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def column_range(file: TableFile, name: str) -> Range:
    """What the footer says of a column in the whole file."""
    return united(group_ranges(file, name))

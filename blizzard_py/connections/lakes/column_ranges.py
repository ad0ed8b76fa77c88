"""One Parquet file: column ranges from its footer, and the highest value of a column.

A footer is enough to skip row groups. It is not always enough for a maximum, because writers cut
long texts. `highest` reads the column in that case.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow.compute as pc

from blizzard_py.formats.columnar.file import ParquetFooter, batches, ranges
from blizzard_py.formats.columnar.int96 import cut_times, int96_columns
from blizzard_py.formats.columnar.statistics import order_in
from blizzard_py.slices.column_order import ColumnRange, Key

# A daemon queries several files at a time; without this lock each would need that memory.
_ONE_AT_A_TIME = threading.Lock()


def group_ranges(file: ParquetFooter, name: str) -> list[ColumnRange]:
    """Return the column's range in each row group, from the footer.

    A missing column is null.
    """
    if order_in(file, name) is None:
        return [ColumnRange(values=False)] * file.metadata.num_row_groups
    if name not in file.ranges:
        with _ONE_AT_A_TIME:
            file.ranges[name] = ranges(file, name)
    return file.ranges[name]


def united(parts: Sequence[ColumnRange]) -> ColumnRange:
    """Return the range over all of them together."""
    valued = [each for each in parts if each.values]
    lows = [each.low for each in valued]
    highs = [each.high for each in valued]
    return ColumnRange(
        None if None in lows or not lows else min(lows),  # type: ignore[type-var]  # one type
        None if None in highs or not highs else max(highs),  # type: ignore[type-var]  # one type
        any(each.nulls for each in parts),
        bool(valued),
    )


def highest(file: ParquetFooter, name: str) -> Key | None:
    """Return the exact highest key of a column: from the footer if exact, else from the column."""
    order = order_in(file, name)
    if order is None:
        return None
    group_values = group_ranges(file, name)
    found = united(group_values)
    if not found.values:
        return None
    if order.order != "text" and found.high is not None:
        return found.high
    best: Key | None = None
    flags = int96_columns(file).get(name, ())
    with _ONE_AT_A_TIME:
        for batch in batches(file, range(len(group_values)), [name]):
            times = cut_times(batch.column(0), flags)
            best = later(best, pc.max(order.keys(times)).as_py())
    return best


def later(one: Key | None, other: Key | None) -> Key | None:
    """Return the higher of two keys of one column; None counts as lower than all."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def column_range(file: ParquetFooter, name: str) -> ColumnRange:
    """Return the column's range in the whole file, from the footer."""
    return united(group_ranges(file, name))

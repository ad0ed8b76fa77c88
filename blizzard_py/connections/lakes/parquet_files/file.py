"""One Parquet file: what its footer says of a column, and the highest value of one.

A footer is enough to leave row groups out. It is not always enough for a maximum: writers cut
long texts. `column_maximum` reads the column where that matters.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow.compute as pc

from blizzard_py.connections.lakes.parquet_files.rows import batches, ranges
from blizzard_py.connections.lakes.parquet_files.statistics import order_in
from blizzard_py.connections.lakes.table_file import TableFile
from blizzard_py.connections.lakes.values import Key
from blizzard_py.connections.lakes.window import Range

# A daemon asks several files at a time, which would take as many times as much.
_ONE_AT_A_TIME = threading.Lock()


def group_ranges(file: TableFile, name: str) -> list[Range]:
    """Return what the footer says of a column, for each row group.

    A column that is not there is null.
    """
    if order_in(file, name) is None:
        return [Range(values=False)] * file.metadata.num_row_groups
    if name not in file.ranges:
        with _ONE_AT_A_TIME:
            file.ranges[name] = ranges(file, name)
    return file.ranges[name]


def united(told: Sequence[Range]) -> Range:
    """Return what is known of all of them together."""
    valued = [each for each in told if each.values]
    lows = [each.low for each in valued]
    highs = [each.high for each in valued]
    return Range(
        None if None in lows or not lows else min(lows),  # type: ignore[type-var]  # one type
        None if None in highs or not highs else max(highs),  # type: ignore[type-var]  # one type
        any(each.nulls for each in told),
        bool(valued),
    )


def highest(file: TableFile, name: str) -> Key | None:
    """The highest key of a column, exact: from the footer where it is, else from the column."""
    order = order_in(file, name)
    if order is None:
        return None
    told = group_ranges(file, name)
    found = united(told)
    if not found.values:
        return None
    if order.order != "text" and found.high is not None:
        return found.high
    best: Key | None = None
    with _ONE_AT_A_TIME:
        for batch in batches(file, range(len(told)), [name]):
            best = later(best, pc.max(order.keys(batch.column(0))).as_py())
    return best


def later(one: Key | None, other: Key | None) -> Key | None:
    """The higher of two keys of one column; None counts as lower than all."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def column_range(file: TableFile, name: str) -> Range:
    """Return what the footer says of a column in the whole file."""
    return united(group_ranges(file, name))

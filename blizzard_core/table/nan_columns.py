"""Columns of Parquet files that hold NaN, which no footer counts.

Bounds leave NaN out, while readers sort it above everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.table.extent import leaves


def nan_columns(rows: pa.Table) -> set[int]:
    """Return the numbers of Parquet columns, outside lists and maps, that hold NaN.

    No Parquet footer counts NaN and bounds leave it out, while readers sort it above everything. So
    Penguin gives a file bounds for its floats only if the footer says that none of them is NaN.
    """
    found: set[int] = set()
    at = 0
    for column in rows.columns:
        for chunk in column.chunks:
            found.update(nan_leaves(chunk, at))
        at += leaves(column.type)
    return found


def nan_leaves(values: pa.Array, at: int) -> Iterator[int]:
    """Yield the numbers of Parquet columns, outside lists and maps, that hold NaN.

    ``at`` is the number of the array's first one.
    """
    if pa.types.is_floating(values.type):
        if pc.any(pc.is_nan(values)).as_py():
            yield at
    elif pa.types.is_struct(values.type):
        for field, child in zip(values.type, values.flatten(), strict=True):
            yield from nan_leaves(child, at)
            at += leaves(field.type)

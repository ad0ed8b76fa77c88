"""Which columns of rows hold NaN, for the footer of the file that they are written to.

No Parquet footer counts NaN and bounds leave it out, while readers sort it above everything. So
Penguin gives a file bounds of its floats only where the footer says that none of them is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.table.extent import leaves


def nan_columns(rows: pa.Table) -> set[int]:
    """The numbers of the Parquet columns, outside of lists and maps, that hold NaN."""
    found: set[int] = set()
    at = 0
    for column in rows.columns:
        for chunk in column.chunks:
            found.update(_numbers(chunk, at))
        at += leaves(column.type)
    return found


def _numbers(values: pa.Array, at: int) -> Iterator[int]:
    if pa.types.is_floating(values.type):
        if pc.any(pc.is_nan(values)).as_py():
            yield at
    elif pa.types.is_struct(values.type):
        for field, child in zip(values.type, values.flatten(), strict=True):
            yield from _numbers(child, at)
            at += leaves(field.type)

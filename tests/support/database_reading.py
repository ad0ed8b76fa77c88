"""Plan a window and read its tasks, as driver and workers do, in the declared types."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.connections.drivers import connect, reader_of
from blizzard_py.connections.protocol import ReadSelection, SourceConnection, WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, BoundKind, ReadTask, Window
from blizzard_py.schema.types import arrow_type
from blizzard_py.slices.windows import window

NOW = datetime(2026, 1, 1, tzinfo=UTC)  # for look-backs, which these tests have none of


def batches(
    access: Access, tasks: Sequence[ReadTask], fields: Sequence[FieldSpec] = ()
) -> list[pa.RecordBatch]:
    """Return the record batches of the tasks, one task after the other."""
    found = []
    for task in tasks:
        for item in reader_of(access.driver)(access, task.spec, fields):
            assert isinstance(item, pa.RecordBatch)
            found.append(item)
    return found


def rows_of(access: Access, tasks: Sequence[ReadTask]) -> list[dict[str, Any]]:
    return [row for batch in batches(access, tasks) for row in batch.to_pylist()]


def everything(access: Access, selection: ReadSelection) -> list[pa.RecordBatch]:
    """Read a whole table or query in one task."""
    connection = connect(access, selection)
    try:
        return batches(access, connection.tasks(Window(), WindowSplit()), selection.fields)
    finally:
        connection.close()


def next_window(
    connection: SourceConnection,
    stored: dict[str, Any] | None = None,
    kind: BoundKind | None = None,
    settle_secs: float = 0,
) -> Window | None:
    """Return the next window, under the connection's own read bound or the given one."""
    chosen = kind or connection.default_bound
    assert chosen is not None
    bound = connection.bound(chosen, settle_secs)
    return window(stored, bound.value, {}, NOW, bound.kind)


def window_above(read: Window, by: timedelta = timedelta(seconds=1)) -> Window:
    """Return the window from the last read bound to ``by`` above it, without waiting for the clock.

    `next_window` is None while the clock stands in the tick of the last bound, a second for many
    columns.
    """
    up_to = {column: value + by for column, value in read.up_to.items()}
    return Window(after=read.up_to, up_to=up_to, low=read.up_to)


def declared(batch: pa.RecordBatch, fields: Sequence[FieldSpec]) -> pa.RecordBatch:
    """Return the batch in the declared types. Raises `pa.ArrowInvalid` if a value does not fit."""
    types = [arrow_type(field) for field in fields]
    columns = [
        _cast(batch.column(field.name), kind) for field, kind in zip(fields, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    text = pa.types.is_string(column.type)
    if text and pa.types.is_timestamp(kind):
        zoned = pc.if_else(pc.match_substring_regex(column, r"(Z|[+-]\d\d(:\d\d)?)$"), "", "Z")
        return pc.binary_join_element_wise(column, zoned, "").cast(kind)
    if (
        pa.types.is_timestamp(column.type)
        and column.type.tz is None
        and pa.types.is_timestamp(kind)
    ):
        return column.cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        return column.cast(pa.decimal128(20, 0)).cast(kind)
    return column.cast(kind)

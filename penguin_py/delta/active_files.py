"""The files of a table at a version, from delta-rs's memory, for planning.

delta-rs parses only the statistics of the first 32 columns, unless the table says otherwise. If
the column of units stands behind them, its bounds are read from the log.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.handover.groups import SOURCE_FILE_COLUMN, UNIT_COLUMN

# The columns whose values select the rows that a group replaces.
COLUMNS = (UNIT_COLUMN, SOURCE_FILE_COLUMN)
# The bounds of a column by the path that the log spells: low, high, nulls.
Logged = Mapping[str, tuple[str | None, str | None, int | None]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log's bounds of a text column, file by file; None where it says nothing."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Array


@dataclass(frozen=True, slots=True)
class ActiveFiles:
    """The files of a table as arrays of one length.

    ``paths`` are as the log spells them. ``bounds`` has the columns of `COLUMNS` that the
    table has; ``partitions`` all partition columns, typed.
    """

    paths: pa.Array
    sizes: pa.Array
    rows: pa.Array
    bounds: Mapping[str, Bounds]
    partitions: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.paths)


def active_files(
    table: pa.Table,
    schema: pa.Schema,
    partition_columns: tuple[str, ...],
    logged: Mapping[str, Logged],
) -> ActiveFiles:
    """Build the files from delta-rs's flattened table; ``logged`` adds bounds that it lacks."""
    paths = _array(table["path"], pa.string())
    bounds = {}
    for column in COLUMNS:
        if schema.get_field_index(column) < 0 or column in partition_columns:
            continue
        if f"min.{column}" in table.column_names:
            bounds[column] = Bounds(
                _array(table[f"min.{column}"], pa.string()),
                _array(table[f"max.{column}"], pa.string()),
                _array(table[f"null_count.{column}"], pa.int64()),
            )
        else:
            bounds[column] = _find_bounds(paths, logged.get(column, {}))
    return ActiveFiles(
        paths,
        _array(table["size_bytes"], pa.int64()),
        _array(table["num_records"], pa.int64()),
        bounds,
        {name: table[f"partition.{name}"].combine_chunks() for name in partition_columns},
    )


def columns_without_bounds(
    table: pa.Table, schema: pa.Schema, partition_columns: tuple[str, ...]
) -> list[str]:
    """Return the columns of `COLUMNS` that the table has and delta-rs has no bounds for."""
    return [
        column
        for column in COLUMNS
        if schema.get_field_index(column) >= 0
        and column not in partition_columns
        and f"min.{column}" not in table.column_names
    ]


def spelled_values(active: ActiveFiles, place: int) -> dict[str, str | None]:
    """Return a file's partition values as text, as the log has them."""
    return {
        name: spelled_value(values[place].as_py()) for name, values in active.partitions.items()
    }


def spelled_value(value: Any) -> str | None:
    """Return a partition value as text, as the log has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat(sep=" ", timespec="microseconds")
        plain = value.astimezone(dt.UTC).replace(tzinfo=None)
        return plain.isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _find_bounds(paths: pa.Array, logged: Logged) -> Bounds:
    nothing = (None, None, None)
    found = [logged.get(path, nothing) for path in paths.to_pylist()]
    return Bounds(
        pa.array([low for low, _, _ in found], pa.string()),
        pa.array([high for _, high, _ in found], pa.string()),
        pa.array([nulls for _, _, nulls in found], pa.int64()),
    )


def _array(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    found = column.cast(kind)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


class _Stats(msgspec.Struct):
    """Statistics as the log has them; columns that are not asked for are not decoded."""

    minValues: dict[str, Any] = {}  # noqa: N815 - the names of the format
    maxValues: dict[str, Any] = {}  # noqa: N815 - as above
    nullCount: dict[str, Any] = {}  # noqa: N815 - as above


_DECODER = msgspec.json.Decoder(_Stats)


def bounds_in(stats: str | None, column: str) -> tuple[str | None, str | None, int | None]:
    """Return the bounds of a text column in one file's statistics."""
    try:
        found = _Stats() if stats is None else _DECODER.decode(stats)
    except (msgspec.MsgspecError, RecursionError):
        found = _Stats()  # no statistics are always right
    low, high = found.minValues.get(column), found.maxValues.get(column)
    nulls = found.nullCount.get(column)
    return (
        low if isinstance(low, str) else None,
        high if isinstance(high, str) else None,
        nulls if isinstance(nulls, int) else None,
    )

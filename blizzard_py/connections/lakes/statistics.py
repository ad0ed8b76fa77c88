"""Statistics of files and columns in the logs of Delta and the manifests of Iceberg. Pure.

Delta's are corrected for rounding:

* Times are cut to milliseconds, so ranges are widened by a millisecond in both directions.
* Texts are cut after 32 characters. Whether a cut maximum was rounded up depends on the writer, so
  a long maximum is not used.
* Decimals are JSON numbers, which readers turn into floats: beyond 15 digits they are not used.
* Statistics leave NaN out.
* Files without statistics may hold anything.

Bounds of Iceberg are stored as keys: microseconds, days, numbers, text (cut, the upper one rounded
up). NaN is in no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.column_maximum import KnownFile
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import located
from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, Key

_PARTITION = "partition."
_ROUNDED_MICROSECONDS = 1000
_CUT_CHARACTERS = 32
_SAFE_DIGITS = 15


def delta_files(
    table: str, actions: pa.Table, orders: Mapping[str, ColumnOrder]
) -> list[KnownFile]:
    """Return the files of ``get_add_actions(flatten=True)``, and their ordered columns."""
    statistics = {name: _python(actions, name) for name in _wanted(actions.schema.names, orders)}
    keys = {
        name: name.removeprefix(_PARTITION) for name in statistics if name.startswith(_PARTITION)
    }
    found = []
    for row, path in enumerate(statistics["path"]):
        values = {key: statistics[name][row] for name, key in keys.items()}
        file = PlannedFile(
            located(table, unquote(path)), statistics["size_bytes"][row], values=values
        )
        ranges = {
            name: _exact(values[name], order)
            if name in values
            else _rounded(statistics, row, order)
            for name, order in orders.items()
        }
        found.append(KnownFile(file, ranges))
    return found


def _wanted(there: Sequence[str], orders: Mapping[str, ColumnOrder]) -> list[str]:
    """Return the watermark's and partition columns: a table may have thousands of others."""
    statistics = {f"{kind}.{name}" for kind in ("null_count", "min", "max") for name in orders}
    wanted = {"path", "size_bytes", "num_records", *statistics}
    return [name for name in there if name in wanted or name.startswith(_PARTITION)]


def _python(actions: pa.Table, name: str) -> list[Any]:
    """Return a column's values; None for all if one is beyond Python's range (the year 10000)."""
    column = actions.column(actions.schema.names.index(name))
    if name.startswith(_PARTITION) and pa.types.is_binary(column.type):
        raise SourceError(
            f"partition column {name.removeprefix(_PARTITION)} is binary, which is not read;"
            " partition by another column"
        )
    try:
        return column.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    except (OverflowError, ValueError):
        if name.startswith(_PARTITION):
            raise SourceError(f"{name} holds a value outside the years 1 to 9999") from None
        return [None] * actions.num_rows


def _exact(value: Any, order: ColumnOrder) -> ColumnRange:
    """Return the range of a partition column: each row has this value."""
    if value is None:
        return ColumnRange(values=False)
    key = order.key(value)
    return ColumnRange(key, key, nulls=False)


def _rounded(statistics: Mapping[str, Sequence[Any]], row: int, order: ColumnOrder) -> ColumnRange:
    def of(name: str) -> Any:
        return statistics[name][row] if name in statistics else None

    rows, nulls = of("num_records"), of(f"null_count.{order.name}")
    if rows is not None and nulls == rows:
        return ColumnRange(values=False)
    return ColumnRange(
        _widened(of(f"min.{order.name}"), order, -1),
        _widened(of(f"max.{order.name}"), order, 1),
        # A value without a key counts as null here.
        nulls=nulls != 0 or order.has_other_nulls,
    )


def _widened(value: Any, order: ColumnOrder, direction: int) -> Key | None:
    if value is None or value != value:  # noqa: PLR0124  # NaN
        return None
    if order.order == "decimal" and order.type.precision > _SAFE_DIGITS:
        return None
    if order.order == "text" and direction > 0 and len(value) >= _CUT_CHARACTERS:
        return None
    key = order.key(value)
    if order.order == "time" and isinstance(key, int):
        return key + direction * _ROUNDED_MICROSECONDS
    return key


def iceberg_files(
    planned: Sequence[Any], schema: Any, orders: Mapping[str, ColumnOrder], what: str
) -> list[KnownFile]:
    """Return the files of ``plan_files``, in path order. ``schema`` is pyiceberg's.

    Raises `SourceError` for deleted rows and for other formats than Parquet.
    """
    found = []
    for task in sorted(planned, key=lambda task: str(task.file.file_path)):
        file = task.file
        if task.delete_files:
            raise SourceError(
                f"{what}: has rows that were deleted by delete files, which are not read: they"
                " would reappear. Compact the table (rewrite_data_files), and write with"
                " copy-on-write"
            )
        if str(file.file_format.value).upper() != "PARQUET":
            raise SourceError(
                f"{what}: has files of format {file.file_format.value}; only PARQUET is read"
            )
        ranges = {
            name: _range(file, schema.find_field(name), order) for name, order in orders.items()
        }
        name = located("", file.file_path)
        found.append(KnownFile(PlannedFile(name, file.file_size_in_bytes), ranges))
    return found


def _range(file: Any, column: Any, order: ColumnOrder) -> ColumnRange:
    number = column.field_id
    nulls = (file.null_value_counts or {}).get(number)
    values = (file.value_counts or {}).get(number)
    if nulls is not None and nulls == values:
        return ColumnRange(values=False)
    return ColumnRange(
        _bound(file.lower_bounds, column),
        _bound(file.upper_bounds, column),
        nulls=nulls != 0 or order.has_other_nulls,
    )


def _bound(bounds: Mapping[int, bytes] | None, column: Any) -> Key | None:
    from pyiceberg.conversions import from_bytes  # noqa: PLC0415  # an extra

    raw = (bounds or {}).get(column.field_id)
    if raw is None:
        return None
    try:
        found: Any = from_bytes(column.field_type, raw)
    except Exception:  # a bound of the column's former type; it is not needed
        return None
    if found is None or found != found:  # noqa: PLR0124  # NaN
        return None
    # Nanoseconds are cut downwards, as keys are.
    return found // 1000 if str(column.field_type).endswith("_ns") else found  # type: ignore[no-any-return]  # as the order has it

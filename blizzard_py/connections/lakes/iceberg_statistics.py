"""Statistics of files and columns in Iceberg's manifests. Pure.

Bounds are stored as keys: microseconds, days, numbers, text (cut, the upper one rounded up). NaN is
in no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.column_maximum import KnownFile
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import located
from blizzard_py.slices.column_order import ColumnOrder, Key, Range


def known_files(
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


def _range(file: Any, column: Any, order: ColumnOrder) -> Range:
    number = column.field_id
    nulls = (file.null_value_counts or {}).get(number)
    values = (file.value_counts or {}).get(number)
    if nulls is not None and nulls == values:
        return Range(values=False)
    return Range(
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

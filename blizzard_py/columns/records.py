"""The same windows over rows in memory, for sources that cannot be asked with SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from blizzard_py.columns.compare import Watermark, order
from blizzard_py.columns.statements import LOWER_OPS, UPPER_OPS, operator

Row = Mapping[str, Any]


def rows(
    rows: Iterable[Row],
    columns: Sequence[str],
    start: Watermark | None = None,
    start_op: str = ">",
    end: Watermark | None = None,
    end_op: str = "<",
) -> list[Row]:
    """The rows of which some column lies within its bounds; null passes no bound.

    Columns without bounds do not count; all rows if no column has one. Unknown operators mean
    the defaults. Raises `WatermarkError` for values that cannot be compared.
    """
    low, high = start or {}, end or {}
    bounded = [c for c in columns if low.get(c) is not None or high.get(c) is not None]
    above = 0 if operator(start_op, LOWER_OPS) == ">=" else 1
    below = 0 if operator(end_op, UPPER_OPS) == "<=" else -1

    def within(row: Row, column: str) -> bool:
        value = row.get(column)
        if value is None:
            return False
        least, most = low.get(column), high.get(column)
        return (least is None or order(column, value, least) >= above) and (
            most is None or order(column, value, most) <= below
        )

    if not bounded:
        return list(rows)
    return [row for row in rows if any(within(row, column) for column in bounded)]


def high(rows: Iterable[Row], columns: Sequence[str]) -> dict[str, Any]:
    """The highest value of each column; a column without any value is left out.

    Raises `WatermarkError` for values that cannot be compared.
    """
    found: dict[str, Any] = {}
    for row in rows:
        for column in columns:
            value = row.get(column)
            if value is not None and order(column, value, found.get(column, value)) >= 0:
                found[column] = value
    return {column: found[column] for column in columns if column in found}

"""The rows that lie in a window, and the files that can have some. Pure.

For columns *c* with lower bounds *l* and upper bounds *h* a row is in the window if::

    (c₁ > l₁ AND c₁ <= h₁ OR c₂ > l₂ AND c₂ <= h₂ …)
    AND (c₁ <= h₁ OR c₁ IS NULL) AND (c₂ <= h₂ OR c₂ IS NULL) …

Without *l* there is no lower bound. Without *h* the column had no value when the window was
planned; rows with a value now belong to a later window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError
from blizzard_py.reading import Nulls, Window
from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, Key, column_order, compared
from blizzard_py.slices.notation import deserialize, serialize


@dataclass(frozen=True, slots=True)
class RowWindow:
    """A window over columns of values, as a task's spec holds it."""

    columns: tuple[str, ...]
    low: Mapping[str, Any]
    up_to: Mapping[str, Any]
    inclusive: bool
    nulls_first: bool
    nulls: Nulls

    @staticmethod
    def of(window: Window, columns: Sequence[str], nulls: Nulls) -> RowWindow:
        return RowWindow(
            tuple(columns),
            {name: window.low[name] for name in columns if window.low.get(name) is not None},
            {name: window.up_to[name] for name in columns if window.up_to.get(name) is not None},
            window.inclusive,
            window.nulls_first,
            nulls,
        )

    def document(self) -> dict[str, Any]:
        """Return the window as JSON; `parsed` reads it."""
        return {
            "columns": list(self.columns),
            "low": serialize(self.low),
            "up_to": serialize(self.up_to),
            "inclusive": self.inclusive,
            "nulls_first": self.nulls_first,
            "nulls": self.nulls,
        }

    def as_sql(self) -> str:
        """Return the window's condition in SQL, for people."""
        above = ">=" if self.inclusive else ">"
        parts = []
        for name in self.columns:
            lower = f"{name} {above} {self.low[name]}" if name in self.low else ""
            upper = f"{name} <= {self.up_to[name]}" if name in self.up_to else ""
            parts.append(" AND ".join(part for part in (lower, upper) if part))
        return " OR ".join(part for part in parts if part)


def parsed(document: Mapping[str, Any]) -> RowWindow:
    """Return the window of a task's spec."""
    return RowWindow(
        tuple(document["columns"]),
        deserialize(document["low"], strict=True),
        deserialize(document["up_to"], strict=True),
        document["inclusive"],
        document["nulls_first"],
        document["nulls"],
    )


def mask(window: RowWindow, columns: Mapping[str, pa.Array], rows: int, where: str) -> pa.Array:
    """Return for each row whether it is in the window; never null.

    ``columns`` are arrays of ``rows`` values; a missing one counts as null. Raises `SourceError` if
    rows have no watermark at all and that is not allowed.
    """
    inside, below, empty = pa.scalar(False), pa.scalar(True), pa.scalar(True)
    for name in window.columns:
        array = columns.get(name)
        if array is None or pa.types.is_null(array.type):
            continue  # null: neither inside nor beyond
        order = column_order(name, array.type)
        keys = order.keys(array)
        absent = pc.is_null(keys)
        within = _within(window, order, keys)
        inside = pc.or_(inside, pc.fill_null(_above(window, order, keys, within), False))
        below = pc.and_(below, pc.or_(pc.fill_null(within, False), absent))
        empty = pc.and_(empty, absent)
    if window.nulls == "fail" and pc.any(_full(empty, rows)).as_py():
        raise SourceError(
            f"{where}: rows without a value of {', '.join(window.columns)}, and `nulls: fail`;"
            " fill them in, or set watermark.advanced.nulls to first or never"
        )
    result = pc.and_(inside, below)
    return _full(pc.or_(result, empty) if window.nulls_first else result, rows)


def _within(window: RowWindow, order: ColumnOrder, keys: pa.Array) -> pa.Array:
    if order.name not in window.up_to:
        return pc.and_(pc.is_valid(keys), False)
    return compared(keys, order.key(window.up_to[order.name]), "<=")


def _above(window: RowWindow, order: ColumnOrder, keys: pa.Array, within: pa.Array) -> pa.Array:
    if order.name not in window.low:
        return within
    operator = ">=" if window.inclusive else ">"
    return pc.and_(within, compared(keys, order.key(window.low[order.name]), operator))


def _full(found: pa.Array | pa.Scalar, rows: int) -> pa.Array:
    return pa.repeat(found, rows) if isinstance(found, pa.Scalar) else found


def may_meet(
    window: RowWindow, orders: Mapping[str, ColumnOrder], known: Mapping[str, ColumnRange]
) -> bool:
    """Return whether a file can have rows of the window; True if that is uncertain."""
    ranges = {name: known.get(name, ColumnRange()) for name in window.columns}
    nulls_meet = window.nulls_first or window.nulls == "fail"
    if nulls_meet and all(each.nulls for each in ranges.values()):
        return True
    if any(_is_beyond(window, orders, name, each) for name, each in ranges.items()):
        return False
    return any(_overlaps(window, orders, name, each) for name, each in ranges.items())


def _is_beyond(
    window: RowWindow, orders: Mapping[str, ColumnOrder], name: str, known: ColumnRange
) -> bool:
    """Return whether each row has a value of this column above the upper bound."""
    if known.nulls or known.low is None:
        return False
    return name not in window.up_to or known.low > orders[name].key(window.up_to[name])  # type: ignore[operator]  # keys of one column have one type


def _overlaps(
    window: RowWindow, orders: Mapping[str, ColumnOrder], name: str, known: ColumnRange
) -> bool:
    if not known.values or name not in window.up_to:
        return False
    if known.low is not None and known.low > orders[name].key(window.up_to[name]):  # type: ignore[operator]  # see above
        return False
    if known.high is None or name not in window.low:
        return True
    lower = orders[name].key(window.low[name])
    return known.high >= lower if window.inclusive else known.high > lower  # type: ignore[operator]  # see above


def ends_in(
    window: RowWindow, orders: Mapping[str, ColumnOrder], known: Mapping[str, ColumnRange]
) -> bool:
    """Return whether the file's highest value lies in the window; True for exactly one window.

    That window gets the file's rows without a value: invalid rows.
    """
    for name in window.columns:
        about = known.get(name, ColumnRange())
        if about.values and about.high is not None:
            return name in window.up_to and _is_new(window, orders[name], about.high)
    return window.nulls_first


def _is_new(window: RowWindow, order: ColumnOrder, key: Key) -> bool:
    if key > order.key(window.up_to[order.name]):  # type: ignore[operator]  # keys of one column have one type
        return False
    lower = window.low.get(order.name)
    return lower is None or key > order.key(lower)  # type: ignore[operator]  # see above

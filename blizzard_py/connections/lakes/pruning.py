"""Selection of files that can have rows which a filter keeps, without opening them. Pure.

Only conditions that every row must meet count: comparisons with literals, joined by AND, as for
units. Any other condition, and any uncertain column, literal or statistic, keeps a file.
Floating-point columns are not used: decimals in a log are not the exact values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.column_maximum import KnownFile
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.filters import Need, parse
from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, Key, column_order, order_of


def orders_for(condition: str, schema: pa.Schema) -> dict[str, ColumnOrder]:
    """Return how the filter's columns are compared, if that is exact."""
    found = parse(condition)
    names = {} if found is None else dict.fromkeys(need.column for need in found.needs)
    # A name may occur twice, and nested columns have no name of their own.
    types = {name: schema.field(name).type for name in names if schema.names.count(name) == 1}
    return {
        name: column_order(name, kind)
        for name, kind in types.items()
        if order_of(kind) not in {None, "float"}
    }


@dataclass(frozen=True, slots=True)
class PrunableFiles:
    """Files of one version of a table, and what is known about the columns in ``orders``."""

    known: Sequence[KnownFile]
    orders: Mapping[str, ColumnOrder]

    def files(self, condition: str) -> list[PlannedFile]:
        """Return the files that can have rows which the filter keeps, in their order."""
        found = parse(condition)
        needs = [] if found is None else _with_keys(found.needs, self.orders)
        return [
            each.file
            for each in self.known
            if all(_may_hold(sign, key, each.ranges.get(name)) for name, sign, key in needs)
        ]


def _with_keys(
    needs: Sequence[Need], orders: Mapping[str, ColumnOrder]
) -> list[tuple[str, str, Key]]:
    known_conditions = []
    for need in needs:
        order = orders.get(need.column)
        key = None if order is None else _key(order, need.value)
        if key is not None:
            known_conditions.append((need.column, need.sign, key))
    return known_conditions


def _key(order: ColumnOrder, literal: Any) -> Key | None:
    """Return the key to compare a literal by, as in `filters`; None if that is uncertain."""
    value = literal
    try:
        if isinstance(literal, str):
            match order.order:
                case "time":
                    value = dt.datetime.fromisoformat(literal)
                case "date":
                    value = dt.date.fromisoformat(literal)
                case "integer" | "decimal":
                    value = Decimal(literal)
        if isinstance(value, Decimal) and not value.is_finite():
            return None
        if order.order == "integer" and isinstance(value, Decimal) and value == int(value):
            value = int(value)
        return order.key(value)
    except (ArithmeticError, SourceError, ValueError):
        return None


def _may_hold(sign: str, key: Any, known: ColumnRange | None) -> bool:
    """Return whether any row can match. Upper ends may be cut downwards to a microsecond."""
    if known is None:
        return True
    if not known.values:
        return False  # nothing compares with null
    low: Any = known.low
    high: Any = known.high
    if sign in {"=", ">", ">="} and high is not None and high < key:
        return False
    if sign == "<":
        return low is None or bool(low < key)
    return sign in {">", ">="} or low is None or bool(low <= key)

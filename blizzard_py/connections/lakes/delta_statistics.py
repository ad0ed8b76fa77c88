"""What Delta's log knows of files and their columns, with its roundings undone. Pure.

* Times are cut to milliseconds, so a file's are looked for a millisecond further in both
  directions.
* Texts are cut after 32 characters; whether a cut maximum was rounded up is the writer's matter,
  so a long one is none.
* Decimals are JSON numbers, which readers take for floats: beyond 15 digits they are not used.
* NaN is in no statistics.
* Files without statistics may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from blizzard_py.connections.lakes.highest import KnownFile
from blizzard_py.connections.lakes.places import located
from blizzard_py.connections.lakes.planned import PlannedFile
from blizzard_py.connections.lakes.values import Key, Ordered
from blizzard_py.connections.lakes.window import Range

_ROUNDED_MICROSECONDS = 1000
_CUT_CHARACTERS = 32
_SAFE_DIGITS = 15


def known_files(
    table: str, actions: Sequence[Mapping[str, Any]], orders: Mapping[str, Ordered]
) -> list[KnownFile]:
    """The files of `DeltaTable.get_add_actions`, with what it tells of the ordered columns."""
    found = []
    for action in actions:
        values = dict(action.get("partition") or {})
        file = PlannedFile(
            located(table, unquote(action["path"])), action["size_bytes"], values=values
        )
        ranges = {
            name: _exact(values[name], order) if name in values else _rounded(action, order)
            for name, order in orders.items()
        }
        found.append(KnownFile(file, ranges))
    return found


def _exact(value: Any, order: Ordered) -> Range:
    """Of a partition column: each row has this value."""
    if value is None:
        return Range(values=False)
    key = order.key(value)
    return Range(key, key, nulls=False)


def _rounded(action: Mapping[str, Any], order: Ordered) -> Range:
    rows = action.get("num_records")
    nulls = (action.get("null_count") or {}).get(order.name)
    low = (action.get("min") or {}).get(order.name)
    high = (action.get("max") or {}).get(order.name)
    if rows is not None and nulls == rows:
        return Range(values=False)
    return Range(
        _widened(low, order, -1),
        _widened(high, order, 1),
        # NaN counts as null here.
        nulls=nulls != 0 or order.order == "float",
    )


def _widened(value: Any, order: Ordered, direction: int) -> Key | None:
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

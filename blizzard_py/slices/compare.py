"""The order of two watermark values. Values of different types cannot be compared.

Python would compare ``True`` with ``1`` and raise a bare `TypeError` for others. Here each type is
compared only with its own kind, all numbers are one kind, and the error names both values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from blizzard_core.errors import WatermarkError
from blizzard_core.text import printable, shortened

Watermark = Mapping[str, Any]


def shown(value: Any) -> str:
    """Return a value for an error message: short, on one line."""
    try:
        return shortened(printable(repr(value)), 200)
    except ValueError:  # an integer of more digits than Python turns into text
        return f"a {type(value).__name__} beyond printing"


def is_finite(value: Any) -> bool:
    """Return False for numbers that have no place in an order: NaN and the infinities."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value.is_finite() if isinstance(value, Decimal) else True


def is_zoned(value: datetime | time) -> bool:
    """Return whether a time has a zone. A time without one is compared as UTC."""
    return value.utcoffset() is not None


def as_utc(moment: datetime) -> datetime:
    """Return the same instant in UTC. A time without a zone is taken as UTC.

    Raises `WatermarkError` if that is outside of the calendar.
    """
    if not is_zoned(moment):
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise WatermarkError(f"{moment.isoformat()} is no time in UTC") from error


_FAMILIES: Sequence[tuple[type | tuple[type, ...], Callable[[Any], str]]] = (
    (bool, lambda _: "boolean"),
    ((int, float, Decimal), lambda _: "number"),
    (str, lambda _: "text"),
    (datetime, lambda v: "time with zone" if is_zoned(v) else "time without zone"),
    (date, lambda _: "date"),
    (time, lambda v: "time of day with zone" if v.tzinfo else "time of day"),
)


def family(value: Any) -> str:
    """Return the name of the group of types that a value can be compared with."""
    for types, word in _FAMILIES:
        if isinstance(value, types):
            return word(value)
    return type(value).__name__


def order(column: str, left: Any, right: Any) -> int:
    """Return -1, 0 or 1 as ``left`` is below, equal to or above ``right``.

    Raises `WatermarkError`, naming column and values, if they cannot be compared: other types,
    NaN, infinities.
    """
    for value in (left, right):
        if not is_finite(value):
            raise WatermarkError(f"column {column}: {shown(value)} has no place in an order")
    kinds = family(left), family(right)
    try:
        if kinds[0] == kinds[1]:
            return 0 if left == right else 1 if left > right else -1
    except TypeError:
        pass  # of one type that has no order: told below as any other pair
    raise WatermarkError(
        f"column {column}: {shown(left)} ({kinds[0]}) and {shown(right)} ({kinds[1]}) "
        "cannot be compared; if the column's type was changed on purpose, set the watermark with"
        " `blizzard checkpoint set --column`"
    )


def advanced(old: Watermark | None, new: Watermark | None) -> dict[str, Any]:
    """Return the later of both values for each column. A null replaces nothing.

    Raises `WatermarkError` if a column's values cannot be compared.
    """
    merged = dict(old or {})
    for column, value in (new or {}).items():
        before = merged.get(column)
        if before is None or (value is not None and order(column, value, before) > 0):
            merged[column] = value
    return merged

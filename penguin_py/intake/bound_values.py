"""Bounds of columns as JSON values of the Delta log, from footers. Pure.

A value is certain or None; `penguin_py.intake.file_statistics` handles None.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.storage.ranges import name_after

DECIMAL_DIGITS = 15

_EXACT = decimal.Context(prec=76)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

# Writes one raw bound as the JSON value for the table's column; None leaves it out.
# The flag asks for an upper bound.
Write = Callable[[Any, bool], Any]


def bound_writer(table: pa.DataType, file: pa.DataType, characters: int) -> Write | None:
    """Return a writer for bounds of this pair of types; None if they have no bounds.

    Readers expect no bounds of a table type that has no writer for itself.
    """
    types = pa.types
    if types.is_dictionary(file):
        file = file.value_type
    write: Write | None = None
    if types.is_signed_integer(table) and types.is_signed_integer(file):
        write = partial(_integer, table.bit_width)
    elif types.is_timestamp(table) and types.is_timestamp(file):
        if (table.tz is None) == (file.tz is None):
            suffix = "" if table.tz is None else "Z"
            write = partial(_timestamp, _TICKS_PER_SECOND[file.unit], suffix)
    elif types.is_decimal128(table) and table == file:
        write = partial(_decimal, table.precision, table.scale)
    else:
        write = next((w for alike, w in _PLAIN if alike(table) and alike(file)), None)
        if write is None and types.is_string(table) and _is_text(file):
            write = partial(_text, characters)
    return write


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _float(raw: Any, upper: bool) -> float | None:
    """Write a finite float; both zeros lie within a bound of zero. JSON has no infinities."""
    if not isinstance(raw, float) or not math.isfinite(raw):
        return None
    return raw or (0.0 if upper else -0.0)


def _boolean(raw: Any, _upper: bool) -> bool | None:
    return raw if isinstance(raw, bool) else None


def _integer(bits: int, raw: Any, _upper: bool) -> int | None:
    limit = 1 << (bits - 1)
    return raw if isinstance(raw, int) and -limit <= raw < limit else None


def _decimal(precision: int, scale: int, raw: Any, upper: bool) -> msgspec.Raw | None:
    """Write a JSON number with all its digits: not every reader takes an exponent."""
    if not isinstance(raw, int):
        return None
    digits = decimal.Context(
        prec=DECIMAL_DIGITS, rounding=decimal.ROUND_CEILING if upper else decimal.ROUND_FLOOR
    )
    rounded = digits.scaleb(digits.create_decimal(raw), -scale)
    # Rounding outwards may leave the range of the type.
    if abs(rounded) >= decimal.Decimal(10) ** (precision - scale):
        rounded = decimal.Decimal(raw).scaleb(-scale, _EXACT)
    return msgspec.Raw(format(rounded, "f").encode())


def _date(raw: Any, _upper: bool) -> str | None:
    if not isinstance(raw, int):
        return None
    try:
        return (_EPOCH.date() + dt.timedelta(days=raw)).isoformat()
    except OverflowError:
        return None  # a year that neither Python nor other readers write the same way


def _timestamp(ticks: int, suffix: str, raw: Any, upper: bool) -> str | None:
    if not isinstance(raw, int):
        return None  # int96 has no order that statistics could rely on
    try:
        above = _EPOCH + dt.timedelta(milliseconds=-(-raw * 1000 // ticks))
        below = _EPOCH + dt.timedelta(milliseconds=raw * 1000 // ticks)
    except OverflowError:
        return _last_millisecond(ticks, suffix, raw)
    moment = above if upper else below
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + suffix


def _last_millisecond(ticks: int, suffix: str, raw: int) -> str | None:
    """Write a moment that cannot be rounded up: the end of the year 9999, an "end of time"."""
    try:
        moment = _EPOCH + dt.timedelta(microseconds=raw * 10**6 // ticks)
    except OverflowError:
        return None  # a year that neither Python nor other readers write the same way
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + suffix


def _text(characters: int, raw: Any, upper: bool) -> str | None:
    if not isinstance(raw, bytes):
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if len(text) <= characters:
        return text
    prefix = text[:characters]
    return (name_after(prefix) or text) if upper else prefix


# Writers that serve all types of a kind.
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Write], ...] = (
    (pa.types.is_date32, _date),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, _boolean),
)

"""Comparable values of watermark columns, from Arrow, Python and statistics. Pure.

Values of a column are compared by their **key**.

* Times are microseconds since 1970 in UTC, the precision of a stored watermark. Nanoseconds are cut
  downwards on both sides of every comparison, so no row falls between two windows.
* Dates are days.
* NaN is null, since it is neither above nor below anything. So are times outside the years 1 to
  9999 (some systems' infinity), which no watermark can be.
* Text is compared by code points, which is the order of its bytes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError

Key: TypeAlias = int | float | Decimal | str
Order = Literal["time", "date", "integer", "float", "decimal", "text"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_FIRST_TIME = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
_LAST_TIME = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """The comparison of the column ``name``: its order, and its Arrow type."""

    name: str
    order: Order
    type: pa.DataType

    @property
    def has_other_nulls(self) -> bool:
        """True if values without a key exist that statistics do not count as null."""
        return self.order in {"float", "time", "date"}

    def keys(self, values: pa.Array) -> pa.Array:
        """Return the keys of values of the column; null for a value without a key."""
        match self.order:
            case "time":
                return _within(_microseconds(values), _FIRST_TIME, _LAST_TIME)
            case "date":
                days = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
                return _within(days, _days(dt.date.min), _days(dt.date.max))
            case "integer":
                wide = pa.types.is_uint64(values.type)
                return values.cast(pa.decimal128(20, 0) if wide else pa.int64())
            case "float":
                floats = values.cast(pa.float64())
                return pc.if_else(pc.is_nan(floats), pa.scalar(None, pa.float64()), floats)
            case "text":
                return values.cast(pa.large_string())
            case _:
                return values.cast(_widest_known(values.type))

    def key(self, value: Any) -> Key:
        """Return the key of a watermark's value. Raises `SourceError` for another type."""
        found = self._key(value)
        if found is None:
            raise SourceError(
                f"column {self.name} is {self.type}, the stored watermark is"
                f" {type(value).__name__}: they cannot be compared; if the column's type was"
                " changed on purpose, set the watermark with `blizzard checkpoint set --column`"
            )
        return found

    def _key(self, value: Any) -> Key | None:
        number = isinstance(value, int) and not isinstance(value, bool)
        moment = isinstance(value, dt.datetime)
        day = isinstance(value, dt.date) and not moment
        keys: tuple[tuple[Order, bool, Callable[[Any], Key]], ...] = (
            ("time", moment, _moment),
            ("time", day, lambda day: _days(day) * 86_400_000_000),
            ("date", day, _days),
            ("text", isinstance(value, str), str),
            ("float", isinstance(value, float) or number, float),
            ("decimal", isinstance(value, Decimal) or number, Decimal),
            ("integer", number, int),
        )
        make = next((make for order, fits, make in keys if order == self.order and fits), None)
        return None if make is None else make(value)

    def value(self, key: Key) -> Any:
        """Return the watermark's value for a key; the inverse of `key`."""
        match self.order:
            case "time":
                moment = _EPOCH + int(key) * _MICROSECOND
                return moment if self.type.tz else moment.replace(tzinfo=None)
            case "date":
                return _FIRST_DAY + dt.timedelta(days=int(key))
            case "integer":
                return int(key)
            case _:
                return key


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The range of one column in one file: no key is below ``low`` or above ``high``.

    None: unknown. ``nulls`` says whether there may be null (or NaN), ``values`` whether there may
    be anything else.
    """

    low: Key | None = None
    high: Key | None = None
    nulls: bool = True
    values: bool = True


def column_order(name: str, kind: pa.DataType) -> ColumnOrder:
    """Return how a column of this type is compared.

    Raises `SourceError` for types without an order.
    """
    order = order_of(kind)
    if order is None:
        raise SourceError(
            f"column {name} is {kind}, which has no order that a watermark could follow; choose a"
            " column of times, dates, numbers or text"
        )
    return ColumnOrder(name, order, kind)


def order_of(kind: pa.DataType) -> Order | None:
    """Return the order of a type's values, None if a watermark cannot follow it."""
    kinds = pa.types
    if kinds.is_dictionary(kind):
        return order_of(kind.value_type)
    checks: tuple[tuple[Order, bool], ...] = (
        ("time", kinds.is_timestamp(kind)),
        ("date", kinds.is_date(kind)),
        ("integer", kinds.is_integer(kind)),
        ("float", kinds.is_floating(kind)),
        ("decimal", kinds.is_decimal(kind)),
        ("text", kinds.is_string(kind) or kinds.is_large_string(kind) or _is_view(kind)),
    )
    return next((order for order, holds in checks if holds), None)


def compared(keys: pa.Array, key: Key, operator: str) -> pa.Array:
    """Return ``keys <operator> key`` (``>``, ``>=``, ``<=``); null for a null key."""
    function = {">": pc.greater, ">=": pc.greater_equal, "<=": pc.less_equal}[operator]
    if isinstance(key, Decimal):
        return function(keys, pa.scalar(key))
    try:
        return function(keys, pa.scalar(key, keys.type))
    except (pa.ArrowInvalid, OverflowError):  # a number that the column's type cannot hold
        return function(keys, pa.scalar(Decimal(key)))


def _widest_known(kind: pa.DataType) -> pa.DataType:
    """Return the same decimal type in a width for which Arrow can compute the maximum."""
    if pa.types.is_dictionary(kind):
        return _widest_known(kind.value_type)
    return pa.decimal128(kind.precision, kind.scale) if kind.bit_width < 128 else kind


def _moment(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // _MICROSECOND


def _days(day: dt.date) -> int:
    return (day - _FIRST_DAY).days


def _microseconds(values: pa.Array) -> pa.Array:
    if values.type.unit == "ns":
        values = pc.floor_temporal(values, unit="microsecond")
    # Times without a zone count as UTC, as in all comparisons.
    return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())


def _within(keys: pa.Array, first: int, last: int) -> pa.Array:
    known = pc.and_(pc.greater_equal(keys, first), pc.less_equal(keys, last))
    return pc.if_else(known, keys, pa.scalar(None, keys.type))


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind))

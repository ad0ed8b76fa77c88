"""Watermark columns of files without types, read as the schema declares them. Pure.

A value that cannot be read as its type counts as null. Its row is not lost: it is read with the
rows that have no watermark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.filters import parse
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.slices.column_order import column_order

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
_WHOLE = 1 << 63
_FAULTS = (ValueError, ArithmeticError, OverflowError, TypeError)


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """The conversion of a column's text to its value, and the Arrow type."""

    name: str
    type: pa.DataType
    parse: Callable[[str], Any]
    is_text: bool

    def of_text(self, text: str | None) -> Any:
        """Return the value; None if it cannot be read."""
        if text is None:
            return None
        try:
            return self.parse(text)
        except _FAULTS:
            return None

    def of_json(self, raw: msgspec.Raw | None) -> Any:
        """Return the value of a JSON value's bytes; None if it is null or cannot be read."""
        if raw is None:
            return None
        data = bytes(raw)
        if data[:1] == b'"':
            try:
                return self.of_text(msgspec.json.decode(data))
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None
        # Numbers keep all their digits. Numbers, lists and objects are not text.
        is_plain = data[:1] in b"-0123456789tf"
        return self.of_text(data.decode()) if is_plain and not self.is_text else None

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return values as an Arrow array."""
        return pa.array(values, self.type)


def declare_columns(columns: Iterable[str], fields: Iterable[FieldSpec]) -> list[DeclaredColumn]:
    """Return these columns as declared.

    Raises `SourceError` for a column that is not declared or has no order.
    """
    known = {each.name: each for each in fields}
    return [_declare_column(name, known.get(name)) for name in dict.fromkeys(columns)]


def watermark_columns(selection: ReadSelection) -> list[DeclaredColumn]:
    """Return the watermark's columns as declared.

    Raises `SourceError` also if the filter's columns cannot be read.
    """
    condition = parse(selection.filter)
    declare_columns(condition.columns if condition else (), selection.fields)
    found = declare_columns(selection.columns, selection.fields)
    for column in found:
        column_order(column.name, column.type)
    return found


def _declare_column(name: str, spec: FieldSpec | None) -> DeclaredColumn:
    if spec is None:
        raise SourceError(f"column {name} is not in the schema; declare it with its type")
    if spec.type == "timestamp":
        parse = _moment if spec.unit == "iso" else _number_of(_PER_SECOND[spec.unit])
        return DeclaredColumn(name, pa.timestamp("us", "UTC"), parse, is_text=False)
    if spec.type == "decimal":
        kind = pa.decimal128(spec.precision, spec.scale)
        return DeclaredColumn(name, kind, _decimal_of(spec.precision, spec.scale), is_text=False)
    found = _PLAIN.get(spec.type)
    if found is None:
        raise SourceError(
            f"column {name} is {spec.type}, which has no order; choose a column of times,"
            " dates, numbers or text"
        )
    return DeclaredColumn(name, found[0], found[1], is_text=spec.type == "string")


def _moment(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text.strip())
    return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _number_of(per_second: int) -> Callable[[str], dt.datetime]:
    scale = 1_000_000 // per_second

    def parse(text: str) -> dt.datetime:
        return _EPOCH + dt.timedelta(microseconds=int(Decimal(_digits(text)) * scale))

    return parse


def _decimal_of(precision: int, scale: int) -> Callable[[str], Decimal]:
    def parse(text: str) -> Decimal:
        value = Decimal(_digits(text))
        pa.scalar(value, pa.decimal128(precision, scale))  # raises for what does not fit
        return value

    return parse


def _digits(text: str) -> str:
    """Return a number's text. Python also reads ``1_000`` and digits of other scripts."""
    if "_" in text or not text.isascii():
        raise ValueError
    return text


def _integer(text: str) -> int:
    value = int(_digits(text))
    if not -_WHOLE <= value < _WHOLE:
        raise OverflowError
    return value


def _fraction(text: str) -> float:
    return float(_digits(text))


def _truth(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError
    return text.lower() == "true"


_PLAIN: Mapping[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "date": (pa.date32(), dt.date.fromisoformat),
    "int32": (pa.int64(), _integer),
    "int64": (pa.int64(), _integer),
    "float32": (pa.float64(), _fraction),
    "float64": (pa.float64(), _fraction),
    "string": (pa.string(), str),
    "boolean": (pa.bool_(), _truth),
}

"""Conversion of text to values, by whole columns.

One set of rules for every format whose files hold text. Blanks around a value count only in text.
The digits, the separators and the form of a value must be right in full, or it does not fit. No
digit is cut off, no number is rounded but to a binary fraction, and no date is corrected.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.format_options import ValueOptions
from blizzard_core.settings.schema import DECIMAL_DIGITS
from blizzard_py.formats.ndjson.columns import from_json
from blizzard_py.formats.ndjson.extract import NULL
from blizzard_py.formats.scalars import NoSuchCast, cast_scalar
from blizzard_py.formats.time_formats import time_format
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import EPOCH_SCALES

_NAIVE = pa.timestamp("us")
_UTC = pa.timestamp("us", tz="UTC")
_NONE = pa.nulls(1, pa.string())[0]  # see `time_formats`
_NO_TIME = pa.nulls(1, _NAIVE)[0]
# Arrow reads the listed changes of a zone, not the rule that goes on behind them.
_ARROW_KNOWS_UNTIL = dt.datetime(2037, 1, 1)  # noqa: DTZ001  # a local time
_MICROSECOND = dt.timedelta(microseconds=1)
_INTEGERS = frozenset({"int32", "int64"})
_FLOATS = frozenset({"float32", "float64"})
# What a cast to these types may accept, and a little more.
_FORM = r"^[+-]?\d+$"
_FORMS = {
    "float32": r"(?i)^[+-]?(?:[\d.].*|inf(?:inity)?|nan.*)$",
    "float64": r"(?i)^[+-]?(?:[\d.].*|inf(?:inity)?|nan.*)$",
    "decimal": r"^[\d.eE+-]+$",
    "boolean": r"(?i)^(?:true|false|0|1)$",
    "date": r"^\d{4}-\d{2}-\d{2}$",
    "timestamp": r"^\d{4}-\d{2}-\d{2}(?:[T ].*)?$",
}
_ZONE_AT_END = re.compile(r"[T ]\d.*(?:Z|[+-]\d{2}(?::?\d{2})?)$")


class UnfitTexts(ValueError):
    """Texts that are not of the type, with their rows. Others may not fit either."""

    def __init__(self, texts: pa.StringArray, unfit: pa.BooleanArray, why: str) -> None:
        self._texts = texts
        self._why = why
        self.unfit = unfit
        super().__init__(self._reason(pc.index(unfit, value=True).as_py()))

    def reasons(self) -> dict[int, str]:
        """Return the reason for each of the rows."""
        rows = np.flatnonzero(self.unfit.to_numpy(zero_copy_only=False)).tolist()
        return {row: self._reason(row) for row in rows}

    def of(self, texts: pa.StringArray, codes: pa.Array) -> UnfitTexts:
        """Return the error about the texts that these are the dictionary of."""
        return UnfitTexts(texts, pc.fill_null(self.unfit.take(codes), fill_value=False), self._why)

    def _reason(self, row: int) -> str:
        text = self._texts[row].as_buffer().to_pybytes().decode(errors="replace")
        return f"{text!r} {self._why}"


def text_values(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    """Return the texts as values of the declared type.

    Raises `ValueError` if one of them does not fit, where possible an `UnfitTexts` with all rows;
    `NoSuchCast` if none ever can.
    """
    if not pa.types.is_string(array.type):
        raise NoSuchCast
    return _CASTS[spec.type](spec, array, options)


def json_values(spec: FieldSpec, array: pa.Array) -> pa.Array:
    """Return JSON texts as a line's values. Raises `ValueError`."""
    raw = [NULL if value is None else compact_json(value) for value in _bytes_of(array)]
    return from_json(spec, raw)


def compact_json(value: bytes) -> bytes:
    """Return the text without line breaks. Raises `ValueError` if it is not JSON."""
    try:
        msgspec.json.decode(value)  # `format` accepts truncated JSON
        return msgspec.json.format(value, indent=-1)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"is not JSON: {error}") from error


def _bytes_of(array: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = array.cast(pa.binary()).to_pylist()
    return found


def _nested(spec: FieldSpec, array: pa.StringArray, _options: ValueOptions) -> pa.Array:
    return json_values(spec, array)


def _text(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    before, behind = options.trims
    if before:
        array = pc.ascii_ltrim_whitespace(array)
    if behind:
        array = pc.ascii_rtrim_whitespace(array)
    return cast_scalar(spec, array)


# --- numbers -------------------------------------------------------------------------------------


def _number(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    texts = _plain_numbers(spec, pc.ascii_trim_whitespace(array), options)
    try:
        return cast_scalar(spec, texts)
    except ValueError:
        _check(texts, spec.type)
        # Arrow reads a plus in all numbers except integers.
        if spec.type not in _INTEGERS or not pc.any(pc.starts_with(texts, "+")).as_py():
            raise
    return cast_scalar(spec, pc.replace_substring_regex(texts, r"^\+", ""))


def _plain_numbers(spec: FieldSpec, texts: pa.StringArray, options: ValueOptions) -> pa.StringArray:
    """Return the numbers with a point and without separators. Raises `ValueError`."""
    decimal, thousands = options.decimal, options.thousands
    if decimal == "." and not thousands:
        return texts
    fits = pc.match_substring_regex(texts, _number_pattern(spec.type, decimal, thousands))
    groups = f" and regular groups by {thousands!r}" if thousands else ""
    _require(texts, fits, f"is no {spec.type} with the decimal separator {decimal!r}{groups}")
    if thousands:
        texts = pc.replace_substring(texts, thousands, "")
    return texts if decimal == "." else pc.replace_substring(texts, decimal, ".")


@lru_cache(maxsize=64)
def _number_pattern(kind: str, decimal: str, thousands: str) -> str:
    whole = r"\d+"
    if thousands:
        whole = rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+|\d+"
    if kind in _INTEGERS:
        return rf"^[+-]?(?:{whole})$"
    point = re.escape(decimal)
    pattern = rf"[+-]?(?:(?:{whole})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    return rf"^(?:{pattern}|(?i:[+-]?inf(?:inity)?|nan))$" if kind in _FLOATS else f"^{pattern}$"


def _require(texts: pa.StringArray, fits: pa.BooleanArray, why: str) -> None:
    """Raise `UnfitTexts` for texts that do not fit; null fits."""
    if not pc.all(fits, min_count=0).as_py():
        raise UnfitTexts(texts, pc.invert(pc.fill_null(fits, fill_value=True)), why)


def _check(texts: pa.StringArray, kind: str) -> None:
    """Raise `UnfitTexts` after a cast that failed, if the form of some is wrong.

    It saves halving a column that is of another type.
    """
    _require(texts, pc.match_substring_regex(texts, _FORMS.get(kind, _FORM)), f"is no {kind}")


# --- booleans ------------------------------------------------------------------------------------


def _boolean(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    texts = pc.ascii_trim_whitespace(array)
    true, false = _lower(options.true_values), _lower(options.false_values)
    if {*true} == {"true", "1"} and {*false} == {"false", "0"}:
        return _plain(spec, texts)
    lower = pc.utf8_lower(texts)
    found = pc.is_in(lower, value_set=pa.array(true, pa.string()))
    fits = pc.or_(found, pc.is_in(lower, value_set=pa.array(false, pa.string())))
    _require(texts, pc.or_(fits, texts.is_null()), "is in neither true_values nor false_values")
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.bool_()))


def _plain(spec: FieldSpec, texts: pa.StringArray) -> pa.Array:
    try:
        return cast_scalar(spec, texts)
    except ValueError:
        _check(texts, spec.type)
        raise


def _lower(texts: Sequence[str]) -> list[str]:
    return [text.lower() for text in texts]


# --- dates and times -----------------------------------------------------------------------------


def _date(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    texts = pc.ascii_trim_whitespace(array)
    if not options.date_format:
        return _plain(spec, texts)
    codes = texts.dictionary_encode()  # a column has few different days
    try:
        days = cast_scalar(spec, _iso_texts(codes.dictionary, options.date_format))
    except UnfitTexts as error:
        raise error.of(texts, codes.indices) from None
    return days.take(codes.indices)


def _timestamp(spec: FieldSpec, array: pa.StringArray, options: ValueOptions) -> pa.Array:
    if spec.unit != "iso":
        scale = EPOCH_SCALES[spec.unit]
        digits = replace(spec, type="decimal", precision=DECIMAL_DIGITS, scale=scale)
        return cast_scalar(spec, _number(digits, array, options))
    texts = pc.ascii_trim_whitespace(array)
    if options.timestamp_format:
        texts = _iso_texts(texts, options.timestamp_format)
        return cast_scalar(spec, _instants(texts, options.time_zone))
    try:
        return cast_scalar(spec, _instants(texts, options.time_zone))
    except ValueError:
        _check(texts, spec.type)
        raise


def _iso_texts(texts: pa.StringArray, forms: Sequence[str]) -> pa.StringArray:
    """Return the texts as ISO 8601, each by the first format that it is of.

    Raises `UnfitTexts` if there is none.
    """
    found, rest = pa.nulls(len(texts), pa.string()), texts
    for form in map(time_format, forms):
        iso = form.iso(rest)
        if iso.null_count == texts.null_count:
            return iso
        found = pc.coalesce(found, iso)
        rest = pc.if_else(iso.is_valid(), _NONE, rest)
    _require(rest, rest.is_null(), f"is not of the format {' or '.join(forms)}")
    return found


def _instants(texts: pa.StringArray, zone: str) -> pa.Array:
    """Return ISO times as instants; a time without a zone is of ``zone``. Raises `ValueError`."""
    # A cast that fails takes long, since it fails for each value.
    first = next((value.as_py() for value in texts if value.is_valid), "")
    parse = _zoned if _ZONE_AT_END.search(first) else _local
    try:
        return parse(texts, zone)
    except ValueError:
        has_zone = pc.match_substring_regex(texts, _ZONE_AT_END.pattern)
        if len(pc.unique(has_zone.drop_null())) < 2:
            raise
    with_zone = _zoned(pc.if_else(has_zone, texts, _NONE), zone)
    return pc.coalesce(with_zone, _local(pc.if_else(has_zone, _NONE, texts), zone))


def _zoned(texts: pa.StringArray, _zone: str) -> pa.Array:
    return texts.cast(_UTC)


def _local(texts: pa.StringArray, zone: str) -> pa.Array:
    naive = texts.cast(_NAIVE)
    if zone == "UTC":
        return naive.cast(_UTC)
    is_late = pc.greater_equal(naive, _ARROW_KNOWS_UNTIL)
    if not pc.any(is_late).as_py():
        return _early(naive, zone)
    codes = pc.if_else(is_late, naive, _NO_TIME).dictionary_encode()
    late = _late(codes.dictionary, zone).take(codes.indices)
    return pc.coalesce(late, _early(pc.if_else(is_late, _NO_TIME, naive), zone))


def _early(naive: pa.Array, zone: str) -> pa.Array:
    try:
        return pc.assume_timezone(naive, zone).cast(_UTC)
    except ValueError as error:
        raise _no_hour(naive[0], zone) from error


def _late(naive: pa.Array, zone: str) -> pa.Array:
    """Return times of years for which Arrow forgets summer time, value by value."""
    micros = []
    for value, count in zip(naive.to_pylist(), naive.cast(pa.int64()).to_pylist(), strict=True):
        local = value.replace(tzinfo=ZoneInfo(zone))
        offset = local.utcoffset()
        if offset != local.replace(fold=1).utcoffset():
            raise _no_hour(value, zone)
        micros.append(count - offset // _MICROSECOND)
    return pa.array(micros, pa.int64()).cast(_UTC)


def _no_hour(value: object, zone: str) -> ValueError:
    return ValueError(f"{value} does not exist in {zone}, or exists twice")


_CASTS: dict[str, Callable[[FieldSpec, pa.StringArray, ValueOptions], pa.Array]] = {
    "string": _text,
    "binary": _text,
    "int32": _number,
    "int64": _number,
    "float32": _number,
    "float64": _number,
    "decimal": _number,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "struct": _nested,
    "list": _nested,
    "map": _nested,
    "json": _nested,
}

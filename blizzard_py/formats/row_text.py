"""Values of a row as JSON text, as in a file: for dead letters, which are replayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import EPOCH_SCALES

# Python has fewer days, durations and zones than Arrow.
_UNKNOWN = (ValueError, OverflowError, TypeError, KeyError)
_ALL = 1 << 20


def joined(members: Mapping[str, str]) -> bytes:
    """Return the object of these members, whose values are JSON text, without a newline."""
    told = (f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in members.items())
    return f"{{{', '.join(told)}}}".encode("utf-8", "backslashreplace")


def json_text(value: Any) -> str:
    """Return a value as JSON text without spaces, as a column of any JSON has it.

    Raises `ValueError` or `TypeError` if it cannot be JSON.
    """
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, default=plain_value, separators=(",", ":")
    )


def declared_members(spec: FieldSpec, array: pa.Array) -> list[str]:
    """Return values of the declared type as the line parser reads them for this type.

    Raises `ValueError` for a map with a key that it has twice.
    """
    try:
        values = array.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        raise ValueError(str(error)) from error
    return [_declared_text(spec, value) for value in values]


def _declared_text(spec: FieldSpec, value: Any) -> str:
    if value is None:
        return "null"
    if spec.type == "list":
        return f"[{', '.join(_declared_text(spec.children[0], inner) for inner in value)}]"
    if spec.type in {"struct", "map"}:
        is_map = spec.type == "map"
        kinds = [spec.children[0]] * len(value) if is_map else spec.children
        parts = zip(value.items(), kinds, strict=True)
        return joined({name: _declared_text(kind, part) for (name, part), kind in parts}).decode()
    return _scalar_text(spec, value)


def _scalar_text(spec: FieldSpec, value: Any) -> str:
    if spec.type == "json":
        return str(value)
    if spec.type == "decimal":
        return f"{value:f}"
    if spec.type == "timestamp" and spec.unit != "iso":
        micros = (value - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        return f"{Decimal(micros).scaleb(-EPOCH_SCALES[spec.unit]):f}"
    return json.dumps(value, ensure_ascii=False, default=plain_value)


def members(array: pa.Array) -> list[str]:
    """Return values as JSON texts; null for null.

    Times are ISO text, in UTC if they have no zone; bytes are base64; numbers keep their digits.
    ``NaN`` is written as the line parser reads it in float columns. Values that Python does not
    have (years beyond 9999) are text. JSON stays as it is, if it is any.
    """
    if isinstance(array, pa.ExtensionArray):
        stored = members(array.storage)
        if not isinstance(array.type, pa.JsonType):
            return stored
        texts = map(_raw_json, array.storage.cast(pa.binary()).to_pylist())
        return [raw or text for raw, text in zip(texts, stored, strict=True)]
    if pa.types.is_decimal(array.type):
        return ["null" if value is None else f"{value:f}" for value in array.to_pylist()]
    make = _times_as_json if pa.types.is_timestamp(array.type) else _as_json
    try:
        return make(array)
    except _UNKNOWN:
        if len(array) > 1:
            return [text for at in range(len(array)) for text in members(array.slice(at, 1))]
    return [_odd_as_json(array)]


def _raw_json(text: bytes | None) -> str:
    """Return JSON without line breaks, nothing for null and a text that is none."""
    if text is None:
        return ""
    try:
        msgspec.json.decode(text)  # `format` accepts truncated JSON
        return str(msgspec.json.format(text, indent=-1), "utf-8")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""


def _as_json(array: pa.Array) -> list[str]:
    values = array.to_pylist(maps_as_pydicts="strict")
    return [json.dumps(value, ensure_ascii=False, default=plain_value) for value in values]


def _odd_as_json(one: pa.Array) -> str:
    """Return a single value that is no JSON; a map that is no object is a list of pairs."""
    try:
        return json.dumps(one.to_pylist()[0], ensure_ascii=False, default=plain_value)
    except _UNKNOWN:
        return json.dumps(_printed(one), ensure_ascii=False)


def _printed(one: pa.Array) -> str:
    """Return a value that JSON or Python does not have, as text."""
    try:
        return str(one[0])
    except UnicodeDecodeError:
        if pa.types.is_string(one.type):
            return str(one.cast(pa.binary())[0].as_py(), "utf-8", "surrogateescape")
    except _UNKNOWN:
        pass
    # Arrow can print all its values; the brackets are the array's.
    return str(one.to_string(window=_ALL, container_window=_ALL, skip_new_lines=True))[1:-1]


def _times_as_json(array: pa.Array) -> list[str]:
    zone = array.type.tz and "UTC"  # offsets may have seconds, which no text format has
    texts = array.cast(pa.timestamp("us", tz=zone)).cast(pa.string()).to_pylist()
    return ["null" if text is None else json.dumps(_iso(text, zone)) for text in texts]


def _iso(text: str, zone: str | None) -> str:
    date, space, time = text.partition(" ")
    if not space or not date[:4].isdigit():
        return text
    return f"{date}T{time}" if zone else f"{date}T{time}Z"


def plain_value(value: Any) -> Any:
    """Return a JSON form of a value that `json.dumps` does not support."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:  # pandas' type of times with nanoseconds
        return value.isoformat().replace("+00:00", "Z")

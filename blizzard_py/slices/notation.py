"""The text of a watermark: a JSON object, with times and decimals behind markers.

A marker is the only key of an object: ``{"__datetime__": "2026-05-04T11:59:58+00:00"}``. The others
are ``__date__``, ``__time__`` and, our addition, ``__decimal__``. They appear at any depth, also in
lists. Columns themselves are never markers. A value that JSON cannot hold without loss is refused
when it is written, so a saved watermark can always be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from blizzard_core.errors import WatermarkError
from blizzard_core.text import json_value
from blizzard_py.slices.compare import Watermark, is_finite, shown


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise InvalidOperation
    return value


# Marker: type, how it is written, how it is read. Datetimes first: they are dates as well.
_MARKERS: Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "__datetime__": (datetime, datetime.isoformat, datetime.fromisoformat),
    "__date__": (date, date.isoformat, date.fromisoformat),
    "__time__": (time, time.isoformat, time.fromisoformat),
    "__decimal__": (Decimal, str, _decimal),
}


def serialize(wm: Watermark | None) -> str:
    """Return the watermark as JSON text with sorted keys.

    Raises `WatermarkError` for values that could not be read back: NaN, infinities, keys that are
    no text, and types other than JSON's, times, dates and decimals.
    """
    try:
        encoded = _encoded_members(wm or {}, "")
        return json.dumps(encoded, sort_keys=True, allow_nan=False)
    except RecursionError as error:
        raise WatermarkError("a watermark is nested too deeply") from error
    except ValueError as error:  # an integer of more digits than Python turns into text
        raise WatermarkError(f"a watermark cannot be written: {error}") from error


def deserialize(text: str | bytes, strict: bool = False) -> dict[str, Any]:
    """Return the watermark that `serialize` wrote.

    A marker whose text does not parse yields the text. JSON that is no object yields ``{}``, or an
    error if ``strict``. Raises `WatermarkError` for text that is not JSON.
    """
    try:
        found = json_value(text)
        if isinstance(found, dict):
            return {column: _decoded(value) for column, value in found.items()}
    except (ValueError, TypeError, RecursionError) as error:
        raise WatermarkError(f"a watermark is not JSON: {error}: {shown(text)}") from error
    if strict:
        raise WatermarkError(f"a watermark is not a JSON object: {shown(text)}")
    return {}


def is_empty(wm: Watermark | None) -> bool:
    """Return whether it says "read everything": none, ``{}``, all null.

    ``0`` and ``""`` are values.
    """
    return wm is None or all(value is None for value in wm.values())


def _encoded_members(members: Mapping[Any, Any], path: str) -> dict[str, Any]:
    for key in members:
        if not isinstance(key, str):
            raise WatermarkError(f"a watermark's key is no text: {shown(key)}")
    return {
        key: _encoded(value, f"{path}.{key}" if path else key) for key, value in members.items()
    }


def _encoded(value: Any, path: str) -> Any:
    if not is_finite(value):
        raise WatermarkError(f"{path}: {shown(value)} is no watermark; nothing lies above it")
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    for marker, (type_, write, _) in _MARKERS.items():
        if isinstance(value, type_):
            return {marker: write(value)}
    if isinstance(value, Mapping):
        return _encoded_members(value, path)
    if isinstance(value, (list, tuple)):
        return [_encoded(item, f"{path}[{i}]") for i, item in enumerate(value)]
    raise WatermarkError(f"{path}: {type(value).__name__} is no type of a watermark")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(key, text)] = value.items()
        if key in _MARKERS and isinstance(text, str):
            return _marked(key, text)
    return {key: _decoded(member) for key, member in value.items()}


def _marked(key: str, text: str) -> Any:
    try:
        return _MARKERS[key][2](text)
    except (ValueError, ArithmeticError):
        return text


def short_text(watermark: Any) -> str:
    """Return a stored watermark in few words: ``updated_at=2026-05-04T11:59:58``."""
    if not isinstance(watermark, dict):
        return json.dumps(watermark)
    return (
        ", ".join(f"{column}={_short_value(value)}" for column, value in watermark.items()) or "-"
    )


def _short_value(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        [(marker, text)] = value.items()
        if marker.startswith("__"):
            return str(text)
    return value if isinstance(value, str) else json.dumps(value)

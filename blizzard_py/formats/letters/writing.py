"""Arrow values as JSON that loses nothing beside their types: `reading` makes equal ones of it.

Values are as people read them: times in ISO 8601 with all digits of their unit, bytes in base64.
What JSON or the calendar does not have is ``"NaN"``, ``"-Infinity"``, or the stored number. A map
is an object if its keys are different texts, else a list of pairs.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from blizzard_py.formats.nested_arrays import is_list, list_offsets, map_entries
from blizzard_py.schema.types import FIRST_DAY, LAST_DAY

PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def row_lines(batch: pa.RecordBatch) -> list[bytes]:
    """Return each row as an object without a line end."""
    if not batch.num_columns:
        return [b"{}"] * batch.num_rows
    keys = [_quoted(name) for name in batch.schema.names]
    columns = [json_texts_of(column) for column in batch.columns]
    return [encoded(_object(keys, parts)) for parts in zip(*columns, strict=True)]


def encoded(text: str) -> bytes:
    """Return JSON as bytes; bytes that are no text stay as escapes."""
    return text.encode("utf-8", "backslashreplace")


def json_texts_of(array: pa.Array) -> list[str]:
    """Return each value as JSON; one of a type that no file has is text."""
    kind = array.type
    if isinstance(kind, pa.UuidType):
        return [_quoted(str(value)) if value else "null" for value in array.to_pylist()]
    if isinstance(array, pa.ExtensionArray):
        return json_texts_of(array.storage)
    if pa.types.is_dictionary(kind):
        return json_texts_of(array.dictionary_decode())
    if pa.types.is_struct(kind):
        found = _structs(array)
    elif pa.types.is_map(kind):
        found = _maps(array)
    elif is_list(kind):
        found = _lists(array)
    else:
        found = _leaves(array)
    if array.null_count:
        valid = array.is_valid().to_pylist()
        return [text if there else "null" for text, there in zip(found, valid, strict=True)]
    return found


def _object(keys: Sequence[str], parts: Sequence[str]) -> str:
    members = (f"{key}: {part}" for key, part in zip(keys, parts, strict=True))
    return f"{{{', '.join(members)}}}"


def _structs(array: pa.Array) -> list[str]:
    names = [field.name for field in array.type]
    if not names:
        return ["{}"] * len(array)
    rows = zip(*map(json_texts_of, array.flatten()), strict=True)
    if len(set(names)) < len(names):
        return [f"[{', '.join(parts)}]" for parts in rows]
    keys = list(map(_quoted, names))
    return [_object(keys, parts) for parts in rows]


def _lists(array: pa.Array) -> list[str]:
    values = json_texts_of(array.flatten())
    ends = list_offsets(array).to_pylist()
    return [f"[{', '.join(values[start:end])}]" for start, end in pairwise(ends)]


def _maps(array: pa.Array) -> list[str]:
    offsets, key_array, items = map_entries(array)
    keys, values = json_texts_of(key_array), json_texts_of(items)
    has_texts = pa.types.is_string(key_array.type)
    found = []
    for start, end in pairwise(offsets.to_pylist()):
        own = keys[start:end]
        if has_texts and len(set(own)) == len(own):
            found.append(_object(own, values[start:end]))
        else:
            pairs = zip(own, values[start:end], strict=True)
            found.append(f"[{', '.join(f'[{key}, {value}]' for key, value in pairs)}]")
    return found


def _leaves(array: pa.Array) -> list[str]:
    """Return texts; those of null are anything."""
    for is_of, make in _MAKERS:
        if is_of(array.type):
            return make(array)
    return [_quoted(str(value)) for value in array.to_pylist()]


def _nulls(array: pa.Array) -> list[str]:
    return ["null"] * len(array)


def _booleans(array: pa.Array) -> list[str]:
    return ["true" if value else "false" for value in array.to_pylist()]


def _integers(array: pa.Array) -> list[str]:
    return list(map(str, array.to_pylist()))


def _durations(array: pa.Array) -> list[str]:
    return _integers(array.view(pa.int64()))


def _decimals(array: pa.Array) -> list[str]:
    return [f"{value or 0:f}" for value in array.to_pylist()]


def _bytes(array: pa.Array) -> list[str]:
    return [f'"{base64.b64encode(value or b"").decode()}"' for value in array.to_pylist()]


def _floats(array: pa.Array) -> list[str]:
    return [_float(value) for value in array.cast(pa.float64()).to_pylist()]


def _float(value: float | None) -> str:
    if value is None or math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'


def _texts(array: pa.Array) -> list[str]:
    try:
        return list(map(_quoted, array.to_pylist()))
    except UnicodeDecodeError:
        stored = array.cast(pa.large_binary()).to_pylist()
        return [_quoted((value or b"").decode("utf-8", "surrogateescape")) for value in stored]


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _moments(array: pa.Array) -> list[str]:
    """Return ISO texts of dates and times, and the numbers of those that have none."""
    kind = array.type
    width = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    counts = array.view(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date(kind):
        per_day = 1 if pa.types.is_date32(kind) else PER_DAY["ms"]
        days = counts // per_day
        is_shown = (days >= FIRST_DAY) & (days <= LAST_DAY) & (counts % per_day == 0)
        shown, unit, start, end = np.where(is_shown, days, 0), "D", 0, ""
    elif pa.types.is_time(kind):
        unit = kind.unit
        is_shown = (counts >= 0) & (counts < PER_DAY[unit])
        shown, start, end = np.where(is_shown, counts, 0), len("1970-01-01T"), ""
    else:
        unit = kind.unit
        days = counts // PER_DAY[unit]
        is_shown = (days >= FIRST_DAY) & (days <= LAST_DAY)
        shown, start, end = np.where(is_shown, counts, 0), 0, "Z" if kind.tz else ""
    texts = np.datetime_as_string(shown.astype(f"datetime64[{unit}]")).tolist()
    return [
        f'"{text[start:]}{end}"' if has_text else str(count)
        for text, has_text, count in zip(texts, is_shown.tolist(), counts.tolist(), strict=True)
    ]


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[str]]], ...] = (
    (pa.types.is_string, _texts),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_date, _moments),
    (pa.types.is_timestamp, _moments),
    (pa.types.is_time, _moments),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_binary, _bytes),
    (pa.types.is_fixed_size_binary, _bytes),
    (pa.types.is_duration, _durations),
    (pa.types.is_null, _nulls),
    (pa.types.is_large_string, _texts),
    (pa.types.is_string_view, _texts),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_binary_view, _bytes),
)

"""Arrow columns of decoded records.

fastavro's result becomes Arrow in the types that `stored_type` names, which no record can fail.
`column` then gives the values the meaning of their Avro types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.formats.avro.schema import AvroType
from blizzard_py.formats.avro.walk import damaged_block
from blizzard_py.formats.row_text import plain_value
from blizzard_py.job import FieldSpec

_WIDE_BYTES, _WIDE_DIGITS = 32, 76
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_STORED = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "float": pa.float64(),
    "double": pa.float64(),
    "long": pa.int64(),
    "enum": pa.int64(),
    "bytes": pa.binary(),
    "string": pa.binary(),
    "fixed": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The options that decide about values: nanoseconds, and unions of several types."""

    nanoseconds: Literal["bad", "cut"] = "bad"
    union: Literal["json", "string"] = "json"


def stored_type(node: AvroType) -> pa.DataType:
    """Return the Arrow type of what fastavro makes under `decoding_schema`."""
    inner = [stored_type(child) for child in node.children]
    match node.kind:
        case "record":
            return pa.struct([(f"f{at}", kind) for at, kind in enumerate(inner)])
        case "array":
            return pa.list_(inner[0])
        case "map":
            return pa.map_(pa.binary(), inner[0])
        case "union" if node.branch is not None:
            return stored_type(node.branch)
        case "union":
            return pa.struct([(f"v{at}", kind) for at, kind in enumerate(inner)])
        case kind:
            return _STORED[kind]


def column_type(node: AvroType) -> pa.DataType:
    """Return the Arrow type of `column`."""
    inner = [column_type(child) for child in node.children]
    found = stored_type(node)
    if node.logical == "decimal":
        found = pa.decimal256(_WIDE_DIGITS, node.scale)
    elif node.kind in {"string", "enum"} or node.logical == "uuid":
        found = pa.string()
    elif node.logical:
        found = _TIMES[node.logical]
    elif node.kind == "record":
        found = pa.struct(zip(node.names, inner, strict=True))
    elif node.kind == "array":
        found = pa.list_(inner[0])
    elif node.kind == "map":
        found = pa.map_(pa.string(), inner[0])
    elif node.kind == "union":
        found = pa.string() if node.branch is None else column_type(node.branch)
    return found


def _time_types() -> dict[str, pa.DataType]:
    found = {"date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us")}
    for name, unit in _UNITS.items():
        found[f"timestamp-{name}"] = pa.timestamp(unit, "UTC")
        found[f"local-timestamp-{name}"] = pa.timestamp(unit)
    return found


_TIMES = _time_types()


def column(node: AvroType, stored: pa.Array, meaning: Meaning) -> pa.Array:
    """Return the values of a type. Raises `ValueError` if one of them cannot be.

    Raises `FileFailed` for an enum's symbol that does not exist.
    """
    if node.logical:
        return _logical(node, stored, meaning)
    found = stored
    match node.kind:
        case "string":
            found = stored.view(pa.string())  # the cast to the column looks whether it is UTF-8
        case "enum":
            found = _symbols(node, stored)
        case "record" if node.children:
            parts = [
                column(child, part, meaning)
                for child, part in zip(node.children, stored.flatten(), strict=True)
            ]
            found = _struct(node.names, parts, stored)
        case "array":
            values = column(node.children[0], stored.flatten(), meaning)
            found = pa.ListArray.from_arrays(_offsets(stored), values, mask=_mask(stored))
        case "map":
            offsets, keys, items = _entries(stored)
            values = column(node.children[0], items, meaning)
            keys = keys.view(pa.string())
            found = pa.MapArray.from_arrays(offsets, keys, values, mask=_mask(stored))
        case "union" if node.branch is not None:
            found = column(node.branch, stored, meaning)
        case "union":
            found = _union(node, stored, meaning)
    return found


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of a map; a slice's offsets are counted from 0."""
    array = pa.concat_arrays([array])
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    return offsets, array.keys.slice(start, end - start), array.items.slice(start, end - start)


def _struct(names: Sequence[str], parts: Sequence[pa.Array], like: pa.Array) -> pa.Array:
    fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=_mask(like))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _symbols(node: AvroType, stored: pa.Array) -> pa.Array:
    lowest, highest = pc.min_max(stored).as_py().values()
    if lowest is not None and not 0 <= lowest <= highest < len(node.names):
        raise damaged_block("an enum has no such symbol")
    return pa.array(node.names, pa.string()).take(stored)


def _logical(node: AvroType, stored: pa.Array, meaning: Meaning) -> pa.Array:
    logical = node.logical
    if logical == "uuid":
        if node.kind == "string":
            return stored.view(pa.string())
        texts = [value and str(UUID(bytes=value)) for value in stored.to_pylist()]
        return pa.array(texts, pa.string())
    if logical == "decimal":
        return _decimals(node, stored)
    kind = _TIMES[logical]
    if logical.startswith(("date", "time-")):
        _check_day(logical, stored)
        return (stored if logical == "time-micros" else stored.cast(pa.int32())).view(kind)
    if logical.endswith("nanos") and meaning.nanoseconds == "cut":
        nanos = stored.fill_null(0).to_numpy()
        whole = pa.array(nanos - nanos % 1000, pa.int64(), mask=stored.is_null().to_numpy(False))
        return whole.view(kind)
    return stored.view(kind)


def _check_day(logical: str, stored: pa.Array) -> None:
    lowest, highest = pc.min_max(stored).as_py().values()
    if logical != "date" and lowest is not None and not 0 <= lowest <= highest < _DAY[logical]:
        raise ValueError(f"{lowest if lowest < 0 else highest} is no time of a day")


def _decimals(node: AvroType, stored: pa.Array) -> pa.Array:
    found = bytearray()
    for value in stored.to_pylist():
        if value is None:
            found += bytes(_WIDE_BYTES)
            continue
        if not 0 < len(value) <= _WIDE_BYTES:
            raise ValueError(f"a decimal of {len(value)} bytes")
        number = int.from_bytes(value, "big", signed=True)
        found += number.to_bytes(_WIDE_BYTES, "little", signed=True)
    array = pa.Array.from_buffers(
        pa.decimal256(_WIDE_DIGITS, node.scale),
        len(stored),
        [pa.array(stored.is_valid()).buffers()[1], pa.py_buffer(bytes(found))],
    )
    array.validate(full=True)
    return array


def _union(node: AvroType, stored: pa.Array, meaning: Meaning) -> pa.Array:
    """Return each value as JSON text, or a text as it is."""
    found = pa.nulls(len(stored), pa.string())
    for child, part in zip(node.children, stored.flatten(), strict=True):
        if child.kind == "null":
            continue
        values = column(child, part, meaning)
        is_text = meaning.union == "string" and pa.types.is_string(values.type)
        found = pc.coalesce(found, values if is_text else json_texts(values))
    return found


def json_texts(array: pa.Array) -> pa.Array:
    """Return the values as JSON texts. Raises `ValueError` if one cannot be JSON.

    Numbers that JSON does not have are texts: ``"NaN"``, ``"Infinity"``.
    """
    try:
        texts = [
            None
            if value is None
            else json.dumps(
                _finite(value), ensure_ascii=False, allow_nan=False, default=plain_value
            )
            for value in array.to_pylist(maps_as_pydicts="strict")
        ]
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"cannot be JSON: {error}") from error
    return pa.array(texts, pa.string())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def rows_of(
    array: pa.Array,
    make: Callable[[pa.Array], pa.Array],
    failed: Callable[[int, ValueError], None],
    start: int = 0,
) -> pa.Array:
    """Return ``make`` of all values, with null for those of which it fails.

    ``failed`` gets the index of such a value and the error.
    """
    try:
        return make(array)
    except ValueError as error:  # pa.ArrowInvalid is one
        if len(array) == 1:
            failed(start, error)
            return pa.nulls(1)
    middle = len(array) // 2
    halves = [
        rows_of(part, make, failed, start + at)
        for at, part in ((0, array.slice(0, middle)), (middle, array.slice(middle)))
    ]
    kind = next((half.type for half in halves if not pa.types.is_null(half.type)), pa.null())
    return pa.concat_arrays([half.cast(kind) for half in halves])


def with_missing_fields(spec: FieldSpec, array: pa.Array) -> pa.Array:
    """Return the values with null for fields that a column has in its structs, and they do not.

    Required fields stay missing.
    """
    kind = array.type
    if spec.type == "struct" and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = dict(zip(names, array.flatten(), strict=True))
        for child in spec.children:
            if child.name in parts:
                parts[child.name] = with_missing_fields(child, parts[child.name])
            elif child.nullable:
                parts[child.name] = pa.nulls(len(array))
        return _struct(list(parts), list(parts.values()), array) if parts else array
    if spec.type == "list" and pa.types.is_list(kind):
        values = with_missing_fields(spec.children[0], array.flatten())
        return pa.ListArray.from_arrays(_offsets(array), values, mask=_mask(array))
    if spec.type == "map" and pa.types.is_map(kind):
        offsets, keys, items = _entries(array)
        items = with_missing_fields(spec.children[0], items)
        return pa.MapArray.from_arrays(offsets, keys, items, mask=_mask(array))
    return array


def unexpected_names(
    names: Mapping[str, pa.DataType], fields: Sequence[FieldSpec], within: str = ""
) -> list[str]:
    """Return the names without a column; those in a struct as ``struct.name``."""
    specs = {spec.name: spec for spec in fields}
    found = []
    for name, kind in names.items():
        spec = specs.get(name)
        if spec is None:
            found.append(within + name)
        elif spec.type == "struct" and pa.types.is_struct(kind):
            inner = {field.name: field.type for field in kind}
            found += unexpected_names(inner, spec.children, f"{within}{name}.")
    return found


def left_over(columns: Mapping[str, pa.Array], fields: Sequence[FieldSpec]) -> list[list[str]]:
    """Return for each row the members of its fields without a column, as JSON texts.

    Raises `ValueError` if a value cannot be JSON.
    """
    specs = {spec.name: spec for spec in fields}
    rows: list[list[str]] = [[] for _ in range(len(next(iter(columns.values()), ())))]
    for name, array in columns.items():
        spec = specs.get(name)
        key = json.dumps(name, ensure_ascii=False)
        if spec is None:
            for row, text in zip(rows, json_texts(array).to_pylist(), strict=True):
                row.append(f"{key}:{'null' if text is None else text}")
        elif spec.type == "struct" and pa.types.is_struct(array.type) and array.type.num_fields:
            inner = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
            parts = left_over(inner, spec.children)
            for row, part, valid in zip(rows, parts, array.is_valid().to_pylist(), strict=True):
                if part and valid:
                    row.append(f"{key}:{{{','.join(part)}}}")
    return rows

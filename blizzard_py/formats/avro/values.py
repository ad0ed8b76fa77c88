"""Arrow columns of decoded records.

fastavro's result becomes Arrow in the types that `stored_type` names, which no record can fail.
`column` then gives the values the meaning of their Avro types.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.schema import DECIMAL_DIGITS
from blizzard_py.formats.avro.schema import AvroType
from blizzard_py.formats.avro.walk import damaged_block
from blizzard_py.formats.nested_arrays import mapped_items, struct_of
from blizzard_py.formats.typed_rows import json_texts

_WIDE_BYTES, _WIDE_DIGITS = 32, 76
_JSON = pa.json_(pa.string())
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
_STORED = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "float": pa.float64(),
    "double": pa.float64(),
    "int": pa.int64(),
    "long": pa.int64(),
    "enum": pa.int64(),
    "bytes": pa.binary(),
    "string": pa.binary(),
    "fixed": pa.binary(),
}
_NARROW = {"int": pa.int32(), "float": pa.float32()}


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
    """Return the Arrow type that is named, which `column` may have in a wider form.

    A union of several types is JSON.
    """
    inner = [column_type(child) for child in node.children]
    found = _NARROW.get(node.kind) or stored_type(node)
    if node.logical == "decimal":
        make = pa.decimal128 if node.digits <= DECIMAL_DIGITS else pa.decimal256
        found = make(node.digits, node.scale)
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
        found = _JSON if node.branch is None else column_type(node.branch)
    return found


def _time_types() -> dict[str, pa.DataType]:
    found = {"date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us")}
    for name, unit in _UNITS.items():
        found[f"timestamp-{name}"] = pa.timestamp(unit, "UTC")
        found[f"local-timestamp-{name}"] = pa.timestamp(unit)
    return found


_TIMES = _time_types()


def column(node: AvroType, stored: pa.Array, options: AvroOptions) -> pa.Array:
    """Return the values of a type. Raises `ValueError` if one of them cannot be.

    Raises `FileFailed` for an enum's symbol that does not exist.
    """
    if node.logical:
        return _logical(node, stored, options)
    found = stored
    match node.kind:
        case "string":
            found = stored.view(pa.string())  # the cast to the column looks whether it is UTF-8
        case "enum":
            found = _symbols(node, stored)
        case "record" if node.children:
            parts = [
                column(child, part, options)
                for child, part in zip(node.children, stored.flatten(), strict=True)
            ]
            found = struct_of(node.names, parts, stored)
        case "array" | "map":
            inner = partial(column, node.children[0], options=options)
            found = mapped_items(stored, inner, lambda keys: keys.view(pa.string()))
        case "union" if node.branch is not None:
            found = column(node.branch, stored, options)
        case "union":
            found = _union(node, stored, options)
    return found


def check_symbols(node: AvroType, stored: pa.Array) -> None:
    """Raise `FileFailed` for a number that is no symbol of an enum."""
    lowest, highest = pc.min_max(stored).as_py().values()
    if lowest is not None and not 0 <= lowest <= highest < len(node.names):
        raise damaged_block("an enum has no such symbol")


def _symbols(node: AvroType, stored: pa.Array) -> pa.Array:
    check_symbols(node, stored)
    return pa.array(node.names, pa.string()).take(stored)


def _logical(node: AvroType, stored: pa.Array, options: AvroOptions) -> pa.Array:
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
    if logical.endswith("nanos") and options.nanoseconds == "cut":
        # In microseconds: the first of 1677 has no whole microsecond before it in nanoseconds.
        micros = stored.fill_null(0).to_numpy() // 1000
        mask = stored.is_null().to_numpy(zero_copy_only=False)
        return pa.array(micros, pa.int64(), mask=mask).view(pa.timestamp("us", kind.tz))
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


def _union(node: AvroType, stored: pa.Array, options: AvroOptions) -> pa.Array:
    """Return each value as JSON text, or a text as it is. A text has room for all digits."""
    options = options.model_copy(update={"nanoseconds": "bad"})
    found = pa.nulls(len(stored), pa.string())
    for child, part in zip(node.children, stored.flatten(), strict=True):
        if child.kind == "null":
            continue
        values = column(child, part, options)
        is_text = options.union == "string" and pa.types.is_string(values.type)
        found = pc.coalesce(found, values if is_text else json_texts(values))
    return found

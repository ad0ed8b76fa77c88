"""Arrow types as JSON, for the headers of letters. Pure.

Types that differ only in storage (dictionaries, views, large offsets, lists of a fixed size) are
written as the plain type, since they have the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from blizzard_py.formats.nested_arrays import is_list

_SIMPLE: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(),
        pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
        pa.string(), pa.binary(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"),
        pa.time64("us"), pa.time64("ns"), pa.duration("s"), pa.duration("ms"), pa.duration("us"),
        pa.duration("ns"),
    )
}  # fmt: skip
_UUID, _JSON = "uuid", "json"
_EXTENSIONS = {_UUID: pa.uuid(), _JSON: pa.json_(pa.string())}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]", re.DOTALL)
_DECIMAL = re.compile(r"(decimal(?:32|64|128|256))\((\d{1,3}), (-?\d{1,3})\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")
_WITH_PARAMETERS = (_TIMESTAMP, _DECIMAL, _FIXED)
_DECIMALS: dict[str, Callable[[int, int], pa.DataType]] = {
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}


def type_text(kind: pa.DataType) -> Any:
    """Return the type as a JSON value. A type that no file has is text, as its values are."""
    if isinstance(kind, pa.UuidType | pa.JsonType):
        return _UUID if isinstance(kind, pa.UuidType) else _JSON
    if isinstance(kind, pa.BaseExtensionType):
        return type_text(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return type_text(kind.value_type)
    return _nested_text(kind) if kind.num_fields else _leaf_text(kind)


def _nested_text(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {"struct": [[field.name, type_text(field.type)] for field in kind]}
    if pa.types.is_map(kind):
        return {"map": [type_text(kind.key_type), type_text(kind.item_type)]}
    return {"list": type_text(kind.value_type)} if is_list(kind) else str(pa.string())


def _leaf_text(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {"struct": []}
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return str(pa.binary())
    text = str(kind)
    is_known = text in _SIMPLE or any(known.fullmatch(text) for known in _WITH_PARAMETERS)
    return text if is_known else str(pa.string())


def type_of(text: Any) -> pa.DataType:
    """Return the type that `type_text` has written. Raises `ValueError` for anything else."""
    match text:
        case str() if text in _SIMPLE:
            return _SIMPLE[text]
        case str() if text in _EXTENSIONS:
            return _EXTENSIONS[text]
        case str():
            return _with_parameters(text)
        case {"struct": [*fields]}:
            return pa.struct([pa.field(name, type_of(inner)) for name, inner in fields])
        case {"map": [key, item]}:
            return pa.map_(type_of(key), type_of(item))
        case {"list": item}:
            return pa.list_(type_of(item))
    raise ValueError(f"{text!r} is no type")


def _with_parameters(text: str) -> pa.DataType:
    if found := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(found[1], found[2])
    if found := _DECIMAL.fullmatch(text):
        return _DECIMALS[found[1]](int(found[2]), int(found[3]))
    if found := _FIXED.fullmatch(text):
        return pa.binary(int(found[1]))
    raise ValueError(f"{text!r} is no type")

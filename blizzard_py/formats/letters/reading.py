"""Arrow values of the JSON that `writing` makes of them, given their types."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import accumulate
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from blizzard_py.formats.letters.writing import PER_DAY
from blizzard_py.formats.nested_arrays import leaf_types

_EXACT = Context(prec=200)
# No type has more digits, and one line may ask for a number of a million.
_MOST_DIGITS = 100
# Nulls of a piece; a line has room for all that it names. A value of another type has 8 bytes.
_NULL_BYTES = 128 << 20
_LEAF_BYTES = 8
# What `writing` writes: NumPy also takes words such as "now", and years alone.
_MOMENT = re.compile(r"NaT|-?\d{4,6}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,9})?)?")


class Number(str):
    """A number with the digits that stand there."""

    __slots__ = ()


def parsed(line: bytes) -> Any:
    """Return a line's JSON with all digits of its numbers.

    Raises `ValueError`, also for a name that an object has twice: `writing` has lists for that.
    """
    try:
        return json.loads(line, parse_int=Number, parse_float=Number, object_pairs_hook=_object_of)
    except RecursionError as error:
        raise ValueError("is nested too deep") from error


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has {twice!r:.100} twice")
    return found


class Room:
    """The memory for the nulls of a piece, in all its columns.

    Other values are about as long as their text. A null struct is null in each of its parts, and a
    null of a fixed width is as wide as others.
    """

    def __init__(self) -> None:
        self._left = _NULL_BYTES

    def take(self, kind: pa.DataType, nulls: int) -> None:
        """Take room for nulls. Raises `ValueError` where there is none."""
        if nulls:
            self._left -= nulls * sum(map(_width, leaf_types(kind)))
        if self._left < 0:
            raise ValueError(f"too wide for a row of a letter: {nulls:,} nulls of {kind!s:.100}")


def _width(leaf: pa.DataType) -> int:
    kind = leaf.storage_type if isinstance(leaf, pa.BaseExtensionType) else leaf
    return max(_LEAF_BYTES, kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0)


def arrow_array(kind: pa.DataType, values: Sequence[Any], room: Room) -> pa.Array:
    """Return the values in their type. Raises `ValueError` for one that is not of it.

    Raises it also where there is no ``room``; a shorter piece may have it.
    """
    try:
        return _array(kind, values, room)
    except (TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"is no {kind!s:.100}: {error}") from error


def _array(kind: pa.DataType, values: Sequence[Any], room: Room) -> pa.Array:
    nulls = sum(value is None for value in values)
    if nulls == len(values):
        room.take(kind, nulls)
        return pa.nulls(nulls, kind)
    if isinstance(kind, pa.UuidType):
        room.take(kind, nulls)
        stored = [None if value is None else UUID(value).bytes for value in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))
    if isinstance(kind, pa.JsonType):
        return pa.ExtensionArray.from_storage(kind, _array(kind.storage_type, values, room))
    if pa.types.is_nested(kind):
        return _nested(kind, values, room)
    room.take(kind, nulls)
    return _leaves(kind, values)


def _nested(kind: pa.DataType, values: Sequence[Any], room: Room) -> pa.Array:
    if pa.types.is_struct(kind):
        return _structs(kind, values, room)
    if pa.types.is_map(kind):
        return _maps(kind, values, room)
    items = [item for value in values if value is not None for item in _checked(list, value)]
    inner = _array(kind.value_type, items, room)
    return pa.ListArray.from_arrays(_offsets(values), inner, type=kind, mask=_mask(values))


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.100}")
    return value


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())


def _structs(kind: pa.DataType, values: Sequence[Any], room: Room) -> pa.Array:
    if not kind.num_fields:
        return pa.array([None if value is None else {} for value in values], kind)
    names = [field.name for field in kind]
    if len(set(names)) < len(names):
        found = [None if value is None else _by_place(names, value) for value in values]
        keys: Sequence[Any] = range(len(names))
    else:
        found = [None if value is None else _checked(dict, value) for value in values]
        keys = names
    arrays = [
        _array(field.type, [None if row is None else row.get(key) for row in found], room)
        for field, key in zip(kind, keys, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=_mask(values))


def _by_place(names: Sequence[str], value: Any) -> dict[int, Any]:
    if len(_checked(list, value)) != len(names):
        raise TypeError(f"{value!r:.100}")
    return dict(enumerate(value))


def _maps(kind: pa.DataType, values: Sequence[Any], room: Room) -> pa.Array:
    pairs = [
        pair
        for value in values
        if value is not None
        for pair in (value.items() if isinstance(value, dict) else _checked(list, value))
    ]
    keys = _array(kind.key_type, [key for key, _ in pairs], room)
    items = _array(kind.item_type, [item for _, item in pairs], room)
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind, mask=_mask(values))


def _leaves(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    for is_of, make in _MAKERS:
        if is_of(kind):
            return make(kind, values)
    return pa.array([_or_none(_truth, value) for value in values], kind)  # booleans, or nulls


def _texts(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([_or_none(_text_bytes, value) for value in values], pa.binary()).view(kind)


def _bytes(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([_or_none(_unpacked, value) for value in values], kind)


def _integers(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([_or_none(_integer, value) for value in values], kind)


def _durations(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return _integers(pa.int64(), values).view(kind)


def _floats(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    return pa.array([_or_none(_fraction, value) for value in values], pa.float64()).cast(kind)


def _or_none(make: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else make(value)


def _text_bytes(value: Any) -> bytes:
    text: str = _checked(str, value)
    return text.encode("utf-8", "surrogateescape")


def _unpacked(value: Any) -> bytes:
    return base64.b64decode(_checked(str, value), validate=True)


def _integer(value: Any) -> int:
    return int(_checked(Number, value))


def _fraction(value: Any) -> float:
    return float(_checked(str, value))  # the texts of NaN and infinities, too


def _truth(value: Any) -> bool:
    found: bool = _checked(bool, value)
    return found


def _decimals(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return decimals, also those with more digits than their type has."""
    width = kind.bit_width // 8
    stored = bytearray()
    for value in values:
        number = Decimal(0) if value is None else Decimal(_checked(Number, value))
        if number.is_finite() and number.adjusted() > _MOST_DIGITS:
            raise ValueError(f"{value} has too many digits")
        scaled = _EXACT.scaleb(number, kind.scale)
        if scaled != scaled.to_integral_value():
            raise ValueError(f"{value} has more than {kind.scale} digits behind its point")
        stored += int(scaled).to_bytes(width, "little", signed=True)
    valid = pa.array([value is not None for value in values], pa.bool_())
    return pa.Array.from_buffers(
        kind, len(values), [valid.buffers()[1], pa.py_buffer(bytes(stored))]
    )


def _moments(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    unit = "D" if pa.types.is_date(kind) else kind.unit
    per_count = PER_DAY["ms"] if pa.types.is_date64(kind) else 1
    before = "1970-01-01T" if pa.types.is_time(kind) else ""
    is_text = [isinstance(value, str) and not isinstance(value, Number) for value in values]
    texts = [
        f"{before}{value.removesuffix('Z')}" if has_text else "1970-01-01"
        for value, has_text in zip(values, is_text, strict=True)
    ]
    for text in texts:
        if not _MOMENT.fullmatch(text) or ("T" in text and pa.types.is_date(kind)):
            raise ValueError(f"{text!r} is no {kind}")
    moments = np.array(texts, f"datetime64[{unit}]").astype(np.int64) * per_count
    counts = [
        None if value is None else moment if has_text else _integer(value)
        for value, has_text, moment in zip(values, is_text, moments.tolist(), strict=True)
    ]
    width = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    return pa.array(counts, width).view(kind)


_MAKERS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Sequence[Any]], pa.Array]], ...
] = (
    (pa.types.is_string, _texts),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_date, _moments),
    (pa.types.is_timestamp, _moments),
    (pa.types.is_time, _moments),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_binary, _bytes),
    (pa.types.is_fixed_size_binary, _bytes),
    (pa.types.is_duration, _durations),
)

"""Thrift's compact protocol, as far as a Parquet footer needs it. Pure.

Each reading function takes the bytes and a start, and returns the value and its end. Reading past
the end raises `IndexError`, invalid content `SchemaMismatch`. No value is longer than the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeAlias

from blizzard_core.limits import FOOTER_LEVELS
from blizzard_core.table.schema_fit import SchemaMismatch

# Types of values.
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
INTEGERS = frozenset({4, 5, 6})
# Lengths of types with a fixed length. A struct's flags are in the heads of its fields.
_LENGTHS = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}

# Maps the bytes and a value's start to its replacement and its end.
Change: TypeAlias = Callable[[bytes, int], tuple[bytes, int]]


def unreadable(why: str) -> SchemaMismatch:
    """Return the error for an invalid footer."""
    return SchemaMismatch(f"has an unreadable Parquet footer: {why}")


def read_field(data: bytes, at: int, number: int) -> tuple[int, int, int]:
    """Read a field's header: number (relative to the one before), type, and start of the value."""
    head = data[at]
    if head > 15:
        return number + (head >> 4), head & 15, at + 1
    number, at = read_int(data, at + 1)
    return number, head & 15, at


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number: a length or a count."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    while (byte := data[at := at + 1]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise unreadable("a number of it is too long")
    return value | byte << shift, at + 1


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed integer."""
    value = data[at]
    if value < 128:
        return (value >> 1) ^ -(value & 1), at + 1
    value, at = read_unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes with their length before them."""
    size, at = read_unsigned(data, at)
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def read_count(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Read a list's header: the number of items of this type, and where the first begins."""
    items, found, at = _list(data, at)
    if items and found != kind:
        raise unreadable("a list of it has other items than the format says")
    return items, at


def skip_value(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Skip a value; return where it ends."""
    if depth > FOOTER_LEVELS:
        raise unreadable("it is nested too deep")
    if kind in INTEGERS:
        return read_unsigned(data, at)[1]
    if kind == BINARY:
        size, at = read_unsigned(data, at)
        return at + size
    if kind in (LIST, SET):
        items, inner, at = _list(data, at)
        for _ in range(items):
            at = at + 1 if inner in (TRUE, FALSE) else skip_value(data, at, inner, depth + 1)
        return at
    if kind == STRUCT:
        number = 0
        while data[at]:
            number, inner, at = read_field(data, at, number)
            at = skip_value(data, at, inner, depth + 1)
        return at + 1
    if kind not in _LENGTHS:
        raise unreadable(f"it has a value of the unknown type {kind}")
    return at + _LENGTHS[kind]


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    head = data[at]
    items, at = (head >> 4, at + 1) if head < 0xF0 else read_unsigned(data, at + 1)
    if items > len(data):
        raise IndexError  # each item takes a byte at least
    return items, head & 15, at


def encode_length(number: int) -> bytes:
    """Encode a length."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def encode_int(number: int) -> bytes:
    """Encode a signed integer."""
    return encode_length(number << 1 if number >= 0 else (-number << 1) - 1)


def rewrite_struct(
    data: bytes,
    at: int,
    known: Container[int],
    changes: Mapping[int, Change],
    dropped: Container[int] = (),
) -> tuple[bytes, int]:
    """Rewrite some fields of a struct and leave out others; return it and where the original ends.

    Raises `SchemaMismatch` for an unknown field, since its content may become wrong.
    """
    found, number, before = bytearray(), 0, 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        if number not in known:
            raise unreadable(f"it has an unknown field {number}")
        if number in dropped:
            at = skip_value(data, at, kind)
            continue
        found += _field_head(number - before, number, kind)
        before = number
        if number in changes:
            value, at = changes[number](data, at)
            found += value
        else:
            begin, at = at, skip_value(data, at, kind)
            found += data[begin:at]
    return bytes(found) + b"\0", at + 1


def encode_fields(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    """Encode a struct of these values, each with its type."""
    found, before = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        found += _field_head(number - before, number, kind) + value
        before = number
    return bytes(found) + b"\0"


def _field_head(step: int, number: int, kind: int) -> bytes:
    """Encode the header of a field that is ``step`` numbers behind the one before."""
    return bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + encode_int(number)


def encode_list_head(items: int, kind: int) -> bytes:
    """Encode the header of a list."""
    return bytes([items << 4 | kind]) if items < 15 else bytes([0xF0 | kind]) + encode_length(items)

"""A Parquet footer parsed, changed and written again, valid or not.

A struct is a dictionary from the field's number to its type and value, a list its items'
type and the items.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

_BOOLS, _WHOLE, _TEXT, _LISTS, _STRUCT = (1, 2), (4, 5, 6), 8, (9, 10), 12

Tree = dict[int, tuple[int, Any]]


def edited(data: bytes, edit: Callable[[Tree], object]) -> bytes:
    """Return a Parquet file with its footer changed."""
    length = int.from_bytes(data[-8:-4], "little")
    tree = _Reader(data[-8 - length : -8]).struct()
    edit(tree)
    footer = _struct(tree)
    return data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def places(kind: int, value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a tree, as what holds it and under which key."""
    if kind == _STRUCT:
        for number, (inner, found) in list(value.items()):
            yield value, number
            yield from places(inner, found)
    elif kind in _LISTS and value[0] not in _BOOLS:
        for index, found in enumerate(list(value[1])):
            yield value[1], index
            yield from places(value[0], found)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._bytes(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def _zigzag(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _value(self, kind: int) -> Any:
        if kind in _BOOLS:
            return kind == 1
        if kind in _WHOLE:
            return self._zigzag()
        if kind == _TEXT:
            return self._bytes(self._unsigned())
        if kind in _LISTS:
            return self._list()
        if kind == _STRUCT:
            return self.struct()
        return self._bytes({3: 1, 7: 8}[kind])

    def _list(self) -> tuple[int, list[Any]]:
        head = self._bytes(1)[0]
        count = head >> 4 if head < 0xF0 else self._unsigned()
        inner = head & 15
        if inner in _BOOLS:
            return inner, list(self._bytes(count))
        return inner, [self._value(inner) for _ in range(count)]

    def struct(self) -> Tree:
        found: Tree = {}
        number = 0
        while head := self._bytes(1)[0]:
            number = number + (head >> 4) if head > 15 else self._zigzag()
            found[number] = (head & 15, self._value(head & 15))
        return found


def _unsigned(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _zigzag(number: int) -> bytes:
    return _unsigned(((number << 1) ^ (number >> 63)) & ((1 << 64) - 1))


def _value(kind: int, value: Any) -> bytes:
    if kind in _BOOLS:
        return b""
    if kind in _WHOLE:
        return _zigzag(value)
    if kind == _TEXT:
        return _unsigned(len(value)) + bytes(value)
    if kind in _LISTS:
        inner, items = value
        short = len(items) < 15
        head = bytes([len(items) << 4 | inner if short else 0xF0 | inner])
        head += b"" if short else _unsigned(len(items))
        if inner in _BOOLS:
            return head + bytes(items)
        return head + b"".join(_value(inner, item) for item in items)
    return _struct(value) if kind == _STRUCT else bytes(value)


def _struct(tree: Tree) -> bytes:
    found, last = b"", 0
    for number, (kind, value) in sorted(tree.items()):
        written = kind if kind not in _BOOLS else 2 - bool(value)
        step = number - last
        head = bytes([step << 4 | written]) if step < 16 else bytes([written]) + _zigzag(number)
        found += head + _value(kind, value)
        last = number
    return found + b"\0"

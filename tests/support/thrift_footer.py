"""Parquet footers that no library writes: a part of Thrift's compact protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _zigzag(number: int) -> bytes:
    return _varint(((number << 1) ^ (number >> 63)) & ((1 << 64) - 1))


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Fields as (number, type, value), in order."""
    found, last = b"", 0
    for number, kind, value in fields:
        found += bytes([(number - last) << 4 | kind]) + value
        last = number
    return found + b"\0"


def _text(value: str) -> bytes:
    return _varint(len(value.encode())) + value.encode()


def _list(items: Sequence[bytes], kind: int) -> bytes:
    short = len(items) < 15
    head = bytes([len(items) << 4 | kind]) if short else bytes([0xF0 | kind]) + _varint(len(items))
    return head + b"".join(items)


def root(children: int) -> bytes:
    """Return the schema's first element."""
    return _struct((4, _BINARY, _text("root")), (5, _I32, _zigzag(children)))


def column(name: str) -> bytes:
    """Return an optional column of 64 bit integers."""
    return _struct((1, _I32, _zigzag(2)), (3, _I32, _zigzag(1)), (4, _BINARY, _text(name)))


def group(paths: Sequence[str] | Sequence[Sequence[str]], rows: int) -> bytes:
    """Return a row group: one column by its path, or several."""
    several = [path for path in paths if not isinstance(path, str)] or [list(map(str, paths))]
    chunks = []
    for path in several:
        metadata = _struct(
            (1, _I32, _zigzag(2)),
            (2, _LIST, _list([_zigzag(0)], _I32)),
            (3, _LIST, _list([_text(part) for part in path], _BINARY)),
            (4, _I32, _zigzag(0)),
            (5, _I64, _zigzag(rows)),
            (6, _I64, _zigzag(10)),
            (7, _I64, _zigzag(10)),
            (9, _I64, _zigzag(4)),
        )
        chunks.append(_struct((2, _I64, _zigzag(4)), (3, _STRUCT, metadata)))
    return _struct(
        (1, _LIST, _list(chunks, _STRUCT)), (2, _I64, _zigzag(10)), (3, _I64, _zigzag(rows))
    )


def footer(schema: Sequence[bytes], rows: int, groups: Sequence[bytes]) -> bytes:
    """Return a whole footer."""
    return _struct(
        (1, _I32, _zigzag(1)),
        (2, _LIST, _list(schema, _STRUCT)),
        (3, _I64, _zigzag(rows)),
        (4, _LIST, _list(groups, _STRUCT)),
        (6, _BINARY, _text("nobody")),
    )


def parquet_file(footer_bytes: bytes) -> bytes:
    """Return a file with that footer and no readable data."""
    return b"PAR1" + b"x" * 64 + footer_bytes + struct.pack("<I", len(footer_bytes)) + b"PAR1"

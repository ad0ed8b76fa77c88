"""Avro object container files in memory, and what the format makes of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro

from blizzard_core.settings.format_options import AvroOptions
from blizzard_py.formats.names import format_of
from blizzard_py.formats.protocol import Parsed
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece
from tests.support.memory_file import MemoryFile

AVRO = AvroOptions(type="avro")
SYNC = b"S" * 16


def written(
    schema: Any, rows: Sequence[Any], codec: str = "null", block_bytes: int = 16_000
) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=block_bytes, sync_marker=SYNC)
    return out.getvalue()


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number & ~127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def container(schema: Any, blocks: Sequence[tuple[int, bytes]], codec: bytes = b"null") -> bytes:
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    out = b"Obj\x01" + varint(2)
    for part in (b"avro.schema", text, b"avro.codec", codec):
        out += varint(len(part)) + part
    out += varint(0) + SYNC
    for count, data in blocks:
        out += varint(count) + varint(len(data)) + data + SYNC
    return out


def parsed_of(
    data: bytes,
    fields: tuple[FieldSpec, ...],
    options: AvroOptions = AVRO,
    **schema: Any,
) -> list[Parsed]:
    form = format_of(options)
    decoder = form.decoder(RowSchema(fields, **schema), tolerant=True, fast=True)
    found = form.pieces(MemoryFile(data), RowSchema(fields))
    return [decoder.decode(piece) for piece in found if isinstance(piece, Piece)]

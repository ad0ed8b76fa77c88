"""Records of a block by fastavro, which is loaded with the first of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from blizzard_core.extras import optional_module
from blizzard_py.formats.avro.schema import decoding_schema, record_type
from blizzard_py.formats.avro.walk import damaged_block


def read_records(schema: Any, count: int, data: bytes) -> list[Any]:
    """Return the records of a block, which is read as an array: one call for all of them."""
    whole = _varint(count) + data + b"\0"
    stream = io.BytesIO(whole)
    try:
        found: list[Any] = _reader()(stream, schema, None)
    except Exception as error:  # fastavro's errors have no common base class
        raise damaged_block(f"{type(error).__name__} {error}") from error
    if len(found) != count or stream.tell() != len(whole):
        raise damaged_block("its records do not end where it does")
    return found


def _varint(count: int) -> bytes:
    number, found = count << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@lru_cache(maxsize=1)
def _reader() -> Callable[..., Any]:
    found: Callable[..., Any] = optional_module("fastavro", "avro").schemaless_reader
    return found


@lru_cache(maxsize=16)
def parsed_schema(text: str) -> Any:
    """Return the schema of a block's records, for `read_records`."""
    schema = decoding_schema(record_type(text))
    return optional_module("fastavro", "avro").parse_schema(schema)

"""An ORC file's footer: its calendar, and the names by which readers select columns. Pure.

Format: https://github.com/apache/orc/blob/main/c%2B%2B/src/protobuf/orc_proto.proto, in protobuf's
encoding. Arrow knows the calendar, but does not return it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

# Fields of the tail and of the footer in it.
_FOOTER, _CALENDAR = 2, 11
_UNKNOWN, _JULIAN = 0, 1
_JAVA = "ORC_JAVA"
# Encodings of values: numbers, 8 bytes, texts and messages, 4 bytes.
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SIZES = {_EIGHT: 8, _FOUR: 4}


def has_julian_dates(file: Any) -> bool:
    """Return whether dates before 15 October 1582 are Julian.

    Java's writers, which Spark and Hive use, write such dates and may not say so. Others do not.
    """
    footer = _last_value(file.reader.serialized_file_tail(), _FOOTER)
    calendar = _last_value(footer, _CALENDAR) if isinstance(footer, bytes) else None
    return calendar == _JULIAN or (calendar in {None, _UNKNOWN} and file.writer == _JAVA)


def _last_value(message: bytes, wanted: int) -> int | bytes | None:
    """Return the last value of a field, None if there is none. Raises `IndexError`."""
    found: int | bytes | None = None
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        number, encoding = key >> 3, key & 7
        value: int | bytes | None = None
        if encoding == _NUMBER:
            value, at = _number(message, at)
        else:
            size, at = _number(message, at) if encoding == _BYTES else (_SIZES[encoding], at)
            value, at = message[at : at + size], at + size
        if number == wanted:
            found = value
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def inner_paths(fields: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    """Yield the paths of all fields within columns, as ORC spells them."""
    for field in fields:
        kind, path = field.type, before + field.name
        inner = [kind.field(at) for at in range(kind.num_fields)]
        if pa.types.is_list(kind):
            inner = [kind.value_field.with_name("_elem")]
        elif pa.types.is_map(kind):
            inner = [kind.key_field.with_name("_key"), kind.item_field.with_name("_value")]
        if before:
            yield path
        yield from inner_paths(inner, f"{path}.")

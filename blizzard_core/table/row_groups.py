"""Row groups of a Parquet footer, for the footer of another file. Pure.

Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. Fields
with positions in the file are identified by number. An unknown field is refused, since it might be
one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import (
    LIST,
    STRUCT,
    Change,
    encode_fields,
    encode_int,
    encode_list_head,
    read_count,
    read_field,
    read_int,
    rewrite_struct,
    skip_value,
    unreadable,
)

PARQUET_MAGIC = b"PAR1"
# The footer's length and the magic bytes are behind it.
PARQUET_TAIL_BYTES = len(PARQUET_MAGIC) + 4
# Of a file: its schema, rows, row groups, notes, and how the bounds of columns are ordered.
_FILE = range(1, 8)
_SCHEMA, _ROWS, _GROUPS, _NOTES, _ORDERS = 2, 3, 4, 5, 7
# Of a row group: its columns and where it lies, but no number among others. Of a column: where it,
# its metadata and its indexes lie, but not in another file; of its metadata: where pages and
# filters lie.
_GROUP = range(1, 7)
_COLUMNS, _GROUP_AT = 1, 5
_CHUNK = range(2, 8)
_CHUNK_PLACES, _METADATA = (2, 4, 6), 3
_DETAILS = range(1, 18)
_DETAIL_PLACES = (9, 10, 11, 14)
# What a copied row group leaves behind. Of a row group: its order and its number. Of a column: the
# indexes, which lie elsewhere. Of its metadata: notes, an index and the filter.
_NUMBER = 7
_LEFT_OF_GROUP, _LEFT_OF_CHUNK, _LEFT_OF_DETAILS = (4, _NUMBER), (4, 5, 6, 7), (8, 10, 14, 15)


def footer_of(data: bytes) -> bytes:
    """Return the footer at the end of a file. Raises `SchemaMismatch` if there is none."""
    size = int.from_bytes(data[-PARQUET_TAIL_BYTES : -len(PARQUET_MAGIC)], "little")
    if data[-len(PARQUET_MAGIC) :] != PARQUET_MAGIC or size + PARQUET_TAIL_BYTES > len(data):
        raise SchemaMismatch("is no Parquet file")
    return data[-PARQUET_TAIL_BYTES - size : -PARQUET_TAIL_BYTES]


def footer_with(head: bytes, groups: list[bytes], rows: int) -> bytes:
    """Return a footer with other row groups and their rows."""

    def all_groups(data: bytes, at: int) -> tuple[bytes, int]:
        entries = encode_list_head(len(groups), STRUCT) + b"".join(groups)
        return entries, skip_value(data, at, LIST)

    def all_rows(data: bytes, at: int) -> tuple[bytes, int]:
        return encode_int(rows), read_int(data, at)[1]

    return rewrite_struct(head, 0, _FILE, {_ROWS: all_rows, _GROUPS: all_groups})[0]


def file_without_pages(footer: bytes) -> pa.BufferReader:
    """Return a file with this footer and no pages."""
    parts = [PARQUET_MAGIC, footer, len(footer).to_bytes(4, "little"), PARQUET_MAGIC]
    return pa.BufferReader(b"".join(parts))


def metadata_of(footer: bytes) -> pq.FileMetaData:
    """Return the metadata that a reader finds in the footer. Raises `SchemaMismatch`."""
    try:
        return pq.read_metadata(file_without_pages(footer))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(str(error)) from None


def schema_of(footer: bytes) -> bytes:
    """Return the columns. Raises `SchemaMismatch` if there are none."""
    found = _value(footer, _SCHEMA)
    if not found:
        raise unreadable("it has no schema")
    return found


def with_schema(footer: bytes, change: Callable[[dict[int, tuple[int, bytes]]], None]) -> bytes:
    """Return the footer with other columns, its row groups as they are.

    ``change`` gets the type and value of each field of a schema's element, by number. Raises
    `SchemaMismatch` or `IndexError` for one that is no footer.
    """
    number = at = 0
    while footer[at]:
        number, kind, at = read_field(footer, at, number)
        if number != _SCHEMA:
            at = skip_value(footer, at, kind)
            continue
        begin = at
        size, at = read_count(footer, at, STRUCT)
        elements = [encode_list_head(size, STRUCT)]
        for _ in range(size):
            fields, at = _fields(footer, at)
            change(fields)
            elements.append(encode_fields(fields))
        return footer[:begin] + b"".join(elements) + footer[at:]
    raise unreadable("it has no schema")


def _fields(data: bytes, at: int) -> tuple[dict[int, tuple[int, bytes]], int]:
    found: dict[int, tuple[int, bytes]] = {}
    number = 0
    while data[at]:
        number, kind, at = read_field(data, at, number)
        begin, at = at, skip_value(data, at, kind)
        found[number] = kind, data[begin:at]
    return found, at + 1


def column_orders(footer: bytes) -> bytes:
    """Return how the bounds of the columns are ordered; nothing if the footer does not say."""
    return _value(footer, _ORDERS)


def without_notes(footer: bytes) -> bytes:
    """Return the footer without the writer's notes, which may change what readers see."""
    return rewrite_struct(footer, 0, _FILE, {}, (_NOTES,))[0]


def row_groups_of(footer: bytes) -> list[bytes]:
    """Return the entries of the row groups, as they are."""
    groups: list[bytes] = []

    def each(data: bytes, at: int) -> tuple[bytes, int]:
        items, at = read_count(data, at, STRUCT)
        for _ in range(items):
            begin, at = at, skip_value(data, at, STRUCT)
            groups.append(data[begin:at])
        return b"", at

    rewrite_struct(footer, 0, _FILE, {_GROUPS: each})
    return groups


def moved(group: bytes, distance: int) -> bytes:
    """Return a row group's entry with all positions moved by so many bytes."""
    place = partial(_moved_place, distance)
    return _rewritten(group, _GROUP, place)


def without_extras(group: bytes) -> bytes:
    """Return a row group's entry with nothing but its pages and their statistics."""
    return _rewritten(
        group,
        (*_GROUP, _NUMBER),
        partial(_moved_place, 0),
        (_LEFT_OF_GROUP, _LEFT_OF_CHUNK, _LEFT_OF_DETAILS),
    )


def _rewritten(
    group: bytes,
    known: Container[int],
    place: Change,
    left: tuple[Container[int], Container[int], Container[int]] = ((), (), ()),
) -> bytes:
    def columns(data: bytes, at: int) -> tuple[bytes, int]:
        items, at = read_count(data, at, STRUCT)
        chunks = [encode_list_head(items, STRUCT)]
        for _ in range(items):
            chunk, at = rewrite_struct(data, at, _CHUNK, of_chunk, left[1])
            chunks.append(chunk)
        return b"".join(chunks), at

    def details(data: bytes, at: int) -> tuple[bytes, int]:
        return rewrite_struct(data, at, _DETAILS, dict.fromkeys(_DETAIL_PLACES, place), left[2])

    of_chunk: dict[int, Change] = {**dict.fromkeys(_CHUNK_PLACES, place), _METADATA: details}
    return rewrite_struct(group, 0, known, {_COLUMNS: columns, _GROUP_AT: place}, left[0])[0]


def _moved_place(distance: int, data: bytes, at: int) -> tuple[bytes, int]:
    """Return a moved position; zero means none, since nothing is at a file's first byte."""
    found, at = read_int(data, at)
    return encode_int(found + distance if found else 0), at


def _value(footer: bytes, wanted: int) -> bytes:
    number = at = 0
    while footer[at]:
        number, kind, at = read_field(footer, at, number)
        begin, at = at, skip_value(footer, at, kind)
        if number == wanted:
            return footer[begin:at]
    return b""

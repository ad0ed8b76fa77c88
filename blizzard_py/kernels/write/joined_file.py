"""Joining of Parquet files with the same columns, their pages unchanged.

**Promise**: the file has the row groups of the added files, in order and byte for byte. Its footer
has their new positions and the columns with NaN; the rest equals the footer of a file without rows.
If that is impossible, `SchemaMismatch` is raised, and the caller rewrites the rows.

Reading and writing rows again takes as long as parsing them did. Copying them takes a tenth of
that.

Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. Fields
with positions in the file are identified by number. An unknown field is refused, since it might be
one of these.
"""

from __future__ import annotations

import contextlib
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.handover.outputs import nan_columns_of
from blizzard_core.storage.file_sink import FileSink
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import (
    STRUCT,
    Change,
    encode_int,
    encode_list_head,
    read_count,
    read_field,
    read_int,
    rewrite_struct,
    skip_value,
    unreadable,
)
from blizzard_py.kernels.write.parquet_file import ParquetFormat, empty_file

_MAGIC = b"PAR1"
_TAIL = len(_MAGIC) + 4
# Of a file: its schema, rows and row groups.
_FILE = range(1, 8)
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
# Of a row group: its columns and where it lies, but no number among others. Of a column: where it,
# its metadata and its indexes lie, but not in another file; of its metadata: where pages and
# filters lie.
_GROUP = range(1, 7)
_COLUMNS, _GROUP_AT = 1, 5
_CHUNK = range(2, 8)
_CHUNK_PLACES, _METADATA = (2, 4, 6), 3
_DETAILS = range(1, 18)
_DETAIL_PLACES = (9, 10, 11, 14)


class JoinedFile:
    """A file in staging that is joined from others."""

    def __init__(self, storage: Storage, form: ParquetFormat, staged: str, output_id: str) -> None:
        self.rows = 0
        self._form = form
        self._output_id = output_id
        self._schema = _schema_of(_footer_of(empty_file(form, output_id)))
        # None: one of the files does not say which of its columns hold NaN.
        self._nan: frozenset[int] | None = frozenset()
        self._groups: list[bytes] = []
        self._sink = FileSink(storage.open_output(staged), f"{storage.uri}/{staged}")
        self._sink.write(_MAGIC)

    @property
    def size(self) -> int:
        """The size in bytes so far."""
        return self._sink.written

    def add(self, data: bytes) -> None:
        """Add a whole file's rows. Raises `SchemaMismatch` if they cannot be copied unchanged."""
        footer = _footer_of(data)
        moved = self._sink.written - len(_MAGIC)
        try:
            if _schema_of(footer) != self._schema:
                raise SchemaMismatch("has other columns than the files that it is joined with")
            groups = _moved_groups(footer, moved)
        except IndexError:
            raise unreadable("it ends too early") from None
        self._sink.write(memoryview(data)[len(_MAGIC) : len(data) - _TAIL - len(footer)])
        self._groups += groups
        nan = nan_columns_of(_metadata(footer).metadata)
        self._nan = None if nan is None or self._nan is None else self._nan | nan

    def finish(self) -> None:
        """Write the footer. Only then the file is valid."""
        head = _footer_of(empty_file(self._form, self._output_id, self._nan))
        groups = encode_list_head(len(self._groups), STRUCT) + b"".join(self._groups)
        known = _metadata(_footer(head, groups, 0))
        self.rows = sum(known.row_group(n).num_rows for n in range(known.num_row_groups))
        footer = _footer(head, groups, self.rows)
        self._sink.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        self._sink.close()

    def abandon(self) -> None:
        """Close it; the remains must not be reported."""
        with contextlib.suppress(Exception):
            self._sink.close()


def _footer(head: bytes, groups: bytes, rows: int) -> bytes:
    """Return the footer of a file without rows, with row groups and their rows."""

    def all_groups(data: bytes, at: int) -> tuple[bytes, int]:
        return groups, read_count(data, at, STRUCT)[1]

    def all_rows(data: bytes, at: int) -> tuple[bytes, int]:
        return encode_int(rows), read_int(data, at)[1]

    return rewrite_struct(head, 0, _FILE, {_ROWS: all_rows, _GROUPS: all_groups})[0]


def _moved_groups(footer: bytes, moved: int) -> list[bytes]:
    """Return a file's row groups for another one's footer, moved by so many bytes."""
    groups: list[bytes] = []

    def move_groups(data: bytes, at: int) -> tuple[bytes, int]:
        items, at = read_count(data, at, STRUCT)
        for _ in range(items):
            group, at = _moved_group(data, at, moved)
            groups.append(group)
        return b"", at

    rewrite_struct(footer, 0, _FILE, {_GROUPS: move_groups})
    return groups


def _moved_group(data: bytes, at: int, moved: int) -> tuple[bytes, int]:
    def columns(data: bytes, at: int) -> tuple[bytes, int]:
        items, at = read_count(data, at, STRUCT)
        chunks = [encode_list_head(items, STRUCT)]
        for _ in range(items):
            chunk, at = rewrite_struct(data, at, _CHUNK, of_chunk)
            chunks.append(chunk)
        return b"".join(chunks), at

    place = partial(_place, moved)
    of_details: dict[int, Change] = dict.fromkeys(_DETAIL_PLACES, place)
    of_chunk: dict[int, Change] = dict.fromkeys(_CHUNK_PLACES, place)
    of_chunk[_METADATA] = lambda data, at: rewrite_struct(data, at, _DETAILS, of_details)
    return rewrite_struct(data, at, _GROUP, {_COLUMNS: columns, _GROUP_AT: place})


def _place(moved: int, data: bytes, at: int) -> tuple[bytes, int]:
    """Return a moved position; zero means none, since nothing is at a file's first byte."""
    found, at = read_int(data, at)
    return encode_int(found + moved if found else 0), at


def _footer_of(file: bytes) -> bytes:
    size = int.from_bytes(file[-_TAIL : -len(_MAGIC)], "little")
    if file[: len(_MAGIC)] != _MAGIC or file[-len(_MAGIC) :] != _MAGIC or size + _TAIL > len(file):
        raise SchemaMismatch("is no Parquet file")
    return file[-_TAIL - size : -_TAIL]


def _schema_of(footer: bytes) -> bytes:
    number = at = 0
    while footer[at]:
        begin = at
        number, kind, at = read_field(footer, at, number)
        at = skip_value(footer, at, kind)
        if number == _SCHEMA:
            return footer[begin:at]
    raise unreadable("it has no schema")


def _metadata(footer: bytes) -> pq.FileMetaData:
    """Return the metadata that a reader finds in the footer."""
    file = b"".join([_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC])
    try:
        return pq.read_metadata(pa.BufferReader(file))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(str(error)) from None

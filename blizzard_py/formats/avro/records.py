"""The format Avro: a block's records become rows, each with its number and without an address."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from blizzard_core.errors import ConfigError
from blizzard_core.extras import optional_module
from blizzard_core.limits import AVRO_RECORD_VALUES
from blizzard_core.settings.format_options import AvroOptions
from blizzard_py.formats.avro.container import Container
from blizzard_py.formats.avro.defaults import check_defaults
from blizzard_py.formats.avro.resolution import Change, resolved_fields
from blizzard_py.formats.avro.schema import FILE_SCHEMA, AvroType, decoding_schema, record_type
from blizzard_py.formats.avro.values import (
    column,
    column_type,
    stored_type,
)
from blizzard_py.formats.avro.walk import damaged_block, record_ends
from blizzard_py.formats.columnar.batches import BatchFormat
from blizzard_py.formats.columnar.letters import rows_header
from blizzard_py.formats.letters.writing import encoded, json_texts_of, row_lines
from blizzard_py.formats.protocol import (
    NO_OFFSET,
    OpenFile,
)
from blizzard_py.formats.typed_rows import TypedDecoder, check_names, rows_of
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import CHUNK_BYTES, Piece, RefusedRecord


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


# Values of a piece. fastavro makes Python objects of them, of 100 bytes and more.
_PIECE_CELLS = 512 << 10
# Before each block in a piece: the number of its records and of their bytes.
_BLOCK = struct.Struct("<QQ")
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class AvroFormat(BatchFormat):
    """Object container files as a `Format`."""

    options: AvroOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield pieces of one or several blocks, decompressed; their context is the schema."""
        container = Container(file)
        header = container.header()
        records = record_type(header.schema)
        reader = self.options.avro_schema
        if reader:
            resolved_fields(header.schema, reader)
        check_names(record_type(reader or header.schema).names, schema)
        return _joined(_portions(records, container.blocks(header.codec)), header.schema)

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> AvroDecoder:  # noqa: ARG002  # there is no compiled code
        """Return the decoder of these columns."""
        return AvroDecoder(schema, self.options, tolerant=tolerant)


def format_of(settings: AvroOptions) -> AvroFormat:
    """Return the format with its options. Raises `ConfigError` for a schema that is not read."""
    if settings.avro_schema:
        try:
            check_defaults(record_type(settings.avro_schema))
        except (FileFailed, ValueError) as error:
            why = str(getattr(error, "reason", error)).removeprefix(f"{FILE_SCHEMA} ")
            raise ConfigError("format", [f"avro_schema: {why}"]) from error
    return AvroFormat(settings)


@dataclass(frozen=True, slots=True)
class _Portion:
    """Records of one block; a refused one is alone, and has no bytes."""

    count: int
    data: bytes
    cells: int
    refused: bool = False


def _portions(records: AvroType, blocks: Iterator[tuple[int, bytes]]) -> Iterator[_Portion]:
    """Yield the blocks, cut where they may become too many values."""
    for count, data in blocks:
        if count * records.least > len(data) or (data and not count):
            raise damaged_block(f"{count:,} records in {len(data):,} bytes")
        cells = count * records.cells + int(len(data) * records.density)
        if data and not records.least:
            raise damaged_block(f"{len(data):,} bytes of records without bytes")
        if cells <= _PIECE_CELLS:
            if count:
                yield _Portion(count, data, cells)
        elif records.least:
            yield from _cut(records, count, data)
        else:
            most = max(1, _PIECE_CELLS // records.cells)
            for start in range(0, count, most):
                some = min(most, count - start)
                yield _Portion(some, b"", some * records.cells)


def _cut(records: AvroType, count: int, data: bytes) -> Iterator[_Portion]:
    start = end = number = cells = 0
    for next_end, size in record_ends(records, count, data):
        if number and (cells + size > _PIECE_CELLS or end - start > CHUNK_BYTES):
            yield _Portion(number, data[start:end], cells)
            start, number, cells = end, 0, 0
        number, cells, end = number + 1, cells + size, next_end
        if size > AVRO_RECORD_VALUES:
            yield _Portion(1, data[start:end], 0, refused=True)
            start, number, cells = end, 0, 0
    if number:
        yield _Portion(number, data[start:end], cells)


def _joined(portions: Iterator[_Portion], schema: str) -> Iterator[Piece | RefusedRecord]:
    """Yield pieces of about `CHUNK_BYTES`."""
    parts: list[bytes] = []
    size = lines = cells = 0

    def piece() -> Piece:
        return Piece(b"".join(parts), NO_OFFSET, cells, lines=lines, context=schema)

    for each in portions:
        full = size + len(each.data) > CHUNK_BYTES or cells + each.cells > _PIECE_CELLS
        if parts and (full or each.refused):
            yield piece()
            parts, size, lines, cells = [], 0, 0, 0
        if each.refused:
            reason = f"has more than {AVRO_RECORD_VALUES:,} values"
            yield RefusedRecord(NO_OFFSET, len(each.data), b"", reason)
            continue
        parts += [_BLOCK.pack(each.count, len(each.data)), each.data]
        size, lines, cells = size + len(each.data), lines + each.count, cells + each.cells
    if parts:
        yield piece()


def blocks_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number of records and their bytes of each block in a piece's data."""
    at = 0
    while at < len(data):
        count, size = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size + size
        yield count, data[at - size : at]


class AvroDecoder(TypedDecoder):
    """The second half of the format, for one source's columns; fastavro decodes."""

    def __init__(self, schema: RowSchema, options: AvroOptions, *, tolerant: bool) -> None:
        super().__init__(schema, tolerant=tolerant)
        self._options = options
        self._reader = options.avro_schema

    def rows(self, piece: Piece) -> _Rows:
        """Decode the blocks. Raises `FileFailed` for a damaged one."""
        return _Rows(piece, self._options)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns of the schema; a union of several types has one for each value."""
        return {
            name: None if isinstance(kind, pa.JsonType) else kind
            for name, kind in _types_of(
                record_type(self._reader) if self._reader else _records_of(piece)
            ).items()
        }

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the records each, found without fastavro."""
        if piece.lines < 2:
            return None
        middle, lines = piece.lines // 2, 0
        parts: tuple[list[bytes], list[bytes]] = ([], [])
        for count, data in blocks_of(piece.data):
            first_count = min(count, max(0, middle - lines))
            end = len(data)
            if first_count < count:
                ends = record_ends(_records_of(piece), count, data)
                end = max((end for end, _ in islice(ends, first_count)), default=0)
            for some, records, part in (
                (first_count, data[:end], parts[0]),
                (count - first_count, data[end:], parts[1]),
            ):
                if some:
                    part += [_BLOCK.pack(some, len(records)), records]
            lines += count
        return (
            replace(piece, data=b"".join(parts[0]), lines=middle, cells=0),
            replace(piece, data=b"".join(parts[1]), lines=piece.lines - middle, cells=0),
        )


class _Rows:
    """The decoded records of a piece; ``bad`` are those with a value that its type cannot have."""

    def __init__(self, piece: Piece, options: AvroOptions) -> None:
        reader = options.avro_schema
        records = record_type(reader) if reader else _records_of(piece)
        self._names = records.names
        self.types = _types_of(records)
        self.count = piece.lines
        self.bad: dict[int, str] = {}
        self._options = options
        self._nodes = dict(zip(records.names, records.children, strict=True))
        self._failed: dict[int, dict[str, str]] = {}
        stored = _decoded(piece).flatten()
        self._changes: dict[str, Change] = {}
        if reader:
            fields = resolved_fields(str(piece.context), reader)
            self._changes = dict(zip(records.names, (each.change for each in fields), strict=True))
            missing = pa.nulls(piece.lines)
            stored = [missing if each.source is None else stored[each.source] for each in fields]
        self._stored = dict(zip(records.names, stored, strict=True))
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        """Return a column, with null in rows whose value cannot be."""
        if name not in self._columns:
            self._columns[name] = self._column(name, self._options)
        return self._columns[name]

    def _column(self, name: str, options: AvroOptions) -> pa.Array:
        def failed(row: int, error: ValueError) -> None:
            reason = bounded(f"column {name!r}: {error}", _REASON_CHARACTERS)
            self._failed.setdefault(row, {})[name] = reason
            self.bad.setdefault(row, reason)

        node, change = self._nodes[name], self._changes.get(name)

        def values(array: pa.Array) -> pa.Array:
            if change is not None:
                array = change(array, pa.array(np.ones(len(array), np.bool_)))
            return column(node, array, options)

        return rows_of(self._stored[name], values, failed)

    def letters(self, indices: Sequence[int]) -> tuple[bytes, list[bytes]]:
        """Return the rows; a value that its type cannot have is beside its row, as it is stored.

        No letter has cut digits: `cut` is an option of today, and a replay has another day's.
        """
        at = pa.array(indices, pa.int64())
        whole = self._options.model_copy(update={"nanoseconds": "bad"})
        some = pa.RecordBatch.from_arrays(
            [self._column(name, whole).take(at) for name in self._names], list(self._names)
        )
        lines = row_lines(some)
        for place, index in enumerate(indices):
            if index in self._failed:
                lines[place] = b"[%b, %b]" % (lines[place], self._unreadable(index))
        # A column has no type of its own where none of its values can be read.
        kinds = zip(some.schema, self.types.values(), strict=True)
        types = [
            named.with_type(kind) if named.type == pa.null() else named for named, kind in kinds
        ]
        return rows_header(pa.schema(types), self._names, {}, {}), lines

    def _unreadable(self, index: int) -> bytes:
        members = (
            f'{json.dumps(name)}: {{"error": {json.dumps(reason)}, "stored": {text}}}'
            for name, reason in self._failed[index].items()
            for text in json_texts_of(self._stored[name].slice(index, 1))
        )
        return encoded(f"{{{', '.join(members)}}}")


def _types_of(records: AvroType) -> dict[str, pa.DataType]:
    return dict(zip(records.names, map(column_type, records.children), strict=True))


def _records_of(piece: Piece) -> AvroType:
    return record_type(str(piece.context))


def _decoded(piece: Piece) -> pa.Array:
    """Return all records as Arrow stores them. Raises `FileFailed` for a damaged block."""
    records, schema = _records_of(piece), parsed_schema(str(piece.context))
    kind = stored_type(records)
    arrays = [
        _values(kind, read_records(schema, count, data))
        if records.least
        else _values(kind, read_records(schema, 1, b"") * count)
        for count, data in blocks_of(piece.data)
    ]
    return pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]


def _values(kind: pa.DataType, found: list[Any]) -> pa.Array:
    try:
        return pa.array(found, kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged_block(error) from error

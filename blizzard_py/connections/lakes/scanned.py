"""Folders of files that are scanned as a whole, in any format that has rows.

The driver process scans each file once, for the values of the watermark's columns. Tasks scan the
files that can have rows of the window again and keep these rows, unconverted: digests of rows are
made of the source's own values, and the kernel converts them to the declared types.

A value that cannot be read as its type counts as null. A record that is no row has no watermark. It
is read once, with the window of the file's highest value. A file without any of the watermark's
columns is one such record.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import structs

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.limits import ROW_BYTES
from blizzard_core.settings.formats import (
    FORMATS_WITH_TYPES,
    CsvOptions,
    FormatSettings,
    XmlOptions,
)
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.bounds import plain_selection
from blizzard_py.connections.lakes.directory import DirectoryConnection
from blizzard_py.connections.lakes.file_facts import FileFacts, RangeCollector
from blizzard_py.connections.lakes.file_plan import PlannedFile, files_of
from blizzard_py.connections.lakes.filters import parse
from blizzard_py.connections.lakes.locations import StorageCache, storage_options, translate_errors
from blizzard_py.connections.lakes.window_rows import RowChoice, check_unchanged
from blizzard_py.connections.protocol import ReadSelection, Rows
from blizzard_py.formats.letters.header import text_header
from blizzard_py.formats.names import check_format, plain_format_of
from blizzard_py.formats.protocol import (
    BadRecord,
    FileRows,
    LineNumbers,
    RecordBytes,
    SourceRows,
    TableDecoder,
)
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FieldSpec, JobFile, RowSchema
from blizzard_py.lines.codec_names import CODEC_ENDINGS, ZIP_ENDING
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import RefusedRecord
from blizzard_py.reading import Access, BoundKind
from blizzard_py.schema.types import arrow_type
from blizzard_py.slices.column_order import ColumnRange, column_order

# The most rows of a batch, and the most bytes of one bad record that people are shown.
_BATCH_ROWS = 1 << 16
_BAD_BYTES = 64 << 10
_SAMPLE_BYTES = 1 << 20
_TEXTS = (CsvOptions, XmlOptions)
_NO_ORDER = frozenset({"struct", "list", "map", "json", "binary"})
# A number beyond the declared width has its place among others, although its row is bad.
_WIDER: Mapping[str, Any] = {"int32": "int64", "float32": "float64"}
_json = msgspec.json.Decoder()
# A daemon scans several files at a time, and a format that does not stream takes much memory.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class ScannedFiles:
    """Files of one format as a `Form`. ``fields`` are declared, ``keys`` those of the watermark."""

    options: FormatSettings
    fields: tuple[FieldSpec, ...]
    keys: tuple[FieldSpec, ...]
    bound: BoundKind = "rows"
    counts_nulls: bool = True

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """The endings of names, with those of codecs if files may be compressed."""
        codecs = ("", *CODEC_ENDINGS.values(), ZIP_ENDING) if self.options.streams else ("",)
        # A folder of CSV may hold other text.
        own = (".csv",) if self.options.type == "csv" else self.options.endings
        return tuple(ending + codec for ending in own for codec in codecs)

    @property
    def has_schema(self) -> bool:
        """True if a column that no file has is an error."""
        return not _has_lines(self.options)

    def facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        """Scan the keys once; without columns read only the beginning, for names and types."""
        with nullcontext() if self.options.streams else _ONE_AT_A_TIME:
            if columns:
                return self._facts(storage, file, columns)
            return FileFacts(self._first_schema(storage, file), {}, {})

    def _facts(self, storage: Storage, file: PlannedFile, columns: Sequence[str]) -> FileFacts:
        tally = RangeCollector(self.keys)
        schema = pa.schema([])
        check_unchanged(storage, file)
        for found in scan(storage, file, self.options, self.fields, (), self.keys):
            schema = schema if len(schema) else found.schema
            if len(schema) and not set(schema.names) & set(columns):
                return FileFacts(schema, {}, dict.fromkeys(columns, ColumnRange(values=False)))
            tally.add(found)
        check_unchanged(storage, file)
        orders = tally.orders if len(schema) else {}
        return FileFacts(schema, orders, tally.ranges, tally.unread_in_all)

    def _first_schema(self, storage: Storage, file: PlannedFile) -> pa.Schema:
        for found in scan(storage, file, self.options, self.fields, (), ()):
            if isinstance(found.rows, pa.RecordBatch):
                return pa.schema([_plain(each) for each in found.schema])
            if found.rows:
                return _sampled(found.rows, f"{storage.uri}/{file.name.path}")
        return pa.schema([])


def connect(access: Access, selection: ReadSelection) -> DirectoryConnection:
    """Return the files of a directory.

    Raises `SourceError` for columns that cannot be compared, `ConfigError` as `check_format` does.
    """
    check_format(_options(access))
    condition = parse(plain_selection(selection).filter)
    key_fields(condition.columns if condition else (), selection.fields)
    keys = key_fields(selection.columns, selection.fields)
    for key in keys:
        column_order(key.name, arrow_type(key))
    form = ScannedFiles(_options(access), selection.fields, keys)
    return DirectoryConnection(access, selection, form)


def read(access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]) -> Iterator[Rows]:
    """Yield the rows of the window, unconverted, and the records that are no rows.

    A `Reader` of `blizzard_py.connections.protocol`.
    """
    stores = StorageCache(storage_options(access))
    options = _options(access)
    choice = _RowChoice.of(spec)
    letters = _Letters(access.driver, options)
    keys = key_fields(choice.columns, fields)
    wanted = [each.name for each in fields] or list(spec["columns"])
    declared = tuple(fields) or tuple(FieldSpec(name, "string", nullable=True) for name in wanted)
    for file in files_of(spec):
        storage = stores.at(file.name.root)
        with translate_errors("a planned file"):
            check_unchanged(storage, file)
            is_known = False
            for found in scan(storage, file, options, declared, wanted, keys):
                if not is_known and (missing := choice.missing_watermark(found)):
                    if file.has_bad:
                        yield letters.unusable(found, missing)
                    break
                # Members of an archive have headers of their own; the first one decides.
                is_known = is_known or len(found.schema) > 0
                if file.has_bad:
                    yield from map(letters.of, found.bad)
                for rows in choice.rows(found, [key.name for key in keys], file):
                    yield letters.of_rows(rows) if isinstance(rows, FileRows) else rows
            check_unchanged(storage, file)


def key_fields(names: Sequence[str], fields: Sequence[FieldSpec]) -> tuple[FieldSpec, ...]:
    """Return these columns as declared, so that they can be compared.

    Raises `SourceError` for a column that is not declared or has no order.
    """
    known = {each.name: each for each in fields}
    found = []
    for name in dict.fromkeys(names):
        spec = known.get(name)
        if spec is None:
            raise SourceError(f"column {name} is not in the schema; declare it with its type")
        if spec.type in _NO_ORDER:
            raise SourceError(
                f"column {name} is {spec.type}, which has no order; choose a column of times,"
                " dates, numbers or text"
            )
        found.append(replace(spec, nullable=True, type=_WIDER.get(spec.type, spec.type)))
    return tuple(found)


def scan(
    storage: Storage,
    file: PlannedFile,
    options: FormatSettings,
    fields: Sequence[FieldSpec],
    columns: Sequence[str],
    keys: Sequence[FieldSpec],
) -> Iterator[SourceRows]:
    """Yield the records of a file with these columns and keys, a piece at a time.

    Raises `SourceError`, or `Unavailable`.
    """
    form = plain_format_of(options)
    # The kernel says which rows lack a required value.
    schema = RowSchema(tuple(replace(each, nullable=True) for each in fields), of_table=True)
    decoder = cast("TableDecoder", form.decoder(schema, tolerant=True, fast=True))
    try:
        with SourceFile(storage, JobFile(file.name.path, file.size)) as opened:
            for item in opened.pieces(form, schema):
                if isinstance(item, RefusedRecord):
                    yield _refused(item, options)
                else:
                    yield decoder.source_rows(item, columns, keys)
    except FileFailed as error:
        problem = f"{storage.uri}/{file.name.path}: {error.reason}"
        raise (Unavailable if error.outcome == "retry" else SourceError)(problem) from error


def _options(access: Access) -> FormatSettings:
    assert access.format is not None  # noqa: S101  # settings give each such driver one
    return access.format


def _has_lines(options: FormatSettings) -> bool:
    return options.type in {"ndjson", "json"}


def _refused(record: RefusedRecord, options: FormatSettings) -> SourceRows:
    """Return a record that is too long. Its beginning alone might be a valid line."""
    bad = BadRecord.of(record)
    if _has_lines(options):
        bad = structs.replace(bad, head=bad.head + b"\0")
    return SourceRows(pa.schema([]), [], bad=[bad])


class _RowChoice(RowChoice):
    """The choice among the records of a piece."""

    __slots__ = ()

    def rows(
        self, found: SourceRows, keys: Sequence[str], file: PlannedFile
    ) -> Iterator[FileRows | bytes]:
        """Yield the rows to read, in batches or as lines."""
        rows, count = found.rows, len(found.rows)
        if not count:
            return
        at = np.arange(count)
        if keys:
            values = dict(zip(keys, found.keys, strict=True))
            keep = self.keeps(values, values, count, file.name.path)
            at = np.flatnonzero(np.asarray(keep))
            rows = rows.filter(keep) if isinstance(rows, pa.RecordBatch) else rows
        if not isinstance(rows, pa.RecordBatch):
            if len(at):
                yield b"".join(rows[index] + b"\n" for index in at.tolist())
            return
        for start in range(0, len(at), _BATCH_ROWS):
            end = start + _BATCH_ROWS
            yield _with_records(rows.slice(start, _BATCH_ROWS), found, at[start:end])

    def missing_watermark(self, found: SourceRows) -> tuple[str, ...]:
        """Return the watermark's columns if the file has none of them, else nothing."""
        names = set(found.schema.names)
        columns = self.window.columns if self.window and names else ()
        return () if names & set(columns) else columns


@dataclass(frozen=True, slots=True)
class _Letters:
    """Records that are no rows, for their letters.

    Lines of JSON are left to the line parser. Rows of formats with types are letters already. A
    whole record of text has a header, by which a replay knows its format. Of another one there is
    only a beginning, or nothing at all; it gets words before it and stays bad.
    """

    driver: str
    options: FormatSettings

    def of_rows(self, rows: FileRows) -> FileRows:
        """Return rows with such headers in their letters."""
        if not isinstance(self.options, _TEXTS):
            return rows

        def records(some: Sequence[int]) -> list[RecordBytes]:
            found = rows.records(some)
            headers = {header: text_header(header) for header in {each[2] for each in found}}
            return [(0, raw, headers[header]) for _, raw, header in found]

        return FileRows(rows.batch, records)

    def of(self, bad: BadRecord) -> Rows:
        """Return a record for its letter."""
        if _has_lines(self.options):
            return bad.head.replace(b"\n", b" ") + b"\n"
        if bad.header and isinstance(self.options, FORMATS_WITH_TYPES):
            return structs.replace(bad, index=0)
        if isinstance(self.options, _TEXTS) and len(bad.head) == bad.length <= ROW_BYTES:
            return structs.replace(bad, index=0, offset=0, header=text_header(bad.header))
        return self._text(bad.reason, f"{bad.reason}: ".encode() + bad.head)

    def unusable(self, found: SourceRows, columns: Sequence[str]) -> BadRecord:
        """Return the record for a file whose rows cannot be assigned to a window."""
        lacks = ", ".join(columns)
        reason = (
            f"no row is read: the file has no column {lacks}; correct its header or set the option"
            " delimiter"
        )
        names = ",".join(found.schema.names).encode("utf-8", "surrogateescape")
        return self._text(reason, reason.encode() + b"; the header is: " + names)

    def _text(self, reason: str, text: bytes) -> BadRecord:
        shown = text[:_BAD_BYTES].replace(b"\n", b" ").replace(b"\r", b" ")
        head = f"{self.driver} row, ".encode() + shown
        return BadRecord(0, 0, len(head), head, reason)


def _with_records(rows: pa.RecordBatch, found: SourceRows, at: LineNumbers) -> FileRows:
    """Return rows that are ``at`` these indices of a piece's rows."""
    records = found.records
    assert records is not None  # noqa: S101  # each decoder of columns has them
    return FileRows(rows, lambda some: records(at[list(some)].tolist()))


def _plain(column: pa.Field) -> pa.Field:
    """Return a column of values that each have a type of their own as one of text."""
    return column.with_type(pa.string()) if isinstance(column.type, pa.JsonType) else column


def _sampled(lines: Sequence[bytes], where: str) -> pa.Schema:
    """Return names and types of a file's first lines."""
    import pyarrow.json as pj  # noqa: PLC0415  # for this alone

    sample: list[bytes] = []
    size = 0
    try:
        for line in lines:
            size += len(line)
            if sample and size > _SAMPLE_BYTES:
                break
            # Arrow recurses as deep as a line is nested, and ends the process if its stack is too
            # small. This decoder stops at a thousand levels.
            if line and not line.isspace():
                _json.decode(line)
            sample.append(line)
        return pj.read_json(pa.BufferReader(b"".join(line + b"\n" for line in sample))).schema
    except (pa.ArrowInvalid, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{where}: its first lines are not NDJSON") from error

"""The row groups of a Parquet file that can become rows of the table without being decoded.

A row group is copied only if its footer says that decoding would give the same rows: the same
columns, stored alike, and no value that a column cannot have. The footer is believed, so damage
within pages and wrong statistics are copied, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.errors import SourceError
from blizzard_core.limits import (
    COPIED_ENTRY_BYTES,
    GROUP_ROWS,
    ROWS_PER_BYTE,
    TABLE_FOOTER_BYTES,
)
from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.table.extent import leaves
from blizzard_core.table.footer_check import FooterCheck
from blizzard_core.table.nan_columns import nan_leaves
from blizzard_core.table.row_groups import (
    PARQUET_TAIL_BYTES,
    column_orders,
    footer_of,
    footer_with,
    metadata_of,
    row_groups_of,
    without_extras,
    without_notes,
)
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.table.thrift import unreadable
from blizzard_py.formats.columnar.batches import file_failures, has_times
from blizzard_py.formats.columnar.calendars import calendars_of
from blizzard_py.formats.columnar.formats import ParquetFiles
from blizzard_py.formats.columnar.messages import DecodeCommand
from blizzard_py.formats.columnar.rows import StoredFile, allowed, check_footer, decoded
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.lines.failure import bounded
from blizzard_py.schema.types import FIRST_DAY, LAST_DAY

# A smaller group costs readers more than decoding it costs once.
LEAST_BYTES = 1 << 20
# A footer is rarely longer.
_TAIL_BYTES = 64 << 10
_MB = 1 << 20
_NAMES_CHARACTERS = 200
# What a day is in the unit of a column's statistics.
_DAYS = {"DATE": 1, "TIMESTAMP": 86_400_000_000}
# Readers work around faults of this writer, by its name. A copy has another name.
_FAULTY_WRITER = "parquet-cpp version"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group to copy: the bytes ``start`` to ``stop``, its rows, its entry in the footer.

    ``nan`` are the numbers of its columns that hold NaN.
    """

    number: int
    start: int
    stop: int
    rows: int
    entry: bytes
    nan: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The row groups of a file to copy, and one sentence on all of them.

    ``schema`` has the table's columns, nullable where the file's are. ``rest`` reads the other row
    groups, if there are any.
    """

    story: str
    groups: tuple[RowGroup, ...] = ()
    schema: pa.Schema | None = None
    rest: ParquetFiles | None = None

    @property
    def size(self) -> int:
        """The bytes of all row groups to copy."""
        return sum(group.size for group in self.groups)

    @property
    def rows(self) -> int:
        """The rows of all row groups to copy."""
        return sum(group.rows for group in self.groups)


class _Decode(Exception):
    """No row group of a file can be copied."""


class CopyRules:
    """The conditions on files for one table: its columns, and the size of its files."""

    def __init__(self, columns: pa.Schema, most_bytes: int, options: ParquetOptions) -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, columns):
            pass
        self._footer = footer_of(bytes(sink.getvalue()))
        self._columns = columns
        self._stored = metadata_of(self._footer).schema
        self._most_bytes = most_bytes
        self._options = options

    def plan(self, file: OpenFile) -> CopyPlan:
        """Return the row groups to copy.

        Raises `FileFailed` where the file cannot be read. A damaged footer is left to the decoder.
        """
        footer = _read_footer(file)
        stored = StoredFile.opened(file)
        if footer:
            with file_failures(file.path):
                check_footer(stored, footer)
        try:
            found = _checked(footer, file.size)
            schema = self._schema_of(footer, found)
        except (_Decode, SchemaMismatch) as error:
            refused = "the footer is refused: " if isinstance(error, SchemaMismatch) else ""
            why = f"{refused}{error}"
            return CopyPlan(f"all row groups were decoded: {why}")
        groups: list[RowGroup] = []
        why = ""
        for number, entry in enumerate(row_groups_of(footer)):
            try:
                groups.append(self._row_group(found, schema, number, entry, groups))
            except (_Decode, SchemaMismatch) as error:
                why = why or f"; row group {number + 1} was decoded: {error}"
        story = f"{len(groups)} of {found.num_row_groups:,} row groups were copied{why}"
        with_nan = tuple(self._with_nan(file, footer, groups))
        copied = frozenset(group.number for group in groups)
        rest = ParquetFiles(self._options, copied) if why else None
        return CopyPlan(story, with_nan, schema, rest)

    def _schema_of(self, footer: bytes, found: pq.FileMetaData) -> pa.Schema:
        """Return the file's columns as the table's. Raises `_Decode` if they are others."""
        stored = metadata_of(footer_with(without_notes(footer), [], 0)).schema
        theirs = stored.to_arrow_schema()
        if theirs.names != self._columns.names:
            names = bounded(", ".join(theirs.names), _NAMES_CHARACTERS)
            ours = bounded(", ".join(self._columns.names), _NAMES_CHARACTERS)
            raise _Decode(f"the columns are not those of the table, in order: {names}, not {ours}")
        fields, number = [], 0
        for field, own in zip(theirs, self._columns, strict=True):
            name = field.name
            if field.type != own.type:
                raise _Decode(f"column {name!r} is {field.type}, not {own.type}")
            if own.nullable and not field.nullable:
                raise _Decode(
                    f"column {name!r} is required in the file; declare it with nullable: false"
                )
            for at in range(number, number + leaves(own.type)):
                levels = int(field.nullable and not own.nullable)
                if not _is_alike(stored.column(at), self._stored.column(at), levels):
                    raise _Decode(f"column {name!r} is stored in another way than Blizzard's")
            number += leaves(own.type)
            fields.append(own.with_nullable(field.nullable))
        writer = found.created_by or ""
        if column_orders(footer) != column_orders(self._footer) or writer.startswith(
            _FAULTY_WRITER
        ):
            raise _Decode(f"the bounds that {bounded(writer, _NAMES_CHARACTERS)} wrote are unsafe")
        if any(has_times(field.type) for field in fields):
            mode = self._options.datetime_rebase_mode
            if calendars_of(found.metadata or {}, writer, mode).dates != "gregorian":
                raise _Decode(
                    "dates may be of the Julian calendar; if not, set"
                    " format.datetime_rebase_mode: corrected"
                )
        return pa.schema(fields)

    def _row_group(
        self,
        found: pq.FileMetaData,
        schema: pa.Schema,
        number: int,
        entry: bytes,
        before: list[RowGroup],
    ) -> RowGroup:
        """Return a row group to copy. Raises `_Decode` or `SchemaMismatch` if it is none."""
        about = found.row_group(number)
        spans = [_span(about.column(at)) for at in range(about.num_columns)]
        start, stop = min(begin for begin, _ in spans), max(end for _, end in spans)
        group = RowGroup(number, start, stop, about.num_rows, without_extras(entry))
        if group.size < LEAST_BYTES:
            raise _Decode(f"it has {group.size / _MB:.2f} MB; groups of 1 MB or more are copied")
        if group.size > self._most_bytes:
            raise _Decode(f"it has {group.size / _MB:,.0f} MB, more than advanced.file_size_mb")
        if not 0 < group.rows <= min(GROUP_ROWS, group.size * ROWS_PER_BYTE):
            raise _Decode(f"{group.rows:,} rows are impossible")
        if before and start < before[-1].stop:
            raise _Decode("it overlaps another one")
        if len(group.entry) > COPIED_ENTRY_BYTES:
            raise _Decode(f"its statistics have more than {COPIED_ENTRY_BYTES >> 10} KiB")
        starts = _leaf_numbers(schema)
        for at, field in zip(starts, self._columns, strict=True):
            if not field.nullable and schema.field(field.name).nullable:
                _check_no_nulls(about, field, at)
        for at in range(about.num_columns):
            column = found.schema.column(at)
            if not column.max_repetition_level:
                _check_statistics(column, about.column(at).statistics)
        return group

    def _with_nan(
        self, file: OpenFile, footer: bytes, groups: list[RowGroup]
    ) -> Iterator[RowGroup]:
        """Yield the row groups with their columns that hold NaN.

        No footer says that, and without it readers could skip no file. So these columns are read.
        """
        starts = dict(zip(self._columns.names, _leaf_numbers(self._columns), strict=True))
        names = tuple(field.name for field in self._columns if _has_float(field.type))
        if not groups or not names:
            yield from groups
            return
        stored = StoredFile.opened(file)
        numbers = tuple(group.number for group in groups)
        order = DecodeCommand(footer, file.size, numbers, names, allowed(file.size))
        with file_failures(file.path):
            batches = decoded(stored, order)
            for group in groups:
                rows, nan = 0, set[int]()
                while rows < group.rows and (batch := next(batches, None)) is not None:
                    rows += batch.num_rows
                    for name, values in zip(batch.schema.names, batch.columns, strict=True):
                        nan.update(nan_leaves(values, starts[name]))
                if rows != group.rows:
                    raise SourceError("has other rows than its footer says; write it again")
                yield replace(group, nan=frozenset(nan))
            if next(batches, None) is not None:
                raise SourceError("has more rows than its footer says; write it again")


def _read_footer(file: OpenFile) -> bytes:
    """Return the footer, or nothing if there is none."""
    tail = file.read_range(file.size - _TAIL_BYTES, file.size)
    size = int.from_bytes(tail[-PARQUET_TAIL_BYTES:-4], "little") + PARQUET_TAIL_BYTES
    if _TAIL_BYTES < size <= min(file.size, TABLE_FOOTER_BYTES):
        tail = file.read_range(file.size - size, file.size)
    try:
        return footer_of(tail)
    except SchemaMismatch:
        return b""


def _checked(footer: bytes, size: int) -> pq.FileMetaData:
    """Return a sound footer. Raises `SchemaMismatch`."""
    if not footer:
        raise unreadable("it is damaged or too long")
    FooterCheck()(footer, size - PARQUET_TAIL_BYTES - len(footer))
    return metadata_of(footer)


def _is_alike(stored: pq.ColumnSchema, own: pq.ColumnSchema, levels: int) -> bool:
    """Return whether pages of a column can be pages of ours, which has fewer ``levels``."""
    kinds = {_kind(stored), _kind(own)}
    return bool(
        len(kinds) == 1
        and stored.path == own.path
        and (stored.physical_type, stored.length) == (own.physical_type, own.length)
        and stored.max_repetition_level == own.max_repetition_level
        and stored.max_definition_level == own.max_definition_level + levels
    )


def _kind(column: pq.ColumnSchema) -> str:
    """Return the logical type; plain integers may be named or not."""
    kind: str = column.logical_type.type
    return "NONE" if kind == "INT" else kind


def _span(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return where a column's pages begin and end."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if chunk.has_dictionary_page and dictionary is not None and 0 < dictionary < start:
        start = dictionary
    return start, start + chunk.total_compressed_size


def _leaf_numbers(schema: pa.Schema) -> list[int]:
    """Return the number of the first Parquet column of each field."""
    return list(accumulate((leaves(field.type) for field in schema), initial=0))[: len(schema)]


def _has_float(kind: pa.DataType) -> bool:
    """Return whether NaN may be in values outside lists and maps."""
    if pa.types.is_struct(kind):
        return any(_has_float(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))


def _check_no_nulls(about: pq.RowGroupMetaData, field: pa.Field, first: int) -> None:
    columns: Iterable[int] = range(first, first + leaves(field.type))
    found = [about.column(at).statistics for at in columns]
    if not any(each is not None and each.has_null_count and not each.null_count for each in found):
        raise _Decode(f"column {field.name!r} is required, and nulls in it are not ruled out")


def _check_statistics(column: pq.ColumnSchema, found: pq.Statistics | None) -> None:
    """Raise `_Decode` if readers could not skip the file by this column, or by wrong values."""
    has_bounds = found is not None and found.has_null_count
    if found is not None and has_bounds and column.physical_type != "BYTE_ARRAY":
        has_bounds = found.has_min_max or not found.num_values
    if found is None or not has_bounds:
        raise _Decode(f"column {column.path!r} has no statistics")
    day = _DAYS.get(column.logical_type.type)
    if day and found.has_min_max:
        low, high = found.min_raw, found.max_raw
        if not FIRST_DAY * day <= low <= high < (LAST_DAY + 1) * day:
            raise _Decode(f"column {column.path!r} has a year beyond 1 to 9999")

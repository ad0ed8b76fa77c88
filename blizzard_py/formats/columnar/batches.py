"""Arrow batches as pieces, and their rows in the declared columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import FormatSettings, OrcOptions, ParquetOptions
from blizzard_py.formats.columnar.calendars import Calendar, in_gregorian, unnamed_calendar
from blizzard_py.formats.columnar.int96 import as_numbers, as_texts, read_times, with_nanoseconds
from blizzard_py.formats.columnar.letters import batch_in, columns_in, rows_header
from blizzard_py.formats.letters.writing import row_lines
from blizzard_py.formats.nested_arrays import map_leaves, map_leaves_with
from blizzard_py.formats.protocol import NO_OFFSET, OpenFile
from blizzard_py.formats.typed_rows import (
    TypedDecoder,
    TypedFormat,
    check_names,
    rows_of,
)
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import Piece

_REASON_CHARACTERS = 200
# Arrow stores booleans as bits and nulls as nothing; as rows they are larger.
_LEAST_VALUE_BYTES = 4


@dataclass(frozen=True, slots=True)
class FileColumns:
    """A file's columns, the calendars of those that may have Julian dates, and those of INT96.

    Batches have the values of INT96 as they are stored.
    """

    schema: pa.Schema
    calendars: Mapping[str, Sequence[Calendar]] = field(default_factory=dict)
    int96: Mapping[str, Sequence[bool]] = field(default_factory=dict)

    def wanted(self, schema: RowSchema) -> list[str]:
        """Return the columns to read: the declared ones, or all if others are used.

        Raises `FileFailed` if one of them occurs twice.
        """
        declared = {spec.name for spec in schema.fields}
        every = not declared or schema.evolves or schema.unexpected_fields == "capture"
        names = [name for name in self.schema.names if every or name in declared]
        counts = Counter(names)
        twice = next((name for name in names if counts[name] > 1), None)
        if twice is not None:
            raise FileFailed("parse", f"has two columns {twice!r}; write the file again with one")
        return names


def pieces_of(
    file: OpenFile, batches: Iterable[pa.RecordBatch], columns: FileColumns
) -> Iterator[Piece]:
    """Yield a piece for each batch."""
    for batch in batches:
        values = sum(_count_values(column) for column in batch.columns)
        file.count_unpacked(max(batch.nbytes, values * _LEAST_VALUE_BYTES))
        cells = batch.num_rows * batch.num_columns
        yield Piece(b"", NO_OFFSET, cells, lines=batch.num_rows, context=columns, rows=batch)


def _count_values(array: pa.Array) -> int:
    """Return the number of values in an array, at any depth."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _count_values(array.storage)
    if pa.types.is_struct(kind):
        return len(array) + sum(_count_values(array.field(at)) for at in range(kind.num_fields))
    if pa.types.is_map(kind):
        return len(array) + _count_values(array.keys) + _count_values(array.items)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list or pa.types.is_fixed_size_list(kind):
        return len(array) + _count_values(array.values)
    return len(array)


@contextmanager
def file_failures(where: str) -> Iterator[None]:
    """Turn the readers' `SourceError` into the failure of this file."""
    try:
        yield
    except SourceError as error:
        raise FileFailed("parse", str(error).removeprefix(f"{where}: ")) from error


class BatchFormat(TypedFormat):
    """A format whose pieces are batches, or at least those of its letters."""

    __slots__ = ()

    def letter_decoder(self, schema: RowSchema, *, tolerant: bool) -> BatchDecoder:
        """Return the decoder of batches."""
        return BatchDecoder(schema, self.options, tolerant=tolerant)

    def letter_piece(
        self, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], schema: RowSchema
    ) -> Piece:
        """Return the rows as they were read."""
        columns = FileColumns(*columns_in(header))
        check_names(columns.schema.names, schema)
        batch = batch_in(header, rows)
        cells = batch.num_rows * batch.num_columns
        return Piece(b"", NO_OFFSET, cells, lines=len(rows), context=columns, rows=batch)


class BatchDecoder(TypedDecoder):
    """The second half of a format whose pieces are batches."""

    def __init__(self, schema: RowSchema, options: FormatSettings, *, tolerant: bool) -> None:
        super().__init__(schema, tolerant=tolerant)
        self._cuts = (
            isinstance(options, AvroOptions | OrcOptions | ParquetOptions)
            and options.nanoseconds == "cut"
        )
        self._unknown: Calendar = "unknown"
        if isinstance(options, ParquetOptions):
            self._unknown = unnamed_calendar(options.datetime_rebase_mode)

    def rows(self, piece: Piece) -> BatchRows:
        """Return the batch's rows."""
        columns: Any = piece.context
        return BatchRows(piece.rows, columns, cuts_nanoseconds=self._cuts, unknown=self._unknown)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns of the file's schema. Each value of the type JSON has its own type."""
        columns: Any = piece.context
        return {
            column.name: None if isinstance(column.type, pa.JsonType) else column.type
            for column in columns.schema
        }

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return both halves of the batch."""
        if piece.rows is None or piece.lines < 2:
            return None
        middle = piece.lines // 2
        return (
            replace(piece, rows=piece.rows.slice(0, middle), lines=middle, cells=0),
            replace(piece, rows=piece.rows.slice(middle), lines=piece.lines - middle, cells=0),
        )


class BatchRows:
    """The rows of a batch as `TypedRows`: times of INT96, today's calendar, perhaps cut times."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        columns: FileColumns,
        *,
        cuts_nanoseconds: bool,
        unknown: Calendar = "unknown",
    ) -> None:
        self.types = {column.name: column.type for column in columns.schema}
        self.count: int = batch.num_rows
        self.bad: dict[int, str] = {}
        self._about = columns
        self._calendars = {
            name: [unknown if each == "unknown" else each for each in calendars]
            for name, calendars in columns.calendars.items()
        }
        self._cuts = cuts_nanoseconds
        self._batch = batch
        self._columns: dict[str, pa.Array] = {}
        self._failed: dict[int, set[str]] = {}
        self._precise: dict[str, set[int]] = {}  # rows that are bad for nothing but nanoseconds

    def column(self, name: str) -> pa.Array:
        """Return a column; null where its value is in doubt, or has nanoseconds of INT96."""
        if name not in self._columns:
            self._columns[name] = self._converted(name, self._batch.column(name))
        return self._columns[name]

    def _converted(self, name: str, found: pa.Array) -> pa.Array:
        def failed(row: int, error: ValueError) -> None:
            self._failed.setdefault(row, set()).add(name)
            self._add_bad(row, name, str(error))

        if name in self._about.int96:
            found = self._times(name, found)
        if name in self._calendars:
            found = rows_of(found, partial(_in_gregorian, self._calendars[name]), failed)
        if self._cuts and has_times(found.type, "ns"):
            found = map_leaves(found, _without_nanoseconds)
        return found

    def _times(self, name: str, stored: pa.Array) -> pa.Array:
        found = read_times(stored, self._about.int96[name], cuts_nanoseconds=self._cuts)
        precise = self._precise[name] = set(self._exact(name, stored, sorted(found.precise)))
        for row, why in found.bad.items():
            if row not in precise:
                self._failed.setdefault(row, set()).add(name)
            self._add_bad(row, name, why)
        return found.array

    def _exact(self, name: str, stored: pa.Array, rows: Sequence[int]) -> Iterator[int]:
        """Yield the rows whose times can be nanoseconds since 1970."""
        try:
            with_nanoseconds(stored.take(pa.array(rows, pa.int64())), self._about.int96[name])
            yield from rows
        except ValueError:
            if len(rows) > 1:
                middle = len(rows) // 2
                yield from self._exact(name, stored, rows[:middle])
                yield from self._exact(name, stored, rows[middle:])

    def _add_bad(self, row: int, name: str, why: str) -> None:
        self.bad.setdefault(row, bounded(f"column {name!r}: {why}", _REASON_CHARACTERS))

    def letters(self, indices: Sequence[int]) -> tuple[bytes, list[bytes]]:
        """Return the rows as they were read, before any option is applied."""
        some = self._batch.take(pa.array(indices, pa.int64()))
        arrays = [
            as_texts(column, self._about.int96[name]) if name in self._about.int96 else column
            for name, column in zip(some.schema.names, some.columns, strict=True)
        ]
        shown = pa.RecordBatch.from_arrays(arrays, some.schema.names)
        about = self._about
        header = rows_header(shown.schema, about.schema.names, about.calendars, about.int96)
        return header, row_lines(shown)

    def failed(self, index: int) -> frozenset[str]:
        """Return the columns of which a record has no value."""
        for name in self._batch.schema.names:
            self.column(name)
        return frozenset(self._failed.get(index, ()))

    def records(self, indices: Sequence[int]) -> pa.RecordBatch | None:
        """Return several records; None if a value of theirs is in doubt, or in two units."""
        if any(map(self.failed, indices)):
            return None
        names, at = self._batch.schema.names, pa.array(indices, pa.int64())
        try:
            return pa.RecordBatch.from_arrays([self._values(name, at) for name in names], names)
        except ValueError:
            return None

    def record(self, index: int) -> pa.RecordBatch:
        """Return one record in today's calendar; a value in doubt is in an object."""
        names, failed, at = self._batch.schema.names, self.failed(index), pa.array([index])
        arrays = [
            pa.StructArray.from_arrays([self._stored(name, index)], ["stored"])
            if name in failed
            else self._values(name, at)
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names)

    def _values(self, name: str, at: pa.Array) -> pa.Array:
        """Return values with their nanoseconds. Raises `ValueError` if these cannot be so old."""
        if self._precise.get(name, set()).isdisjoint(at.to_pylist()):
            return self.column(name).take(at)
        return with_nanoseconds(self._batch.column(name).take(at), self._about.int96[name])

    def _stored(self, name: str, index: int) -> pa.Array:
        one, flags = self._batch.column(name).slice(index, 1), self._about.int96.get(name)
        if flags is None:
            return one
        times = read_times(one, flags, cuts_nanoseconds=False)
        return as_numbers(one, flags) if times.bad else times.array


def _in_gregorian(calendars: Sequence[Calendar], array: pa.Array) -> pa.Array:
    return map_leaves_with(array, calendars, in_gregorian)


def has_times(kind: pa.DataType, unit: str = "") -> bool:
    """Return whether a type has dates or times in it, at any depth; of one ``unit`` if given."""
    if kind.num_fields:
        return any(has_times(kind.field(at).type, unit) for at in range(kind.num_fields))
    if pa.types.is_timestamp(kind):
        return not unit or kind.unit == unit
    return pa.types.is_date(kind) and not unit


def _without_nanoseconds(leaf: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(leaf.type) or leaf.type.unit != "ns":
        return leaf
    # Arrow's own rounding goes by local time, which may be ambiguous, or of an unknown zone.
    counts = leaf.view(pa.int64())
    micros = counts.fill_null(0).to_numpy() // 1000
    mask = counts.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros, pa.int64(), mask=mask).view(pa.timestamp("us", leaf.type.tz))

"""Rows of formats that have types of their own: columns, their JSON, and their verdicts.

A subclass of `TypedDecoder` reads a piece as `TypedRows`; the declared columns, the fields without
one, bad records and letters are made here, the same for each format.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.settings.formats import FormatSettings, LetterOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.conform import Conformed, Conformer
from blizzard_py.formats.letters.header import contents_of
from blizzard_py.formats.ndjson.unexpected import first, shown_name
from blizzard_py.formats.nested_arrays import with_missing_fields
from blizzard_py.formats.protocol import (
    NO_OFFSET,
    BadLine,
    BadRecord,
    Parsed,
    RecordBytes,
    SourceRows,
)
from blizzard_py.formats.row_text import json_text
from blizzard_py.formats.texts import json_values
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import Piece

_REASON_CHARACTERS = 200
# Rows of which letters are made together: one by one takes a hundred times as long.
_LETTERS_AT_ONCE = 512
_ANY_JSON = FieldSpec("value", "json", nullable=True)


@contextmanager
def _failures_of_values() -> Iterator[None]:
    """Make Arrow's errors the failure of the file, so that no value ends the task."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        why = bounded(str(error), _REASON_CHARACTERS)
        raise FileFailed("parse", f"its values cannot be read: {why}") from error


class TypedFormat(ABC):
    """The letters of a format with types: rows that come again as the file has them."""

    __slots__ = ()

    options: FormatSettings

    @abstractmethod
    def letter_piece(
        self, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], schema: RowSchema
    ) -> Piece:
        """Return rows of letters as a piece of their file.

        Raises `ValueError` for a value that is not of its type, `FileFailed` as `Format.pieces`.
        """

    @abstractmethod
    def letter_decoder(self, schema: RowSchema, *, tolerant: bool) -> TypedDecoder:
        """Return the decoder of such pieces."""

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> TypedDecoder:  # noqa: ARG002  # there is no compiled code
        """Return the decoder of these columns: that of letters, if a format has no other."""
        return self.letter_decoder(schema, tolerant=tolerant)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the letters behind their headers."""
        return contents_of(letters)

    def replay_settings(self) -> LetterOptions:
        """Return the format of such files."""
        return LetterOptions(of=self.options)


class TypedRows(Protocol):
    """The records of a piece, as their file's types have them."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The file's columns."""

    @property
    def count(self) -> int:
        """The number of records."""

    @property
    def bad(self) -> Mapping[int, str]:
        """Reasons by record, for values of the columns so far that their type cannot have."""

    def column(self, name: str) -> pa.Array:
        """Return a column, with null in such records."""

    def letters(self, indices: Sequence[int]) -> tuple[bytes, list[bytes]]:
        """Return the header of letters, and records as their lines; see `formats.letters`."""


class TypedDecoder(ABC):
    """The second half of a format with types, for one source's columns."""

    def __init__(self, schema: RowSchema, *, tolerant: bool) -> None:
        self._schema = schema
        self._tolerant = tolerant
        self._rescues = schema.unexpected_fields == "capture"
        self._conformer = Conformer(schema.fields, rescued=self._rescues)

    @abstractmethod
    def rows(self, piece: Piece) -> TypedRows:
        """Read a piece. Raises `FileFailed` where it is damaged."""

    @abstractmethod
    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the records each; None for a single record."""

    @abstractmethod
    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns of the file's schema; see `Decoder.columns`."""

    @_failures_of_values()
    def decode(self, piece: Piece) -> Parsed:
        """Decode as `Decoder.decode`. Raises `FileFailed` for types that cannot fit, too."""
        if not piece.lines:
            return Parsed(self._conformer.table.empty_table(), 0, np.arange(0))
        rows = self.rows(piece)
        names = self._unexpected(rows.types)
        there = [spec.name for spec in self._schema.fields if spec.name in rows.types]
        conformed = self._conformed({name: rows.column(name) for name in there}, piece.lines)
        bad = dict(rows.bad)
        for row, reason in conformed.bad.items():
            bad.setdefault(row, reason)
        table, at = conformed.table, conformed.rows_at
        if self._rescues and names:
            texts = self._rescued(rows, bad)
            table = table.set_column(len(table.schema) - 1, table.schema[-1], texts.take(at))
        if bad and not self._tolerant:
            index = min(bad)
            raise BadLine(index, bad[index])
        fits = ~np.isin(at, np.array(sorted(bad), np.int64))
        if not fits.all():
            table, at = table.filter(pa.array(fits)), at[fits]
        letters = tuple(_bad_records(rows, bad))
        return Parsed(table, piece.lines, at, letters, names if len(at) else frozenset())

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the rows as JSON by their index; some are made when one is looked up."""
        return _RowTexts(self.rows(piece))

    @_failures_of_values()
    def source_rows(
        self, piece: Piece, columns: Sequence[str], keys: Sequence[FieldSpec]
    ) -> SourceRows:
        """Return the rows in the types of the file, as `TableDecoder.source_rows`."""
        rows = self.rows(piece)
        names = dict.fromkeys([*columns, *(key.name for key in keys)])
        there = {name: rows.column(name) for name in names if name in rows.types}
        bad = _bad_records(rows, rows.bad)
        fits = np.ones(rows.count, np.bool_)
        fits[[each.index for each in bad]] = False
        mask = pa.array(fits)
        batch = pa.RecordBatch.from_arrays(
            [
                there[name].filter(mask) if name in there else pa.nulls(int(fits.sum()))
                for name in names
            ],
            list(names),
        )
        values, unread = Conformer(keys).values(batch)
        schema = pa.schema(list(rows.types.items()))
        numbers = np.flatnonzero(fits)

        def records(some: Sequence[int]) -> list[RecordBytes]:
            header, lines = rows.letters(numbers[np.array(some, np.int64)].tolist())
            return [(NO_OFFSET, line, header) for line in lines]

        chosen = batch.select(list(columns))
        return SourceRows(schema, chosen, values, len(unread), bad, records)

    @_failures_of_values()
    def as_lines(self, piece: Piece) -> bytes:
        """Return the fields without a column; nothing unless columns are made of them."""
        if not self._schema.evolves or not piece.lines:
            return b""
        texts = self._rescued(self.rows(piece), {})
        return b"".join(f"{text or '{}'}\n".encode() for text in texts.to_pylist())

    def _unexpected(self, types: Mapping[str, pa.DataType]) -> frozenset[str]:
        found = unexpected_names(types, self._schema.fields)
        if found and self._schema.unexpected_fields == "fail":
            raise FileFailed("parse", f"unexpected field {found[0]!r}, which the schema lacks")
        return first(map(shown_name, found))

    def _conformed(self, columns: Mapping[str, pa.Array], rows: int) -> Conformed:
        arrays = []
        names = [spec.name for spec in self._schema.fields]
        try:
            for spec in self._schema.fields:
                array = columns.get(spec.name)
                arrays.append(pa.nulls(rows) if array is None else with_missing_fields(spec, array))
            return self._conformer.conform(pa.RecordBatch.from_arrays(arrays, names))
        except SourceError as error:
            raise FileFailed("parse", str(error)) from error

    def _rescued(self, rows: TypedRows, bad: dict[int, str]) -> pa.Array:
        """Return each row's fields without a column as JSON text; null where there are none."""
        arrays = {
            name: rows.column(name)
            for name, kind in rows.types.items()
            if unexpected_names({name: kind}, self._schema.fields)
        }
        for row, reason in rows.bad.items():
            bad.setdefault(row, reason)
        if not arrays:
            return pa.nulls(rows.count, pa.string())

        def texts(batch: pa.Array) -> pa.Array:
            parts = left_over(dict(zip(arrays, batch.flatten(), strict=True)), self._schema.fields)
            found = [f"{{{','.join(part)}}}" if part else None for part in parts]
            return pa.array(found, pa.string())

        def failed(row: int, error: ValueError) -> None:
            bad.setdefault(row, bounded(f"unexpected fields: {error}", _REASON_CHARACTERS))

        batch = pa.StructArray.from_arrays(list(arrays.values()), list(arrays))
        return rows_of(batch, texts, failed).cast(pa.string())


def _bad_records(rows: TypedRows, reasons: Mapping[int, str]) -> list[BadRecord]:
    at = sorted(reasons)
    found: list[BadRecord] = []
    for start in range(0, len(at), _LETTERS_AT_ONCE):
        some = at[start : start + _LETTERS_AT_ONCE]
        header, lines = rows.letters(some)
        found += (
            BadRecord(row, NO_OFFSET, len(line), line, reasons[row], header=header)
            for row, line in zip(some, lines, strict=True)
        )
    return found


class _RowTexts(Mapping[int, RecordBytes]):
    """Rows as letters; neighbours of one that is looked up are made with it."""

    def __init__(self, rows: TypedRows) -> None:
        self._rows = rows
        self._start = 0
        self._header = b""
        self._lines: list[bytes] = []

    @_failures_of_values()
    def __getitem__(self, index: int) -> RecordBytes:
        if not 0 <= index < len(self):
            raise KeyError(index)
        if not self._start <= index < self._start + len(self._lines):
            self._start = index
            end = min(index + _LETTERS_AT_ONCE, len(self))
            self._header, self._lines = self._rows.letters(range(index, end))
        return NO_OFFSET, self._lines[index - self._start], self._header

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return self._rows.count


def check_names(names: Sequence[str], schema: RowSchema) -> None:
    """Raise `FileFailed` if a file lacks a required column, or has none of the columns.

    The files of a table may lack them.
    """
    fields = schema.fields
    if schema.of_table:
        return
    missing = [spec for spec in fields if spec.name not in names]
    required = next((spec.name for spec in missing if not spec.nullable), None)
    if required is not None:
        raise FileFailed(
            "parse", f"column {required!r}: is required, and the file's schema does not have it"
        )
    if fields and len(missing) == len(fields):
        there = bounded(", ".join(names), _REASON_CHARACTERS)
        raise FileFailed("parse", f"the file's schema has none of the columns, but {there}")


def json_texts(array: pa.Array) -> pa.Array:
    """Return the values as JSON texts. Raises `ValueError` if one cannot be JSON.

    Numbers that JSON does not have are texts: ``"NaN"``, ``"Infinity"``. Values of the type JSON
    stay as they are.
    """
    if isinstance(array.type, pa.JsonType):
        return json_values(_ANY_JSON, array.storage)
    try:
        texts = [
            None if value is None else json_text(_finite(value))
            for value in array.to_pylist(maps_as_pydicts="strict")
        ]
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"cannot be JSON: {error}") from error
    return pa.array(texts, pa.string())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def rows_of(
    array: pa.Array,
    make: Callable[[pa.Array], pa.Array],
    failed: Callable[[int, ValueError], None],
    start: int = 0,
) -> pa.Array:
    """Return ``make`` of all values, with null for those of which it fails.

    ``failed`` gets the index of such a value and the error.
    """
    try:
        return make(array)
    except ValueError as error:  # pa.ArrowInvalid is one
        if len(array) == 1:
            failed(start, error)
            return pa.nulls(1)
    middle = len(array) // 2
    halves = [
        rows_of(part, make, failed, start + at)
        for at, part in ((0, array.slice(0, middle)), (middle, array.slice(middle)))
    ]
    kind = next((half.type for half in halves if not pa.types.is_null(half.type)), pa.null())
    return pa.concat_arrays([half.cast(kind) for half in halves])


def can_become(kind: pa.DataType, spec: FieldSpec) -> bool:
    """Return whether a file with such a column can be read as the declared one."""
    try:
        nothing = with_missing_fields(spec, pa.array([], kind))
        Conformer((spec,)).conform(pa.RecordBatch.from_arrays([nothing], [spec.name]))
    except SourceError:
        return False
    return True


def unexpected_names(
    names: Mapping[str, pa.DataType], fields: Sequence[FieldSpec], within: str = ""
) -> list[str]:
    """Return the names without a column; those in a struct as ``struct.name``."""
    specs = {spec.name: spec for spec in fields}
    found = []
    for name, kind in names.items():
        spec = specs.get(name)
        if spec is None:
            found.append(within + name)
        elif spec.type == "struct" and pa.types.is_struct(kind):
            inner = {field.name: field.type for field in kind}
            found += unexpected_names(inner, spec.children, f"{within}{name}.")
    return found


def left_over(columns: Mapping[str, pa.Array], fields: Sequence[FieldSpec]) -> list[list[str]]:
    """Return for each row the members of its fields without a column, as JSON texts.

    Raises `ValueError` if a value cannot be JSON.
    """
    specs = {spec.name: spec for spec in fields}
    rows: list[list[str]] = [[] for _ in range(len(next(iter(columns.values()), ())))]
    for name, array in columns.items():
        spec = specs.get(name)
        key = json.dumps(name, ensure_ascii=False)
        if spec is None:
            for row, text in zip(rows, json_texts(array).to_pylist(), strict=True):
                row.append(f"{key}:{'null' if text is None else text}")
        elif spec.type == "struct" and pa.types.is_struct(array.type) and array.type.num_fields:
            inner = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
            parts = left_over(inner, spec.children)
            for row, part, valid in zip(rows, parts, array.is_valid().to_pylist(), strict=True):
                if part and valid:
                    row.append(f"{key}:{{{','.join(part)}}}")
    return rows

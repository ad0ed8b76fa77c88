"""Files of letters, which a replay writes: rows come again as their file had them.

The first line is the letters' header, each other one a row. What the file said about its columns is
in the header, and the options are those of today. So a row meets the decoder of its format again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import pyarrow as pa

from blizzard_core.settings.formats import FORMATS_WITH_TYPES, LetterOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.letters.header import (
    FROM_SOURCE,
    contents_of,
    header_fault,
    header_of,
    is_refused,
    unread_column,
    values_of,
)
from blizzard_py.formats.letters.reading import parsed
from blizzard_py.formats.letters.refused import refused_records
from blizzard_py.formats.names import plain_format_of
from blizzard_py.formats.ndjson.lines import NdjsonFormat
from blizzard_py.formats.protocol import NO_OFFSET, Decoder, Format, OpenFile
from blizzard_py.formats.text_letters import (
    RecordsOrLines,
    TextLetterFormat,
    lines_of,
    of_table,
)
from blizzard_py.formats.typed_rows import TypedFormat
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed, bounded
from blizzard_py.lines.framing import Piece, RefusedRecord, framed

# Values of a piece. Each is a Python object before it is Arrow's.
_PIECE_CELLS = 256 << 10
_REASON_CHARACTERS = 200
# What foreign text in a row raises where its values are made; `RecursionError` is one of them.
_NO_LETTER = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
    pa.ArrowException,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LetterFormat:
    """Files of letters as a `Format`."""

    options: LetterOptions

    @property
    def _form(self) -> TypedFormat:
        return cast("TypedFormat", plain_format_of(self.options.of))

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the rows; of a table also lines. Raises `FileFailed` for a header that is none."""
        is_table = self.options.of_table
        found: _Header | None = None
        for item in framed(file.blocks()):
            if isinstance(item, RefusedRecord):
                yield replace(item, offset=NO_OFFSET)
                continue
            lines = item.data.split(b"\n")[:-1]
            if found is None and is_refused(lines[0]):
                yield from refused_records(file.blocks())
                return
            if is_table and found is None and not _is_header(lines[0]):
                yield from lines_of(file, schema)
                return
            if found is None:
                found = _Header(lines.pop(0), self._form, self._schema(schema))
            yield from found.items(lines)

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> Decoder:
        """Return the decoder of the rows' own format."""
        rows = self._form.letter_decoder(self._schema(schema), tolerant=tolerant)
        if not self.options.of_table:
            return rows
        lines = NdjsonFormat().decoder(schema, tolerant=tolerant, fast=fast)
        return RecordsOrLines(rows, lines, rescues=schema.unexpected_fields == "capture")

    def _schema(self, schema: RowSchema) -> RowSchema:
        return of_table(schema) if self.options.of_table else schema

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the letters behind their headers."""
        return contents_of(letters)

    def replay_settings(self) -> LetterOptions:
        """Return the same format."""
        return self.options


def format_of(options: LetterOptions) -> Format:
    """Return the format of letters of another format."""
    if isinstance(options.of, FORMATS_WITH_TYPES):
        return LetterFormat(options)
    return TextLetterFormat(options)


def _is_header(line: bytes) -> bool:
    """Return whether a line is a header, be it a sound one or not."""
    return header_of(line) is not None or header_fault(line) != ""


class _Header:
    """The header of a file, and rows behind it."""

    def __init__(self, line: bytes, form: TypedFormat, schema: RowSchema) -> None:
        members = header_of(line)
        if members is None:
            none = "its first line is no header of letters; replay them again"
            raise FileFailed("parse", header_fault(line) or none)
        self._line = line
        self._members = members
        self._form = form
        self._schema = schema
        lacking = unread_column(line, schema)
        if lacking:
            then = "bring these rows to the table again" if schema.of_table else FROM_SOURCE
            raise FileFailed("parse", f"{lacking}; {then}")
        self._every = schema.evolves or schema.unexpected_fields == "capture"
        self._rows = max(1, _PIECE_CELLS // max(1, values_of(line)))
        self._skipped = 1  # the header itself

    def items(self, lines: Sequence[bytes]) -> Iterator[Piece | RefusedRecord]:
        """Yield lines in order, as pieces; a line that is no row is refused."""
        for is_bad, run in groupby(
            map(self._item, lines), lambda item: isinstance(item, RefusedRecord)
        ):
            some = list(run)
            if is_bad:
                yield from map(self._numbered, cast("list[RefusedRecord]", some))
                continue
            rows = cast("list[_Line]", some)
            for start in range(0, len(rows), self._rows):
                yield from map(self._numbered, self._pieces(rows[start : start + self._rows]))

    def _numbered(self, item: Piece | RefusedRecord) -> Piece | RefusedRecord:
        skipped, self._skipped = self._skipped, 0
        return replace(item, skipped=skipped)

    def _pieces(self, lines: Sequence[_Line]) -> Iterator[Piece | RefusedRecord]:
        try:
            yield self._form.letter_piece(self._members, [line.row for line in lines], self._schema)
        except pa.ArrowMemoryError:
            raise
        except _NO_LETTER as error:
            if len(lines) == 1:
                yield self._refused(lines[0].text, f"is no row of a letter: {error}")
                return
        else:
            return
        middle = len(lines) // 2
        yield from self._pieces(lines[:middle])
        yield from self._pieces(lines[middle:])

    def _item(self, line: bytes) -> _Line | RefusedRecord:
        try:
            return self._row(line)
        except _NO_LETTER as error:
            return self._refused(line, f"is no row of a letter: {error}")

    def _row(self, line: bytes) -> _Line | RefusedRecord:
        found = parsed(line)
        row, unreadable = found if isinstance(found, list) and len(found) == 2 else (found, {})
        if not isinstance(row, dict) or not isinstance(unreadable, dict):
            return self._refused(line, "is no row of a letter: no object")
        declared = [spec.name for spec in self._schema.fields if spec.name in unreadable]
        wanted = [*declared, *(unreadable if self._every else ())]
        if wanted:
            why = unreadable[wanted[0]]
            return self._refused(line, str(why.get("error") if isinstance(why, dict) else why))
        return _Line(line, row)

    def _refused(self, line: bytes, reason: str) -> RefusedRecord:
        short = bounded(reason, _REASON_CHARACTERS)
        return RefusedRecord(NO_OFFSET, len(line), line, short, header=self._line)


@dataclass(frozen=True, slots=True)
class _Line:
    text: bytes
    row: Mapping[str, Any]

"""Files of letters of CSV and XML tables, which a replay writes: a header and a file of the format.

What the file said around its records is in the header, so a record meets its own format again.
Files without a header have lines of NDJSON: rows whose values did not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from msgspec import structs

from blizzard_core.settings.formats import LetterOptions
from blizzard_core.settings.schema import RESCUED
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.letters.header import (
    around_of,
    contents_of,
    header_fault,
    header_of,
    is_refused,
    text_header,
)
from blizzard_py.formats.letters.refused import refused_records
from blizzard_py.formats.names import plain_format_of
from blizzard_py.formats.ndjson.lines import NdjsonFormat
from blizzard_py.formats.protocol import (
    NO_OFFSET,
    Decoder,
    Format,
    OpenFile,
    Parsed,
    RecordBytes,
)
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord

# A header is no longer. What has no line end so far is a line of NDJSON.
_HEADER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TextLetterFormat:
    """Files of letters of a table of texts as a `Format`."""

    options: LetterOptions

    @property
    def _form(self) -> Format:
        return plain_format_of(plain_format_of(self.options.of).replay_settings())

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the records. Raises `FileFailed` for letters of another format."""
        blocks = file.blocks()
        start = b""
        while b"\n" not in start and len(start) < _HEADER_BYTES and (block := next(blocks, b"")):
            start += block
        line, _, behind = start.partition(b"\n")
        if fault := header_fault(line):
            raise FileFailed("parse", fault)
        if is_refused(line):
            yield from refused_records(chain([start], blocks))
            return
        if header_of(line) is None:
            yield from lines_of(_Rest(file, chain([start], blocks)), schema)
            return
        if around_of(line) is None:
            raise FileFailed(
                "parse",
                "its letters are of another format; replay them with that format, or discard them",
            )
        for item in self._form.pieces(_Rest(file, chain([behind], blocks)), of_table(schema)):
            if isinstance(item, RefusedRecord):
                yield replace(item, offset=NO_OFFSET, header=text_header(item.header))
            else:
                yield item

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> Decoder:
        """Return the decoder of records and lines."""
        return _TextDecoder(
            self._form.decoder(of_table(schema), tolerant=tolerant, fast=fast),
            NdjsonFormat().decoder(schema, tolerant=tolerant, fast=fast),
            rescues=schema.unexpected_fields == "capture",
        )

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return files of the format behind the letters' header, or one of lines."""
        header = letters[0].header
        around = around_of(header)
        if around is None:
            return contents_of(letters)
        records = [replace(letter, header=around) for letter in letters]
        contents = plain_format_of(self.options.of).replay_contents(records)
        return [header + b"\n" + content for content in contents]

    def replay_settings(self) -> LetterOptions:
        """Return the same format."""
        return self.options


def of_table(schema: RowSchema) -> RowSchema:
    """Return a table's schema for the decoder of its files: other columns are not looked at."""
    return replace(schema, of_table=True, unexpected_fields="ignore")


def lines_of(file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
    """Yield rows of a table that are lines of NDJSON."""
    for item in NdjsonFormat().pieces(file, schema):
        yield replace(item, offset=NO_OFFSET) if isinstance(item, RefusedRecord) else item


@dataclass(frozen=True, slots=True)
class _Rest:
    """A file whose beginning was read."""

    file: OpenFile
    rest: Iterator[bytes]

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def uri(self) -> str:
        return self.file.uri

    @property
    def modified(self) -> float:
        return self.file.modified

    @property
    def size(self) -> int:
        return self.file.size

    def blocks(self) -> Iterator[bytes]:
        return self.rest

    def read_range(self, start: int, end: int) -> bytes:
        return self.file.read_range(start, end)

    def count_unpacked(self, size: int) -> None:
        self.file.count_unpacked(size)


@dataclass(frozen=True, slots=True)
class RecordsOrLines:
    """The decoder of a table's letters: ``records_of`` its format, or ``lines``.

    With ``rescues`` rows have a last column for other fields, which is null as in the table.
    """

    records_of: Decoder
    lines: Decoder
    rescues: bool

    def _of(self, piece: Piece) -> Decoder:
        return self.lines if _has_lines(piece) else self.records_of

    def decode(self, piece: Piece) -> Parsed:
        """Decode as `Decoder.decode`."""
        parsed = self._of(piece).decode(piece)
        if _has_lines(piece):
            bad = tuple(structs.replace(each, offset=NO_OFFSET) for each in parsed.bad)
            return replace(parsed, bad=bad)
        table = parsed.table
        if self.rescues:
            table = table.append_column(RESCUED, pa.nulls(table.num_rows, pa.string()))
        return replace(parsed, table=table, unexpected=frozenset())

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the records as `Decoder.records`, lines without an offset.

        So a letter has as much of a row as that of the table had.
        """
        found = self._of(piece).records(piece)
        if not _has_lines(piece):
            return found
        return {number: (NO_OFFSET, raw, header) for number, (_, raw, header) in found.items()}

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces as `Decoder.halves`."""
        return self._of(piece).halves(piece)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        """Return the columns as `Decoder.columns`."""
        return self._of(piece).columns(piece)

    def as_lines(self, piece: Piece) -> bytes:
        """Return lines as `Decoder.as_lines`."""
        return self._of(piece).as_lines(piece)


class _TextDecoder(RecordsOrLines):
    """The decoder of letters of text, whose bad records are letters again."""

    def decode(self, piece: Piece) -> Parsed:
        """Decode as `Decoder.decode`."""
        parsed = super().decode(piece)
        if _has_lines(piece) or not parsed.bad:
            return parsed
        bad = (
            structs.replace(each, offset=NO_OFFSET, header=text_header(each.header))
            for each in parsed.bad
        )
        return replace(parsed, bad=tuple(bad))

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the records as `Decoder.records`."""
        found = super().records(piece)
        if _has_lines(piece):
            return found
        return {
            number: (NO_OFFSET, raw, text_header(header))
            for number, (_, raw, header) in found.items()
        }


def _has_lines(piece: Piece) -> bool:
    return piece.rows is None and piece.context is None

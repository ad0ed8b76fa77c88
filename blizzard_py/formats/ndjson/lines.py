"""The format NDJSON: one JSON object in each line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blizzard_core.settings.formats import NdjsonOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser, row_shape
from blizzard_py.formats.protocol import LineNumbers, OpenFile, Parsed, RecordBytes, SourceRows
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece, RefusedRecord, cut_in_two, framed
from blizzard_py.lines.portions import portions
from blizzard_py.schema.types import table_schema


@dataclass(frozen=True, slots=True)
class NdjsonFormat:
    """The format NDJSON as a `Format`. It has no options."""

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield chunks of whole lines."""
        return portions(framed(file.blocks()), row_shape(schema.fields))

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> NdjsonDecoder:
        """Return the line parser of these columns."""
        return NdjsonDecoder(line_parser(schema, tolerant=tolerant, fast=fast))

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the letters' lines.

        A mark before them keeps theirs, and the first one is not taken for a codec.
        """
        return [codecs.BOM_UTF8 + b"".join(letter.raw + b"\n" for letter in letters)]

    def replay_settings(self) -> NdjsonOptions:
        """Return the same format."""
        return NdjsonOptions()


def line_parser(schema: RowSchema, *, tolerant: bool, fast: bool) -> LineParser:
    """Return the parser of lines with these columns."""
    return LineParser(
        RecordSchema(schema.fields, schema.unexpected_fields),
        tolerant=tolerant,
        fast=fast,
        thorough=schema.evolves,
    )


def format_of(_settings: NdjsonOptions) -> NdjsonFormat:
    """Return the format; there is nothing to choose."""
    return NdjsonFormat()


class NdjsonDecoder:
    """A `LineParser` as a `Decoder`."""

    def __init__(self, parser: LineParser) -> None:
        self._parser = parser
        self._key_parsers: dict[tuple[FieldSpec, ...], LineParser] = {}

    def decode(self, piece: Piece) -> Parsed:
        """Parse the lines as `LineParser.parse` does."""
        return self._parser.parse(piece.data)

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the lines by their index, blank ones too."""
        lines = piece.data.split(b"\n")[:-1]
        starts = accumulate((len(line) + 1 for line in lines), initial=0)
        return {
            index: (start, line, b"")
            for index, (start, line) in enumerate(zip(starts, lines, strict=False))
        }

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the lines each."""
        lines = piece.data.split(b"\n")[:-1]
        middle = len(lines) // 2
        if not middle:
            return None
        return cut_in_two(piece, sum(len(line) + 1 for line in lines[:middle]))

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:  # noqa: ARG002  # see below
        """Return nothing, since each record names its fields."""
        return {}

    def as_lines(self, piece: Piece) -> bytes:
        """Return the lines themselves."""
        return piece.data

    def source_rows(
        self,
        piece: Piece,
        columns: Sequence[str],  # noqa: ARG002  # a line has all
        keys: Sequence[FieldSpec],
    ) -> SourceRows:
        """Return the lines that are records, as `TableDecoder.source_rows`; without keys all."""
        lines = piece.data.split(b"\n")[:-1]
        schema = table_schema(keys)
        if not keys:
            return SourceRows(schema, lines)
        parsed = self._parse_keys(piece, keys)
        at, bad = parsed.rows_at, parsed.bad
        values = [column.combine_chunks() for column in parsed.table.columns]
        if bad:  # no record, or one of the values cannot be read
            records = self._parse_keys(piece, ())
            at, bad = records.rows_at, records.bad
            values = [_placed(self._parse_keys(piece, [key]), at) for key in keys]
        rows = [lines[index] for index in at.tolist()]
        return SourceRows(schema, rows, values, len(at) - len(parsed.rows_at), bad)

    def _parse_keys(self, piece: Piece, keys: Sequence[FieldSpec]) -> Parsed:
        fields = tuple(keys)
        if fields not in self._key_parsers:
            schema = RowSchema(fields)
            self._key_parsers[fields] = line_parser(schema, tolerant=True, fast=bool(keys))
        return self._key_parsers[fields].parse(piece.data)


def _placed(parsed: Parsed, at: LineNumbers) -> pa.Array:
    """Return the only column's values in the records ``at`` these lines, null in other ones."""
    places = np.full(len(at), -1)
    places[np.searchsorted(at, parsed.rows_at)] = np.arange(len(parsed.rows_at))
    return parsed.table.column(0).combine_chunks().take(pa.array(places, mask=places < 0))

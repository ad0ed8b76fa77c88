"""Columns with another name than in the records, for all formats.

A format reads by the names in the records, so its reasons, letters and unexpected fields have
these. Only the finished rows get the names of the columns. Without other names nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from blizzard_core.settings.formats import FileFormat
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.protocol import Decoder, Format, OpenFile, Parsed, RecordBytes
from blizzard_py.job import FieldSpec, RowSchema
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.schema.types import arrow_type


@dataclass(frozen=True, slots=True)
class RenamingFormat:
    """A `Format` that reads by the names in the records; picklable."""

    form: Format

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield the pieces of the format."""
        return self.form.pieces(file, schema.as_read)

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> Decoder:
        """Return the format's decoder, or one that renames its rows."""
        read = schema.as_read
        found = self.form.decoder(read, tolerant=tolerant, fast=fast)
        return found if read is schema else _RenamingDecoder(found, schema.fields)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the format's contents."""
        return self.form.replay_contents(letters)

    def replay_settings(self) -> FileFormat:
        """Return the format's settings."""
        return self.form.replay_settings()


@dataclass(frozen=True, slots=True)
class _RenamingDecoder:
    decoder: Decoder
    fields: Sequence[FieldSpec]

    def decode(self, piece: Piece) -> Parsed:
        parsed = self.decoder.decode(piece)
        return replace(parsed, table=renamed(parsed.table, self.fields))

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        return self.decoder.records(piece)

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        return self.decoder.halves(piece)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:
        return self.decoder.columns(piece)

    def as_lines(self, piece: Piece) -> bytes:
        return self.decoder.as_lines(piece)


def renamed(table: pa.Table, fields: Sequence[FieldSpec]) -> pa.Table:
    """Return rows with the names of their columns, at every level; no value is copied.

    Further columns, such as `_rescued`, are behind those of ``fields``.
    """
    columns, types = [*table.columns], [*table.schema]
    for place, spec in enumerate(fields):
        kind = arrow_type(spec)
        if types[place].type != kind:  # a struct or what holds one
            chunks = [chunk.view(kind) for chunk in columns[place].chunks]
            columns[place] = pa.chunked_array(chunks, kind)
        types[place] = pa.field(spec.name, kind, nullable=types[place].nullable)
    return pa.Table.from_arrays(columns, schema=pa.schema(types))

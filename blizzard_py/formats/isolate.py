"""Parsing and reading in child processes, after a worker has died.

If a child dies, the records of its piece are halved until the one is found that kills a child by
itself. It is a bad record if it kills a second child as well: a child may also die because
the machine has no memory left, which no record causes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from blizzard_core.limits import PARSER_DEATHS
from blizzard_core.storage.opening import open_source
from blizzard_py.formats.child_process import ChildProcess, Died
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.protocol import (
    NO_OFFSET,
    BadLine,
    BadRecord,
    Format,
    Parsed,
    RecordBytes,
)
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FileLimits, JobFile, Place, RowSchema
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece


class IsolatedDecoder:
    """The `Decoder` of a format, surviving its input; for one file. It takes no fast path.

    Raises `FileFailed` if the file has killed `PARSER_DEATHS` children.
    """

    def __init__(
        self, nursery: ChildProcess, form: Format, schema: RowSchema, *, tolerant: bool
    ) -> None:
        self._nursery = nursery
        self._format = form
        self._schema = schema
        self._tolerant = tolerant
        self._decoder = form.decoder(schema, tolerant=tolerant, fast=False)
        self._deaths = 0

    def decode(self, piece: Piece) -> Parsed:
        """Decode as `Decoder.decode` does; a record that kills the process is a bad record."""
        try:
            return self._decoded(piece)
        except Died as died:
            self._count(died)
            halves = self._decoder.halves(piece)
            return self._alone(piece, died) if halves is None else self._halved(*halves)

    def _decoded(self, piece: Piece) -> Parsed:
        return self._nursery.call(
            _decode, self._format, self._schema, piece, tolerant=self._tolerant
        )

    def _halved(self, half: Piece, rest: Piece) -> Parsed:
        first = self.decode(half)
        try:
            return _joined(first, self.decode(rest), rest.offset - half.offset)
        except BadLine as error:
            raise BadLine(error.index + first.lines, error.reason) from error

    def _alone(self, piece: Piece, died: Died) -> Parsed:
        try:
            return self._decoded(piece)
        except Died:
            self._count(died)
        reason = f"the parser died of this record: {died.how}"
        if not self._tolerant:
            raise BadLine(0, reason) from died
        index, (offset, head, header) = self._record(piece)
        bad = BadRecord(index, offset, len(head), head, reason, header=header)
        table = RecordSchema(self._schema.fields, self._schema.unexpected_fields).table
        return Parsed(table.empty_table(), piece.lines or 1, np.arange(0), (bad,))

    def _record(self, piece: Piece) -> tuple[int, RecordBytes]:
        """Return the only record of a piece. A library that reads it may die again."""
        try:
            found: tuple[int, RecordBytes] = self._nursery.call(
                _record, self._format, self._schema, piece
            )
        except Died:
            return 0, (NO_OFFSET, b"", b"")
        return found

    def _count(self, died: Died) -> None:
        self._deaths += 1
        if self._deaths > PARSER_DEATHS:
            raise FileFailed(
                "parse", f"the parser died {self._deaths} times of its records, last: {died.how}"
            ) from died


def check_readable(nursery: ChildProcess, source: Place, file: JobFile, limits: FileLimits) -> None:
    """Raise `FileFailed` if reading and decompressing the file kills two children."""
    for _ in range(2):
        try:
            nursery.call(_read_through, source, file, limits)
        except Died as died:
            how = died.how
        else:
            return
    raise FileFailed("decompress", f"a process that reads it dies: {how}")


def _decode(form: Format, schema: RowSchema, piece: Piece, *, tolerant: bool) -> Parsed:
    return form.decoder(schema, tolerant=tolerant, fast=False).decode(piece)


def _record(form: Format, schema: RowSchema, piece: Piece) -> tuple[int, RecordBytes]:
    [found] = form.decoder(schema, tolerant=True, fast=False).records(piece).items()
    return found


def _read_through(source: Place, file: JobFile, limits: FileLimits) -> None:
    storage = open_source(source.uri, dict(source.options))
    expansion = Expansion(file.size, limits.expansion)
    try:
        with SourceFile(storage, file, expansion) as opened_file:
            for blocks in opened_file.streams():
                for _ in blocks:
                    pass
    except FileFailed:
        return  # the task will meet and report the same error


def _joined(first: Parsed, second: Parsed, offset: int) -> Parsed:
    """Return the result of two consecutive pieces, the second at ``offset`` in their data."""
    return Parsed(
        pa.concat_tables([first.table, second.table]),
        first.lines + second.lines,
        np.concatenate([first.rows_at, second.rows_at + first.lines]),
        (*first.bad, *(bad.moved(first.lines, offset) for bad in second.bad)),
        first.unexpected | second.unexpected,
    )

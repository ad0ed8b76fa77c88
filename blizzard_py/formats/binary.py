"""The format binary: each file is a row, with its name, time, length and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from blizzard_core.limits import WHOLE_FILE_BYTES
from blizzard_core.settings.formats import BinaryFileOptions, NdjsonOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.conform import Conformer
from blizzard_py.formats.protocol import (
    NO_OFFSET,
    BadLine,
    BadRecord,
    OpenFile,
    Parsed,
    RecordBytes,
)
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece

_MICROS = 1_000_000
_TIME = pa.timestamp("us", "UTC")


class BinaryFormat:
    """Whole files as a `Format`. They are not decompressed."""

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece]:
        """Yield the row. Without a declared column all are read; content is read if it is declared.

        Raises `FileFailed` for a file whose content is too long for a row.
        """
        wanted = {spec.name for spec in schema.fields} or set(BinaryFileOptions.fixed_columns)
        columns = {}
        if "modification_time" in wanted:
            # Asked before the content is read, so that a change in between is noticed.
            columns["modification_time"] = pa.array([round(file.modified * _MICROS)]).cast(_TIME)
        # A letter begins with the content: a cut one must be like the row that is read again.
        if "content" in wanted:
            columns = {"content": _content(file), **columns}
        columns |= {"path": pa.array([file.uri]), "length": pa.array([file.size])}
        yield Piece(b"", NO_OFFSET, lines=1, rows=pa.RecordBatch.from_pydict(columns))

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> BinaryDecoder:  # noqa: ARG002  # one path
        """Return the decoder of these columns."""
        return BinaryDecoder(schema, tolerant=tolerant)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the letters' rows, which are lines of JSON."""
        return [b"".join(letter.raw + b"\n" for letter in letters)]

    def replay_settings(self) -> NdjsonOptions:
        """Return the format of such files."""
        return NdjsonOptions()


def format_of(_settings: BinaryFileOptions) -> BinaryFormat:
    """Return the format; there is nothing to choose."""
    return BinaryFormat()


def _content(file: OpenFile) -> pa.Array:
    if file.size > WHOLE_FILE_BYTES:
        raise FileFailed(
            "parse",
            f"has {file.size:,} bytes, more than the {WHOLE_FILE_BYTES:,} of a row; leave the"
            " column content out of schema.fields, or keep such files from path_glob_filter",
        )
    data = file.read_range(0, file.size)
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])


class BinaryDecoder:
    """The `Decoder` of files as rows."""

    def __init__(self, schema: RowSchema, *, tolerant: bool) -> None:
        self._tolerant = tolerant
        rescued = schema.unexpected_fields == "capture"
        self._conformer = Conformer(schema.fields, rescued=rescued)

    def decode(self, piece: Piece) -> Parsed:
        """Return the row."""
        conformed = self._conformer.conform(piece.rows)
        bad = []
        for row, reason in conformed.bad.items():
            if not self._tolerant:
                raise BadLine(row, reason)
            text = self._conformer.text_of(piece.rows, row)
            bad.append(BadRecord(row, NO_OFFSET, len(text), text, reason))
        return Parsed(conformed.table, piece.lines, conformed.rows_at, tuple(bad))

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the row as JSON."""
        return {0: (NO_OFFSET, self._conformer.text_of(piece.rows, 0), b"")}

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:  # noqa: ARG002  # it is one row
        """Return None."""
        return None

    def as_lines(self, piece: Piece) -> bytes:  # noqa: ARG002  # there are no other fields
        """Return nothing."""
        return b""

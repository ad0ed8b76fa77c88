"""The format text: each line, or each whole file, is a row of one column."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blizzard_core.limits import CHUNK_CELLS, WHOLE_FILE_BYTES
from blizzard_core.settings.formats import TextFileOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.ndjson.parse import is_utf8
from blizzard_py.formats.protocol import BadLine, BadRecord, OpenFile, Parsed, RecordBytes
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord, cut_in_two, framed
from blizzard_py.lines.transcode import check_narrow
from blizzard_py.schema.types import table_schema

# The least values of a row; a bad one has a letter.
_ROW = 16


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Text as a `Format`."""

    options: TextFileOptions

    def pieces(
        self,
        file: OpenFile,
        schema: RowSchema,  # noqa: ARG002  # there is one column
    ) -> Iterator[Piece | RefusedRecord]:
        """Yield pieces of lines, or one of the whole file. Raises `FileFailed` for UTF-16."""
        blocks = check_narrow(file.blocks(), "store the file as UTF-8")
        if self.options.whole_text:
            yield _one_piece(blocks, file.path)
            return
        if not self.options.line_sep:
            blocks = _with_last_return(blocks)
        for item in framed(blocks, end=self._end):
            yield from [item] if isinstance(item, RefusedRecord) else _portions(item, self._end)

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> TextDecoder:  # noqa: ARG002  # one path
        """Return the decoder of the column."""
        return TextDecoder(self.options, schema, tolerant=tolerant)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        r"""Return the lines as one file, or a file for each whole text.

        A mark before them keeps theirs. `\r` before a line end keeps the one of a line.
        """
        raw = [letter.raw for letter in letters]
        if self.options.whole_text:
            return [codecs.BOM_UTF8 + text for text in raw]
        end = self.options.line_sep.encode() or b"\r\n"
        return [codecs.BOM_UTF8 + b"".join(line + end for line in raw)]

    def replay_settings(self) -> TextFileOptions:
        """Return the same format."""
        return self.options

    @property
    def _end(self) -> bytes:
        return self.options.line_sep.encode() or b"\n"


class TextDecoder:
    """The `Decoder` of text."""

    def __init__(self, options: TextFileOptions, schema: RowSchema, *, tolerant: bool) -> None:
        self._end = options.line_sep.encode() or b"\n"
        self._drops_returns = not (options.line_sep or options.whole_text)
        self._tolerant = tolerant
        rescued = schema.unexpected_fields == "capture"
        self._table = table_schema(schema.fields, rescued=rescued)

    def decode(self, piece: Piece) -> Parsed:
        """Return the records that are UTF-8 as rows; see `Decoder.decode`."""
        records = self._split(piece)
        bad: tuple[BadRecord, ...] = ()
        rows_at = np.arange(len(records))
        if not is_utf8(piece.data):
            bad = tuple(
                BadRecord(index, start, len(record), record, "not valid UTF-8")
                for index, (start, record, _) in self.records(piece).items()
                if not is_utf8(record)
            )
            if not self._tolerant:
                raise BadLine(bad[0].index, bad[0].reason)
            rows_at = np.delete(rows_at, [each.index for each in bad])
        texts = pa.array([records[index] for index in rows_at.tolist()], pa.string())
        # There may be a column of unexpected fields, of which there are none.
        columns = [texts, pa.nulls(len(texts), pa.string())][: len(self._table)]
        table = pa.Table.from_arrays(columns, schema=self._table)
        return Parsed(table, len(records), rows_at, bad)

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the lines by their index, empty ones too."""
        ends = 0 if piece.context is not None else len(self._end)
        found: dict[int, RecordBytes] = {}
        start = 0
        for index, record in enumerate(self._lines(piece)):
            found[index] = (start, self._stripped(record), b"")
            start += len(record) + ends
        return found

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the lines each."""
        lines = self._lines(piece)
        middle = len(lines) // 2
        if not middle:
            return None
        return cut_in_two(piece, sum(len(line) + len(self._end) for line in lines[:middle]), middle)

    def columns(self, piece: Piece) -> Mapping[str, pa.DataType | None]:  # noqa: ARG002  # there is one
        """Return the column."""
        return dict.fromkeys(TextFileOptions.fixed_columns, pa.string())

    def as_lines(self, piece: Piece) -> bytes:  # noqa: ARG002  # there are no other fields
        """Return nothing."""
        return b""

    def _split(self, piece: Piece) -> list[bytes]:
        return [self._stripped(line) for line in self._lines(piece)]

    def _lines(self, piece: Piece) -> list[bytes]:
        return [piece.data] if piece.context is not None else piece.data.split(self._end)[:-1]

    def _stripped(self, line: bytes) -> bytes:
        return line.removesuffix(b"\r") if self._drops_returns else line


def _with_last_return(blocks: Iterator[bytes]) -> Iterator[bytes]:
    r"""End a last line that ends with `\r` alone, so that `\r` stays text."""
    last = b""
    for block in blocks:
        last = block[-1:] or last
        yield block
    if last == b"\r":
        yield b"\r\n"


def _one_piece(blocks: Iterator[bytes], path: str) -> Piece:
    """Return the file as one record. Its context is its own, so it is joined with no other."""
    parts: list[bytes] = []
    size = 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > WHOLE_FILE_BYTES:
            raise FileFailed(
                "parse",
                f"is longer than the {WHOLE_FILE_BYTES:,} bytes of a row; set"
                " format.whole_text: false, or store smaller files",
            )
    data = b"".join(parts)
    skipped = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    return Piece(data[skipped:], skipped, _ROW, lines=1, context=path)


def _portions(piece: Piece, end: bytes) -> Iterator[Piece]:
    """Yield the lines as pieces with a limited number of rows."""
    ends = np.flatnonzero(np.frombuffer(piece.data, np.uint8) == end[0]) + 1
    step = CHUNK_CELLS // _ROW
    start = 0
    for first in range(0, len(ends), step):
        some = ends[first : first + step]
        stop = int(some[-1])
        data = piece.data[start:stop] if len(some) < len(ends) else piece.data
        yield Piece(data, piece.offset + start, len(some) * _ROW, lines=len(some))
        start = stop

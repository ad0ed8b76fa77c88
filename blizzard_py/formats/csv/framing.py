r"""A stream of CSV becomes pieces of whole records, in order and in bounded memory.

A record that is open at the end of the file, or longer than a record may be, has a quote that is
never closed. Its first line alone is refused, and reading goes on behind it: no other record is
lost in a value. What is read again for that is limited, because each line of a hostile file may
open a quote.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from blizzard_core.limits import (
    CHUNK_CELLS,
    CSV_HEADER_BYTES,
    CSV_RECORD_BYTES,
    CSV_REREAD_BYTES,
    RAW_BYTES,
)
from blizzard_py.formats.csv.dialect import Dialect, count_lines, first_line
from blizzard_py.formats.csv.lexer import Lexer
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import CHUNK_BYTES, Piece, RefusedRecord

# The least values of a record; a bad one has a letter.
_RECORD = 16
# Blocks are joined up to this size, so that a stream of single bytes costs no more than another.
LEAST_BLOCK = 64 << 10
_BLOCK = 1 << 20
# Each byte may be read again so often.
_READ_AGAIN = 4


@dataclass(frozen=True, slots=True)
class CsvContext:
    """The header of a file as it stands there, None without one, and its dialect."""

    header: bytes | None
    dialect: Dialect


class _Blocks:
    """The blocks of a stream, some of which were put back.

    None ends with a carriage return before the last: a line feed may follow.
    """

    def __init__(self, blocks: Iterable[bytes], least: int) -> None:
        self._stream = iter(blocks)
        self._back: deque[bytes] = deque()
        self._least = least

    def put_back(self, data: bytes) -> None:
        """Put back what comes before the rest."""
        slices = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)]
        self._back.extendleft(reversed(slices))

    def next(self) -> bytes:
        """Return the next block, empty at the end."""
        block = self._joined()
        while block.endswith(b"\r"):
            following = self._joined()
            if not following:
                break
            self._back.appendleft(b"\r" + following)
            block = block[:-1]
            if not block:
                block = self._joined()
        return block

    def _joined(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < self._least:
            block = self._back.popleft() if self._back else next(self._stream, None)
            if block is None:
                break
            parts.append(block)
            size += len(block)
        return b"".join(parts)


class CsvFraming:
    """The framing of one file.

    With ``header`` the first record is the header. A piece has about ``target`` bytes, and becomes
    at most `CHUNK_CELLS` values of ``columns`` or of the header's.
    """

    def __init__(
        self,
        dialect: Dialect,
        columns: int,
        *,
        header: bool = True,
        skip_rows: int = 0,
        target: int = CHUNK_BYTES,
        limit: int = CSV_RECORD_BYTES,
        least: int = 0,
    ) -> None:
        self._dialect = dialect
        self._columns = columns
        self._has_header = header
        self._skip_rows = skip_rows
        self._target = target
        self._limit = limit
        self._least = least or LEAST_BLOCK
        self._offset = 0  # of the first byte that is in no piece yet
        self._skipped = 0
        self._read_again = 0

    def pieces(self, blocks: Iterable[bytes]) -> Iterator[Piece | RefusedRecord]:
        """Yield the records. An empty file yields nothing; one of a header an empty piece.

        Raises `FileFailed` for a header that is never closed or too long, and for too many quotes
        that are never closed.
        """
        stream = _Blocks(blocks, self._least)
        self._drop_mark(stream)
        self._drop_lines(stream)
        context = self._context(stream)
        if context is not None:
            yield from self._records(stream, context)

    def _drop_mark(self, stream: _Blocks) -> None:
        first = b""
        while len(first) < len(BOM_UTF8) and (block := stream.next()):
            first += block
        if first.startswith(BOM_UTF8):
            first, self._offset = first[len(BOM_UTF8) :], len(BOM_UTF8)
        stream.put_back(first)

    def _drop_lines(self, stream: _Blocks) -> None:
        """Drop the lines before the header."""
        rows = self._skip_rows
        while rows and (block := stream.next()):
            at = 0
            while rows and (end := first_line(block[at:])) is not None:
                at += end[1]
                rows -= 1
                self._skipped += 1
            rest = block[at:] if not rows else b""
            stream.put_back(rest)
            self._offset += len(block) - len(rest)

    def _context(self, stream: _Blocks) -> CsvContext | None:
        """Return the header; None for a file without a record."""
        if not self._has_header:
            return CsvContext(None, self._dialect)
        data, at, ended = b"", 0, False
        while True:
            whole = data if not ended or data.endswith((b"\n", b"\r")) else data + b"\n"
            match = self._dialect.record.match(whole, at) if at < len(data) else None
            if match is not None:
                end = min(match.end(), len(data))
                self._offset += end - at
                self._skipped += max(1, count_lines(match[0]))
                at = end
                if not self._dialect.is_nothing(match[0]):
                    stream.put_back(data[at:])
                    return CsvContext(
                        self._checked(whole[match.start() : match.start(1)]), self._dialect
                    )
                continue
            if ended:
                if at < len(data):
                    raise FileFailed("parse", "the header has a quote that is never closed")
                return None
            data, at = data[at:], 0
            self._checked(data)
            block = stream.next()
            ended = not block
            data += block

    @staticmethod
    def _checked(header: bytes) -> bytes:
        if len(header) > CSV_HEADER_BYTES:
            raise FileFailed(
                "parse",
                f"the header, or a line before it, is longer than {CSV_HEADER_BYTES:,} bytes; is it"
                " CSV?",
            )
        return header

    def _records(self, stream: _Blocks, context: CsvContext) -> Iterator[Piece | RefusedRecord]:
        open_record = _OpenRecord(Lexer(self._dialect))
        is_first = True
        while True:
            block = stream.next()
            first, last = open_record.lexer.feed(block or b"\n")
            is_refused = open_record.length + (first or len(block)) > self._limit
            if not block:
                is_whole = not open_record.length or first > 0
                is_refused = open_record.length > 0 and (is_refused or not is_whole)
            open_record.add(block, last if block else 0)
            if is_refused:
                whole, rest = open_record.split()
                if whole or is_first:
                    yield from self._cut(whole, context)
                yield self._refused(rest, stream, context, ended=not block)
                open_record, is_first = _OpenRecord(Lexer(self._dialect)), False
            elif not block:
                data = b"".join(open_record.split())
                if open_record.length:
                    data += b"\n"
                elif data.endswith(b"\r"):
                    # The file may be joined with another one, which begins with a line feed.
                    data = data[:-1] + b"\n"
                if data or is_first:
                    yield from self._cut(data, context)
                return
            elif open_record.begin >= self._target:
                whole, rest = open_record.split()
                yield from self._cut(whole, context)
                open_record, is_first = open_record.moved_on(rest), False

    def _cut(self, data: bytes, context: CsvContext) -> Iterator[Piece]:
        """Yield a piece, or several of fewer values."""
        header = (context.header or b"").count(self._dialect.delimiter) + 1
        values = max(_RECORD, self._columns, header)
        lines = count_lines(data)
        piece = Piece(data, self._offset, lines * values, self._skipped, lines, context)
        self._offset += len(data)
        self._skipped = 0
        if piece.cells <= CHUNK_CELLS:
            yield piece
            return
        records = self._dialect.records(data)
        step = max(1, CHUNK_CELLS // values)
        starts = [0, *records.starts[step::step].tolist(), len(data)]
        numbers = [0, *records.lines[step::step].tolist(), lines]
        for (begin, end), (line, until) in zip(pairwise(starts), pairwise(numbers), strict=True):
            yield replace(
                piece,
                data=data[begin:end],
                offset=piece.offset + begin,
                lines=until - line,
                skipped=piece.skipped if not begin else 0,
                cells=min(step, len(records.starts)) * values,
            )

    def _refused(
        self, data: bytes, stream: _Blocks, context: CsvContext, *, ended: bool
    ) -> RefusedRecord:
        """Refuse the first line of a record, and put back what is behind it."""
        reason = "a quote in it is never closed"
        if not ended:
            reason = f"longer than {self._limit} bytes, or a quote in it is not closed"
        head, begin = data[:RAW_BYTES], self._offset
        end = first_line(data)
        length = len(data)
        while end is None and (block := stream.next()):
            end = first_line(block)
            if end is None:
                length += len(block)
                continue
            stream.put_back(block[end[1] :])
            data, end = b"", (length + end[0], length + end[1])
        length, behind = end or (length, length)
        rest = data[behind:]
        stream.put_back(rest)
        self._read_again += len(rest)
        if self._read_again > CSV_REREAD_BYTES + _READ_AGAIN * self._offset:
            raise FileFailed(
                "parse",
                f"{reason}, and so it is in too many records; set format.quote to the file's, or to"
                ' "" if quotes have no meaning in it',
            )
        self._offset += behind
        skipped, self._skipped = self._skipped, 0
        return RefusedRecord(begin, length, head[:length], reason, skipped, context.header or b"")


class _OpenRecord:
    """The bytes that are in no piece yet: whole records up to ``begin``, and the open one."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.begin = 0
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def length(self) -> int:
        """The bytes of the open record so far."""
        return self._size - self.begin

    def add(self, block: bytes, last: int) -> None:
        """Add a block in which the last record end is at ``last``; 0 if it has none."""
        if last:
            self.begin = self._size + last
        self._parts.append(block)
        self._size += len(block)

    def split(self) -> tuple[bytes, bytes]:
        """Return the whole records, and the open one."""
        data = b"".join(self._parts)
        return data[: self.begin], data[self.begin :]

    def moved_on(self, rest: bytes) -> _OpenRecord:
        """Return what is left once the whole records are in a piece."""
        found = _OpenRecord(self.lexer)
        found.add(rest, 0)
        return found

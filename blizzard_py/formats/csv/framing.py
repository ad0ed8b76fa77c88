r"""A stream of CSV becomes pieces of whole records, in order and in bounded memory.

A record that is open at the end of the file, or longer than a record may be, has a quote that is
never closed. Its first line alone is refused, and reading goes on behind it: no other record is
lost in a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from blizzard_core.limits import CHUNK_CELLS, LINE_BYTES, RAW_BYTES
from blizzard_py.formats.csv.dialect import Dialect, count_lines, first_line
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import CHUNK_BYTES, Piece, RefusedRecord

_MARK = b"\xef\xbb\xbf"
# The least values of a record; a bad one has a letter.
_RECORD = 16


@dataclass(frozen=True, slots=True)
class CsvContext:
    """The header of a file as it stands there, None without one, and its dialect."""

    header: bytes | None
    dialect: Dialect


@dataclass(slots=True)
class CsvFraming:
    """The framing of one file.

    With ``header`` the first record is the header. A piece
    becomes at most `CHUNK_CELLS` values of ``columns`` or of the header's.
    """

    dialect: Dialect
    columns: int
    header: bool = True
    skip_rows: int = 0
    target: int = CHUNK_BYTES
    limit: int = LINE_BYTES
    _offset: int = field(default=0, init=False)
    _skipped: int = field(default=0, init=False)

    def pieces(self, blocks: Iterable[bytes]) -> Iterator[Piece | RefusedRecord]:
        """Yield the records. An empty file yields nothing; one of a header an empty piece."""
        stream = iter(blocks)
        data, ended = self._filled(b"", stream, self.target)
        if data.startswith(_MARK):
            data, self._offset = data[len(_MARK) :], len(_MARK)
        rows = self.skip_rows
        while data and rows:
            # The line may end in the next block.
            if not ended and first_line(data) >= len(data) - 1:
                data, ended = self._filled(data, stream, 2 * len(data))
                self._check(data, "a line")
                continue
            data = self._drop(data, first_line(data))
            rows -= 1
        context = None if self.header else CsvContext(None, self.dialect)
        while context is None:
            length = self._first(data, ended=ended)
            if not length:
                if ended:
                    if data:
                        raise FileFailed("parse", "the header has a quote that is never closed")
                    return
                data, ended = self._filled(data, stream, 2 * len(data) + 1)
                self._check(data, "the header")
                continue
            first = data[:length]
            data = self._drop(data, length)
            if not self._is_nothing(first):
                context = CsvContext(first.rstrip(b"\r\n"), self.dialect)
        yield from self._records(data, stream, context, ended=ended)

    def _records(
        self, data: bytes, stream: Iterator[bytes], context: CsvContext, *, ended: bool
    ) -> Iterator[Piece | RefusedRecord]:
        want, is_first = self.target, True
        while data or not ended:
            data, ended = self._filled(data, stream, want)
            whole = data if not ended or data.endswith((b"\n", b"\r")) else data + b"\n"
            end = self.dialect.records_end(whole, final=ended)
            if not end and not ended and len(data) < self.limit:
                want = 2 * max(len(data), self.target)
                continue
            want = self.target
            if not end:
                if data:
                    length = first_line(data)
                    yield self._refused(data[:length], context, ended=ended)
                    data = self._drop(data, length)
                    self._skipped = 0
                    is_first = False
                continue
            yield from self._cut(whole[:end], context)
            self._offset += min(end, len(data))
            data, is_first = data[end:], False
        if is_first:
            yield Piece(b"", self._offset, skipped=self._skipped, context=context)

    def _cut(self, data: bytes, context: CsvContext) -> Iterator[Piece]:
        """Yield a piece, or several of fewer values."""
        header = (context.header or b"").count(self.dialect.delimiter) + 1
        values = max(_RECORD, self.columns, header)
        lines = count_lines(data)
        whole = Piece(data, self._offset, lines * values, self._skipped, lines, context)
        self._skipped = 0
        waiting = [whole]
        while waiting:
            piece = waiting.pop()
            halves = halves_of(piece, self.dialect) if piece.cells > CHUNK_CELLS else None
            if halves is None:
                yield piece
            else:
                waiting += reversed(halves)

    def _refused(self, line: bytes, context: CsvContext, *, ended: bool) -> RefusedRecord:
        text = line.rstrip(b"\r\n")
        reason = (
            "a quote in it is never closed"
            if ended
            else f"longer than {self.limit} bytes, or a quote in it is not closed"
        )
        return RefusedRecord(
            self._offset,
            len(text),
            text[:RAW_BYTES],
            reason,
            self._skipped,
            context.header or b"",
        )

    def _first(self, data: bytes, *, ended: bool) -> int:
        r"""Return the length of the first record; 0 if its end is not there yet."""
        whole = data if not ended or data.endswith((b"\n", b"\r")) else data + b"\n"
        length = self.dialect.first_record(whole) if data else 0
        if not ended and length == len(data) and data.endswith(b"\r"):
            return 0
        return min(length, len(data))

    def _is_nothing(self, record: bytes) -> bool:
        comment = self.dialect.comment
        return not record.strip(b"\r\n") or bool(comment and record.startswith(comment))

    def _drop(self, data: bytes, length: int) -> bytes:
        """Return what is behind; its lines belong to no record."""
        self._offset += length
        self._skipped += count_lines(data[:length])
        return data[length:]

    def _check(self, data: bytes, what: str) -> None:
        if len(data) > self.limit:
            raise FileFailed(
                "parse", f"{what} before the records is longer than {self.limit} bytes; is it CSV?"
            )

    @staticmethod
    def _filled(data: bytes, stream: Iterator[bytes], want: int) -> tuple[bytes, bool]:
        """Return at least ``want`` bytes, and whether these are the file's last."""
        parts, size = [data], len(data)
        while size < want:
            block = next(stream, None)
            if block is None:
                return b"".join(parts), True
            parts.append(block)
            size += len(block)
        return b"".join(parts), False


def halves_of(piece: Piece, dialect: Dialect) -> tuple[Piece, Piece] | None:
    """Return two pieces of about half the records each; None for a single one."""
    records = dialect.records(piece.data)
    count = len(records.starts)
    if count < 2:
        return None
    middle = count // 2
    end, lines = int(records.starts[middle]), int(records.lines[middle])
    cells = piece.cells // 2
    return (
        replace(piece, data=piece.data[:end], lines=lines, cells=cells),
        replace(
            piece,
            data=piece.data[end:],
            offset=piece.offset + end,
            lines=piece.lines - lines,
            skipped=0,
            cells=piece.cells - cells,
        ),
    )

"""The records of a JSON document as lines, at their place in the file.

No byte moves: between two records the last byte becomes a line end and the others blanks. A line
end within a record becomes a carriage return, and one of two bytes a tab and a carriage return.
Outside of strings these are blanks, and in strings they are not allowed, as line ends are not. So
offsets are those of the file, and `as_written` restores the record. Objects with nothing between
them get a line end in a `Piece` with the context `Unspaced`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blizzard_core.limits import LINE_BYTES, RAW_BYTES
from blizzard_py.formats.json_documents.elements import Elements, Positions
from blizzard_py.formats.json_documents.text import (
    END,
    DocumentText,
    damaged,
    enter_array,
    leave_array,
)
from blizzard_py.lines.framing import Piece, RefusedRecord

_BLANK, _LINE_END = b" \n"
_OPEN, _OPEN_ARRAY = b"{["


@dataclass(frozen=True, slots=True)
class Unspaced:
    """Context of a piece whose line ends are not in the file; each path has its own."""

    path: str


def as_written(record: bytes) -> bytes:
    r"""Return a record with the line ends that the file has, unless a tab stands before one.

    A lone carriage return becomes a line end.
    """
    return b"\r\n".join(part.replace(b"\r", b"\n") for part in record.split(b"\t\r"))


def read_records(
    text: DocumentText,
    keys: Sequence[str],
    path: str,
    *,
    limit: int = LINE_BYTES,
    fast: bool = True,
) -> Iterator[Piece | RefusedRecord]:
    """Yield the records of the array at ``keys``, or at the root; there also objects in a row.

    ``path`` is the file's. Raises `FileFailed` where the structure is wrong.
    """
    first = text.peek()
    if first == END:
        raise damaged("the file has no document: it ends", text.offset)
    if keys or first == _OPEN_ARRAY:
        enter_array(text, keys)
    elif first != _OPEN:
        raise damaged("neither an object nor an array", text.offset)
    array = bool(keys) or first == _OPEN_ARRAY
    elements = Elements(text.offset, array=array, fast=fast)
    yield from _Lines(elements, path, limit).read(text)
    if array:
        leave_array(text, keys)


class _Lines:
    """The lines of one document's elements. Holds the start of the open one."""

    def __init__(self, elements: Elements, path: str, limit: int) -> None:
        self._elements = elements
        self._path = path
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0  # of the open element up to now; beyond the limit, parts have its head
        self._start = 0  # its offset

    def read(self, text: DocumentText) -> Iterator[Piece | RefusedRecord]:
        elements = self._elements
        for part in text.slices():
            data = bytearray(part.replace(b"\r\n", b"\t\r").replace(b"\n", b"\r"))
            offset = elements.offset
            found = elements.scan(data)
            starts = found.starts
            if self._size:
                starts = np.concatenate([np.array([self._start - offset], np.int64), starts])
            if len(found.ends):
                yield from self._lines(data, offset, starts[: len(found.ends)], found.ends)
                self._parts, self._size = [], 0
            if elements.is_open:
                self._hold(data, offset, int(starts[-1]))
            if elements.is_done:
                text.give_back(len(data) - found.end - 1)
                return
        if elements.is_open:
            raise damaged("the file ends in a record that begins", self._start)
        if elements.is_array:
            raise damaged("the file ends in the array of records", elements.offset)

    def _hold(self, data: bytearray, offset: int, start: int) -> None:
        self._start = offset + start
        self._size = len(data) - start
        self._parts.append(bytes(memoryview(data)[max(start, 0) :]))
        if self._size > self._limit:
            self._parts = [b"".join(self._parts)[:RAW_BYTES]]

    def _lines(
        self, data: bytearray, offset: int, starts: Positions, ends: Positions
    ) -> Iterator[Piece | RefusedRecord]:
        """Yield records of a slice; the first may begin in those before."""
        first = 0
        for index in np.flatnonzero(ends - starts > self._limit).tolist():
            if index > first:
                yield self._piece(data, offset, starts[first:index], ends[first:index])
            yield self._refused(data, offset, int(starts[index]), int(ends[index]))
            first = index + 1
        if first < len(ends):
            yield self._piece(data, offset, starts[first:], ends[first:])

    def _refused(self, data: bytearray, offset: int, start: int, end: int) -> RefusedRecord:
        before = b"".join(self._parts) if start < 0 else b""
        head = (before + data[max(start, 0) : min(end, RAW_BYTES + max(start, 0))])[:RAW_BYTES]
        reason = f"longer than {self._limit} bytes"
        return RefusedRecord(offset + start, end - start, as_written(head), reason)

    def _piece(self, data: bytearray, offset: int, starts: Positions, ends: Positions) -> Piece:
        array = np.frombuffer(data, np.uint8)
        begin, end = max(int(starts[0]), 0), int(ends[-1])
        before = self._parts if starts[0] < 0 else []
        gaps, following = ends[:-1], starts[1:]
        more = following - gaps - 1
        context = None
        if len(more) and more.min() < 0:
            body = np.insert(array[begin:end], following - begin, _LINE_END)
            context = Unspaced(self._path)
        else:
            if more.any():
                skipped = np.repeat(gaps - (np.cumsum(more) - more), more)
                array[np.arange(len(skipped)) + skipped] = _BLANK
            array[following - 1] = _LINE_END
            body = array[begin:end]
        content = b"".join([*before, body.tobytes(), b"\n"])
        return Piece(content, offset + int(starts[0]), context=context)

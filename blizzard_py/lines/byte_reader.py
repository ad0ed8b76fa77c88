"""Bytes of a stream, taken in the sizes that the stream itself gives."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_py.lines.failure import FileFailed


class ByteReader:
    """Blocks as one stream. A size beyond its end is a stream that was ``cut``."""

    def __init__(self, blocks: Iterator[bytes], cut: FileFailed) -> None:
        self._blocks = blocks
        self._cut = cut
        self._data = b""
        self._at = 0

    def ahead(self, size: int) -> bytes:
        """Return the next bytes, and stay before them; fewer only at the end."""
        there = len(self._data) - self._at
        if there < size:
            parts = [self._data[self._at :]]
            while there < size and (more := next(self._blocks, b"")):
                parts.append(more)
                there += len(more)
            self._data, self._at = b"".join(parts), 0
        return self._data[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Return the next bytes; fewer only at the end."""
        data = self.ahead(size)
        self._at += len(data)
        return data

    def take_all(self, size: int) -> bytes:
        """Return the next bytes. Raises `FileFailed` if the stream ends before."""
        data = self.take(size)
        if len(data) < size:
            raise self._cut
        return data

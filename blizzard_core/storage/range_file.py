"""An object as a seekable file, as readers of Parquet need it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeAlias

# Returns the bytes of an object from the first number to the second, or to its end.
ReadRange: TypeAlias = Callable[[int, int], bytes]


class RangeFile(io.RawIOBase):
    """A file for Arrow's readers: random access, one request per read, no buffer."""

    def __init__(self, read_range: ReadRange, size: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Return the file's size in bytes."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = self._read_range(self._at, end)
        self._at += len(data)
        return data

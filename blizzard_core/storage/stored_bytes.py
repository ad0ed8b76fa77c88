"""Reads of an object store that return the stored bytes of one version.

An object may carry ``Content-Encoding: gzip``, and then the clients and some stores unpack it on
the way. The listing's size differs from the size of a read, and ranges are meaningless. So GCS and
Azure are read by our own requests, and `blizzard_py.lines` unpacks.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import BinaryIO, cast

from blizzard_core.errors import Conflict, NotFound, Unavailable
from blizzard_core.storage.objects import ObjectStorage

PART_BYTES = 8 << 20
_BUFFER_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """A part of an object, its version, and the size of the whole object."""

    data: bytes
    version: str
    total: int


class StoredBytes(ObjectStorage):
    """An object store that is read by `_get` alone."""

    def _get(
        self, key: str, span: tuple[int, int] | None = None, version: str | None = None
    ) -> ObjectPart:
        """Return the whole object, or the bytes of ``span`` (its end is exclusive).

        Raises what the client does, `Conflict` if the object has another version.
        """
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        return self._call(path, lambda: self._get(self._key(path))).data

    def read_range(self, path: str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        return self._call(path, lambda: self._get(self._key(path), (start, end))).data

    def open_input(self, path: str) -> BinaryIO:
        """Open the object in parts, all of the first part's version."""
        found = self.stat(path)
        if found is None:
            raise NotFound(f"{self.uri}/{path}: not found")
        if not found.size:
            return io.BytesIO()
        return cast("BinaryIO", io.BufferedReader(_Parts(self, path), _BUFFER_BYTES))

    def _get_versioned(self, key: str) -> tuple[bytes, str]:
        found = self._get(key)
        return found.data, found.version

    def part(self, path: str, start: int, version: str | None) -> ObjectPart:
        """Return up to `PART_BYTES` bytes from ``start`` on, of an object that is not empty.

        Raises `Unavailable` if the object was replaced or cut short.
        """
        where = f"{self.uri}/{path}"
        span = (start, start + PART_BYTES)
        try:
            found = self._call(path, lambda: self._get(self._key(path), span, version))
        except Conflict as error:
            raise Unavailable(f"{where}: was replaced while it was read") from error
        if len(found.data) != min(PART_BYTES, found.total - start):
            raise Unavailable(f"{where}: the store sent another part than the one asked for")
        return found


class _Parts(io.RawIOBase):
    """One object from its start to its end, a request for each part."""

    def __init__(self, storage: StoredBytes, path: str) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._part = storage.part(path, 0, None)
        self._begin = 0  # of the part in the object
        self._at = 0  # in the part

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the base takes any
        data = self._part.data
        if self._at == len(data):
            begin = self._begin + len(data)
            if begin == self._part.total:
                return 0
            self._part = self._storage.part(self._path, begin, self._part.version)
            self._begin, self._at, data = begin, 0, self._part.data
        size = min(len(buffer), len(data) - self._at)
        buffer[:size] = data[self._at : self._at + size]
        self._at += size
        return size

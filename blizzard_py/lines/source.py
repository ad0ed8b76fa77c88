"""Opening and reading of source objects; each failure's outcome is decided here.

A missing object was deleted after it was listed, and no retry restores it. A name that is not valid
stays so. All other errors of a store (refused, throttled, timed out) are about the store, not about
the file, so the file is left for a retry.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from blizzard_core.errors import NotFound, StorageError, UnreadableName
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Entry, Storage, root_exists
from blizzard_py.job import JobFile
from blizzard_py.lines.failure import FileFailed

# Objects up to this size are fetched at once: one request instead of a HEAD and a GET.
WHOLE_BYTES = 4 << 20


class ObjectStream:
    """A forward-only stream of one object; its errors are `FileFailed` at stage ``read``."""

    def __init__(self, storage: Storage, file: JobFile) -> None:
        self._storage = storage
        self._path = file.path
        self.bytes_read = 0
        with _file_failures(storage, file.path):
            self._stream: BinaryIO = (
                io.BytesIO(storage.read(file.path))
                if file.size <= WHOLE_BYTES
                else storage.open_input(file.path)
            )

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        with _file_failures(self._storage, self._path):
            data = self._stream.read(size)
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Release the connection or descriptor."""
        self._stream.close()


class ObjectRanges:
    """Random access to one object; its errors are `FileFailed` at stage ``read``.

    A small object is fetched at once and is of one version. Of a larger one each range is a
    request. The ranges may be of several versions, so `check_unchanged` belongs behind the last.
    """

    def __init__(self, storage: Storage, file: JobFile) -> None:
        self._storage = storage
        self._path = file.path
        self._listed = file.size
        self._entry: Entry | None = None
        self._whole: bytes | None = None

    @property
    def modified(self) -> float:
        """The time at which the object was written. What is read afterwards is of that time."""
        if self._entry is None:
            self._whole = None
        return self._known().modified

    @property
    def size(self) -> int:
        """The bytes of the object."""
        whole = self._all()
        return self._known().size if whole is None else len(whole)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes ``start`` to ``end`` (exclusive), or to the object's end."""
        whole = self._all()
        start, end = max(0, start), min(end, self.size)
        if whole is not None or start >= end:
            return (whole or b"")[start:end]
        with _file_failures(self._storage, self._path):
            data = self._storage.read_range(self._path, start, end)
        if len(data) != end - start:
            raise self._changed()
        return data

    def check_unchanged(self) -> None:
        """Raise `FileFailed` with outcome ``retry`` if the object was replaced meanwhile."""
        if self._entry is not None and self._found() != self._entry:
            raise self._changed()

    def _all(self) -> bytes | None:
        """Return a small object; None for a large one."""
        # A listed size of 0 may be one that is not known.
        size = self._listed if self._entry is None and self._listed else self._known().size
        if self._whole is None and size <= WHOLE_BYTES:
            with _file_failures(self._storage, self._path):
                self._whole = self._storage.read(self._path)
        return self._whole

    def _known(self) -> Entry:
        if self._entry is None:
            self._entry = self._found()
        return self._entry

    def _found(self) -> Entry:
        with _file_failures(self._storage, self._path):
            found = self._storage.stat(self._path)
            if found is None:
                raise NotFound(f"{self._storage.uri}/{self._path}: not found")
        return found

    def _changed(self) -> FileFailed:
        where = f"{self._storage.uri}/{self._path}"
        return FileFailed("read", f"{where}: was replaced while it was read", outcome="retry")


@contextmanager
def _file_failures(storage: Storage, path: str) -> Iterator[None]:
    try:
        yield
    except (StorageError, OSError) as error:
        raise _failed(storage, path, error) from error


def _failed(storage: Storage, path: str, error: StorageError | OSError) -> FileFailed:
    known = error if isinstance(error, StorageError) else wrap_error(f"{storage.uri}/{path}", error)
    if isinstance(known, NotFound) and root_exists(storage, path):
        return FileFailed("read", f"deleted between listing and reading: {known}")
    if isinstance(known, UnreadableName):
        return FileFailed("read", str(known))
    return FileFailed("read", str(known), outcome="retry")

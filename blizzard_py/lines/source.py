"""Opening and reading of source objects; each failure's outcome is decided here.

A missing object was deleted after it was listed, and no retry restores it. A name that is not valid
stays so. All other errors of a store (refused, throttled, timed out) are about the store, not about
the file, so the file is left for a retry.
"""

from __future__ import annotations

import io
from typing import BinaryIO

from blizzard_core.errors import NotFound, StorageError, UnreadableName
from blizzard_core.storage.failures import wrap_error
from blizzard_core.storage.protocol import Storage, root_exists
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
        try:
            self._stream: BinaryIO = (
                io.BytesIO(storage.read(file.path))
                if file.size <= WHOLE_BYTES
                else storage.open_input(file.path)
            )
        except (StorageError, OSError) as error:
            raise self._failed(error) from error

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        try:
            data = self._stream.read(size)
        except (StorageError, OSError) as error:
            raise self._failed(error) from error
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Release the connection or descriptor."""
        self._stream.close()

    def _failed(self, error: StorageError | OSError) -> FileFailed:
        known = (
            error
            if isinstance(error, StorageError)
            else wrap_error(f"{self._storage.uri}/{self._path}", error)
        )
        if isinstance(known, NotFound) and root_exists(self._storage, self._path):
            return FileFailed("read", f"deleted between listing and reading: {known}")
        if isinstance(known, UnreadableName):
            return FileFailed("read", str(known))
        return FileFailed("read", str(known), outcome="retry")

"""A new object as a writable file, as writers of Parquet need it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO

from blizzard_core.errors import BlizzardError
from blizzard_core.storage.failures import wrap_error


class FileSink(io.RawIOBase):
    """A raw stream that counts bytes and raises `StorageError` for errors of the store."""

    def __init__(self, stream: BinaryIO, uri: str) -> None:
        super().__init__()
        self._stream = stream
        self._uri = uri
        self.written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._called(lambda: self._stream.write(data))
        size = memoryview(data).nbytes
        self.written += size
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._called(self._stream.close)

    def _called(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BlizzardError:
            raise
        except Exception as error:  # store clients share no base class
            raise wrap_error(self._uri, error) from error

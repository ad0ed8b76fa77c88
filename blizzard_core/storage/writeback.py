"""A local file that the disk starts to write early.

A kernel keeps written data in memory for seconds, and a sync at the end waits for all of it. Here
the disk starts while more data is produced.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Smaller steps would cause more disk requests than needed.
STEP_BYTES = 1 << 20


class EarlyWriteback(io.FileIO):
    """A file written from its beginning to its end, announced to the disk in steps.

    Durability is as with any file: it needs a sync.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor, which has written nothing yet."""
        super().__init__(descriptor, "wb")
        self._written = self._requested = 0

    def write(self, data: ReadableBuffer, /) -> int:
        written = super().write(data)
        self._written += written
        if (step := self._written - self._requested) >= STEP_BYTES:
            # DONTNEED starts the write of these bytes; they stay in the cache, since they are
            # dirty. On a file system without it, the sync does all the work.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fileno(), self._requested, step, os.POSIX_FADV_DONTNEED)
            self._requested = self._written
        return written

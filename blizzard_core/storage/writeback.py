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

# Less at a time would be more requests to the disk than it needs.
STEP_BYTES = 1 << 20


class EarlyWriteback(io.FileIO):
    """A file written from its beginning to its end, announced to the disk in steps.

    Durability is as with any file: it needs a sync.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor, which has written nothing yet."""
        super().__init__(descriptor, "wb")
        self._written = self._told = 0

    def write(self, data: ReadableBuffer, /) -> int:
        written = super().write(data)
        self._written += written
        if (step := self._written - self._told) >= STEP_BYTES:
            # To say that bytes are not needed any more begins to write them; none of them leave
            # the cache, since they are dirty. Where a file system cannot, the sync does it all.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fileno(), self._told, step, os.POSIX_FADV_DONTNEED)
            self._told = self._written
        return written

"""A directory for Spark's temporary files that is removed soon after its process ends.

Spark empties its directories when its JVM ends normally. After ``kill -9`` shuffle files would stay
for ever. So each process locks its own directory, and the next process removes directories without
a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "blizzard-spark-"


class Scratch:
    """A new directory in ``parent`` (default: the system's for temporary files)."""

    def __init__(self, parent: Path | None = None) -> None:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
        for abandoned in folder.glob(f"{_PREFIX}*"):
            _remove_if_abandoned(abandoned)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():  # no other process removed it before it was locked
                break
            os.close(self._lock)

    def close(self) -> None:
        """Remove the directory and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or already gone
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.geteuid():  # other users clear up their own directories
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)

"""A directory for Spark's temporary files that does not outlive its process for long.

Spark empties its directories when its JVM ends in good order. After ``kill -9`` shuffles
stay for ever, so each process locks a directory of its own, and the next one to start
removes those that nobody holds any more.
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
            if self.path.exists():  # nobody took it for abandoned before it was locked
                break
            os.close(self._lock)

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another user's, or gone by now
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(lock).st_uid == os.geteuid():  # what others put there is theirs to clear up
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)

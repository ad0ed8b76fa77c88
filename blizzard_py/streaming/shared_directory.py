"""A query's working copy that a cluster's executors can also access, below ``state_path``.

Each process has its own directory there, inside one that is named after the pipeline and its table.
It is only a copy, so no other process reads it. A process that starts a query owns the checkpoint.
All other content belongs to a process that has ended or was replaced, so it is removed. Locks are
not used, since not every shared file system has locks across machines.

A replaced process may not know it yet, and remove the directory that its successor uses. An archive
that is made meanwhile lacks files, without any sign of it. So a mark is removed before everything
else: if the mark is still there after archiving, the archive is complete (`check_not_removed`).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from blizzard_core.errors import EngineError

_DIGEST = 12
_MARK = "begun"


def create_folder(folder: Path) -> Path:
    """Make a query's ``folder`` with its mark and return it. Raises `EngineError`."""
    try:
        folder.mkdir(parents=True)
        (folder / _MARK).touch()
    except OSError as error:
        raise EngineError(f"{folder}: {error.strerror or error}") from None
    return folder


def check_not_removed(folder: Path) -> None:
    """Raise `EngineError` if another process has begun to remove a query's ``folder``."""
    try:
        # Opening a file asks the file system; a status query may be answered from a cache.
        (folder / _MARK).open("rb").close()
    except OSError:
        raise EngineError(
            f"{folder} was removed while it was in use, by another process that began to write"
            " its table; a new one is made"
        ) from None


class SharedDirectory:
    """A new directory below ``state_path`` for the query ``home_id`` over the table ``sink_uri``.

    Raises `EngineError` if ``state_path`` does not exist. It is not created: if a volume is not
    mounted, only this machine would have it.
    """

    def __init__(self, state_path: Path, sink_uri: str, home_id: str) -> None:
        if not state_path.is_dir():
            raise EngineError(
                f"event_time.advanced.state_path {str(state_path)!r} is not a directory here: mount"
                " the executors' shared volume under the same path"
            )
        digest = hashlib.sha256(sink_uri.encode()).hexdigest()[:_DIGEST]
        own = state_path / f"blizzard-{home_id}-{digest}"
        try:
            own.mkdir(mode=0o700, exist_ok=True)
            for old in own.iterdir():
                for mark in old.glob(f"*/{_MARK}"):
                    mark.unlink(missing_ok=True)
                shutil.rmtree(old, ignore_errors=True)
            self.path = Path(tempfile.mkdtemp(prefix="query-", dir=own))
        except OSError as error:
            raise EngineError(
                f"event_time.advanced.state_path {str(state_path)!r}: {error.strerror or error}"
            ) from None

    def close(self) -> None:
        """Remove the directory and its content."""
        shutil.rmtree(self.path, ignore_errors=True)

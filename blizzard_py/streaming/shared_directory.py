"""A query's working copy where executors of a cluster see it, too: below ``state_path``.

Each process has a directory of its own there, in one that is named after the pipeline and its
table. It is no truth, so nothing in it is ever read by another process; and who comes to start a
query owns the checkpoint, so whatever else lies there is of somebody who is gone or was
replaced, and is removed. No lock says so, since locks do not reach from one machine to another on
every shared file system.

Who was replaced may not know it yet, and remove what its successor is at work on. A pack that is
made meanwhile lacks files, and nothing in it tells. So a mark goes before all else: who finds its
own after it has packed had everything (`check_not_removed`).
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
    """A query's ``folder``, made with its mark. Raises `EngineError`."""
    try:
        folder.mkdir(parents=True)
        (folder / _MARK).touch()
    except OSError as error:
        raise EngineError(f"{folder}: {error.strerror or error}") from None
    return folder


def check_not_removed(folder: Path) -> None:
    """Raise `EngineError` if somebody has begun to remove a query's ``folder``."""
    try:
        # To open a file asks the file system, where a look at it may be answered from memory.
        (folder / _MARK).open("rb").close()
    except OSError:
        raise EngineError(
            f"{folder} was removed while it was at work, by another process that began to work for"
            " its table; another one is made"
        ) from None


class SharedDirectory:
    """A new directory below ``state_path`` for the query ``home_id`` over the table ``sink_uri``.

    Raises `EngineError` if ``state_path`` is not there, which is not made: a volume that is not
    mounted would be a directory that only this machine has.
    """

    def __init__(self, state_path: Path, sink_uri: str, home_id: str) -> None:
        if not state_path.is_dir():
            raise EngineError(
                f"event_time.advanced.state_path {str(state_path)!r} is no directory here: mount"
                " what the executors share, under the same path"
            )
        digest = hashlib.sha256(sink_uri.encode()).hexdigest()[:_DIGEST]
        own = state_path / f"blizzard-{home_id}-{digest}"
        try:
            own.mkdir(mode=0o700, exist_ok=True)
            for left in own.iterdir():
                for mark in left.glob(f"*/{_MARK}"):
                    mark.unlink(missing_ok=True)
                shutil.rmtree(left, ignore_errors=True)
            self.path = Path(tempfile.mkdtemp(prefix="query-", dir=own))
        except OSError as error:
            raise EngineError(
                f"event_time.advanced.state_path {str(state_path)!r}: {error.strerror or error}"
            ) from None

    def close(self) -> None:
        """Remove the directory with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)

"""Rows that a table has and no window reads, as the last poll saw them, for people.

A file without the watermark's column, or rows without a value in it, belong to the first window;
after it nobody reads them, and no batch says so. So what a poll sees of them is an object beside
the checkpoint, until a poll sees none. Nothing else reads it, and it may be missing.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from blizzard_core.checkpoint.decode import decoded
from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.state_paths import StatePaths


@dataclass(frozen=True, slots=True)
class _Skipped:
    told: tuple[str, ...] = ()


class SkippedNote:
    """Writes it and removes it. A store that refuses is asked again with the next poll."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._storage = storage
        self._path = StatePaths(source_id).skipped
        self._kept: tuple[str, ...] | None = None  # an earlier process may have left one

    def keep(self, told: tuple[str, ...]) -> None:
        """Keep what a poll saw; without anything there is no object."""
        if told == self._kept:
            return
        with contextlib.suppress(BlizzardError):
            if told:
                document = json.dumps(asdict(_Skipped(told)), ensure_ascii=False)
                self._storage.put_atomic(self._path, document.encode("utf-8", "backslashreplace"))
            else:
                self._storage.delete(self._path)
            self._kept = told


def skipped_rows(storage: Storage, source_id: str) -> tuple[str, ...]:
    """What is kept; nothing where it cannot be understood. Raises `StorageError`."""
    path = StatePaths(source_id).skipped
    try:
        return decoded(_Skipped, json.loads(storage.read(path)), path, open_=True).told
    except NotFound:
        return ()
    except (ValueError, BlizzardError) as error:
        return (f"{path} cannot be read: {error}",)

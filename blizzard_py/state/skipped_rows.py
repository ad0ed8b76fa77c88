"""Rows that a table has and no window reads, as the last poll saw them, for people.

A file without the watermark's column, or rows without a value in it, belong to the first window;
after it nobody reads them, and no batch says so. So what a poll sees of them is an object beside
the checkpoint, until a poll sees none. A poll does not look into every file of old date folders:
the next process looks into the files that are named here. The object may be missing.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, NotFound, StateError
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.state_paths import StatePaths


@dataclass(frozen=True, slots=True)
class _Skipped:
    told: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class SkippedNote:
    """Writes it and removes it. A store that refuses is asked again with the next poll."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._storage = storage
        self._path = StatePaths(source_id).skipped
        self._kept: _Skipped | None = None  # an earlier process may have left one

    def files(self) -> tuple[str, ...]:
        """Return the files that an earlier process has reported. Raises `StorageError`."""
        try:
            return _read(self._storage, self._path).files
        except StateError:  # `skipped_rows` tells of that, until it is written again
            return ()

    def keep(self, told: tuple[str, ...], files: tuple[str, ...] = ()) -> None:
        """Save what a poll saw, and in which files. An empty report deletes the object."""
        seen = _Skipped(told, files)
        if seen == self._kept:
            return
        with contextlib.suppress(BlizzardError):
            if told:
                document = json.dumps(asdict(seen), ensure_ascii=False)
                self._storage.put_atomic(self._path, document.encode("utf-8", "backslashreplace"))
            else:
                self._storage.delete(self._path)
            self._kept = seen


def skipped_rows(storage: Storage, source_id: str) -> tuple[str, ...]:
    """Return the stored reports, or why they cannot be read."""
    path = StatePaths(source_id).skipped
    try:
        return _read(storage, path).told
    except BlizzardError as error:
        return (f"{path} cannot be read: {error}",)


def _read(storage: Storage, path: str) -> _Skipped:
    """Return what is stored, empty if nothing. Raises `StateError` if it is invalid."""
    try:
        return decode_document(_Skipped, json.loads(storage.read(path)), path, open_=True)
    except NotFound:
        return _Skipped()
    except ValueError as error:
        raise StateError(str(error)) from error

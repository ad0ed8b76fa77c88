"""Reports on rows of a table that no window reads, from the last poll. For people.

Rows without a value in the watermark's column, or files without the column, belong to the first
window. Later windows do not read them, and no batch reports them. So a poll saves what it sees in
an object beside the checkpoint, until a poll sees none. A poll does not open every file of old
date folders: the next process opens the files that are named here. The object may be missing.
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
    """Writes and deletes the reports. If the store fails, the next poll tries again."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._storage = storage
        self._path = StatePaths(source_id).skipped
        self._stored: _Skipped | None = None  # an earlier process may have left one

    def files(self) -> tuple[str, ...]:
        """Return the files that an earlier process has reported. Raises `StorageError`."""
        try:
            return _read(self._storage, self._path).files
        except StateError:  # `skipped_rows` reports that, until the object is written again
            return ()

    def keep(self, remarks: tuple[str, ...], files: tuple[str, ...] = ()) -> None:
        """Save what a poll saw, and in which files. An empty report deletes the object."""
        seen = _Skipped(remarks, files)
        if seen == self._stored:
            return
        with contextlib.suppress(BlizzardError):
            if remarks:
                document = json.dumps(asdict(seen), ensure_ascii=False)
                self._storage.put_atomic(self._path, document.encode("utf-8", "backslashreplace"))
            else:
                self._storage.delete(self._path)
            self._stored = seen


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

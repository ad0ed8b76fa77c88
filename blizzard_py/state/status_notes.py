"""Notes for people beside a checkpoint: the last error of a source, and rows that no window reads.

A reader that has only the storage cannot see the daemon, and the state of a failed source looks
like that of a working one. Each note is an object of its own. No decision depends on it, it may be
missing, and errors of the store are ignored when it is written.

Rows without a value in the watermark's column, or files without the column, belong to the first
window. Later windows do not read them, and no batch reports them. So a poll saves what it sees,
until a poll sees none. A poll does not open every file of old date folders: the next process opens
the files that are named here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, NotFound, StateError
from blizzard_core.observability.health import CRASH
from blizzard_core.observability.peer_state import moment_of
from blizzard_core.redact import clean_text, error_text
from blizzard_core.storage.protocol import Storage
from blizzard_core.text import json_value
from blizzard_py.state.state_paths import StatePaths


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error: time, kind, message, and the number of cycles that failed in a row."""

    at: float
    kind: str
    error: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Reports on rows that no window reads, and the files that they are in."""

    told: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


T = TypeVar("T")


class _Note(Generic[T]):
    """An object with a value, if there is one."""

    def __init__(self, kind: type[T], storage: Storage, path: str) -> None:
        self._kind = kind
        self._storage = storage
        self._path = path
        self._is_stored = False  # unknown: an earlier process may have left one
        self._stored: T | None = None

    def put(self, value: T | None) -> None:
        """Store the value, None deletes it. If the store fails, the next call tries again."""
        if self._is_stored and value == self._stored:
            return
        self._is_stored = False
        with contextlib.suppress(BlizzardError):
            if value is None:
                self._storage.delete(self._path)
            else:
                self._storage.put_atomic(
                    self._path, json.dumps(msgspec.to_builtins(value)).encode()
                )
            self._is_stored, self._stored = True, value

    def read(self) -> T | None:
        """Return what is stored. Raises `StateError` if it is invalid, `StorageError`."""
        try:
            document = json_value(self._storage.read(self._path))
        except NotFound:
            return None
        except ValueError as error:
            raise StateError(str(error)) from error
        return decode_document(self._kind, document, self._path, open_=True)


class ErrorNote:
    """Writes and deletes the last error."""

    def __init__(self, storage: Storage, source_id: str, clock: Callable[[], float]) -> None:
        self._note = _Note(LastError, storage, StatePaths(source_id).error)
        self._clock = clock
        self._times = 0

    def write(self, error: Exception) -> None:
        """Save an error that has ended a cycle."""
        self._times += 1
        kind = type(error).__name__ if isinstance(error, BlizzardError) else CRASH
        self._note.put(LastError(self._clock(), kind, error_text(error), self._times))

    def clear(self) -> None:
        """Delete the error after a successful cycle."""
        self._times = 0
        self._note.put(None)


def last_error(storage: Storage, source_id: str) -> dict[str, Any] | None:
    """Return the last error as plain data, None if there is none.

    If it cannot be read, the result says so. Its text is foreign: it is cleaned once more.
    """
    path = StatePaths(source_id).error
    try:
        found = _Note(LastError, storage, path).read()
    except BlizzardError as error:
        return asdict(LastError(0.0, type(error).__name__, f"{path} cannot be read: {error}"))
    if found is None:
        return None
    at = moment_of(found.at) or 0.0
    return asdict(LastError(at, clean_text(found.kind), clean_text(found.error), found.times))


class SkippedNote:
    """Writes and deletes the reports on skipped rows."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._note = _Note(SkippedRows, storage, StatePaths(source_id).skipped)

    def files(self) -> tuple[str, ...]:
        """Return the files that an earlier process has reported. Raises `StorageError`."""
        try:
            found = self._note.read()
        except StateError:  # `skipped_rows` reports that, until the object is written again
            return ()
        return () if found is None else found.files

    def keep(self, remarks: tuple[str, ...], files: tuple[str, ...] = ()) -> None:
        """Save what a poll saw, and in which files. An empty report deletes the object."""
        self._note.put(SkippedRows(remarks, files) if remarks else None)


def skipped_rows(storage: Storage, source_id: str) -> tuple[str, ...]:
    """Return the stored reports, or why they cannot be read."""
    path = StatePaths(source_id).skipped
    try:
        found = _Note(SkippedRows, storage, path).read()
    except BlizzardError as error:
        return (f"{path} cannot be read: {error}",)
    return () if found is None else found.told

"""The last error that ended a cycle of a source, beside its checkpoint, for people.

A reader that has only the storage cannot see the daemon, and the state of a failed source looks
like that of a working one. So the error is an object of its own, which the next successful cycle
deletes. No decision depends on it, and it may be missing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, NotFound
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


class ErrorNote:
    """Writes and deletes the last error. Errors of the store are ignored."""

    def __init__(self, storage: Storage, source_id: str, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._path = StatePaths(source_id).error
        self._clock = clock
        self._times = 0
        self._may_exist = True  # an earlier process may have left one

    def write(self, error: Exception) -> None:
        """Save an error that has ended a cycle."""
        self._times += 1
        self._may_exist = True
        kind = type(error).__name__ if isinstance(error, BlizzardError) else CRASH
        note = LastError(self._clock(), kind, error_text(error), self._times)
        with contextlib.suppress(BlizzardError):
            self._storage.put_atomic(self._path, json.dumps(asdict(note)).encode())

    def clear(self) -> None:
        """Delete the error after a successful cycle."""
        self._times = 0
        if self._may_exist:
            with contextlib.suppress(BlizzardError):
                self._storage.delete(self._path)
                self._may_exist = False


def last_error(storage: Storage, source_id: str) -> dict[str, Any] | None:
    """Return the last error as plain data, None if there is none.

    If it cannot be read, the result says so. Its text is foreign: it is cleaned once more.
    """
    path = StatePaths(source_id).error
    try:
        found = decode_document(LastError, json_value(storage.read(path)), path, open_=True)
        at = moment_of(found.at) or 0.0
        return asdict(LastError(at, clean_text(found.kind), clean_text(found.error), found.times))
    except NotFound:
        return None
    except (ValueError, BlizzardError) as error:
        return asdict(LastError(0.0, type(error).__name__, f"{path} cannot be read: {error}"))

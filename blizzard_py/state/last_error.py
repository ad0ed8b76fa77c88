"""The last error that ended a cycle of a source, beside its checkpoint, for people.

Whoever looks from storage alone sees no daemon, and the state of a source whose worker has died
looks like that of one that works. So the error is an object of its own, which the next cycle that
goes well removes. Nothing else reads it, and it may be missing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.observability.activity import error_text
from blizzard_core.observability.health import CRASH
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.state_paths import StatePaths


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error: time, kind, message, and how many cycles in a row have failed by then."""

    at: float
    kind: str
    error: str
    times: int = 1


class ErrorNote:
    """Writes it and removes it. A store that refuses changes nothing of what is told."""

    def __init__(self, storage: Storage, source_id: str, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._path = StatePaths(source_id).error
        self._clock = clock
        self._times = 0
        self._may_exist = True  # an earlier process may have left one

    def write(self, error: Exception) -> None:
        """Keep an error that has ended a cycle."""
        self._times += 1
        self._may_exist = True
        kind = type(error).__name__ if isinstance(error, BlizzardError) else CRASH
        note = LastError(self._clock(), kind, error_text(error), self._times)
        with contextlib.suppress(BlizzardError):
            self._storage.put_atomic(self._path, json.dumps(asdict(note)).encode())

    def clear(self) -> None:
        """Remove it: a cycle went well."""
        self._times = 0
        if self._may_exist:
            with contextlib.suppress(BlizzardError):
                self._storage.delete(self._path)
                self._may_exist = False


def last_error(storage: Storage, source_id: str) -> dict[str, Any] | None:
    """Return what is kept, as plain data; None if there is nothing, or nothing that can be read.

    Raises `StorageError`.
    """
    path = StatePaths(source_id).error
    try:
        document = json.loads(storage.read(path))
        return asdict(decode_document(LastError, document, path, open_=True))
    except NotFound:
        return None
    except (ValueError, BlizzardError) as error:
        return asdict(LastError(0.0, type(error).__name__, f"{path} cannot be read: {error}"))

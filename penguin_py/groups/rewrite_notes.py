"""Notes of rewritten files that may lie in the table without being in its log.

Files that are rewritten for a commit are noted before they are written, in
``_penguin/{name}_rewriting.json``: the paths, and the version that the commit is planned on. The
commit lands on the next version or never. So once the log is past that version, a noted file is in
the log or belongs to no future commit. Two Penguins of one name share the note, and the slower one
may still write what it has noted. So files are deleted an hour after they were noted. A Penguin
that deletes files records it in the note first; the other one then sees that its files are gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import Conflict, NotFound, StateError, Unavailable
from blizzard_core.settings.base import HOUR
from blizzard_core.storage.protocol import Storage

# A note is changed by a few Penguins at most.
TRIES = 10
# How long files of a plan stay that another commit has voided.
_SPARED_SECS = HOUR
_REMEDY = "restore it, or delete it and the files unit-part-*.parquet that the log does not have"


@dataclass(frozen=True, slots=True)
class Planned:
    """The rewritten files of one plan, the version that it is made on, and when it was noted."""

    version: int
    paths: tuple[str, ...]
    at: float = 0.0

    def is_over(self, version: int, now: float) -> bool:
        """Return whether the log is past its version, and nobody writes its files any more."""
        return self.version < version and not 0 <= now - self.at < _SPARED_SECS


@dataclass(frozen=True, slots=True)
class _Note:
    """Plans that may still land, by their keys, and files that nobody commits any more."""

    planned: dict[str, Planned] = field(default_factory=dict)
    doomed: tuple[str, ...] = ()


def note_path(state_name: str) -> str:
    """Return where an instance's note lies, relative to the table's directory."""
    return f"_penguin/{state_name}_rewriting.json"


class RewriteNotes:
    """The note of one table's instance. Not thread-safe."""

    def __init__(self, storage: Storage, state_name: str, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._path = note_path(state_name)
        self._clock = clock

    def announce(self, key: str | None, version: int, paths: Sequence[str]) -> str | None:
        """Note files before they are written for a commit on ``version``; return the plan's key.

        With a ``key`` the plan is made anew on a later version: None says that its files have
        been given up since.
        """
        name = key or uuid.uuid4().hex
        given_up = False

        def change(note: _Note) -> _Note | None:
            nonlocal given_up
            given_up = key is not None and key not in note.planned
            if given_up:
                return None
            plan = Planned(version, tuple(paths), self._clock())
            return replace(note, planned={**note.planned, name: plan})

        self._change(change)
        return None if given_up else name

    def forget(self, key: str) -> None:
        """Forget a plan whose files are in the log, or deleted."""
        self._change(
            lambda note: replace(
                note, planned={name: p for name, p in note.planned.items() if name != key}
            )
        )

    def clear(self, version: int, known: Callable[[], Collection[str]]) -> int:
        """Delete files that no commit can use any more; return their number.

        ``version`` is the log's, and ``known`` tells all paths that the log has by then.
        """
        note, now = self._read()[0], self._clock()
        if not note.doomed and not any(p.is_over(version, now) for p in note.planned.values()):
            return 0
        note = self._change(lambda note: _abandon(note, version, now))
        there = known()
        orphans = [path for path in note.doomed if path not in there]
        for path in orphans:
            self._storage.delete(path)
        doomed = set(note.doomed)
        self._change(
            lambda note: replace(note, doomed=tuple(p for p in note.doomed if p not in doomed))
        )
        return len(orphans)

    def _change(self, change: Callable[[_Note], _Note | None]) -> _Note:
        """Change the note as it is now; again if another changes it at the same moment."""
        for _ in range(TRIES):
            note, version = self._read()
            changed = change(note)
            if changed is None or changed == note:
                return note
            data = msgspec.json.encode(changed)
            try:
                self._storage.put_if(self._path, data, version)
            except Conflict:
                continue
            return changed
        raise Unavailable(f"{self._storage.uri}/{self._path}: changes faster than it can be read")

    def _read(self) -> tuple[_Note, str | None]:
        try:
            data, version = self._storage.read_versioned(self._path)
        except NotFound:
            return _Note(), None
        where = f"{self._storage.uri}/{self._path}"
        try:
            document = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StateError(f"{where}: is not JSON: {error}; {_REMEDY}") from error
        return decode_document(_Note, document, where, _REMEDY), version


def _abandon(note: _Note, version: int, now: float) -> _Note:
    late = {name: plan for name, plan in note.planned.items() if plan.is_over(version, now)}
    doomed = dict.fromkeys([*note.doomed, *(p for plan in late.values() for p in plan.paths)])
    remaining = {name: plan for name, plan in note.planned.items() if name not in late}
    return _Note(remaining, tuple(doomed))

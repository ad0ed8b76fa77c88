"""The newest commits of a table, from its Delta log. For people; reads only.

Unusual content of a commit is skipped, since nothing depends on the result.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from blizzard_core.delta_json import commit_entries, hinted, logged_rows, relative, version_of
from blizzard_core.errors import NotFound
from blizzard_core.limits import SHOWN_COMMIT_BYTES
from blizzard_core.observability.peer_state import moment_of, number_of, text_of
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.text import JSON_REFUSALS

# The number of commits shown.
COMMITS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """One version: time, operation, added and removed files; ``paths`` are the added ones.

    ``ours`` is the application id if a Penguin made it. ``whole`` is false if only the beginning of
    the commit was read.
    """

    version: int
    at: float
    operation: str
    ours: str | None
    files: int
    rows: int
    bytes: int
    removed: int
    whole: bool
    paths: frozenset[str] = field(repr=False)


class _Add(msgspec.Struct):
    path: str = ""
    size: int = 0
    stats: str | None = None


class _Line(msgspec.Struct):
    add: _Add | None = None
    remove: dict[str, Any] | None = None
    commitInfo: dict[str, Any] | None = None  # noqa: N815  # the format's own name


_LINE = msgspec.json.Decoder(_Line)


class CommitTail:
    """The newest commits of one table, each read once.

    deltalake's `history()` reads all commits each time and has no paths.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[Entry, CommitSummary | None] = {}

    def look(self) -> list[CommitSummary]:
        """Return the newest `COMMITS_SHOWN` commits, the latest first. Raises `StorageError`."""
        hint = hinted(self._storage) or 0
        # Start a little before the checkpoint: most of a long log is older.
        entries = deque(
            commit_entries(self._storage, max(0, hint - COMMITS_SHOWN)), maxlen=COMMITS_SHOWN
        )
        if hint and not entries:  # the hint is of a replaced log, or is wrong
            entries = deque(commit_entries(self._storage), maxlen=COMMITS_SHOWN)
        self._read = {
            entry: self._read[entry] if entry in self._read else self._commit(entry)
            for entry in reversed(entries)
        }
        return [commit for commit in self._read.values() if commit is not None]

    def _commit(self, entry: Entry) -> CommitSummary | None:
        try:
            raw = self._storage.read_range(entry.path, 0, min(entry.size, SHOWN_COMMIT_BYTES))
        except NotFound:  # cleaned up meanwhile
            return None
        return summarize_commit(raw, entry, self._storage.uri)


def summarize_commit(raw: bytes, entry: Entry, root: str) -> CommitSummary:
    """Summarize a commit's file, of which ``raw`` is the beginning. Pure."""
    info: dict[str, Any] = {}
    paths, rows, size, removed = [], 0, 0, 0
    whole = len(raw) >= entry.size
    lines = raw.split(b"\n") if whole else raw.split(b"\n")[:-1]
    for line in filter(None, lines):
        try:
            found = _LINE.decode(line)
        except JSON_REFUSALS:
            continue
        if found.add is not None:
            path = relative(found.add.path, root)
            paths.append(path or found.add.path)
            size += max(0, found.add.size)
            rows += max(0, logged_rows(found.add.stats) or 0)
        elif found.remove is not None:
            removed += 1
        elif found.commitInfo is not None:
            info = found.commitInfo
    own_info = info.get("penguin")
    millis = number_of(info.get("timestamp"))
    moment = None if millis is None else moment_of(millis / 1000)
    return CommitSummary(
        version_of(entry.path),
        entry.modified if moment is None else moment,
        text_of(info.get("operation")) or "",
        (text_of(own_info.get("app_id")) or "?") if isinstance(own_info, dict) else None,
        len(paths),
        rows,
        size,
        removed,
        whole,
        frozenset(paths),
    )


def commit_to_json(commit: CommitSummary) -> dict[str, Any]:
    """Return a commit for the page, without its paths."""
    names = (each.name for each in fields(commit) if each.name != "paths")
    return {name: getattr(commit, name) for name in names}

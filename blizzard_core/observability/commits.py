"""The newest commits of a table, as its Delta log tells of them. For people; reads only.

What is odd in a commit is left out of what is told: nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from blizzard_core.bounds import SHOWN_COMMIT_BYTES
from blizzard_core.delta_json import COMMIT, LOG, relative
from blizzard_core.errors import NotFound
from blizzard_core.json_text import json_value
from blizzard_core.observability.written import moment_of, number_of, text_of
from blizzard_core.storage.protocol import Entry, Storage

# How many are told.
TOLD = 60
# A version's name has twenty digits.
_MOST_VERSIONS = 10**20


@dataclass(frozen=True, slots=True)
class Commit:
    """One version: when and how it came, what it added and let go; ``paths`` are those added.

    ``ours`` names the Penguin that made it. Not ``whole``: it has more than was looked at.
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


class _Stats(msgspec.Struct):
    numRecords: int = 0  # noqa: N815  # the format's own name


class _Line(msgspec.Struct):
    add: _Add | None = None
    remove: dict[str, Any] | None = None
    commitInfo: dict[str, Any] | None = None  # noqa: N815  # the format's own name


_LINE = msgspec.json.Decoder(_Line)
_STATS = msgspec.json.Decoder(_Stats)


class CommitTail:
    """The newest commits of one table, each of which is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[tuple[str, float], Commit] = {}

    def look(self) -> list[Commit]:
        """The newest `TOLD`, the latest first. Raises `StorageError`."""
        hint = _hint(self._storage)
        entries = deque(_listed(self._storage, hint), maxlen=TOLD)
        if hint and not entries:  # it was of a log that was replaced, or is no hint of anybody's
            entries = deque(_listed(self._storage, 0), maxlen=TOLD)
        known = {}
        for entry in entries:
            key = (entry.path, entry.modified)
            found = self._read.get(key) or self._commit(entry)
            if found is not None:
                known[key] = found
        self._read = known
        return sorted(known.values(), key=lambda commit: -commit.version)

    def _commit(self, entry: Entry) -> Commit | None:
        try:
            raw = self._storage.read_range(entry.path, 0, min(entry.size, SHOWN_COMMIT_BYTES))
        except NotFound:  # cleaned up meanwhile
            return None
        return commit_of(raw, entry, self._storage.uri)


def _listed(storage: Storage, checkpoint: int) -> Iterator[Entry]:
    """The commits from a little before this checkpoint on: most of a long log is older."""
    after = f"{LOG}/{max(0, checkpoint - TOLD):020d}"
    try:
        for page in storage.list_range(after, f"{LOG}/:"):  # ":" follows "9"
            yield from (entry for entry in page.entries if COMMIT.fullmatch(entry.path))
    except NotFound:  # a local table that nothing was written to yet
        return


def _hint(storage: Storage) -> int:
    try:
        document = json_value(storage.read(f"{LOG}/_last_checkpoint"))
    except (NotFound, ValueError):
        return 0
    version = document.get("version") if isinstance(document, dict) else None
    return version if isinstance(version, int) and 0 <= version < _MOST_VERSIONS else 0


def commit_of(raw: bytes, entry: Entry, root: str) -> Commit:
    """What a commit's file says, of which ``raw`` is the beginning. Pure."""
    named = COMMIT.fullmatch(entry.path)
    info: dict[str, Any] = {}
    paths, rows, size, removed = [], 0, 0, 0
    whole = len(raw) >= entry.size
    lines = raw.split(b"\n") if whole else raw.split(b"\n")[:-1]
    for line in filter(None, lines):
        try:
            found = _LINE.decode(line)
        except msgspec.MsgspecError:
            continue
        if found.add is not None:
            path = relative(found.add.path, root)
            paths.append(path or found.add.path)
            size += max(0, found.add.size)
            rows += _rows(found.add.stats)
        elif found.remove is not None:
            removed += 1
        elif found.commitInfo is not None:
            info = found.commitInfo
    ours = info.get("penguin")
    millis = number_of(info.get("timestamp"))
    moment = None if millis is None else moment_of(millis / 1000)
    return Commit(
        int(named[1]) if named else -1,
        entry.modified if moment is None else moment,
        text_of(info.get("operation")) or "",
        (text_of(ours.get("app_id")) or "?") if isinstance(ours, dict) else None,
        len(paths),
        rows,
        size,
        removed,
        whole,
        frozenset(paths),
    )


def _rows(stats: str | None) -> int:
    try:
        return 0 if stats is None else max(0, _STATS.decode(stats).numRecords)
    except msgspec.MsgspecError:
        return 0


def told(commit: Commit) -> dict[str, Any]:
    """A commit as the page gets it: without its paths."""
    return {
        name: getattr(commit, name)
        for name in (
            "version",
            "at",
            "operation",
            "ours",
            "files",
            "rows",
            "bytes",
            "removed",
            "whole",
        )
    }

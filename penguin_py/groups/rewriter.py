"""Rewritten files of a group's commit, reused when the commit is retried.

Rewriting may take long, and any other commit in between voids the plan. But a rewritten file
depends only on the active file, not on the version. So a conflict repeats no work, and replacement
succeeds in a table with constant commits of others.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from blizzard_core.handover.groups import UNIT_FILE_PREFIX
from blizzard_core.storage.protocol import Storage
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.groups.rows import Rewritten, rewrite
from penguin_py.model import Add, TableState
from penguin_py.planning.replacement import TextRanges


@dataclass(frozen=True, slots=True)
class PartlyReplacedFile:
    """An active file of which some rows stay; ``path`` is relative to the table's directory."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]


class Rewriter:
    """The rewritten files of one group. Not thread-safe."""

    def __init__(
        self,
        storage: Storage,
        notes: RewriteNotes,
        wanted: Mapping[str, TextRanges],
        clock: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._notes = notes
        self._wanted = wanted
        self._clock = clock
        self._key: str | None = None
        # By original path: the new name, and the finished file.
        self._targets: dict[str, str] = {}
        self._done: dict[str, Rewritten] = {}

    def adds(
        self, files: Sequence[PartlyReplacedFile], columns: pa.Schema, state: TableState
    ) -> list[Add]:
        """Return the rewritten files for a commit on ``state``. Raises `SchemaMismatch`.

        ``columns`` are the table's without its partition columns.
        """
        if files:
            self._announce(files, state.version)
        found = []
        for file in files:
            done = self._done.get(file.path)
            # A vacuum may have deleted the file of an earlier try.
            if done is None or self._storage.stat(done.path) is None:
                target = self._targets[file.path]
                done = rewrite(self._storage, file.path, file.size, target, self._wanted)
                self._done[file.path] = done
            now, values = self._clock(), file.partition_values
            found.append(done.add(columns, state.properties, now, values))
        return found

    def landed(self, adds: Sequence[Add]) -> None:
        """Delete rewritten files that the landed commit does not use."""
        if self._key is None:
            return
        added = {add.entry.path for add in adds}
        for target in self._targets.values():
            if target not in added:
                self._storage.delete(target)
        self._notes.forget(self._key)

    def _announce(self, files: Sequence[PartlyReplacedFile], version: int) -> None:
        for file in files:
            self._targets.setdefault(file.path, _target(file.path))
        key = self._notes.announce(self._key, version, [*self._targets.values()])
        if key is None:  # another Penguin has cleared them away meanwhile
            self._done.clear()
            self._targets = {file.path: _target(file.path) for file in files}
            key = self._notes.announce(None, version, [*self._targets.values()])
        self._key = key


def _target(path: str) -> str:
    """Return a new name in the same directory that listings ignore."""
    folder, slash, _name = path.rpartition("/")
    return f"{folder}{slash}{UNIT_FILE_PREFIX}part-{uuid.uuid4()}.parquet"

"""Bounds of a column as logged, for columns that delta-rs leaves out.

The log is read completely once, and then by new commits. Statistics that are not understood count
as missing: then the files are read, which costs only time.
"""

from __future__ import annotations

from concurrent.futures import Executor

from blizzard_core.delta_json import Tail, columns_up_to, tail_of
from blizzard_core.storage.protocol import Storage
from penguin_py.delta.active_files import Logged, bounds_in
from penguin_py.delta.log import LogReader

_WANTED = ("add.path", "add.stats", "remove.path")


class LoggedBounds:
    """The bounds of one column of one table, by path. Not thread-safe."""

    def __init__(self, storage: Storage, pool: Executor, column: str) -> None:
        self._storage = storage
        self._pool = pool
        self._log = LogReader(storage, pool)
        self._column = column
        self._version = -1
        self._bounds: dict[str, tuple[str | None, str | None, int | None]] = {}

    def at(self, version: int) -> Logged:
        """Return the bounds of all files that are active at ``version``."""
        if version == self._version:
            return self._bounds
        tail = Tail(self._version, (), ())
        is_behind = -1 < self._version < version
        if not is_behind or not self._log.has_commit(self._version + 1):
            newest = tail_of(self._storage, version)
            if not is_behind or newest.version > self._version:
                tail, self._version, self._bounds = newest, -1, {}
        for columns in columns_up_to(self._storage, version, _WANTED, self._pool, tail):
            for path in columns["remove.path"]:
                self._bounds.pop(path, None)
            for path, stats in zip(columns["add.path"], columns["add.stats"], strict=True):
                self._bounds[path] = bounds_in(stats, self._column)
        self._version = version
        return self._bounds

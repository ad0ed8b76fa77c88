"""Bounds of a column as the log itself has them, for tables whose others delta-rs leaves out.

Read as a whole once, and from then on by the commits that came since. What is not
understood has no bounds: then files are looked into, which costs time and nothing else.
"""

from __future__ import annotations

from concurrent.futures import Executor

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.delta_checkpoint import newest_checkpoint
from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.storage.protocol import Storage
from penguin_py.delta import log as deltalog
from penguin_py.delta.active_files import Logged, bounds_in
from penguin_py.delta.checkpoint_files import CHECKPOINT_REMEDY


class LoggedBounds:
    """The bounds of one column of one table, by path. Not thread-safe."""

    def __init__(self, storage: Storage, pool: Executor, column: str) -> None:
        self._storage = storage
        self._pool = pool
        self._column = column
        self._version = -1
        self._bounds: dict[str, tuple[str | None, str | None, int | None]] = {}

    def at(self, version: int) -> Logged:
        """The bounds of all files that the log adds up to ``version``, and has not removed."""
        if version < self._version:
            self._version, self._bounds = -1, {}
        if self._version < 0 or not deltalog.has_commit(self._storage, self._version + 1):
            self._begin(version)
        for number in range(self._version + 1, version + 1):
            for action in deltalog.read_commit(self._storage, number) or ():
                if "remove" in action:
                    self._bounds.pop(action["remove"].get("path"), None)
                elif "add" in action:
                    add = action["add"]
                    self._bounds[add["path"]] = bounds_in(add.get("stats"), self._column)
        self._version = version
        return self._bounds

    def _begin(self, version: int) -> None:
        """Start from the newest log checkpoint."""
        found = newest_checkpoint(self._storage, version)
        if found is None or found[0] <= self._version:
            return
        self._version, self._bounds = found[0], {}
        for part in found[1]:
            try:
                file = pq.ParquetFile(pa.BufferReader(self._storage.read(part)))
                for batch in file.iter_batches(columns=["add.path", "add.stats"]):
                    adds = pa.Table.from_batches([batch]).flatten()
                    if "add.stats" not in adds.column_names:
                        return
                    texts = zip(
                        adds["add.path"].to_pylist(), adds["add.stats"].to_pylist(), strict=True
                    )
                    self._bounds.update(
                        (path, bounds_in(stats, self._column)) for path, stats in texts if path
                    )
            except NotFound as error:
                raise Unavailable(f"{self._storage.uri}/{part}: was cleaned up") from error
            except (pa.ArrowException, OSError, ValueError) as error:
                where = f"{self._storage.uri}/{part}"
                raise StateError(
                    f"{where}: is not a readable checkpoint ({error}). {CHECKPOINT_REMEDY}"
                ) from error

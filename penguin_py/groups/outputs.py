"""Search for the active file that carries an output id.

The log shows the commit that brought an id, and the footers of that commit's files show the file.
If the log does not go back so far, footers of active files with Blizzard's names are read; the
results are cached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor

from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.footers import read_footers
from penguin_py.intake.naming import is_blizzards, is_grouped

# Footers that are held at once.
AT_ONCE = 256


class Outputs:
    """Output ids of active files, as far as they were asked for. Not thread-safe."""

    def __init__(self, storage: Storage, log: DeltaLog, pool: Executor | None) -> None:
        self._storage = storage
        self._delta = log
        self._pool = pool
        self._ids: dict[str, str | None] = {}

    def places(
        self, wanted: Collection[str], active: Mapping[str, int], version: int
    ) -> dict[str, list[str]]:
        """Return the active files of each of these ids; ``active`` maps paths to sizes."""
        for path in self._ids.keys() - active.keys():
            del self._ids[path]
        brought = self._delta.paths_of(wanted, version)
        self._look([path for path in brought if path in active], active)
        found = self._found(wanted)
        if len(found) < len(set(wanted)):
            self._look([p for p in active if is_blizzards(p) or is_grouped(p)], active)
            found = self._found(wanted)
        return found

    def _look(self, paths: Sequence[str], sizes: Mapping[str, int]) -> None:
        """Read the footers of these files that were not read yet."""
        unread = [Entry(path, sizes[path], 0.0) for path in paths if path not in self._ids]
        while unread:
            footers = read_footers(self._storage, unread[:AT_ONCE], self._pool)
            if footers.failed:
                raise footers.failed[0].error
            self._ids.update((footer.path, footer.output_id) for footer in footers.sound)
            # A rejected file carries none of our ids.
            self._ids.update((rejection.entry.path, None) for rejection in footers.rejected)
            self._ids.update((entry.path, None) for entry in footers.missing)
            unread = [*footers.unread, *unread[AT_ONCE:]]

    def _found(self, wanted: Collection[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, output_id in self._ids.items():
            if output_id in wanted and output_id is not None:
                found.setdefault(output_id, []).append(path)
        return found

"""The polls of a table: files above the watermarks that the log does not know.

A poll is one listing of the ranges that the progress leaves open. Only its start and end times
show which names are past their grace period. So the times are kept here, and the effects of a
complete listing on the progress are computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blizzard_core.errors import NotFound
from blizzard_core.observability.uncommitted import POLL_CHORE
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.progress import (
    Progress,
    ScanTimes,
    clamp_progress,
    expire_grace,
    lowest_of,
)
from blizzard_core.watermark.scan import Scan, scan
from penguin_py.intake.footers import REMEDY, Names
from penguin_py.intake.naming import behind_grouped, movers
from penguin_py.planning.memory import Memory, Snapshot
from penguin_py.planning.partition_values import is_text
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.view import TableView

# Listings of one poll that run at the same time.
LIST_CONCURRENCY = 8


class TablePoller(TablePart):
    """The polls of one table, and the times of the latest. Not thread-safe."""

    def __init__(self, context: TableContext, view: TableView) -> None:
        super().__init__(context)
        self._view = view
        self._scanned = ScanTimes(0.0, 0.0)
        self._excluded: tuple[str, ...] = ()

    @property
    def ended(self) -> float:
        """Return when the latest listing was complete, in epoch seconds."""
        return self._scanned.ended

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parquet files that the latest look met and ``file_pattern`` does not take."""
        return self._excluded

    def find_new_files(self) -> tuple[Snapshot, list[Entry]]:
        """Return the table and its new files, oldest first; one request if nothing changed."""
        began = self._clock()
        snapshot = self._view.current()
        names = Names(self._accept)
        progress = snapshot.memory.progress
        try:
            found = scan(self._storage, progress, names, LIST_CONCURRENCY, behind=behind_grouped)
        except NotFound:
            if not self._table.is_local:
                raise
            found = Scan((), 0, 0, progress)
        excluded = tuple(path for path in names.excluded if not self._view.knows(path))
        if snapshot.state is None and excluded and not self._excluded:
            self._log.warning(
                "files_left_out", files=len(excluded), path=excluded[0], remedy=REMEDY
            )
        self._excluded = excluded
        new = [e for e in found.entries if not self._view.knows(e.path)]
        self._scanned = ScanTimes(began, self._clock())
        self._activity.polled(
            self._clock() - began,
            [e for e in new if is_text(e.path)],
            (found.requests, found.keys),
        )
        return snapshot, new

    def finish(self, snapshot: Snapshot, found: Sequence[str]) -> Snapshot:
        """Forget expired names and close partitions after a complete listing.

        ``found`` is everything that the look found.
        """
        # Times from a wrong clock would stay in grace until then.
        progress = clamp_progress(snapshot.memory.progress, self._scanned.ended)
        lowest = lowest_of(found, progress.depth)
        grace = self._table.advanced.grace_period
        moving = movers(self._scanned.ended)
        progress = expire_grace(progress, self._scanned, grace, lowest.get, moving)
        progress = self._floored(progress, found)
        memory = replace(snapshot.memory, progress=progress)
        self._view.remember(memory)
        return Snapshot(snapshot.state, memory)

    def record_poll(self, memory: Memory) -> Memory:
        """Record in the memory when the latest poll began, whose files are all settled.

        `status` counts what was published since. An instance with a filter saw only some files.
        """
        if self._table.advanced.partition_filter is not None:
            return memory
        return replace(memory, chores={**memory.chores, POLL_CHORE: int(self._scanned.began)})

    def _floored(self, progress: Progress, pending: Sequence[str]) -> Progress:
        """Close old partitions, so a poll's cost stays limited."""
        now = self._scanned.ended
        oldest = lookback_floor(self._table.advanced.partition_filter, now)
        return raise_floors(
            progress, self._table.advanced.max_tracked_partitions, oldest, pending, now
        )

"""Maintenance of a table: the sweep, compaction, vacuum, log clean-up.

Maintenance never decides what is committed and never stops commits: a chore that fails is logged
and is due again after its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import replace

from blizzard_core.errors import BlizzardError, NotFound
from blizzard_core.handover.quarantine import spelled
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.partition_time import lookback_floor
from blizzard_core.watermark.progress import Progress, is_new
from blizzard_core.watermark.scan import scan
from penguin_py.delta import log as deltalog
from penguin_py.intake.naming import is_grouped
from penguin_py.intake.quarantine import Quarantine
from penguin_py.intake.reconcile import Findings, came_since, compare, copied_at, safe_horizon
from penguin_py.model import LoggedPath, TableState
from penguin_py.planning.memory import Memory
from penguin_py.planning.partition_values import is_text
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.poll import LIST_CONCURRENCY

# A commit takes seconds; older staged files belong to dead processes.
LEFTOVER_SECS = 3600.0
# Nothing waits for a vacuum: what it deletes is days old, and one reads the whole log.
_VACUUM_SECS = 86_400.0
# A file of a group waits for its manifest while Blizzard is down, and while earlier groups are
# blocked.
UNNAMED_SECS = 7 * 86_400.0
# How many orphans a log line names.
ORPHANS_NAMED = 10


class Maintenance(TablePart):
    """The chores of one table. Not thread-safe."""

    def __init__(self, context: TableContext) -> None:
        super().__init__(context)
        self._quarantine = Quarantine(self._storage, self._table.state_name)

    def due(self, done: Mapping[str, int], now: float) -> list[str]:
        """Return the chores whose interval is over; ``done`` has when each was done last.

        A time in the future comes from a wrong clock, so the chore is due.
        """
        table = self._table
        intervals = {
            "reconcile": table.advanced.reconcile_interval,
            "optimize": table.settings.optimize.interval if table.settings.optimize else 0,
            "vacuum": _VACUUM_SECS if table.settings.vacuum else 0,
        }
        return [
            name
            for name, interval in intervals.items()
            if interval and not 0 <= now - done.get(name, -math.inf) < interval
        ]

    def sweep(
        self,
        state: TableState,
        memory: Memory,
        now: float,
        pending: Callable[[], Container[str] | None],
    ) -> Findings:
        """Compare everything listed with everything the log knows. Writes nothing.

        Files above the watermarks are left out: the next poll has them. Files of groups are
        reported as orphans only if they are old and not ``pending``, that is named by a manifest
        still to be applied; None means that this is unknown. Costs a full listing (from the
        lookback's beginning on) and a full read of the log. Raises `StateError` and `StorageError`.
        """
        progress = memory.progress
        floor = lookback_floor(self._table.advanced.partition_filter, now)
        everything = Progress(depth=progress.depth, floor=floor)
        try:
            listed = scan(
                self._storage,
                everything,
                lambda entry: self._looks(entry.path),
                LIST_CONCURRENCY,
            ).entries
        except NotFound:
            if not self._table.is_local:
                raise
            listed = ()
        unknown = {
            e.path: e
            for e in listed
            if is_text(e.path) and (is_grouped(e.path) or not is_new(progress, e.path))
        }
        pairs: list[tuple[Entry, LoggedPath]] = []
        records = self._quarantine.records()
        committed = []
        for entry in self._delta.known_paths(state.version):
            if spelled(entry.path) in records:
                committed.append(spelled(entry.path))
            unknown_file = unknown.pop(entry.path, None)
            if unknown_file is not None:
                pairs.append((unknown_file, entry))
        grouped = [unknown.pop(path) for path in list(unknown) if is_grouped(path)]
        horizon = safe_horizon(self._table.advanced.reconcile_horizon, state.removal_retention_secs)
        copied = copied_at(pairs, now)
        oldest, since = max(now - horizon, copied), came_since(memory.chores, copied)
        found = compare(unknown.values(), records, oldest, since)
        old = [entry for entry in grouped if entry.modified < now - UNNAMED_SECS]
        named = pending() if old else None
        lost = () if named is None else tuple(e for e in old if e.path not in named)
        found = replace(found, committed=tuple(committed), orphans=(*found.orphans, *lost))
        if found.due:
            self._log.info(
                "stragglers_found",
                files=len(found.stragglers),
                retries=len(found.retries),
                overdue=len(found.overdue),
            )
        if found.orphans:
            self._log.warning(
                "orphans_found",
                files=len(found.orphans),
                paths=[entry.path for entry in found.orphans[:ORPHANS_NAMED]],
                remedy="older than reconcile_horizon; delete them, or commit them by"
                " copying them to new names",
            )
        return found

    def _looks(self, path: str) -> bool:
        return self._accept(path) or is_grouped(path)

    def tidy_log(self, now: float) -> None:
        """Remove leftovers of killed writers from a local log; object stores have none."""
        if not self._table.is_local:
            return
        count = deltalog.sweep_leftovers(self._storage, now - LEFTOVER_SECS)
        if count:
            self._log.info("log_leftovers_removed", files=count)

    def run_due(self, due: Collection[str]) -> Iterator[str]:
        """Run the due chores of the table; yield each name once it is done."""
        if "optimize" in due:
            self.run_chore("optimize", self._delta.optimize)
            yield "optimize"
        vacuum = self._table.settings.vacuum
        if "vacuum" in due and vacuum is not None:
            self.run_chore("vacuum", lambda: {"files": self._delta.vacuum(vacuum.retention)})
            yield "vacuum"

    def run_chore(self, name: str, action: Callable[[], Mapping[str, object]]) -> None:
        """Run one chore; a failure is logged."""
        try:
            with self._activity.chore(name):
                found = action()
        except BlizzardError as error:
            self._log.warning("chore_failed", chore=name, error=str(error))
        else:
            self._log.info("chore_done", chore=name, outcome=dict(found))

"""One keyed table's cycle: merge what is due, and maintain the table.

A merge costs what it rewrites. So the next one waits for the interval of the settings, and longer
behind an expensive one: for the share of the table that it rewrote, of an hour, or of a gigabyte if
that is less. At most 24 tables are rewritten a day; small tables, and changes of recent rows in
large ones, keep their interval. While changes wait because one commit takes only so many rows, the
next follows at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from blizzard_core.daemon import PolledWorker, StopEvent
from blizzard_core.settings.base import HOUR
from penguin_py import metrics
from penguin_py.keyed.matching import OUTCOMES
from penguin_py.keyed.merger import Merger, Tables
from penguin_py.keyed.retention import drop_changes
from penguin_py.table.maintenance import Maintenance
from penguin_py.table.part import TableContext

# A merge that rewrites the whole table is followed by the next one after so long. A table of so
# many bytes costs half a minute of a core; below it the pause shrinks with the cost.
BUDGET_SECS = 3600.0
BUDGET_BYTES = 1 << 30
_DROP = "keep_changes"
# How long polls only ask for the next version, which a recreated table may not have.
_LOOK_SECS = 3600.0


def wait_secs(last: Mapping[str, Any], every: float, now: float) -> float:
    """Return how long the next merge has to wait, by what the ``last`` one said.

    A last merge in the future comes from a wrong clock, so the next one is due.
    """
    updated: float = last.get("updated", math.inf)
    if updated > now or last.get("behind"):
        return 0.0
    budget: float = min(last["share"], last["rewritten"] / BUDGET_BYTES) * BUDGET_SECS
    return max(0.0, updated + max(every, budget) - now)


class KeyedPipeline(PolledWorker):
    """Merges of one keyed table. A `Worker` of the poll loop; not thread-safe.

    ``is_patient``: merges wait for their time; else each cycle merges what there is.
    """

    def __init__(self, merger: Merger, *, is_patient: bool = True) -> None:
        self._merger, self._is_patient = merger, is_patient
        self._keyed, self._clock, self.activity = merger.keyed, merger.clock, merger.activity
        parts = (merger.keyed.table, merger.storage, merger.delta, merger.delta.pool)
        context = TableContext(*parts, lambda _path: False, merger.clock, merger.activity)
        self._maintenance = Maintenance(context)
        # Until when no look at the logs is due if no version comes: the last found nothing.
        self._settled_until = 0.0
        for outcome in OUTCOMES:
            metrics.KEYED_ROWS.labels(self.name, outcome)
        for status in ("done", "failed"):
            metrics.CHORES.labels(self.name, _DROP, status)
        metrics.KEYED_SHARE.labels(self.name)
        lag = metrics.KEYED_LAG_SECS.labels(self.name)
        lag.set_function(lambda: self._age((self.activity.keyed or {}).get("waits_since")))

    def _age(self, since: float | None) -> float:
        return 0.0 if since is None else max(0.0, self._clock() - since)

    @property
    def name(self) -> str:
        """The keyed table's name."""
        return self._keyed.name

    @property
    def poll_interval_secs(self) -> float:
        """Return how long to wait after a cycle that merged nothing."""
        return self._keyed.every

    def rebuild(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Rebuild the table from all changes that are there, in one commit.

        Returns the rows of changes, and the outcomes unless it is a ``dry_run``.
        """
        tables = self._merger.look(rebuilds=True)
        rows = sum(file.rows or 0 for file in tables.batch.files) if tables else 0
        merged = None if dry_run else self._merger.rebuild()
        return {"dry_run": dry_run, "rows": rows, "outcomes": merged and merged["outcomes"]}

    def outlook(self) -> dict[str, Any] | None:
        """Return what waits and what the next merge would touch; None if there are no changes.

        Writes nothing.
        """
        if (found := self._merger.look()) is None:
            return None
        return {**self._status(found), "next": self._merger.forecast(found)}

    def status(self) -> dict[str, Any] | None:
        """Return how far the table has come; None if there are no changes. Writes nothing."""
        found = self._merger.look()
        return None if found is None else self._status(found)

    def _status(self, tables: Tables) -> dict[str, Any]:
        document = tables.merge_state.document
        changed = self._merger.changed_at(tables)
        return {
            "rows": self._merger.stored_rows(tables),
            "merged": tables.merge_state.position - 1,
            "version": tables.changes.version,
            "starts_over": tables.state is not None and tables.batch.first is None,
            "waits_since": changed,
            "lag_secs": self._age(changed),
            "wait_secs": wait_secs(document, self._keyed.every, self._clock()),
            **{name: document.get(name) for name in ("updated", "share", "outcomes")},
        }

    def cycle(self, stop: StopEvent) -> bool:
        """Merge once if a merge is due; True if something was merged.

        Raises `StateError`, `CommitError` and `StorageError`; after any of them the next call
        starts from the logs.
        """
        if stop.is_set():
            return False
        began = self._clock()
        settled_until, self._settled_until = self._settled_until, 0.0  # an error unsettles it
        logs = (self._merger.changes, self._merger.delta)
        is_idle = began < settled_until and all(log.unchanged() for log in logs)
        tables = None if is_idle else self._merger.look()
        now = self._clock()
        self.activity.polled(max(0.0, now - began), (), (0, 0))
        if tables is None:
            self._settled_until = settled_until if is_idle else 0.0
            return False  # or there are no changes yet
        self.activity.keyed = found = self._status(tables)
        is_early = self._is_patient and found["wait_secs"] > 0
        merged = None if is_early else self._merger.merge(tables)
        if merged is None:
            self._settled_until = 0.0 if is_early else now + _LOOK_SECS
            self._maintain(tables, now)
            return False
        self.activity.keyed = {**found, "waits_since": None}
        for outcome, count in merged["outcomes"].items():
            metrics.KEYED_ROWS.labels(self.name, outcome).inc(count)
        metrics.KEYED_SHARE.labels(self.name).set(merged["share"])
        return True

    def _maintain(self, tables: Tables, now: float) -> None:
        """Run the due chores; the next merge saves when."""
        chores, merged = self._merger.chores, tables.merge_state.position
        for name in self._maintenance.run_due(self._maintenance.due(chores, now)):
            chores[name] = int(now)
        stays = self._keyed.keep_changes is None or not merged or tables.has_rows
        if not stays and not 0 <= now - chores.get(_DROP, -math.inf) < HOUR:
            chores[_DROP] = int(now)
            left = partial(drop_changes, self._keyed, self._merger.changes, tables.changes)
            self._maintenance.run_chore(_DROP, lambda: left(merged, now))

"""One keyed table's cycle: merge what is due, and maintain the table.

A merge costs what it rewrites. So the next one waits for the interval of the settings, and longer
behind an expensive one: for the share of the table that it rewrote, of an hour, or of a gigabyte if
that is less. At most 24 tables are rewritten a day; small tables, and changes of recent rows in
large ones, keep their interval. While changes wait because one merge takes only so many rows, the
next follows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from blizzard_core.daemon import StopEvent
from blizzard_core.storage.protocol import Storage
from penguin_py import metrics
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.changes import ChangeBatch
from penguin_py.keyed.matching import Outcomes
from penguin_py.keyed.merger import Merger, Tables
from penguin_py.maintenance import Maintenance
from penguin_py.settings import KeyedTable

# A merge that rewrites the whole table is followed by the next one after so long. A table of so
# many bytes costs half a minute of a core; below it the pause shrinks with the cost.
BUDGET_SECS = 3600.0
BUDGET_BYTES = 1 << 30
_CHORES = ("optimize", "vacuum")
# How long polls only ask for the next version, which a recreated table may not have.
_LOOK_SECS = 3600.0


def wait_secs(last: Mapping[str, Any], every: float, now: float) -> float:
    """Return how long the next merge has to wait, by what the ``last`` one said.

    A last merge in the future comes from a wrong clock, so the next one is due.
    """
    updated = last.get("updated")
    if not isinstance(updated, int) or updated > now or last.get("behind") is True:
        return 0.0
    share, rewritten = last.get("share"), last.get("rewritten")
    budget = 0.0
    if isinstance(share, int | float) and isinstance(rewritten, int):
        budget = min(share, rewritten / BUDGET_BYTES) * BUDGET_SECS
    return max(0.0, updated + max(every, budget) - now)


class KeyedPipeline:
    """Merges of one keyed table. A `Worker` of the poll loop; not thread-safe.

    ``is_patient``: merges wait for their time; else each cycle merges what there is.
    """

    def __init__(
        self,
        keyed: KeyedTable,
        changes: tuple[Storage, DeltaLog],
        table: tuple[Storage, DeltaLog],
        clock: Callable[[], float],
        activity: TableActivity,
        *,
        is_patient: bool = True,
    ) -> None:
        self.activity = activity
        self._keyed = keyed
        self._changes, self._delta = changes[1], table[1]
        self._clock = clock
        self._is_patient = is_patient
        self._merger = Merger(keyed, changes, table, clock, activity)
        self._maintenance = Maintenance(
            keyed.table, table[0], table[1], lambda _path: False, 1, activity
        )
        # Until when no look at the logs is due if no version comes: the last found nothing.
        self._settled_until = 0.0
        # When the oldest change was committed that waits; None if none does.
        self._waits_since: float | None = None
        for outcome in fields(Outcomes):
            metrics.KEYED_ROWS.labels(keyed.name, outcome.name)
        metrics.KEYED_SHARE.labels(keyed.name)
        metrics.KEYED_LAG_SECS.labels(keyed.name).set_function(self._age)

    def _age(self) -> float:
        return 0.0 if self._waits_since is None else max(0.0, self._clock() - self._waits_since)

    @property
    def name(self) -> str:
        """The keyed table's name."""
        return self._keyed.name

    @property
    def poll_interval_secs(self) -> float:
        """Return how long to wait after a cycle that merged nothing."""
        return self._keyed.every

    @property
    def is_paced(self) -> bool:
        """Return False: the pause is configured."""
        return False

    def is_called(self) -> bool:
        """Return False: polls find what has changed."""
        return False

    def cancel(self) -> None:
        """Do nothing: a merge is finished; its death would cost no more than its time."""

    def cycle(self, stop: StopEvent) -> bool:
        """Merge once if a merge is due; True if something was merged.

        Raises `StateError`, `CommitError` and `StorageError`; after any of them the next call
        starts from the logs.
        """
        if stop.is_set():
            return False
        try:
            return self._cycle()
        except BaseException:
            self._settled_until = 0.0
            raise

    def rebuild(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Rebuild the table from all changes that are there, in one commit.

        Returns the rows of changes, and the outcomes unless it is a ``dry_run``.
        """
        rows = self._merger.count_changes()
        merged = None if dry_run else self._merger.rebuild()
        outcomes = None if merged is None else asdict(merged.outcomes)
        return {"dry_run": dry_run, "rows": rows, "outcomes": outcomes}

    def outlook(self) -> dict[str, Any] | None:
        """Return what waits and what the next merge would touch; None if there are no changes.

        Writes nothing.
        """
        tables = self._merger.look()
        if tables is None:
            return None
        batch = self._merger.waiting(tables)
        found = None if batch is None else asdict(self._merger.forecast(tables, batch))
        return {**self._status(tables, batch), "next": found}

    def status(self) -> dict[str, Any] | None:
        """Return how far the table has come; None if there are no changes. Writes nothing."""
        tables = self._merger.look()
        return None if tables is None else self._status(tables, self._merger.waiting(tables))

    def _status(self, tables: Tables, batch: ChangeBatch | None) -> dict[str, Any]:
        state, now = tables.merge_state, self._clock()
        return {
            "merged": state.position.version - 1,
            "version": tables.changes.version,
            "starts_over": state.starts_over,
            "lag_secs": self._lag(batch, now),
            "wait_secs": wait_secs(state.document, self._keyed.every, now),
            "updated": state.document.get("updated"),
            "share": state.document.get("share"),
            "outcomes": state.document.get("outcomes"),
        }

    def _lag(self, batch: ChangeBatch | None, now: float) -> float:
        changed = None if batch is None else self._merger.changed_at(batch.first)
        return 0.0 if changed is None else max(0.0, now - changed)

    def _cycle(self) -> bool:
        began = self._clock()
        is_idle = began < self._settled_until and self._is_unchanged()
        tables = None if is_idle else self._merger.look()
        now = self._clock()
        self.activity.polled(max(0.0, now - began), (), (0, 0))
        if tables is None:
            return False  # or there are no changes yet
        # From now on a later version is only known to be missing behind what waits, if anything.
        self._settled_until = 0.0
        batch = self._merger.waiting(tables)
        self._waits_since = None if batch is None else self._merger.changed_at(batch.first)
        if self._is_patient and wait_secs(tables.merge_state.document, self._keyed.every, now):
            self._maintain(now)
            return False
        merged = self._merger.merge()
        if merged is None:
            self._settled_until = now + _LOOK_SECS
            self._maintain(now)
            return False
        self._waits_since = None
        for outcome, count in asdict(merged.outcomes).items():
            metrics.KEYED_ROWS.labels(self.name, outcome).inc(count)
        metrics.KEYED_SHARE.labels(self.name).set(merged.rewritten_share)
        return True

    def _is_unchanged(self) -> bool:
        return self._changes.unchanged() is not None and self._delta.unchanged() is not None

    def _maintain(self, now: float) -> None:
        """Run the due chores; the next merge saves when."""
        chores = self._merger.chores
        due = [name for name in self._maintenance.due(chores, now) if name in _CHORES]
        for name in self._maintenance.run_due(due):
            chores[name] = int(now)

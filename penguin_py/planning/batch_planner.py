"""Decisions about files, from their footers: committed, rejected, waiting or pending.

Promise: `plan`, `run` and `reconcile` decide alike, because all use this module. It reads footers
and writes nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Container, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.table.schema_fit import SchemaRules
from penguin_py.intake.footers import LARGE_BYTES, Failure, read_footers
from penguin_py.intake.ownership import Owners
from penguin_py.intake.reconcile import beyond_horizon
from penguin_py.model import CommitPlan, Rejection, TableState
from penguin_py.planning.commit_plan import make_plan
from penguin_py.settings import Table


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The next commit, with ``rows`` rows, and the reasons for leaving out other files.

    ``waiting`` are foreign files that are too young. ``failed`` could not be read now. ``missing``
    were removed since the listing. ``unread`` were not read because earlier footers fill the memory
    limit.
    """

    plan: CommitPlan
    rows: int
    rejections: tuple[Rejection, ...]
    waiting: tuple[Entry, ...]
    failed: tuple[Failure, ...]
    missing: tuple[Entry, ...]
    unread: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outcome of files if they were processed now.

    ``unread`` is how many of them were not looked into: they come after the first commit.
    """

    rejections: tuple[Rejection, ...]
    waiting: tuple[Entry, ...]
    failed: tuple[Failure, ...]
    unread: int


def schema_rules(table: Table) -> SchemaRules:
    """Return the schema rules in a table's settings."""
    most = table.advanced.max_new_columns
    return SchemaRules(table.partition_types, table.settings.schema_evolution, most)


class BatchPlanner:
    """A planner of one table's batches."""

    def __init__(self, table: Table, storage: Storage, pool: Executor, owners: Owners) -> None:
        self._storage = storage
        self._pool = pool
        self.owners = owners
        self._most = table.advanced.max_files_per_commit
        self._rules = schema_rules(table)

    def decide(
        self,
        state: TableState | None,
        batch: Sequence[Entry],
        known_output_ids: Container[str],
        now: float,
        overdue: Collection[str],
    ) -> BatchPlan:
        """Decide the outcome of the files, oldest first, on top of ``state``.

        Files that are ``overdue`` count only if they carry an output id.
        """
        found, footer_bytes = self._decide(state, batch, known_output_ids, now, overdue)
        if footer_bytes > LARGE_BYTES:
            gc.collect()  # no footer is needed any more
        return found

    def _decide(
        self,
        state: TableState | None,
        batch: Sequence[Entry],
        known_output_ids: Container[str],
        now: float,
        overdue: Collection[str],
    ) -> tuple[BatchPlan, int]:
        footers = read_footers(self._storage, batch, self._pool)
        old = {f.path: f for f in footers.sound if f.path in overdue and f.output_id is None}
        sorted_ = self.owners.sorted([f for f in footers.sound if f.path not in old], now)
        plan = make_plan(state, sorted_.accepted, known_output_ids, self._rules)
        added = {add.entry.path for add in plan.adds}
        found = BatchPlan(
            plan,
            sum(f.metadata.num_rows for f in sorted_.accepted if f.path in added),
            (
                *footers.rejected,
                *(beyond_horizon(footer.entry) for footer in old.values()),
                *sorted_.refused,
                *plan.rejections,
            ),
            sorted_.young,
            footers.failed,
            footers.missing,
            footers.unread,
        )
        return found, footers.memory_bytes

    def forecast(
        self,
        state: TableState | None,
        files: Sequence[Entry],
        known_output_ids: Container[str],
        now: float,
        overdue: Collection[str],
    ) -> Forecast:
        """Decide about as many files as one commit takes."""
        batch = files[: self._most]
        found = self.decide(state, batch, known_output_ids, now, overdue)
        unread = len(files) - len(batch) + len(found.unread)
        return Forecast(found.rejections, found.waiting, found.failed, unread)

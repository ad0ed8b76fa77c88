"""The live state of one table's pipeline: `Activity` with Penguin's metrics."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from blizzard_core.errors import CommitError
from blizzard_core.handover.outputs import output_id_of
from blizzard_core.handover.quarantine import MISSING, spelled
from blizzard_core.observability.activity import (
    Activity,
    FailedFile,
    FinishedBatch,
    PollSummary,
    age,
)
from blizzard_core.observability.runs import RunResult
from blizzard_core.redact import error_text
from blizzard_core.storage.protocol import Entry
from penguin_py import metrics
from penguin_py.model import CHORES, CommitConflict, CommitPlan, Rejection, TableState
from penguin_py.planning.memory import Memory

# delta-rs reports no progress during a commit or maintenance. A commit may write a checkpoint of a
# large log, and maintenance may rewrite much of the table.
COMMIT_SECS = 1800.0
CHORE_SECS = 6 * 3600.0


class TableActivity(Activity):
    """One table's live view."""

    daemon = "penguin"

    def __init__(self, name: str, place: str, clock: Callable[[], float]) -> None:
        super().__init__(name, place, clock)
        self._version: int | None = None
        self._committed: float | None = None
        self._orphans: int | None = None
        # Of a keyed table: how far it is, and what its last merge did.
        self.keyed: Mapping[str, Any] | None = None
        # None: not looked at yet.
        self.groups: Mapping[str, Mapping[str, Any]] | None = None
        metrics.PENDING_FILES.labels(name).set_function(self.pending)
        metrics.LAG_SECS.labels(name).set_function(self.lag)
        metrics.COMMIT_AGE.labels(name).set_function(self._commit_age)
        metrics.TABLE_VERSION.labels(name).set_function(lambda: _or_nan(self._version))
        metrics.BLOCKED_GROUPS.labels(name).set_function(self.blocked)
        metrics.ORPHAN_FILES.labels(name).set_function(lambda: _or_nan(self._orphans))
        # Series that exist from the start let a rule see the first event.
        for status in ("landed", "failed"):
            metrics.COMMITS.labels(name, status)
        for chore in CHORES:
            for status in ("done", "failed"):
                metrics.CHORES.labels(name, chore, status)
        metrics.FILES_QUARANTINED.labels(name, MISSING)
        for metric in (
            metrics.FILES_DISCOVERED,
            metrics.LIST_REQUESTS,
            metrics.KEYS_LISTED,
            metrics.POLL_SECS,
            metrics.CONFLICTS,
            metrics.COMMIT_SECS,
            metrics.FILES_COMMITTED,
            metrics.RECORDS_COMMITTED,
            metrics.BYTES_COMMITTED,
            metrics.SCHEMA_EVOLUTIONS,
            metrics.COMPLETIONS_WAITING,
            metrics.GROUPS_APPLIED,
            metrics.ROWS_REPLACED,
            metrics.BYTES_REWRITTEN,
        ):
            metric.labels(name)

    def polled(self, secs: float, found: Sequence[Entry], cost: tuple[int, int]) -> None:
        """Record a poll of ``secs`` and its uncommitted files; ``cost``: requests, keys."""
        now = self.clock()
        requests, keys = cost
        metrics.POLL_SECS.labels(self.name).observe(secs)
        metrics.LIST_REQUESTS.labels(self.name).inc(requests)
        metrics.KEYS_LISTED.labels(self.name).inc(keys)
        metrics.FILES_DISCOVERED.labels(self.name).inc(len(found))
        self._polled(PollSummary(now, secs, len(found), requests, keys), found)

    def files_done(self, entries: Iterable[Entry]) -> None:
        """Remove files that are committed, rejected or gone from the waiting ones."""
        self._wait_no_more(list(entries))

    def knows(self, state: TableState | None, memory: Memory) -> None:
        """Record the table's current state and what is remembered of it."""
        with self._lock:
            self._version = None if state is None else state.version
            if self._committed is None and memory.txn_version and memory.updated is not None:
                self._committed = float(memory.updated)
            self._progress = memory.progress
            self.beat()

    @contextmanager
    def committing(
        self,
        files: Sequence[Entry],
        rows: int,
        plan: CommitPlan,
        *,
        evolves: bool,
        landed_at: Callable[[], int | None] | None = None,
    ) -> Iterator[None]:
        """Time one commit; an exception means that it did not land.

        ``landed_at`` returns its version if other writers' commits may have come before it.
        """
        started = self.clock()
        key = f"{self.name}/{uuid.uuid4()}"
        self.runs.started(key, started, "commit")
        self.expects(COMMIT_SECS)
        status = "failed"
        try:
            yield
            status = "landed"
        except CommitError as error:
            if isinstance(error, CommitConflict):
                metrics.CONFLICTS.labels(self.name).inc()
            self.runs.failed(error_text(error), self.clock())
            raise
        finally:
            secs = age(self.clock(), started)
            metrics.COMMITS.labels(self.name, status).inc()
            metrics.COMMIT_SECS.labels(self.name).observe(secs)
            self.beat()
        size = sum(entry.size for entry in files)
        metrics.FILES_COMMITTED.labels(self.name).inc(len(files))
        metrics.RECORDS_COMMITTED.labels(self.name).inc(rows)
        metrics.BYTES_COMMITTED.labels(self.name).inc(size)
        if evolves:
            metrics.SCHEMA_EVOLUTIONS.labels(self.name).inc()
        with self._lock:
            self._committed = now = self.clock()
            # The commit takes the next version; a rival's in between shows with the next poll.
            self._version = 0 if self._version is None else self._version + 1
            self._did(FinishedBatch(now, str(self._version), len(files), rows, size, secs))
            version: int | None = self._version
        if landed_at is not None and self.runs.is_reported:
            version = landed_at()
        written = {"files": len(files), "rows": rows, "bytes": size}
        self.runs.completed(key, now, started, _result_of(plan, version, written))

    def replaced(self, rows: int, rewritten_bytes: int) -> None:
        """Record an applied group: the replaced rows and the rewritten bytes."""
        metrics.GROUPS_APPLIED.labels(self.name).inc()
        metrics.ROWS_REPLACED.labels(self.name).inc(rows)
        metrics.BYTES_REWRITTEN.labels(self.name).inc(rewritten_bytes)

    def stands(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Record the progress of each source's groups."""
        with self._lock:
            self.groups = groups

    def completions_wait(self, partitions: int) -> None:
        """Record how many complete partitions have no marker yet."""
        metrics.COMPLETIONS_WAITING.labels(self.name).set(partitions)

    def blocked(self) -> float:
        """Return how many sources have a group that waits."""
        with self._lock:
            return sum(group["blocked"] is not None for group in (self.groups or {}).values())

    def quarantined(self, rejections: Sequence[Rejection]) -> None:
        """Record rejected files."""
        now = self.clock()
        for rejection in rejections:
            metrics.FILES_QUARANTINED.labels(self.name, rejection.stage).inc()
        self._add_failed(
            FailedFile(now, spelled(r.entry.path), r.stage, r.reason) for r in rejections
        )

    def rejected_lately(self) -> frozenset[str]:
        """Return the paths of the rejected files that are shown."""
        with self._lock:
            return frozenset(letter.path for letter in self._letters)

    def mended(self, paths: Container[str]) -> None:
        """Forget rejected files of which no rows are missing in the table."""
        self._remove_failed(lambda letter: letter.path in paths)

    def swept(self, orphans: int) -> None:
        """Record a sweep and its number of files that are too old to commit."""
        with self._lock:
            self._orphans = orphans

    @contextmanager
    def chore(self, name: str) -> Iterator[None]:
        """Time a chore; an exception means that it failed."""
        self.expects(CHORE_SECS)
        status = "failed"
        try:
            yield
            status = "done"
        finally:
            metrics.CHORES.labels(self.name, name, status).inc()
            self.beat()

    def _commit_age(self) -> float:
        with self._lock:
            return math.nan if self._committed is None else age(self.clock(), self._committed)

    def brief(self) -> dict[str, Any]:
        """Return the data of `Activity` with the table's version, and its merges if it is keyed."""
        with self._lock:
            return {
                **super().brief(),
                **({} if self.keyed is None else {"keyed": self.keyed}),
                "version": self._version,
                "committed_at": self._committed,
            }

    def to_json(self) -> dict[str, Any]:
        """Return the data of `Activity` with orphans and groups."""
        with self._lock:
            return {**super().to_json(), "orphans": self._orphans, "groups": self.groups or {}}


def _result_of(plan: CommitPlan, version: int | None, written: Mapping[str, int]) -> RunResult:
    """Return what a commit has added to the table, and from which batches."""
    ids = (output_id_of(add.output_id) for add in plan.adds if add.output_id is not None)
    batches = dict.fromkeys(f"{i.source}/{i.batch}/{i.attempt}" for i in ids if i is not None)
    columns = tuple((field.name, str(field.type)) for field in plan.schema)
    return RunResult({}, written, 0, tuple(batches), columns, version)


def _or_nan(number: int | None) -> float:
    return math.nan if number is None else number

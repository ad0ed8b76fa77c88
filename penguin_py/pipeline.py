"""One table's commit cycle: find files, read footers, plan, commit, record.

The order of steps makes it exactly-once (`penguin_py.committer`): after a crash between any two
steps the log is the truth, and the next start reads it.

A poll's files are committed in batches of ``max_files_per_commit``, one per cycle, so a stop
request is noticed between two commits. After any error the memory is dropped and read again from
the log.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from blizzard_core.daemon import PolledWorker, StopEvent
from blizzard_core.errors import StateError
from blizzard_core.handover.quarantine import MISSING, QuarantineRecord
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.threads import INLINE
from blizzard_core.watermark.progress import Progress, mark_idle
from penguin_py.activity import TableActivity
from penguin_py.certificates import Certificates
from penguin_py.committer import Committer
from penguin_py.delta.table import DeltaLog
from penguin_py.groups.discard import DiscardResult
from penguin_py.groups.group_status import GroupStatus
from penguin_py.groups.runner import GroupRunner
from penguin_py.intake.calls import TableCalls
from penguin_py.intake.footers import accepts
from penguin_py.intake.missing import PublishedOutputs, find_resolved
from penguin_py.intake.naming import lower_scans
from penguin_py.intake.ownership import Owners
from penguin_py.intake.quarantine import Quarantine
from penguin_py.intake.reconcile import Findings
from penguin_py.model import Rejection
from penguin_py.planning.batch_planner import BatchPlanner, Forecast
from penguin_py.planning.memory import Memory, Snapshot
from penguin_py.planning.partition_values import NOT_TEXT, is_text
from penguin_py.settings import Table
from penguin_py.table.maintenance import Maintenance
from penguin_py.table.part import TableContext
from penguin_py.table.poll import TablePoller
from penguin_py.table.view import TableView

# How often the journals are checked, and how far back without an earlier check.
PUBLISHED_LOOK_SECS = 3600.0
PUBLISHED_BEFORE_SECS = 86_400.0
# How often the page's few rejected files are looked at: by their footers.
MENDED_LOOK_SECS = 300.0


class TablePipeline(PolledWorker):
    """Commits arriving files to one table. A `Worker` of the poll loop; not thread-safe.

    ``prepare`` is called before the first poll with consequences, until it succeeds, and before
    each sweep.
    """

    def __init__(
        self,
        table: Table,
        storage: Storage,
        log: DeltaLog,
        pool: Executor,
        clock: Callable[[], float],
        activity: TableActivity | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.activity = activity or TableActivity(table.name, storage.uri, clock)
        self._table = table
        self._storage = storage
        self._clock = clock
        self._prepare = prepare
        notify = table.settings.notify
        self.calls = None if notify is None else TableCalls(table.uri, notify.token)
        self._is_prepared = False
        self._log = get_logger(table=table.name)
        self._pool = pool = INLINE if table.is_local else pool
        accept = accepts(table.advanced.file_pattern)
        context = TableContext(table, storage, log, pool, accept, clock, self.activity)
        self._quarantine = Quarantine(storage, table.state_name)
        self._maintenance = Maintenance(context)
        owners = Owners(tuple(table.advanced.own_prefixes), table.advanced.foreign_min_age)
        self._view = TableView(context)
        self._poller = TablePoller(context, self._view)
        planner = BatchPlanner(table, storage, pool, owners)
        self._certificates = Certificates(context, self._view, self._quarantine)
        self._committer = Committer(
            context, self._view, self._poller, self._quarantine, planner, self._certificates
        )
        self._groups = GroupRunner(context, self._view, self._certificates)
        self._published = PublishedOutputs(storage, pool)
        self._looked: float | None = None
        self._mended_look = -math.inf
        # The time of the sweep whose stragglers are queued.
        self._swept: float | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self._table.name

    @property
    def poll_interval_secs(self) -> float:
        """Return how long to wait after a poll that found nothing."""
        return self._table.settings.poll_interval

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait; a call ends the pause before."""
        return super().rest(secs, stop) if self.calls is None else self.calls.wait(secs, stop)

    def cycle(self, stop: StopEvent) -> bool:
        """Find new files if none are waiting, commit one batch of them, and what groups are due.

        True if there was anything. Raises `StateError`, `CommitError` and
        `StorageError`; after any of them the next call starts from the log.
        """
        try:
            if not self._is_prepared:
                self._prepared()
            if stop.is_set():
                return False
            did = self._cycle()
            # After the first poll: until then it is not certain which old files are done.
            did = (not stop.is_set() and self._groups.turn()) or did
            if not (self._committer or stop.is_set()):
                self._certificates.confirm()
            return did
        except BaseException:
            self._forget()
            raise

    def snapshot(self) -> Snapshot:
        """Read the table's state and memory from storage. Writes nothing."""
        return self._view.sync()

    def outlook(self) -> tuple[Snapshot, tuple[Entry, ...], Forecast]:
        """Return the files of the next poll, oldest first, and their forecast.

        Writes nothing, and reads the footers of one commit's files.
        """
        snapshot, found = self._poller.find_new_files()
        named = [entry for entry in found if is_text(entry.path)]
        unnameable = [Rejection(e, "partition", NOT_TEXT) for e in found if not is_text(e.path)]
        trusted = self._view.trusted(named, snapshot)
        files = [*trusted.accepted, *trusted.overdue]
        overdue = {entry.path for entry in trusted.overdue}
        forecast = self._committer.forecast(snapshot, files, overdue)
        refused = (*unnameable, *trusted.refused, *forecast.rejections)
        return snapshot, tuple(named), replace(forecast, rejections=refused)

    def sweep_outlook(self) -> tuple[Findings, Forecast]:
        """Return what a sweep finds, and its forecast; as `outlook`."""
        found = self.reconcile(dry_run=True)
        overdue = {entry.path for entry in found.overdue}
        return found, self._committer.forecast(self.snapshot(), found.due, overdue)

    def groups(self, snapshot: Snapshot) -> dict[str, GroupStatus]:
        """Return each source's progress with groups, and what blocks it. Writes nothing."""
        return self._groups.outlook(snapshot)

    def discard(
        self, outputs: Sequence[str], source: str | None, *, dry_run: bool
    ) -> DiscardResult:
        """Discard outputs and the next group of a source; see `penguin_py.groups.discard`.

        Everything that can be committed is committed first, including stragglers of a sweep, so
        nothing is discarded merely because it was not read yet. An output that is committed this
        way is left out of the result. With ``dry_run`` nothing is committed.
        """
        if not dry_run:
            known = self._known_outputs()
            before = [output for output in outputs if output in known]
            self.reconcile(dry_run=False)
            while self.cycle(threading.Event()):
                pass
            known = self._known_outputs()
            outputs = [o for o in outputs if o in before or o not in known]
        return self._groups.discard(outputs, source, dry_run=dry_run)

    def _known_outputs(self) -> Container[str]:
        return self._view.output_ids(self.snapshot().memory)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parquet files that the last look met and ``file_pattern`` does not take."""
        return self._poller.left_out

    def missing(self, snapshot: Snapshot) -> list[str]:
        """Return published outputs that are recorded as missing and were not replaced since."""
        records = {p: r for p, r in self._quarantine.records().items() if r.stage == MISSING}
        return sorted(records.keys() - self.resolved_records(snapshot, records))

    def quarantined(self) -> dict[str, QuarantineRecord]:
        """Return the rejected files by path."""
        return self._quarantine.records()

    def resolved_records(
        self, snapshot: Snapshot, records: Mapping[str, QuarantineRecord]
    ) -> set[str]:
        """Return the records without missing rows in the table; reads footers."""
        if snapshot.state is None or not records:
            return set()
        known = self._view.output_ids(snapshot.memory)
        return find_resolved(self._storage, records.values(), known, self._pool)

    def reconcile(self, *, dry_run: bool) -> Findings:
        """Compare the whole directory with the log; without ``dry_run`` queue what is to do.

        The following cycles commit it. Raises `StateError` and `StorageError`.
        """
        if not dry_run:
            self._prepared()
        snapshot = self.snapshot()
        if snapshot.state is None:
            return Findings((), (), (), ())
        now = self._clock()
        with self.activity.chore("reconcile"):
            found = self._maintenance.sweep(
                snapshot.state, snapshot.memory, now, lambda: self._groups.pending(snapshot)
            )
        self.activity.swept(len(found.orphans))
        if not dry_run:
            self._lower(snapshot.memory, found, now)
            self._committer.add(found)
            if found.committed:
                self._quarantine.release(found.committed)
            self._maintenance.tidy_log(now)
            # Not before its stragglers are committed: after a crash the sweep must run again.
            self._swept = now
            if not self._committer:
                self._mark_swept(snapshot.memory)
            self._groups.look()
        return found

    def _prepared(self) -> None:
        if self._prepare is not None:
            self._prepare()
        self._is_prepared = True

    def _cycle(self) -> bool:
        if self._committer:
            snapshot = self.snapshot()
        else:
            found = self._polled()
            if found is None:
                return False
            snapshot = found
            self._log.info("files_found", files=len(self._committer))
        self._committer.work_off(snapshot)
        if self._committer:
            return True
        if self._swept is not None:
            self._mark_swept(self.snapshot().memory)
        return self._committer.outcome()

    def _polled(self) -> Snapshot | None:
        """Poll and queue the new files; None if there are none to try."""
        snapshot, found = self._poller.find_new_files()
        snapshot = self._view.folded(snapshot)
        # A name that the log cannot spell cannot be a watermark either; it stays recorded.
        unnameable = [entry for entry in found if not is_text(entry.path)]
        now = self._clock()
        self._committer.record([Rejection(e, "partition", NOT_TEXT) for e in unnameable], now)
        named = [entry for entry in found if is_text(entry.path)]
        trusted = self._view.trusted(named, snapshot)
        self._view.polled()
        self._committer.begin(trusted.accepted, trusted.overdue, now)
        before = snapshot.memory.progress
        snapshot = self._poller.finish(snapshot, [entry.path for entry in found])
        due = self._maintenance.due(snapshot.memory.chores, now)
        if "reconcile" in due:
            self.reconcile(dry_run=False)
        if trusted.refused:
            self._committer.refuse(self.snapshot(), trusted.refused)
        if self._committer or due:
            snapshot = self.snapshot()  # before anything is written
        if self._committer:
            return snapshot
        self._view.close()
        self._committer.end()
        self._do_chores(snapshot.memory, due, now, before)
        return None

    def _lower(self, memory: Memory, found: Findings, now: float) -> None:
        """Make polls find files again that another writer's name hid."""
        hidden = [entry.path for entry in found.stragglers]
        if not hidden:
            return
        progress = lower_scans(memory.progress, hidden, self._quarantine.records(), now)
        if progress != memory.progress:
            self._view.save(replace(memory, progress=progress), now)
            self._view.forget()

    def _do_chores(self, memory: Memory, due: Sequence[str], now: float, before: Progress) -> None:
        """Run the due chores of an idle table and save its progress."""
        if memory.txn_version:
            for name in self._maintenance.run_due(due):
                memory = self._mark_done(memory, name, now)
            memory = self._look_for_published(memory, now)
        progress = mark_idle(memory.progress)
        memory = replace(memory, progress=progress)
        self._view.remember(memory)
        self.activity.progressed(progress)
        settled = self._poller.record_poll(memory)
        moved = (progress.state, progress.floor) != (before.state, before.floor)
        if moved or settled.chores.keys() != memory.chores.keys():
            self._view.save(settled, now)
        self._show_mended(now)

    def _show_mended(self, now: float) -> None:
        """Take rejected files of which nothing is missing any more off the page."""
        shown = self.activity.rejected_lately()
        if not shown or 0 <= now - self._mended_look < MENDED_LOOK_SECS:
            return
        self._mended_look = now
        # The whole record may be of a hundred thousand files.
        records = self._quarantine.records_here(shown)
        snapshot = self.snapshot()
        # One at a time: 20 long footers at once would take hundreds of megabytes.
        resolved = [p for p, r in records.items() if self.resolved_records(snapshot, {p: r})]
        self.activity.mended(shown - (records.keys() - resolved))

    def _look_for_published(self, memory: Memory, now: float) -> Memory:
        """Record missing published outputs: once after the start, then every hour."""
        if self._looked is not None and 0 <= now - self._looked < PUBLISHED_LOOK_SECS:
            return memory
        known, records = self._view.output_ids(memory), self._quarantine.records()
        since = memory.chores.get("published", now - PUBLISHED_BEFORE_SECS)
        try:
            with self.activity.chore("published"):
                found = self._published.look(known, records, since, now)
        except StateError as error:  # a damaged journal is Blizzard's, and stops no commit
            self._log.warning("published_unknown", error=str(error))
            return memory
        if found.missing:
            self._log.error(
                "outputs_missing",
                outputs=len(found.missing),
                path=found.missing[0].entry.path,
                error=found.missing[0].reason,
            )
        self._committer.record(found.missing, now)
        self._looked = now
        moved = (
            found.checked_until - since > PUBLISHED_LOOK_SECS or "published" not in memory.chores
        )
        return self._mark_done(memory, "published", found.checked_until) if moved else memory

    def _mark_done(self, memory: Memory, chore: str, at: float) -> Memory:
        now = self._clock()
        memory = replace(memory, chores={**memory.chores, chore: int(at)})
        self._view.save(memory, now)
        return memory

    def _mark_swept(self, memory: Memory) -> None:
        if self._swept is not None:
            self._mark_done(memory, "reconcile", self._swept)
            self._swept = None

    def _forget(self) -> None:
        self._view.forget()
        self._certificates.forget()
        self._groups.forget()
        self._committer.clear()
        self._swept = None

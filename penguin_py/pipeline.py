"""One table's commit cycle: find, read footers, plan, commit, remember.

Order is what makes it exactly-once. Quarantined files are on record before
anything passes them; the progress that covers a batch is written in the same
Delta commit as the batch; the mirror follows. Death between any two of these
steps leaves the log as the truth, and the next start reads it from there.

A poll's findings are committed in batches of ``max_files_per_commit``, one per
cycle, so that a stop request is heard between two commits. After any error the
memory is dropped and read again from the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from blizzard_core.daemon import StopEvent
from blizzard_core.errors import StateError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_core.watermark.progress import Progress, finished, is_new, lowest_of, mark_idle
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.delta.writer import Marks
from penguin_py.intake.footers import Failure, accepts
from penguin_py.intake.naming import lowered, movers
from penguin_py.intake.ownership import Foreign, Owners
from penguin_py.intake.quarantine import Quarantine, Record
from penguin_py.intake.reconcile import Findings
from penguin_py.intake.verdict import Forecast, Judge
from penguin_py.memory.state import Memory, Snapshot, commit_document, merged_ids
from penguin_py.model import CommitPlan, CommitRefused, Rejection
from penguin_py.planning.batches import Batches
from penguin_py.planning.partition_values import NOT_TEXT, is_text
from penguin_py.poll import LIST_CONCURRENCY, Poll
from penguin_py.settings import Table
from penguin_py.table_view import TableView
from penguin_py.upkeep import Upkeep


class TablePipeline:
    """Commits what arrives for one table. A `Worker` of the poll loop; not thread-safe.

    ``prepare`` is called before the first look that may be acted upon, until it succeeds, and
    before each sweep.
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
        self._delta = log
        self._clock = clock
        self._prepare = prepare
        self._is_prepared = False
        self._log = get_logger(table=table.name)
        self._accept = accepts(table.file_pattern)
        self._quarantine = Quarantine(storage, table.state_name)
        self._chores = Upkeep(table, storage, log, self._accept, LIST_CONCURRENCY, self.activity)
        owners = Owners(table.own_prefixes, table.foreign_min_age_secs)
        self._judge = Judge(table, storage, pool, owners)
        self._foreign = Foreign(owners)
        self._view = TableView(table, storage, log, self._accept, clock, self.activity)
        self._poll = Poll(table, storage, self._view, self._accept, clock, self.activity)
        # Files on record that a sweep found worth another try.
        self._retried: set[str] = set()
        # Files that are too old to be taken unless they carry an output id.
        self._overdue: set[str] = set()
        # The poll being worked off: files not tried yet, files that could not be read.
        self._queue = Batches(table.max_files_per_commit)
        self._failed: list[Failure] = []
        self._done = 0
        # When the sweep was made whose stragglers are in the queue.
        self._swept: float | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self._table.name

    @property
    def poll_interval_secs(self) -> float:
        """How long to wait after a poll that found nothing."""
        return self._table.poll_interval_secs

    def cancel(self) -> None:
        """Nothing to do: a cycle is one commit, which is short and is finished."""

    def cycle(self, stop: StopEvent) -> bool:
        """Find new files if none are waiting, and commit one batch of them.

        True if there was anything. Raises `StateError`, `CommitError` and
        `StorageError`; after any of them the next call starts from the log.
        """
        try:
            if not self._is_prepared:
                self._prepared()
            return not stop.is_set() and self._cycle()
        except BaseException:
            self._forget()
            raise

    def snapshot(self) -> Snapshot:
        """The table's state and memory as they are in storage. Writes nothing."""
        return self._view.sync()

    def outlook(self) -> tuple[Snapshot, tuple[Entry, ...], Forecast]:
        """What the next poll would look at, oldest first, and what would become of it.

        Writes nothing, and reads the footers of one commit's files.
        """
        snapshot, found = self._poll.found()
        named = [entry for entry in found if is_text(entry.path)]
        unnameable = [Rejection(e, "partition", NOT_TEXT) for e in found if not is_text(e.path)]
        trusted = self._view.trusted(named, snapshot)
        files = [*trusted.taken, *trusted.overdue]
        forecast = self._forecast(snapshot, files, {entry.path for entry in trusted.overdue})
        refused = (*unnameable, *trusted.refused, *forecast.rejections)
        return snapshot, tuple(named), replace(forecast, rejections=refused)

    def sweep_outlook(self) -> tuple[Findings, Forecast]:
        """What a sweep finds, and what would become of it; as `outlook`."""
        found = self.reconcile(dry_run=True)
        overdue = {entry.path for entry in found.overdue}
        return found, self._forecast(self.snapshot(), found.due, overdue)

    def _forecast(
        self, snapshot: Snapshot, files: Sequence[Entry], overdue: Collection[str]
    ) -> Forecast:
        known = self._view.output_ids(snapshot.memory)
        return self._judge.forecast(snapshot.state, files, known, self._clock(), overdue)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parquet files that the last look met and ``file_pattern`` does not take."""
        return self._poll.left_out

    def quarantined(self) -> dict[str, Record]:
        """What is on record as not committed, by path."""
        return self._quarantine.records()

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
            found = self._chores.sweep(snapshot.state, snapshot.memory, now)
        self.activity.swept(len(found.orphans))
        if not dry_run:
            self._lower(snapshot.memory, found, now)
            self._take(found)
            if found.committed:
                self._quarantine.release(found.committed)
            self._chores.tidy_log(now)
            # Not before its stragglers are committed: whoever dies before sweeps again.
            self._swept = now
            if not self._queue:
                self._mark_swept(snapshot.memory)
        return found

    def _prepared(self) -> None:
        if self._prepare is not None:
            self._prepare()
        self._is_prepared = True

    def _cycle(self) -> bool:
        if self._queue:
            snapshot = self.snapshot()
        else:
            snapshot, found = self._poll.found()
            snapshot = self._view.folded(snapshot)
            # What the log cannot spell cannot be in a watermark either: it stays on record.
            unnameable = [entry for entry in found if not is_text(entry.path)]
            now = self._clock()
            self._record([Rejection(e, "partition", NOT_TEXT) for e in unnameable], now)
            named = [entry for entry in found if is_text(entry.path)]
            trusted = self._view.trusted(named, snapshot)
            self._view.polled()
            self._overdue.update(entry.path for entry in trusted.overdue)
            self._queue.add([*self._foreign.due(trusted.taken, now), *trusted.overdue])
            before = snapshot.memory.progress
            snapshot = self._poll.settled(snapshot, [entry.path for entry in found])
            self._failed.clear()
            self._done = 0
            due = self._chores.due(snapshot.memory.chores, now)
            if "reconcile" in due:
                self.reconcile(dry_run=False)
            if trusted.refused:
                self._work(self.snapshot(), (), trusted.refused)
            if self._queue or due:
                snapshot = self.snapshot()  # before anything is written
            if not self._queue:
                self._view.close()
                self._retried.clear()
                self._overdue.clear()
                self._do_chores(snapshot.memory, due, now, before)
                return False
            self._log.info("files_found", files=len(self._queue))
        batch = self._queue.take()
        self._tried(snapshot, batch)
        pending = {f.entry.path for f in self._failed} | {*self._foreign.waiting()}
        pending |= {entry.path for entry in self._queue}
        self.activity.settled(entry for entry in batch if entry.path not in pending)
        if self._queue:
            return True
        if self._swept is not None:
            self._mark_swept(self.snapshot().memory)
        if self._failed and not self._done:
            raise self._failed[0].error
        return self._done > 0

    def _tried(self, snapshot: Snapshot, batch: Sequence[Entry]) -> None:
        """Work a batch off; where its commit can never land, find out by which file.

        It is put back and halved until one file is left. That is tried once more, and
        is on record if the table takes a commit without it.
        """
        failed = list(self._failed)
        try:
            self._work(snapshot, [e for e in batch if self._view.is_open(snapshot.memory, e.path)])
        except CommitRefused as refused:
            self._failed = failed
            self._log.warning("commit_refused", files=len(batch), error=str(refused))
            if not self._queue.refused(batch):
                return
            snapshot = self._probed(refused)
            self._work(snapshot, (), [Rejection(batch[0], "commit", str(refused))])
        self._queue.landed()

    def _probed(self, refused: CommitRefused) -> Snapshot:
        """The table after a commit without files. Raises `StateError` if it takes none."""
        snapshot = self.snapshot()
        if snapshot.state is None:
            return snapshot
        memory = snapshot.memory
        nothing = CommitPlan((), (), snapshot.state.schema, (), snapshot.state.partition_columns)
        try:
            memory = self._commit(nothing, memory, memory.progress, self._clock())
        except CommitRefused:
            raise StateError(
                f"{self._storage.uri}: the table takes no commits, also none without files:"
                f" {refused}"
            ) from refused
        self._view.committed(memory, (), snapshot.state.version + 1)
        return self.snapshot()

    def _work(
        self, snapshot: Snapshot, batch: Sequence[Entry], refused: Sequence[Rejection] = ()
    ) -> None:
        """Take a batch as far as it goes: committed, on record, or pending.

        ``refused`` are files that are on record whatever their footers say.
        """
        now = self._clock()
        known = self._view.output_ids(snapshot.memory)
        found = self._judge.verdict(snapshot.state, batch, known, now, self._overdue)
        for failure in found.failed:
            self._log.warning("file_pending", path=failure.entry.path, error=str(failure.error))
        for entry in found.gone:
            self._log.warning("file_gone", path=entry.path)
        if found.waiting:
            path = found.waiting[0].path
            self._log.info("foreign_files_wait", files=len(found.waiting), path=path)
        self._failed += found.failed
        self._queue.put_back(found.left)
        self._foreign.wait(found.waiting)
        memory, plan = snapshot.memory, found.plan
        rejections = [*refused, *found.rejections]
        self._record(rejections, now)
        if snapshot.state is None and not plan.adds:
            return  # without a table there is no place yet to remember what was passed
        done = [*(add.entry for add in plan.adds), *(r.entry for r in rejections)]
        if not done:
            return
        progress = replace(memory.progress, depth=len(plan.partition_columns))
        waiting = [*(e.path for e in self._queue), *(f.entry.path for f in self._failed)]
        waiting += self._foreign.waiting()
        # What a sweep found below the watermarks moves nothing and holds nothing back.
        pending = [path for path in waiting if is_new(progress, path)]
        ahead = [entry.path for entry in done if is_new(progress, entry.path)]
        lowest = lowest_of(pending, progress.depth)
        ended = self._poll.ended
        progress = finished(progress, ahead, ended, lowest.get, movers(ended))
        self._view.refuse(rejection.entry.path for rejection in rejections)
        if plan.adds:
            added = {add.entry.path for add in plan.adds}
            evolves = snapshot.state is not None and bool(plan.changed)
            files = [add.entry for add in plan.adds]
            with self.activity.committing(files, found.rows, evolves=evolves):
                memory = self._commit(plan, memory, progress, now)
            version = 0 if snapshot.state is None else snapshot.state.version + 1
            self._view.committed(memory, added, version)
        else:
            memory = replace(memory, progress=progress, updated=int(now))
        self.activity.progressed(progress)
        self._view.save(memory, now)
        # Replaced since, or refused by a plan that another writer's commit made void.
        paths = [add.entry.path for add in plan.adds]
        released = self._retried.intersection(paths) | self._quarantine.recorded(paths)
        if released:
            self._quarantine.release(released)
        self._done += len(done)

    def _commit(self, plan: CommitPlan, memory: Memory, progress: Progress, now: float) -> Memory:
        commit_id = str(uuid.uuid4())
        txn_version = memory.txn_version + 1
        ids = [add.output_id for add in plan.adds if add.output_id is not None]
        slim = self._view.stored(progress)
        document = commit_document(self._table.app_id, slim, commit_id, ids, now)
        self._delta.commit(plan, Marks(txn_version, commit_id, document), now)
        self._log.info(
            "committed",
            files=len(plan.adds),
            txn_version=txn_version,
            watermark=progress.value,
            new_columns=list(plan.changed),
        )
        recent = merged_ids(memory.output_ids, ids)
        return Memory(progress, txn_version, commit_id, recent, int(now), memory.chores)

    def _record(self, rejections: Sequence[Rejection], now: float) -> None:
        fresh = self._quarantine.keep(rejections, now)
        self.activity.quarantined(fresh)
        for rejection in fresh:
            self._log.warning(
                "file_quarantined",
                path=rejection.entry.path,
                stage=rejection.stage,
                error=rejection.reason,
            )

    def _lower(self, memory: Memory, found: Findings, now: float) -> None:
        """Have polls see again what another's name hid; the log tells what is done there."""
        hidden = [entry.path for entry in found.stragglers]
        if not hidden:
            return
        progress = lowered(memory.progress, hidden, self._quarantine.records(), now)
        if progress != memory.progress:
            self._view.save(replace(memory, progress=progress), now)
            self._view.forget()

    def _take(self, found: Findings) -> None:
        waiting = {entry.path for entry in self._queue}
        late = [entry for entry in found.due if entry.path not in waiting]
        self._queue.add(late)
        self._view.reopen(entry.path for entry in late)
        self._retried.update(entry.path for entry in found.retries)
        self._overdue.update(entry.path for entry in found.overdue)

    def _do_chores(self, memory: Memory, due: Sequence[str], now: float, before: Progress) -> None:
        """With nothing to commit: the table's care, and the progress of an idle table."""
        if memory.txn_version:
            for name in self._chores.care(due):
                memory = self._mark_done(memory, name, now)
        progress = mark_idle(memory.progress)
        memory = replace(memory, progress=progress)
        self._view.remember(memory)
        self.activity.progressed(progress)
        if (progress.state, progress.floor) != (before.state, before.floor):
            self._view.save(memory, now)

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
        self._queue.clear()
        self._retried.clear()
        self._overdue.clear()
        self._failed.clear()
        self._done = 0
        self._swept = None

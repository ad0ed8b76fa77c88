"""One table's commit cycle: recover, find, read footers, plan, commit, remember.

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
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from blizzard_py.core import checkpoint
from blizzard_py.core.daemon import StopEvent
from blizzard_py.core.errors import NotFound, StateError
from blizzard_py.core.floor import raised
from blizzard_py.core.log import get_logger
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.metrics import FILES_COMMITTED
from blizzard_py.core.model import Entry
from blizzard_py.core.scan import scan
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Progress, advance, is_new, mark_idle
from penguin_py.chores import Chores
from penguin_py.delta import DeltaLog, Marks
from penguin_py.identities import OutputIds
from penguin_py.incoming import REMEDY, Failure, Names, accepts, read_footers
from penguin_py.memory import (
    Memory,
    Snapshot,
    commit_document,
    completed,
    done_paths,
    merged_ids,
    mirror_path,
    mirror_to_json,
    stored,
)
from penguin_py.model import CommitPlan, Rejection, TableState
from penguin_py.partitions import NOT_TEXT, is_text
from penguin_py.plan import Rules, make_plan
from penguin_py.quarantine import Quarantine, Record
from penguin_py.reconcile import Findings
from penguin_py.recovery import check_partitioning, recover
from penguin_py.settings import Table

# Listings of one poll that run at the same time.
LIST_CONCURRENCY = 8


class TablePipeline:
    """Commits what arrives for one table. A `Worker` of the poll loop; not thread-safe."""

    def __init__(
        self,
        table: Table,
        storage: Storage,
        log: DeltaLog,
        pool: Executor,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._storage = storage
        self._delta = log
        self._pool = pool
        self._clock = clock
        self._log = get_logger(table=table.name)
        self._accept = accepts(table.file_pattern)
        self._quarantine = Quarantine(storage, table.state_name)
        self._chores = Chores(table, storage, log, self._accept, LIST_CONCURRENCY)
        self._rules = Rules(table.partition_types, table.schema_evolution)
        self._memory: Memory | None = None
        # Paths the log knows as of `_seen` that no watermark covers or a sweep found below one.
        self._known: set[str] = set()
        self._late: set[str] = set()
        self._retried: set[str] = set()
        # Quarantined files that the progress has as done; see `memory.stored`.
        self._refused: set[str] = set()
        self._seen: int | None = None
        # Those that are not in the memory any more. Made anew whenever that is.
        self._output_ids: OutputIds | None = None
        # The version that our latest commit has, if nobody else's came before it.
        self._own = -1
        # Survives `_forget`: a log that goes back would have files committed again.
        self._highest_txn = 0
        # The poll being worked off: files not tried yet, files that could not be read.
        self._queue: deque[Entry] = deque()
        self._failed: list[Failure] = []
        self._done = 0
        self._left_out: tuple[str, ...] = ()

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
            return not stop.is_set() and self._cycle()
        except BaseException:
            self._forget()
            raise

    def snapshot(self) -> Snapshot:
        """The table's state and memory as they are in storage. Writes nothing."""
        return self._sync()

    def candidates(self) -> tuple[Snapshot, tuple[Entry, ...]]:
        """What the next poll would look at, oldest first. Writes nothing."""
        snapshot, found = self._found()
        return snapshot, tuple(entry for entry in found if is_text(entry.path))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parquet files that the last look met and ``file_pattern`` does not take."""
        return self._left_out

    def quarantined(self) -> dict[str, Record]:
        """What is on record as not committed, by path."""
        return self._quarantine.records()

    def reconcile(self, *, dry_run: bool) -> Findings:
        """Compare the whole directory with the log; without ``dry_run`` queue what is to do.

        The following cycles commit it. Raises `StateError` and `StorageError`.
        """
        snapshot = self.snapshot()
        if snapshot.state is None:
            return Findings((), (), ())
        now = self._clock()
        found = self._chores.sweep(snapshot.state, snapshot.memory.progress, now)
        if not dry_run:
            self._take(found)
            self._chores.tidy_log(now)
            self._mark_done(snapshot.memory, "reconcile", now)
        return found

    def _found(self) -> tuple[Snapshot, list[Entry]]:
        """The table and its new files. An unchanged table costs one request."""
        memory, state = self._memory, self._delta.unchanged()
        if memory is None or state is None or state.version not in (self._seen, self._own):
            snapshot = self.snapshot()
        else:
            snapshot = Snapshot(state, memory)
        names = Names(self._accept)
        try:
            found = scan(self._storage, snapshot.memory.progress, names, LIST_CONCURRENCY)
        except NotFound:
            if not self._table.is_local:
                raise
            return snapshot, []
        left_out = tuple(path for path in names.left_out if path not in self._known)
        if snapshot.state is None and left_out and not self._left_out:
            self._log.warning(
                "files_left_out", files=len(left_out), path=left_out[0], remedy=REMEDY
            )
        self._left_out = left_out
        return snapshot, [e for e in found.entries if e.path not in self._known]

    def _cycle(self) -> bool:
        if self._queue:
            snapshot = self.snapshot()
        else:
            snapshot, found = self._found()
            snapshot = self._folded(snapshot)
            # What the log cannot spell cannot be in a watermark either: it stays on record.
            unnameable = [entry for entry in found if not is_text(entry.path)]
            now = self._clock()
            self._record([Rejection(e, "partition", NOT_TEXT) for e in unnameable], now)
            self._queue.extend(entry for entry in found if is_text(entry.path))
            self._failed.clear()
            self._done = 0
            due = self._chores.due(snapshot.memory.chores, now)
            if "reconcile" in due:
                self.reconcile(dry_run=False)
            if self._queue or due:
                snapshot = self.snapshot()  # before anything is written
            if not self._queue:
                self._late.clear()
                self._retried.clear()
                self._do_chores(snapshot.memory, due, now)
                return False
            self._log.info("files_found", files=len(self._queue))
        count = min(len(self._queue), self._table.max_files_per_commit)
        batch = [self._queue.popleft() for _ in range(count)]
        self._work(snapshot, [e for e in batch if self._is_open(snapshot.memory, e.path)])
        if self._queue:
            return True
        if self._failed and not self._done:
            raise self._failed[0].error
        return self._done > 0

    def _is_open(self, memory: Memory, path: str) -> bool:
        """Whether a file that was found a while ago is still to be done.

        Another Penguin may have committed it since; then its progress covers it.
        """
        late = path in self._late
        return path not in self._known and (late or is_new(memory.progress, path))

    def _work(self, snapshot: Snapshot, batch: Sequence[Entry]) -> None:
        """Take a batch as far as it goes: committed, on record, or pending."""
        footers = read_footers(self._storage, batch, None if self._table.is_local else self._pool)
        for failure in footers.failed:
            self._log.warning("file_pending", path=failure.entry.path, error=str(failure.error))
        for entry in footers.gone:
            self._log.warning("file_gone", path=entry.path)
        self._failed += footers.failed
        memory = snapshot.memory
        segments = self._output_ids
        known = memory.output_ids if segments is None else segments.beside(memory.output_ids)
        plan = make_plan(snapshot.state, footers.sound, known, self._rules)
        now = self._clock()
        rejections = [*footers.rejected, *plan.rejections]
        self._record(rejections, now)
        if snapshot.state is None and not plan.adds:
            return  # without a table there is no place yet to remember what was passed
        done = [*(add.entry for add in plan.adds), *(r.entry for r in rejections)]
        if not done:
            return
        progress = replace(memory.progress, depth=len(plan.partition_columns))
        waiting = [*(e.path for e in self._queue), *(f.entry.path for f in self._failed)]
        # What a sweep found below the watermarks moves nothing and holds nothing back.
        pending = [path for path in waiting if is_new(progress, path)]
        ahead = [entry for entry in done if is_new(progress, entry.path)]
        progress = advance(progress, ahead, pending, now, self._table.grace_period_secs)
        progress = self._floored(progress, pending, now)
        self._refused.update(rejection.entry.path for rejection in rejections)
        if plan.adds:
            self._memory = self._commit(plan, memory, progress, now)
            self._own = 0 if snapshot.state is None else snapshot.state.version + 1
        else:
            self._memory = replace(memory, progress=progress, updated=int(now))
        self._save(self._memory, now)
        released = self._retried.intersection(add.entry.path for add in plan.adds)
        if released:
            self._quarantine.release(released)
        self._done += len(done)

    def _commit(self, plan: CommitPlan, memory: Memory, progress: Progress, now: float) -> Memory:
        commit_id = str(uuid.uuid4())
        txn_version = memory.txn_version + 1
        ids = [add.output_id for add in plan.adds if add.output_id is not None]
        slim = stored(progress, self._refused)
        document = commit_document(self._table.app_id, slim, commit_id, ids, now)
        self._delta.commit(plan, Marks(txn_version, commit_id, document), now)
        self._known.update(add.entry.path for add in plan.adds)
        FILES_COMMITTED.labels(self.name).inc(len(plan.adds))
        self._log.info(
            "committed",
            files=len(plan.adds),
            txn_version=txn_version,
            watermark=progress.value,
            new_columns=list(plan.changed),
        )
        recent = merged_ids(memory.output_ids, ids)
        return Memory(progress, txn_version, commit_id, recent, int(now), memory.chores)

    def _folded(self, snapshot: Snapshot) -> Snapshot:
        """The same with its output ids in a segment, if they are many or old by now."""
        state, memory, segments = snapshot.state, snapshot.memory, self._output_ids
        if state is None or segments is None or not memory.txn_version:
            return snapshot
        if not segments.are_due(memory.output_ids, state.version):
            return snapshot
        segments.fold(memory.output_ids, state.version)
        self._memory = replace(memory, output_ids=())
        return Snapshot(state, self._memory)

    def _record(self, rejections: Sequence[Rejection], now: float) -> None:
        for rejection in self._quarantine.keep(rejections, now):
            self._log.warning(
                "file_quarantined",
                path=rejection.entry.path,
                stage=rejection.stage,
                error=rejection.reason,
            )

    def _sync(self) -> Snapshot:
        """The table as it is now, with memory and known paths of that version."""
        state = self._delta.refresh()
        memory = self._memory
        txn_version = 0 if state is None else state.txn_version
        if txn_version < self._highest_txn:
            raise StateError(
                f"{self._storage.uri}: the table's log has lost commit {self._highest_txn} of"
                f" {self._table.app_id}; restore the log, or restart to go on from what it has"
            )
        self._highest_txn = txn_version
        if state is not None:
            check_partitioning(self._table, state)
        if state is None or memory is None or memory.txn_version != state.txn_version:
            memory = self._recover(state)
        elif state.version not in (self._seen, self._own):
            memory = self._updated(memory, -1 if self._seen is None else self._seen, state)
        self._seen = None if state is None else state.version
        self._known = {
            path for path in self._known if path in self._late or is_new(memory.progress, path)
        }
        self._memory = memory
        return Snapshot(state, memory)

    def _updated(self, memory: Memory, seen: int, state: TableState) -> Memory:
        try:
            paths, ids = self._delta.news(seen, state.version)
        except StateError:
            # Cleaned up past what was seen; what is left of the log is read as a whole.
            return self._recover(state)
        self._known.update(paths)
        return replace(memory, output_ids=merged_ids(memory.output_ids, ids))

    def _recover(self, state: TableState | None) -> Memory:
        segments = OutputIds(self._storage)
        self._output_ids = segments
        memory = recover(
            self._table,
            self._storage,
            self._delta,
            state,
            self._accept,
            segments.folded,
            self._clock(),
        )
        # The paths of a large table fit into memory once, but need not stay there.
        paths = () if state is None else self._delta.known_paths(state.version)
        fresh = [e for e in paths if is_new(memory.progress, e.path)]
        self._refused = done_paths(memory.progress)
        mine = [entry for entry in fresh if self._accept(entry.path)]
        progress = completed(memory.progress, mine, self._clock(), self._table.grace_period_secs)
        self._known = {entry.path for entry in fresh if is_new(progress, entry.path)}
        return replace(memory, progress=progress)

    def _take(self, found: Findings) -> None:
        waiting = {entry.path for entry in self._queue}
        late = [e for e in (*found.stragglers, *found.retries) if e.path not in waiting]
        self._queue.extend(late)
        self._late.update(entry.path for entry in late)
        self._retried.update(entry.path for entry in found.retries)

    def _do_chores(self, memory: Memory, due: Sequence[str], now: float) -> None:
        """With nothing to commit: the table's care, and the progress of an idle table."""
        if memory.txn_version:
            for name in self._chores.care(due):
                memory = self._mark_done(memory, name, now)
        progress = advance(memory.progress, (), (), now, self._table.grace_period_secs)
        progress = mark_idle(self._floored(progress, (), now))
        before = memory.progress
        self._memory = replace(memory, progress=progress)
        if (progress.state, progress.floor) != (before.state, before.floor):
            self._save(self._memory, now)

    def _mark_done(self, memory: Memory, chore: str, now: float) -> Memory:
        self._memory = replace(memory, chores={**memory.chores, chore: int(now)})
        self._save(self._memory, now)
        return self._memory

    def _floored(self, progress: Progress, pending: Sequence[str], now: float) -> Progress:
        """The progress with old partitions closed, so that a poll's cost stays bounded."""
        oldest = lookback_floor(self._table.partition_filter, now)
        return raised(progress, self._table.max_tracked_partitions, oldest, pending)

    def _save(self, memory: Memory, now: float) -> None:
        slim = stored(memory.progress, self._refused)
        self._refused = done_paths(slim)
        if not memory.txn_version:
            return  # without a commit of ours there is nothing that a mirror could mirror
        document = mirror_to_json(replace(memory, progress=slim), now)
        checkpoint.save(self._storage, mirror_path(self._table.state_name), document)

    def _forget(self) -> None:
        self._memory = None
        self._known = set()
        self._seen = None
        self._own = -1
        self._queue.clear()
        self._late.clear()
        self._retried.clear()
        self._failed.clear()
        self._done = 0

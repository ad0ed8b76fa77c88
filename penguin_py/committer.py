"""Commits of a poll's files: each becomes committed, rejected or pending.

Rejected files are recorded before the watermark passes them. The progress that covers a batch is
written in the same Delta commit as the batch, and the mirror follows. A batch whose commit can
never land is halved until the file that causes it is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import Progress, is_new, lowest_of, mark_done
from penguin_py.certificates import Certificates
from penguin_py.intake.footers import Failure
from penguin_py.intake.naming import movers
from penguin_py.intake.ownership import REMEDY, ForeignFiles
from penguin_py.intake.quarantine import Quarantine
from penguin_py.intake.reconcile import Findings
from penguin_py.model import CommitConflict, CommitPlan, CommitRefused, Rejection
from penguin_py.planning.batch_planner import BatchPlan, BatchPlanner, Forecast
from penguin_py.planning.memory import Memory, Snapshot
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.poll import TablePoller
from penguin_py.table.view import TableView


class Batches:
    """Files that wait to be tried, oldest first, at most ``most`` in a batch.

    A batch whose commit can never land is put back and halved until it is one file. That file is
    tried once more, and is to blame if it is refused again. Each success doubles the next batch, so
    one bad file among a thousand costs some twenty tries.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = most
        self._suspect: Entry | None = None
        self._queue: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._queue)

    def add(self, entries: Iterable[Entry]) -> None:
        """Append files to the queue."""
        self._queue.extend(entries)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Put files back to the front, in their order."""
        self._queue.extendleft(reversed(entries))

    def take(self) -> list[Entry]:
        """Take the next batch."""
        return [self._queue.popleft() for _ in range(min(len(self._queue), self._size))]

    def landed(self) -> None:
        """Record that the latest batch was committed or rejected."""
        self._size = min(2 * self._size, self._most)

    def refused(self, batch: Sequence[Entry]) -> bool:
        """Return whether the refused batch is one file that is to blame.

        If not, it is put back.
        """
        if len(batch) == 1 and self._suspect == batch[0]:
            return True
        self.put_back(batch)
        self._size = max(1, len(batch) // 2)
        self._suspect = batch[0] if len(batch) == 1 else None
        return False

    def clear(self) -> None:
        """Forget the queue and the suspect."""
        self._queue.clear()
        self._size = self._most
        self._suspect = None


class Committer(TablePart):
    """The waiting files of one table's poll, and their commits. Not thread-safe.

    Its length is how many wait to be tried.
    """

    def __init__(
        self,
        context: TableContext,
        view: TableView,
        poller: TablePoller,
        quarantine: Quarantine,
        planner: BatchPlanner,
        certificates: Certificates,
    ) -> None:
        super().__init__(context)
        self._view = view
        self._poller = poller
        self._quarantine = quarantine
        self._certificates = certificates
        self._planner = planner
        self._foreign = ForeignFiles(planner.owners)
        # Files on record that a sweep found worth another try.
        self._retried: set[str] = set()
        # Files that are too old to be taken unless they carry an output id.
        self._overdue: set[str] = set()
        self._queue = Batches(self._table.advanced.max_files_per_commit)
        self._failed: list[Failure] = []
        self._done = 0

    def __len__(self) -> int:
        return len(self._queue)

    def begin(self, accepted: Iterable[Entry], overdue: Sequence[Entry], now: float) -> None:
        """Add a new poll's files, oldest first; ``overdue`` ones count only with an output id."""
        self._overdue.update(entry.path for entry in overdue)
        self._queue.add([*self._foreign.due(accepted, now), *overdue])
        self._failed.clear()
        self._done = 0

    def add(self, found: Findings) -> None:
        """Add what a sweep has found, at the end."""
        waiting = {entry.path for entry in self._queue}
        late = [entry for entry in found.due if entry.path not in waiting]
        self._queue.add(late)
        self._view.reopen(entry.path for entry in late)
        self._retried.update(entry.path for entry in found.retries)
        self._overdue.update(entry.path for entry in found.overdue)

    def end(self) -> None:
        """Forget the poll's retries and overdue files."""
        self._retried.clear()
        self._overdue.clear()

    def clear(self) -> None:
        """Forget everything, as after an error."""
        self.end()
        self._queue.clear()
        self._failed.clear()
        self._done = 0

    def outcome(self) -> bool:
        """Return whether the poll made progress; raise its first file's error if not."""
        if self._failed and not self._done:
            raise self._failed[0].error
        return self._done > 0

    def forecast(
        self, snapshot: Snapshot, files: Sequence[Entry], overdue: Collection[str]
    ) -> Forecast:
        """Forecast the outcome of these files. Writes nothing."""
        known = self._view.barred_ids(snapshot)
        return self._planner.forecast(snapshot.state, files, known, self._clock(), overdue)

    def record(self, rejections: Sequence[Rejection], now: float) -> None:
        """Record rejected files; log those that are new in the record."""
        fresh = self._quarantine.keep(rejections, now)
        self._activity.quarantined(fresh)
        for rejection in fresh:
            self._log.warning(
                "file_quarantined",
                path=rejection.entry.path,
                stage=rejection.stage,
                error=rejection.reason,
            )

    def refuse(self, snapshot: Snapshot, refused: Sequence[Rejection]) -> None:
        """Mark files as done and rejected, whatever their footers say."""
        self._work(snapshot, (), refused)

    def work_off(self, snapshot: Snapshot) -> None:
        """Commit the next batch; if its commit can never land, search for the file to blame.

        The batch is put back and halved until one file is left. That file is tried once more, and
        is rejected if the table accepts a commit without it.
        """
        batch = self._queue.take()
        self._tried(snapshot, batch)
        pending = {failure.entry.path for failure in self._failed} | {*self._foreign.waiting()}
        pending |= {entry.path for entry in self._queue}
        self._activity.files_done(entry for entry in batch if entry.path not in pending)

    def _tried(self, snapshot: Snapshot, batch: Sequence[Entry]) -> None:
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
        """Commit without files and return the table. Raises `StateError` if it takes no commits."""
        snapshot = self._view.sync()
        if snapshot.state is None:
            return snapshot
        memory = snapshot.memory
        nothing = CommitPlan((), (), snapshot.state.schema, (), snapshot.state.partition_columns)
        try:
            memory = self._commit(nothing, memory, memory.progress, self._clock())
        except CommitRefused:
            raise StateError(
                f"{self._table.uri}: the table takes no commits, also none without files: {refused}"
            ) from refused
        self._view.committed(memory, (), snapshot.state.version + 1)
        return self._view.sync()

    def _work(
        self, snapshot: Snapshot, batch: Sequence[Entry], refused: Sequence[Rejection] = ()
    ) -> None:
        """Process a batch; ``refused`` files are rejected whatever their footers say."""
        now = self._clock()
        known = self._view.barred_ids(snapshot)
        found = self._planner.decide(snapshot.state, batch, known, now, self._overdue)
        self._log_skipped(found)
        self._failed += found.failed
        self._queue.put_back(found.unread)
        self._foreign.wait(found.waiting)
        memory, plan = snapshot.memory, found.plan
        self._check_again(snapshot, found.rejections)
        rejections = [*refused, *found.rejections]
        self.record(rejections, now)
        if snapshot.state is None and not plan.adds:
            return  # without a table there is no place to store the progress
        files = [add.entry for add in plan.adds]
        done = [*files, *(rejection.entry for rejection in rejections)]
        if not done:
            return
        progress = self._moved(memory.progress, done, len(plan.partition_columns))
        self._view.refuse(rejection.entry.path for rejection in rejections)
        if files:
            evolves = snapshot.state is not None and bool(plan.changed)
            landed_at = partial(self._delta.landed_at, memory.txn_version + 1)
            with self._activity.committing(
                files, found.rows, plan, evolves=evolves, landed_at=landed_at
            ):
                memory = self._commit(plan, memory, progress, now)
            version = 0 if snapshot.state is None else snapshot.state.version + 1
            ids = [add.output_id for add in plan.adds if add.output_id is not None]
            self._view.committed(memory, {entry.path for entry in files}, version, ids)
            for add in plan.adds:
                if add.output_id in known.admitted:
                    self._log.warning(
                        "output_readded", path=add.entry.path, output_id=add.output_id
                    )
        else:
            memory = replace(memory, progress=progress, updated=int(now))
        self._activity.progressed(progress)
        if not self._queue and not self._failed:
            memory = self._poller.record_poll(memory)
        self._view.save(memory, now)
        # Replaced since, or refused by a plan that another writer's commit made void.
        paths = [entry.path for entry in files]
        released = self._retried.intersection(paths) | self._quarantine.recorded(paths)
        if released:
            self._quarantine.release(released)
        self._done += len(done)

    def _check_again(self, snapshot: Snapshot, rejections: Sequence[Rejection]) -> None:
        """Raise `CommitConflict` if files seem committed already and the table has a newer version.

        Then another Penguin has just committed these files. They must not be recorded as rejected,
        since their rows are in the table.
        """
        again = [each.entry.path for each in rejections if each.stage == "output_id"]
        version = -1 if snapshot.state is None else snapshot.state.version
        if again and self._delta.has_commit(version + 1):
            raise CommitConflict(
                f"{self._table.uri}: another commit came first, perhaps of {again[0]}; look again"
            )

    def _log_skipped(self, found: BatchPlan) -> None:
        for failure in found.failed:
            self._log.warning("file_pending", path=failure.entry.path, error=str(failure.error))
        for entry in found.missing:
            self._log.warning("file_gone", path=entry.path)
        if found.waiting:
            path = found.waiting[0].path
            age = self._table.advanced.foreign_min_age
            self._log.warning(
                "foreign_files_wait",
                files=len(found.waiting),
                path=path,
                reason=(
                    "they carry no output id of Blizzard's, and another engine may commit them yet;"
                    f" the first run after they are {age:g} s old adds them to the table"
                ),
                remedy=REMEDY,
            )

    def _moved(self, progress: Progress, done: Sequence[Entry], depth: int) -> Progress:
        """Return the progress once these files are done, held back by all waiting ones.

        Files that a sweep found below the watermarks neither move nor hold it.
        """
        progress = replace(progress, depth=depth)
        waiting = [*(e.path for e in self._queue), *(f.entry.path for f in self._failed)]
        waiting += self._foreign.waiting()
        pending = [path for path in waiting if is_new(progress, path)]
        ahead = [entry.path for entry in done if is_new(progress, entry.path)]
        lowest = lowest_of(pending, progress.depth)
        ended = self._poller.ended
        return mark_done(progress, ahead, ended, lowest.get, movers(ended))

    def _commit(self, plan: CommitPlan, memory: Memory, progress: Progress, now: float) -> Memory:
        ids = [add.output_id for add in plan.adds if add.output_id is not None]
        after = replace(memory, progress=progress)
        after = self._view.commit(plan, after, ids, now, self._certificates.revoke)
        self._log.info(
            "committed",
            files=len(plan.adds),
            txn_version=after.txn_version,
            watermark=progress.value,
            new_columns=list(plan.changed),
        )
        return after

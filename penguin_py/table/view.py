"""One process's view of a table, kept in step with the table's log.

It consists of the memory (`penguin_py.planning.memory`), the logged paths that no watermark covers,
and their versions. All of it can be read from storage again, so it is dropped whenever it might be
wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappush, heappushpop

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError, Unavailable
from blizzard_core.handover.outputs import newest_by_app
from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import is_new
from penguin_py.delta.log import COMMON_APP_ID
from penguin_py.delta.output_ids import OutputIds
from penguin_py.delta.restores import BarredIds, RestoreRemovals
from penguin_py.delta.writer import COMMON_VERSION, Marks
from penguin_py.intake.naming import is_grouped
from penguin_py.intake.reconcile import beyond_horizon, came_since, copied_at, safe_horizon
from penguin_py.model import CommitPlan, LoggedPath, Rejection, TableState
from penguin_py.planning.memory import (
    Memory,
    Seen,
    Snapshot,
    add_commits,
    add_logged_names,
    commit_document,
    done_paths,
    drop_logged_names,
    is_passed,
    merged_ids,
    mirror_path,
    mirror_to_json,
)
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.recovery import Recovery

# Files that are looked at to find out whether the directory was copied.
SAMPLED = 16


@dataclass(frozen=True, slots=True)
class Trusted:
    """Files of a poll: to be taken, too old unless they carry an output id, and too old."""

    accepted: tuple[Entry, ...]
    overdue: tuple[Entry, ...] = ()
    refused: tuple[Rejection, ...] = ()


class TableView(TablePart):
    """The view of one table. Not thread-safe."""

    def __init__(self, context: TableContext) -> None:
        super().__init__(context)
        self._recovery = Recovery(context)
        self._memory: Memory | None = None
        # Paths the log knows as of `_seen` that no watermark covers or a sweep found below one.
        self._known: set[str] = set()
        self._late: set[str] = set()
        # Quarantined files that the progress has as done; see `memory.drop_logged_names`.
        self._refused: set[str] = set()
        self._seen: int | None = None
        self._seen_anchor = ""
        # How often the log had been replaced by then.
        self._replaced = 0
        # The ids that left the memory. Recreated together with it.
        self._output_ids: OutputIds | None = None
        # The version of our latest commit, unless another writer's came before it.
        self._own = -1
        # The newest `txn` of every application, as of `_seen` and our own commit since.
        self._transactions: dict[str, int] = {}
        self._table_id = ""
        # True until the first poll of a new memory; True if the memory comes from the log's paths.
        self._started = False
        self._rebuilt = False
        # The youngest files of the log, as of then, those that brought data before all others.
        self._sample: list[tuple[bool, float, str]] = []
        # Survives `forget`: a log that goes back would have files committed again.
        self._highest_txn = 0

    def current(self) -> Snapshot:
        """Return the current table. An unchanged one costs one request."""
        memory, state = self._memory, self._delta.unchanged()
        if memory is None or state is None or state.version not in (self._seen, self._own):
            return self.sync()
        return Snapshot(state, memory)

    def sync(self) -> Snapshot:
        """Read the table as it is now, with memory and known paths of that version.

        Writes nothing. Raises `StateError` and `StorageError`.
        """
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
            self._recovery.check_partitioning(state)
        if state is not None and state.table_id != self._table_id:
            memory = None  # another table, or the first look
        if self._delta.replaced != self._replaced:
            memory = None  # the log that was read may be gone
        self._replaced = self._delta.replaced
        if state is None or memory is None or memory.txn_version != state.txn_version:
            memory = self._found(state)
        elif state.version not in (self._seen, self._own):
            memory = self._updated(memory, -1 if self._seen is None else self._seen, state)
        self._seen = None if state is None else state.version
        self._seen_anchor = "" if state is None else state.anchor
        self._known = {
            path for path in self._known if path in self._late or is_new(memory.progress, path)
        }
        self._memory = memory
        self._activity.knows(state, memory)
        return Snapshot(state, memory)

    def folded(self, snapshot: Snapshot) -> Snapshot:
        """Fold the output ids into a segment if they are many or old."""
        if not self._is_due(snapshot):
            return snapshot
        snapshot = self.sync()  # before anything is written
        state, memory, segments = snapshot.state, snapshot.memory, self._output_ids
        if state is None or segments is None or not self._is_due(snapshot):
            return snapshot
        segments.fold(memory.output_ids, state.version, state.anchor)
        self._memory = replace(memory, output_ids=())
        return Snapshot(state, self._memory)

    def _is_due(self, snapshot: Snapshot) -> bool:
        """Return whether the output ids that are in no segment are to be folded into one."""
        state, memory, segments = snapshot.state, snapshot.memory, self._output_ids
        if state is None or segments is None or not memory.txn_version:
            return False
        return segments.are_due(memory.output_ids, state.version)

    def output_ids(self, memory: Memory) -> Container[str]:
        """Return the output ids of all commits; the memory has the latest."""
        segments = self._output_ids
        return memory.output_ids if segments is None else segments.with_recent(memory.output_ids)

    def barred_ids(self, snapshot: Snapshot) -> BarredIds:
        """Return the output ids that must not be committed again."""
        known = self.output_ids(snapshot.memory)
        version = -1 if snapshot.state is None else snapshot.state.version
        return BarredIds(known, RestoreRemovals(self._delta, version))

    @property
    def log_id(self) -> str:
        """The log that was read: another one has another text."""
        return f"{self._table_id}/{self._replaced}"

    def has_commit(self, version: int, anchor: str) -> bool:
        """Return whether the log has this commit, or has cleaned it up. One GET."""
        found = self._delta.anchor(version)
        return found == anchor if found else self._seen is not None and version < self._seen

    def knows(self, path: str) -> bool:
        """Return whether the log has a path that the watermarks leave open."""
        return path in self._known

    def is_open(self, memory: Memory, path: str) -> bool:
        """Return whether a file that was found a while ago is still to be done.

        Another Penguin may have committed it since; then its progress covers it.
        """
        late = path in self._late
        return path not in self._known and (late or is_new(memory.progress, path))

    def trusted(self, found: Sequence[Entry], snapshot: Snapshot) -> Trusted:
        """Sort a poll's files into accepted ones and ones that are too old.

        In the first poll of a start the sweep's horizon applies, for the same reason. It applies to
        names below the watermarks, since done names there were left to the log, which may have
        forgotten removed ones. It applies to all names if the memory was rebuilt from the log
        alone.
        """
        state, rebuilt = snapshot.state, self._rebuilt
        if not self._started or state is None:
            return Trusted(tuple(found))
        progress = snapshot.memory.progress
        doubtful = [e for e in found if rebuilt or is_passed(progress, e.path)]
        if not doubtful:
            return Trusted(tuple(found))
        horizon = safe_horizon(self._table.advanced.reconcile_horizon, state.removal_retention_secs)
        pairs = [
            (stored, LoggedPath(path, 0, modified, "data" if is_data else "rewrite"))
            for is_data, modified, path in self._sample
            if (stored := self._storage.stat(path)) is not None
        ]
        now = self._clock()
        copied = copied_at(pairs, now)
        since = came_since(snapshot.memory.chores, copied)
        if state.created and not state.txn_version and COMMON_APP_ID not in self._transactions:
            # No Penguin has committed to this table, so no output id is known and forgotten.
            since = state.created
        oldest = max(now - horizon, copied)
        old = {entry.path: entry for entry in doubtful if entry.modified < oldest}
        return Trusted(
            tuple(entry for entry in found if entry.path not in old),
            tuple(entry for entry in old.values() if entry.modified >= since),
            tuple(beyond_horizon(entry) for entry in old.values() if entry.modified < since),
        )

    def polled(self) -> None:
        """Record that the first poll is over; from now on the progress has what is done."""
        self._started = self._rebuilt = False

    def reopen(self, paths: Iterable[str]) -> None:
        """Reopen paths that a sweep found below the watermarks."""
        self._late.update(paths)

    def close(self) -> None:
        """Record that all files of the sweep are done."""
        self._late.clear()

    def refuse(self, paths: Iterable[str]) -> None:
        """Record rejected paths: done, and not in the log."""
        self._refused.update(paths)

    def commit(
        self,
        plan: CommitPlan,
        memory: Memory,
        output_ids: Sequence[str],
        now: float,
        revoke: Callable[[], None],
    ) -> Memory:
        """Commit a plan, and return the memory once it is in.

        ``memory`` is that of before with what the plan changes in it. ``revoke`` is called right
        before the commit. Raises `CommitError`.
        """
        after = replace(
            memory,
            txn_version=memory.txn_version + 1,
            commit_id=str(uuid.uuid4()),
            output_ids=merged_ids(memory.output_ids, output_ids),
            updated=int(now),
        )
        # Without names that the log has.
        slim = replace(after, progress=drop_logged_names(memory.progress, self._refused))
        document = commit_document(self._table.app_id, slim, now, output_ids)
        revoke()
        self._delta.commit(plan, Marks(after.txn_version, after.commit_id, document), now)
        return after

    def committed(
        self, memory: Memory, paths: Iterable[str], version: int, output_ids: Iterable[str] = ()
    ) -> None:
        """Record our landed commit, as ``version`` unless another writer's came before it."""
        self._memory = memory
        self._known.update(paths)
        self._own = version
        self._transactions[self._table.app_id] = memory.txn_version
        self._transactions[COMMON_APP_ID] = COMMON_VERSION
        for app, newest in newest_by_app(output_ids).items():
            self._transactions[app] = max(newest, self._transactions.get(app, 0))

    def remembered(self) -> Memory | None:
        """Return the memory of the last look; None if everything must be read again."""
        return self._memory

    def remember(self, memory: Memory) -> None:
        """Continue from this memory, which need not be in storage yet."""
        self._memory = memory

    def save(self, memory: Memory, now: float) -> None:
        """Continue from this memory and save it in the mirror. Raises `StorageError`."""
        self._memory = memory
        slim = drop_logged_names(memory.progress, self._refused)
        self._refused = done_paths(slim)
        if not memory.txn_version:
            return  # without a commit of ours there is nothing to mirror
        seen = Seen(
            self._table_id,
            -1 if self._seen is None else self._seen,
            self._own,
            self._transactions,
            self._seen_anchor,
        )
        document = mirror_to_json(replace(memory, progress=slim, seen=seen), now)
        checkpoint.save(self._storage, mirror_path(self._table.state_name), document)

    def forget(self) -> None:
        """Make the next look read everything again."""
        self._memory = None
        self._known = set()
        self._late.clear()
        self._seen = None
        self._own = -1

    def _updated(self, memory: Memory, seen: int, state: TableState) -> Memory:
        try:
            news = self._delta.news(seen, state.version)
        except StateError:
            # The log was cleaned up beyond the last read version, so all of it is read again.
            return self._found(state)
        # Listings never find files of groups, so these need no check.
        self._known.update(path for path in news.paths if not is_grouped(path))
        self._transactions.update(news.transactions)
        return add_commits(memory, news.output_ids, news.document)

    def _found(self, state: TableState | None) -> Memory:
        """Recover the memory for ``state``; a contradiction counts only if the log stands still."""
        try:
            return self._recover(state)
        except StateError as error:
            if self._delta.refresh() is state:
                raise
            raise Unavailable(
                f"{self._storage.uri}: another Penguin committed while the state was read"
            ) from error

    def _recover(self, state: TableState | None) -> Memory:
        first = self._memory is None
        segments = OutputIds(self._storage, "" if state is None else state.table_id)
        self._output_ids = segments
        if state is not None:
            segments.check(state.version, self._delta.anchor)
            for path in segments.left_out:
                error = f"{path}: goes up to a commit that the log has lost"
                self._log.warning("output_ids_ignored", error=error)
        elif first:
            segments.check(None, self._delta.anchor)
            self._recovery.check_no_state()
        memory = self._recovery.recover(state, segments.folded)
        self._started = state is not None
        self._rebuilt = state is not None and not memory.commit_id
        self._sample = []
        self._own = memory.seen.own_version
        self._table_id = "" if state is None else state.table_id
        self._transactions = {}
        # The paths of a large table fit into memory once, but need not stay there.
        paths = () if state is None else self._delta.known_paths(state.version, self._transactions)
        fresh = []
        for entry in paths:
            if entry.origin != "removal":
                keep = heappush if len(self._sample) < SAMPLED else heappushpop
                keep(self._sample, (entry.origin == "data", entry.modified, entry.path))
            if is_grouped(entry.path):
                continue
            if entry.path in self._late or is_new(memory.progress, entry.path):
                fresh.append(entry)
        if state is not None:
            memory = self._recovery.gather_output_ids(memory, state, segments, self._transactions)
        self._refused = done_paths(memory.progress)
        mine = [e for e in fresh if e.path not in self._late and self._accept(e.path)]
        progress = add_logged_names(memory.progress, mine, self._clock())
        self._known = {e.path for e in fresh if e.path in self._late or is_new(progress, e.path)}
        return replace(memory, progress=progress)

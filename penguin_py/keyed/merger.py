"""Merges of changes into a keyed table, each one commit.

Promise: after a merge the keyed table has of each key the row with the highest sequence, of equal
ones the latest arrival, among all changes up to its position; a key whose highest change is a
delete is absent. The position is in the entry of the files. So a death at any step, a lost answer
or another Penguin leave nothing uncertain, and merging changes again changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.delta.writer import Marks
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.keyed.changes import ChangeBatch, ChangeFeed, ChangePosition, FeedGap, pieces_of
from penguin_py.keyed.columns import change_columns, merged_columns, stored_columns, widened
from penguin_py.keyed.file_set import FileSet
from penguin_py.keyed.files import TableFile, active_files
from penguin_py.keyed.lookup import newer_deletes
from penguin_py.keyed.matching import Matching, Outcomes
from penguin_py.keyed.merge_state import (
    BEING_REBUILT,
    MergeState,
    MergeStateReader,
    check_origin,
    is_keyed,
    made_of,
)
from penguin_py.keyed.order import Order
from penguin_py.model import CommitConflict, CommitPlan, TableState
from penguin_py.settings import KeyedTable

# How often a merge is planned again at once when another commit came first.
TRIES = 12
# Versions without new rows, as of compactions, are passed by a commit once there are so many.
_PASSED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of one merge; ``is_behind``: more changes wait."""

    outcomes: Outcomes
    rewritten_share: float
    is_behind: bool


@dataclass(frozen=True, slots=True)
class MergeForecast:
    """The rows and keys of the next merge, and the part of the table that it would touch."""

    rows: int
    keys: int
    touched_files: int
    files: int
    touched_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Both tables at one moment; ``state`` is None before the first merge."""

    changes: TableState
    state: TableState | None
    merge_state: MergeState


class _Replan(Exception):
    """The table is another one than the plan was made for, by a commit of our own."""


class Merger:
    """Merges of one keyed table. Not thread-safe."""

    def __init__(
        self,
        keyed: KeyedTable,
        changes: tuple[Storage, DeltaLog],
        table: tuple[Storage, DeltaLog],
        clock: Callable[[], float],
        activity: TableActivity,
    ) -> None:
        self._keyed = keyed
        self._changes_storage, self._changes = changes
        self._storage, self._delta = table
        self._clock = clock
        self._activity = activity
        self._log = get_logger(table=keyed.name)
        self._order = Order(keyed.keys, keyed.sequence)
        self._feed = ChangeFeed(self._changes_storage, self._changes)
        self._replaced = 0
        self._notes = RewriteNotes(self._storage, keyed.table.state_name)
        self._merge_states = MergeStateReader(self._delta)
        # Times of the last run of each chore; the next commit saves them.
        self.chores: dict[str, int] = {}

    def look(self) -> Tables | None:
        """Read both logs; None if there are no changes yet. Raises `StateError` if they differ."""
        changes = self._changes.refresh()
        if self._changes.replaced != self._replaced:
            self._replaced = self._changes.replaced
            self._feed.forget()
        if changes is None:
            return None
        state = self._delta.refresh()
        if state is None:
            return Tables(changes, None, MergeState())
        check_origin(self._keyed, state, changes.table_id)
        merge_state = self._merge_states.read(state)
        self.chores = {**merge_state.chores, **self.chores}
        return Tables(changes, state, merge_state)

    def merge(self) -> Merged | None:
        """Merge the next changes; None if there are none. Raises `StateError`, `CommitError`."""
        return self._repeated(self._merge_next)

    def count_changes(self) -> int:
        """Return how many rows the change table has now."""
        changes = self._changes.refresh()
        active = [] if changes is None else self._active_changes(changes, ())
        return sum(file.rows or 0 for file in active)

    def rebuild(self) -> Merged | None:
        """Rebuild the table from all active changes, in one commit, whatever it is made of."""

        def rebuilt() -> Merged | None:
            changes, state = self._changes.refresh(), self._delta.refresh()
            if changes is None:
                return None
            if state is not None and not is_keyed(state):
                check_origin(self._keyed, state, changes.table_id)
            wanted = made_of(self._keyed, changes.table_id)
            is_other = state is not None and state.description != wanted
            if is_other:
                # From here on no daemon merges by the settings of before, nor by these.
                self._delta.describe(BEING_REBUILT)
                state = self._delta.refresh()
            merged = 0 if state is None else max(state.txn_version - 1, 0)
            before = MergeState(ChangePosition(merged), starts_over=True)
            found = self._merge_all(Tables(changes, state, before), from_nothing=True)
            if is_other:
                self._delta.refresh()
                self._delta.describe(wanted)
            return found

        return self._repeated(rebuilt)

    def _repeated(self, action: Callable[[], Merged | None]) -> Merged | None:
        conflict: CommitConflict | None = None
        for _ in range(TRIES):
            try:
                return action()
            except _Replan:
                continue
            except CommitConflict as error:
                conflict = error
            except FeedGap as gap:
                conflict = CommitConflict(f"{gap} was removed meanwhile")
            except SchemaMismatch as error:
                raise StateError(f"{self._keyed.table.uri}: {error}") from error
        raise conflict or CommitConflict(f"{self._keyed.table.uri}: others commit all the time")

    def waiting(self, tables: Tables) -> ChangeBatch | None:
        """Return the next changes; None if all are merged, or all are merged again."""
        position, until = tables.merge_state.position, tables.changes.version
        if tables.merge_state.starts_over or position.version > until:
            return None
        try:
            batch = self._feed.next_batch(position, until)
        except FeedGap:
            return None
        return batch if batch.files else None

    def forecast(self, tables: Tables, batch: ChangeBatch) -> MergeForecast:
        """Return what a merge of the batch would touch. Writes nothing. Raises `StateError`."""
        try:
            schema, keys = self._columns(tables), 0
            files = self._file_set(tables)
            met: dict[str, int] = {}
            for rows, _ in pieces_of(self._changes_storage, batch.files, schema):
                matching = Matching(rows, self._order, self._keyed.deletes)
                met |= {each.file.path: each.file.size for each in files.touched(matching)}
                keys += len(matching)
        except FeedGap as gap:
            raise Unavailable(f"{gap} was removed meanwhile; look again") from gap
        except SchemaMismatch as error:
            raise StateError(f"{self._keyed.table.uri}: {error}") from error
        return MergeForecast(
            rows=sum(file.rows or 0 for file in batch.files),
            keys=keys,
            touched_files=len(met),
            files=len(files),
            touched_bytes=sum(met.values()),
            bytes=sum(file.size for file in files),
        )

    def changed_at(self, version: int) -> float | None:
        """Return when a version of the change table was committed; None if nobody knows."""
        found = self._changes.commit_info(version).get("timestamp")
        return found / 1000 if isinstance(found, int) else None

    def _merge_next(self) -> Merged | None:
        tables = self.look()
        if tables is None:
            return None
        position, until = tables.merge_state.position, tables.changes.version
        if tables.merge_state.starts_over or self._is_other_log(tables):
            return self._merge_all(tables)
        if position.version > until:
            return None
        try:
            batch = self._feed.next_batch(position, until)
            if not batch.files and until - position.version < _PASSED_AT_ONCE:
                return None
            return self._merge_batch(tables, batch)
        except FeedGap as gap:
            self._log.warning("changes_merged_again", reason=f"{gap} is gone")
            return self._merge_all(tables)

    def _is_other_log(self, tables: Tables) -> bool:
        """Return whether the change table's log has lost commits since they were merged."""
        merged, until = tables.merge_state.position.version, tables.changes.version
        known = tables.merge_state.document.get("anchor")
        if merged > until + 1:
            return True
        if not known or not merged:
            return False
        found = self._changes.anchor(merged - 1)
        return bool(found) and found != known

    def _merge_batch(self, tables: Tables, batch: ChangeBatch) -> Merged | None:
        self._prepare(tables)
        files = self._file_set(tables)
        position, until = tables.merge_state.position, tables.changes.version
        pending = self._feed.paths_since(position, until) if self._keyed.deletes else set()
        outcomes = self._merge_files(tables, files, batch.files, pending)
        document = {
            "files": batch.end.files,
            "behind": not batch.is_last,
            "chores": {**self.chores},
        }
        return self._commit(tables, files, batch.end, outcomes, document)

    def _merge_all(self, tables: Tables, *, from_nothing: bool = False) -> Merged | None:
        """Merge all active changes in one commit, ``from_nothing`` in place of what is stored."""
        self._prepare(tables)
        files = self._file_set(tables)
        if from_nothing:
            files.clear()
        active = self._active_changes(tables.changes, ())
        outcomes = self._merge_files(tables, files, active, set())
        end = ChangePosition(tables.changes.version + 1)
        document = {"files": 0, "behind": False, "chores": {**self.chores}}
        return self._commit(tables, files, end, outcomes, document)

    def _prepare(self, tables: Tables) -> None:
        """Let new columns join, in an entry before (`_Replan`); clear left-overs of merges.

        delta-rs takes columns by the call that overwrites alone, and removes by the other.
        """
        schema, state = self._columns(tables), tables.state
        if state is None:
            return
        columns, changed = merged_columns(state.schema, stored_columns(self._keyed, schema))
        if changed:
            merge_state = tables.merge_state
            document = {**merge_state.document, "starts_over": merge_state.starts_over}
            self._land(CommitPlan((), (), columns, changed, ()), merge_state.position, document)
            raise _Replan
        version = state.version
        self._notes.clear(
            version, lambda: {known.path for known in self._delta.known_paths(version)}
        )

    def _merge_files(
        self, tables: Tables, files: FileSet, changes: Sequence[TableFile], pending: set[str]
    ) -> Outcomes:
        """Merge rows of changes into the set of files, a piece after the other.

        A delete of an earlier piece leaves no trace in the set either, so each piece looks such
        deletes up: in all changes but those ``pending``, which later merges bring, and those that
        later pieces bring.
        """
        schema = self._columns(tables)
        names = stored_columns(self._keyed, schema).names
        unread = pending.union(file.spelled for file in changes)
        outcomes = Outcomes()
        for rows, read in pieces_of(self._changes_storage, changes, schema):
            matching = Matching(rows, self._order, self._keyed.deletes)
            touched = files.touched(matching)
            fresh = matching.unstored()
            if fresh is not None and self._keyed.deletes is not None:
                self._look_up(matching, fresh, tables.changes, schema, unread)
            files.merge(touched, matching.winners().select(names))
            outcomes += matching.outcomes()
            unread -= read
        return outcomes

    def _look_up(
        self,
        matching: Matching,
        fresh: pa.Table,
        changes: TableState,
        schema: pa.Schema,
        unread: set[str],
    ) -> None:
        condition = self._keyed.deletes
        if condition is None:
            return
        active = self._active_changes(changes, (self._order.sequence[0], condition.column))
        try:
            for deletes in newer_deletes(
                self._changes_storage, active, unread, fresh, schema, self._order, condition
            ):
                matching.bury(deletes)
        except NotFound as error:
            raise CommitConflict(f"{error}; it was removed meanwhile, look again") from error

    def _file_set(self, tables: Tables) -> FileSet:
        state, version = tables.state, -1
        files: list[TableFile] = []
        if state is not None:
            found = self._delta.replace_objections()
            if found:
                raise StateError(f"{self._keyed.table.uri}: {'; '.join(found)}")
            version = state.version
            active = self._delta.active_table()
            files = active_files(active, self._storage.uri, self._order.keys)
        return FileSet(self._storage, self._notes, files, self._order, version)

    def _active_changes(self, changes: TableState, names: tuple[str, ...]) -> list[TableFile]:
        found = self._changes.active_table()
        return active_files(found, self._changes_storage.uri, names, changes.partition_columns)

    def _columns(self, tables: Tables) -> pa.Schema:
        """Return the columns of changes, in the wider types that the keyed table may have."""
        if self._changes.has_vectors():
            raise StateError(
                f"{self._keyed.changes.uri}: has deletion vectors, and rows that they delete would"
                " be merged; run REORG TABLE … APPLY (PURGE)"
            )
        columns = change_columns(self._keyed, tables.changes.schema)
        if tables.state is None:
            return columns
        stored = stored_columns(self._keyed, columns)
        return widened(columns, merged_columns(tables.state.schema, stored)[0])

    def _commit(
        self,
        tables: Tables,
        files: FileSet,
        end: ChangePosition,
        outcomes: Outcomes,
        document: dict[str, Any],
    ) -> Merged | None:
        state, now = tables.state, self._clock()
        columns = (
            stored_columns(self._keyed, self._columns(tables)) if state is None else state.schema
        )
        adds = files.adds(columns, state, now)
        removes = files.removes()
        plan = CommitPlan(adds, (), columns, (), (), removes, replaces=state is not None)
        if state is None:
            origin = made_of(self._keyed, tables.changes.table_id)
            plan = replace(plan, description=origin)
        share = files.rewritten_share
        told = {
            "share": round(share, 4),
            "rewritten": files.rewritten_bytes,
            "outcomes": asdict(outcomes),
            "updated": int(now),
            "anchor": self._changes.anchor(end.version - 1) if end.version else "",
        }
        rows = outcomes.new + outcomes.changed
        with self._activity.committing([a.entry for a in adds], rows, plan, evolves=False):
            self._land(plan, end, {**document, **told})
        files.landed()
        self._log.info("merged", version=end.version - 1, **asdict(outcomes), share=told["share"])
        return Merged(outcomes, share, bool(document["behind"]))

    def _land(
        self, plan: CommitPlan, position: ChangePosition, document: Mapping[str, Any]
    ) -> None:
        commit_id = str(uuid.uuid4())
        ours = {"app_id": self._keyed.table.app_id, "commit_id": commit_id, "output_ids": []}
        marks = Marks(position.version + 1, commit_id, {**document, **ours})
        self._delta.commit(plan, marks, self._clock())

"""Merges of changes into a keyed table, each one commit.

Promise: after a merge the keyed table has of each key the row with the highest sequence, of equal
ones the latest arrival, among all changes up to its position; a key whose highest change is a
delete is absent. The position is in the entry of the files. So a death at any step, a lost answer
or another Penguin leave nothing uncertain, and merging changes again changes nothing.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import StateError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch, merge
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.delta.writer import Marks
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.keyed.changes import (
    ChangeBatch,
    FeedGap,
    TableFile,
    active_files,
    next_batch,
    pieces_of,
)
from penguin_py.keyed.deletes import are_deletes, check_condition
from penguin_py.keyed.file_set import FileSet
from penguin_py.keyed.matching import Matching
from penguin_py.keyed.merge_state import (
    BEING_REBUILT,
    MergeState,
    check_origin,
    made_of,
    read_merge_state,
)
from penguin_py.keyed.order import Order, check_types
from penguin_py.keyed.pruning import may_exceed, may_have_deletes
from penguin_py.keyed.retention import check_retention
from penguin_py.model import CommitConflict, CommitPlan, TableState
from penguin_py.settings import KeyedTable

# How often a merge is planned again at once when another commit came first.
TRIES = 12
# Versions without new rows, as of compactions, are passed by a commit once there are so many.
_PASSED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Tables:
    """Both tables at one moment, and the next changes; ``state`` is None before the first merge.

    ``schema`` is that of changes as they are read.
    """

    changes: TableState
    schema: pa.Schema
    state: TableState | None
    merge_state: MergeState
    batch: ChangeBatch

    @property
    def has_rows(self) -> bool:
        """Return whether rows are to be merged."""
        return bool(self.batch.first is None or self.batch.files)

    @property
    def waits(self) -> bool:
        """Return whether there is something to merge."""
        passed = self.changes.version + 1 - self.merge_state.position
        return self.has_rows or passed > _PASSED_AT_ONCE


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
        self._notes = RewriteNotes(self._storage, keyed.table.state_name, clock)
        # Times of the last run of each chore; the next commit saves them.
        self.chores: dict[str, int] = {}

    def look(self, *, rebuilds: bool = False, has_gap: bool = False) -> Tables | None:
        """Read both logs; None if there are no changes yet. Raises `StateError` if they differ.

        All changes are next if it ``rebuilds``, or if a file was gone that the log names.
        """
        changes = self._changes.refresh()
        if changes is None:
            return None
        state, merge_state = self._delta.refresh(), MergeState()
        if state is not None:
            check_origin(self._keyed, state, changes.table_id, rebuilds=rebuilds)
            merge_state = read_merge_state(self._keyed, self._delta, state)
            self.chores = {**merge_state.chores, **self.chores}
            if rebuilds or merge_state.starts_over:
                check_retention(self._keyed, self._changes, 0 if rebuilds else merge_state.merged)
        try:
            schema = self._columns(changes, state)
            starts_over = rebuilds or has_gap or merge_state.starts_over
            batch = None if starts_over else self._next_batch(changes, merge_state)
            return Tables(changes, schema, state, merge_state, batch or self._all(changes))
        except SchemaMismatch as error:
            raise StateError(f"{self._keyed.changes.uri}: {error}") from error

    def _next_batch(self, changes: TableState, merge_state: MergeState) -> ChangeBatch | None:
        """Return the changes behind the position; None if the log does not have them all."""
        position = merge_state.position
        if position > changes.version + 1:
            return None
        known = merge_state.document.get("anchor")
        found = self._changes.anchor(position - 1) if known and position else ""
        if found and found != known:
            return None  # the log has lost commits since they were merged, and has others
        try:
            return next_batch(self._changes_storage, self._changes, position, changes.version)
        except FeedGap as gap:
            self._log.warning("changes_merged_again", reason=f"{gap} is gone")
            return None

    def _all(self, changes: TableState) -> ChangeBatch:
        return ChangeBatch(
            self._active_changes(self._changes.active_table(), changes), changes.version
        )

    def _active_changes(self, active: pa.Table, changes: TableState) -> list[TableFile]:
        return active_files(active, self._changes_storage.uri, changes.partition_columns)

    def _columns(self, changes: TableState, state: TableState | None) -> pa.Schema:
        """Return the columns of changes, in the wider types that the keyed table may have."""
        if self._changes.has_vectors():
            raise SchemaMismatch(
                "has deletion vectors, and rows that they delete would be merged; run REORG TABLE"
                " … APPLY (PURGE)"
            )
        check_types(changes.schema, self._order)
        if self._keyed.deletes is not None:
            check_condition(changes.schema, self._keyed.deletes)
        columns = pa.schema([field.with_nullable(True) for field in changes.schema])
        return columns if state is None else merge(state.schema, columns, (), "overwrite")

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([field for field in schema if field.name not in self._keyed.leave_out])

    def merge(self, tables: Tables | None = None) -> Mapping[str, Any] | None:
        """Merge the next changes, those of ``tables`` at first; None if there are none.

        Returns what the commit says. Raises `StateError`, `CommitError` and `StorageError`.
        """
        return self._tried(lambda has_gap: self.look(has_gap=has_gap), tables)

    def rebuild(self) -> Mapping[str, Any] | None:
        """Rebuild the table from all active changes, in one commit, whatever it is made of."""

        def look(_has_gap: bool) -> Tables | None:
            tables = self.look(rebuilds=True)
            if tables is None or tables.state is None:
                return tables
            if tables.state.description not in {self._made_of(tables), BEING_REBUILT}:
                # From here on no daemon merges by the settings of before, nor by these.
                self._delta.describe(BEING_REBUILT)
                return self.look(rebuilds=True)
            return tables

        found = self._tried(look, None, from_nothing=True)
        tables = self.look(rebuilds=True)
        if tables is not None and tables.state is not None:
            wanted = self._made_of(tables)
            if tables.state.description != wanted:
                self._delta.describe(wanted)
        return found

    def _made_of(self, tables: Tables) -> str:
        return made_of(self._keyed, tables.changes.table_id)

    def _tried(
        self,
        look: Callable[[bool], Tables | None],
        tables: Tables | None,
        *,
        from_nothing: bool = False,
    ) -> Mapping[str, Any] | None:
        conflict: CommitConflict | None = None
        has_gap = False
        for _ in range(TRIES):
            try:
                tables = tables or look(has_gap)
                if tables is None or not tables.waits:
                    return None
                return self._merge(tables, from_nothing=from_nothing)
            except _Replan:
                pass
            except CommitConflict as error:
                conflict = error
            except FeedGap as gap:
                conflict, has_gap = CommitConflict(f"{gap} was removed meanwhile"), True
            except SchemaMismatch as error:
                raise StateError(f"{self._keyed.table.uri}: {error}") from error
            tables = None
        raise conflict or CommitConflict(f"{self._keyed.table.uri}: others commit all the time")

    def forecast(self, tables: Tables) -> dict[str, int] | None:
        """Return what the next merge would touch; None if nothing waits. Writes nothing."""
        if not tables.waits:
            return None
        found = Counter(rows=sum(file.rows or 0 for file in tables.batch.files), keys=0)
        files = self._file_set(tables)
        met: dict[str, int] = {}
        try:
            for rows, _ in pieces_of(self._changes_storage, tables.batch.files, tables.schema):
                matching = Matching(rows, self._order, self._keyed.deletes)
                met |= {file.path: file.size for file in files.touched(matching)}
                found["keys"] += len(matching)
        except FeedGap as gap:
            raise CommitConflict(f"{gap} was removed meanwhile") from gap
        except SchemaMismatch as error:
            raise StateError(f"{self._keyed.table.uri}: {error}") from error
        touched = {"touched_files": len(met), "touched_bytes": sum(met.values())}
        return {**found, **touched, "files": len(files), "bytes": sum(f.size for f in files)}

    def stored_rows(self, tables: Tables) -> int:
        """Return the number of rows of the keyed table, as far as its log says."""
        if tables.state is None:
            return 0
        return int(pc.sum(self._delta.active_table()["num_records"]).as_py() or 0)

    def changed_at(self, tables: Tables) -> float | None:
        """Return when the oldest change was committed that waits; None if nobody knows."""
        if tables.batch.first is None or not tables.batch.files:
            return None
        found = self._changes.commit_info(tables.batch.first).get("timestamp")
        return found / 1000 if isinstance(found, int) else None

    def _merge(self, tables: Tables, *, from_nothing: bool) -> Mapping[str, Any]:
        if tables.state is not None:
            self._prepare(tables, tables.state)
        version = -1 if tables.state is None else tables.state.version
        files = self._file_set(tables)
        if from_nothing:
            files.clear()
        outcomes: Counter[str] = Counter()
        # A delete of an earlier piece leaves no trace in the set, so each piece looks deletes up:
        # in all changes but those that later pieces bring.
        unread = {file.spelled for file in tables.batch.files}
        for rows, read in pieces_of(self._changes_storage, tables.batch.files, tables.schema):
            matching = Matching(rows, self._order, self._keyed.deletes)
            touched = files.touched(matching)
            self._bury(matching, tables, unread)
            files.merge(version, touched, matching)
            outcomes.update(matching.outcomes())
            unread -= read
        return self._commit(tables, files, outcomes)

    def _prepare(self, tables: Tables, state: TableState) -> None:
        """Let new columns join, in an entry before (`_Replan`); clear left-overs of merges.

        delta-rs takes columns by the call that overwrites alone, and removes by the other.
        """
        columns = self._stored(tables.schema)
        if not columns.equals(state.schema):
            stored, before = {field.name: field for field in state.schema}, tables.merge_state
            changed = tuple(f.name for f in columns if stored.get(f.name, f.with_name("")) != f)
            document = {**before.document, "starts_over": before.starts_over}
            plan = CommitPlan((), (), columns, changed or tuple(columns.names), ())
            self._land(plan, before.position, document)
            raise _Replan
        self._notes.clear(
            state.version, lambda: {known.path for known in self._delta.known_paths(state.version)}
        )

    def _bury(self, matching: Matching, tables: Tables, unread: set[str]) -> None:
        """Let changes whose keys are not stored lose to newer deletes that were merged before.

        The change table keeps all deletes. Its files as of now are as right as those of any other
        version: a delete that is not merged yet will win all the same. In an ordered flow no file
        is read, since bounds of the sequence leave out all that is older.
        """
        condition, fresh = self._keyed.deletes, matching.unstored()
        if condition is None or fresh is None:
            return
        names = dict.fromkeys((*self._order.columns, condition.column))
        columns = pa.schema([tables.schema.field(name) for name in names])
        active, first = self._changes.active_table(), self._order.sequence[0]
        may = pc.and_(
            may_exceed(active, first, fresh[first].combine_chunks()),
            may_have_deletes(active, condition),
        )
        found = self._active_changes(active.filter(may), tables.changes)
        merged = (file for file in found if file.spelled not in unread)
        try:
            for rows, _ in pieces_of(self._changes_storage, merged, columns):
                matching.bury(rows.filter(are_deletes(rows, condition)))
        except FeedGap as gap:
            raise CommitConflict(f"{gap} was removed meanwhile") from gap

    def _file_set(self, tables: Tables) -> FileSet:
        schema = self._stored(tables.schema)
        active = None
        if tables.state is not None:
            found = self._delta.replace_objections()
            if found:
                raise StateError(f"{self._keyed.table.uri}: {'; '.join(found)}")
            active = self._delta.active_table()
        return FileSet(self._storage, self._notes, self._order, schema, active)

    def _commit(self, tables: Tables, files: FileSet, outcomes: Counter[str]) -> Mapping[str, Any]:
        state, now, end = tables.state, self._clock(), tables.batch.until + 1
        plan = CommitPlan(
            files.adds(state, now),
            (),
            self._stored(tables.schema),
            (),
            (),
            files.removes(),
            replaces=state is not None,
            description=self._made_of(tables),
        )
        rewritten, share = files.rewritten()
        document = {
            "behind": end <= tables.changes.version,
            "chores": {**self.chores},
            "share": round(share, 4),
            "rewritten": rewritten,
            "outcomes": dict(outcomes),
            "updated": int(now),
            "anchor": self._changes.anchor(end - 1) if end else "",
        }
        rows = outcomes["new"] + outcomes["changed"]
        entries = [add.entry for add in plan.adds]
        try:
            with self._activity.committing(entries, rows, plan, evolves=False):
                self._land(plan, end, document)
        except CommitConflict:
            files.close(has_landed=False)
            raise
        files.close(has_landed=True)
        self._log.info("merged", version=end - 1, **outcomes, share=document["share"])
        return document

    def _land(self, plan: CommitPlan, position: int, document: Mapping[str, Any]) -> None:
        commit_id = str(uuid.uuid4())
        ours = {"app_id": self._keyed.table.app_id, "commit_id": commit_id, "output_ids": []}
        document = {"merged": position, **document}
        self._delta.commit(
            plan, Marks(position + 1, commit_id, {**document, **ours}), self._clock()
        )

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
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

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
from penguin_py.keyed.changes import ChangeBatch, FeedGap, active_files, next_batch, pieces_of
from penguin_py.keyed.file_set import FileSet
from penguin_py.keyed.matching import Matching
from penguin_py.keyed.merge_state import BEING_REBUILT, MergeState, made_of, read_merge_state
from penguin_py.keyed.order import Order, are_deletes, check_columns
from penguin_py.keyed.pruning import may_exceed, may_have_deletes
from penguin_py.keyed.retention import check_retention
from penguin_py.model import CommitConflict, CommitPlan, TableState
from penguin_py.settings import KeyedTable

# What a commit says of its merge.
Document: TypeAlias = Mapping[str, Any]
# How often a merge is planned again at once when another commit came first.
TRIES = 12
# Versions without new rows, as of compactions, are passed by a commit once there are so many.
_PASSED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Tables:
    """Both tables at one moment, and the next changes; ``state`` is None before the first merge.

    ``schema`` is that of changes as they are read, ``stored`` that of the keyed table's rows.
    """

    changes: TableState
    schema: pa.Schema
    stored: pa.Schema
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
        self.keyed = keyed
        self._changes_storage, self.changes = changes
        self.storage, self.delta = table
        self.clock, self.activity = clock, activity
        self._log = get_logger(table=keyed.name)
        self._order = Order(keyed.keys, keyed.sequence, keyed.deletes)
        self._notes = RewriteNotes(self.storage, keyed.table.state_name, clock)
        # Times of the last run of each chore; the next commit saves them.
        self.chores: dict[str, int] = {}

    def look(self, *, rebuilds: bool = False, has_gap: bool = False) -> Tables | None:
        """Read both logs; None if there are no changes yet. Raises `StateError` if they differ.

        All changes are next if it ``rebuilds``, or if a file was gone that the log names.
        """
        changes = self.changes.refresh()
        if changes is None:
            return None
        state, merge_state = self.delta.refresh(), MergeState()
        if state is not None:
            made = "" if rebuilds else self._made_of(changes)
            merge_state = read_merge_state(self.keyed, self.delta, state, made)
            self.chores = {**merge_state.document.get("chores", {}), **self.chores}
        starts_over = rebuilds or has_gap or merge_state.starts_over
        try:
            schema = self._columns(changes, state)
            batch = None if starts_over else self._next_batch(changes, merge_state)
            if batch is None and state is not None:
                check_retention(self.keyed, self.changes, 0 if rebuilds else merge_state.merged)
            batch = batch or self._active_changes(self.changes.active_table(), changes)
            stored = [field for field in schema if field.name not in self.keyed.leave_out]
            return Tables(changes, schema, pa.schema(stored), state, merge_state, batch)
        except SchemaMismatch as error:
            raise StateError(f"{self.keyed.changes.uri}: {error}") from error

    def _next_batch(self, changes: TableState, merge_state: MergeState) -> ChangeBatch | None:
        """Return the changes behind the position; None if the log does not have them all."""
        position, known = merge_state.position, merge_state.document.get("anchor")
        if position > changes.version + 1 or (
            known and self.changes.anchor(position - 1) not in {"", known}
        ):
            return None  # the log has lost commits since they were merged, or has others
        try:
            return next_batch(self._changes_storage, self.changes, position, changes.version)
        except FeedGap as gap:
            self._log.warning("changes_merged_again", reason=str(gap))
            return None

    def _active_changes(self, active: pa.Table, changes: TableState) -> ChangeBatch:
        uri, partitions = self._changes_storage.uri, changes.partition_columns
        return ChangeBatch(active_files(active, uri, partitions), changes.version)

    def _columns(self, changes: TableState, state: TableState | None) -> pa.Schema:
        """Return the columns of changes, in the wider types that the keyed table may have."""
        if self.changes.has_vectors():
            raise SchemaMismatch("has deletion vectors; run REORG TABLE … APPLY (PURGE) first")
        check_columns(changes.schema, self._order)
        columns = pa.schema([field.with_nullable(True) for field in changes.schema])
        return columns if state is None else merge(state.schema, columns, (), "overwrite")

    def rebuild(self) -> Document | None:
        """Rebuild the table from all active changes, in one commit, whatever it is made of."""
        found = self.merge(rebuilds=True)
        changes, state = self.changes.refresh(), self.delta.refresh()
        if changes and state and state.description != self._made_of(changes):
            self.delta.describe(self._made_of(changes))
        return found

    def _made_of(self, changes: TableState) -> str:
        return made_of(self.keyed, changes.table_id)

    def merge(self, tables: Tables | None = None, *, rebuilds: bool = False) -> Document | None:
        """Merge the next changes, those of ``tables`` at first; None if there are none.

        If it ``rebuilds``, nothing of the table stays. Returns what the commit says. Raises
        `StateError`, `CommitError` and `StorageError`.
        """
        has_gap, tries = False, 0
        while True:
            tries += 1
            try:
                tables = tables or self.look(rebuilds=rebuilds, has_gap=has_gap)
                if tables is None or not tables.waits:
                    return None
                return self._merge(tables, rebuilds=rebuilds)
            except CommitConflict as conflict:
                if tries == TRIES:
                    raise
                tables, has_gap = None, has_gap or isinstance(conflict, FeedGap)
            except SchemaMismatch as error:
                raise StateError(f"{self.keyed.table.uri}: {error}") from error

    def forecast(self, tables: Tables) -> dict[str, int] | None:
        """Return what the next merge would touch; None if nothing waits. Writes nothing."""
        if not tables.waits:
            return None
        found = Counter(rows=sum(file.rows or 0 for file in tables.batch.files), keys=0)
        files, met = self._file_set(tables), dict[str, int]()
        try:
            for rows, _ in pieces_of(self._changes_storage, tables.batch.files, tables.schema):
                matching = Matching(rows, self._order)
                met |= {file.path: file.size for file in files.touched(matching)}
                found["keys"] += len(matching)
        except SchemaMismatch as error:
            raise StateError(f"{self.keyed.table.uri}: {error}") from error
        touched = {"touched_files": len(met), "touched_bytes": sum(met.values())}
        sizes = [file.size for file in files.files.values()]
        return {**found, **touched, "files": len(sizes), "bytes": sum(sizes)}

    def stored_rows(self, tables: Tables) -> int:
        """Return the number of rows of the keyed table, as far as its log says."""
        if tables.state is None:
            return 0
        return int(pc.sum(self.delta.active_table()["num_records"]).as_py() or 0)

    def changed_at(self, tables: Tables) -> float | None:
        """Return when the oldest change was committed that waits; None if nobody knows."""
        if tables.batch.first is None or not tables.batch.files:
            return None
        found = self.changes.commit_info(tables.batch.first).get("timestamp")
        return found / 1000 if isinstance(found, int) else None

    def _merge(self, tables: Tables, *, rebuilds: bool) -> Document:
        if tables.state is not None:
            self._prepare(tables, tables.state, rebuilds=rebuilds)
        files = self._file_set(tables)
        if rebuilds:
            files.files.clear()
        outcomes: Counter[str] = Counter()
        # A delete of an earlier piece leaves no trace in the set, so each piece looks deletes up:
        # in all changes but those that later pieces bring.
        unread = {file.spelled for file in tables.batch.files}
        for rows, read in pieces_of(self._changes_storage, tables.batch.files, tables.schema):
            matching = Matching(rows, self._order)
            touched = files.touched(matching)
            self._bury(matching, tables, unread)
            files.merge(touched, matching)
            outcomes.update(matching.outcomes())
            unread -= read
        return self._commit(tables, files, outcomes)

    def _prepare(self, tables: Tables, state: TableState, *, rebuilds: bool) -> None:
        """Clear left-overs of merges; let new columns join, and a rebuild be known, in an entry.

        delta-rs takes columns by the call that overwrites alone, and removes by the other. Raises
        `CommitConflict` behind an entry: the merge is planned again.
        """
        behind = CommitConflict(f"{self.keyed.table.uri}: its description or columns are new")
        known = {self._made_of(tables.changes), BEING_REBUILT}
        if rebuilds and state.description not in known:
            # From here on no daemon merges by the settings of before, nor by these.
            self.delta.describe(BEING_REBUILT)
            raise behind
        if not tables.stored.equals(state.schema):
            before = tables.merge_state
            more = {"merged": before.merged, "starts_over": before.starts_over}
            plan = CommitPlan((), (), tables.stored, tuple(tables.stored.names), ())
            self._land(plan, before.position, {**before.document, **more})
            raise behind
        self._notes.clear(
            state.version, lambda: {known.path for known in self.delta.known_paths(state.version)}
        )

    def _bury(self, matching: Matching, tables: Tables, unread: set[str]) -> None:
        """Let changes whose keys are not stored lose to newer deletes that were merged before.

        The change table keeps all deletes. Its files as of now are as right as those of any other
        version: a delete that is not merged yet will win all the same. In an ordered flow no file
        is read, since bounds of the sequence leave out all that is older.
        """
        condition, fresh = self._order.deletes, matching.unstored()
        if condition is None or not len(fresh):
            return
        names = dict.fromkeys((*self._order.columns, condition.column))
        columns = pa.schema([tables.schema.field(name) for name in names])
        active, first = self.changes.active_table(), self._order.sequence[0]
        may = may_exceed(active, first, fresh[first].combine_chunks())
        active = active.filter(pc.and_(may, may_have_deletes(active, condition)))
        found = self._active_changes(active, tables.changes)
        merged = (file for file in found.files if file.spelled not in unread)
        for rows, _ in pieces_of(self._changes_storage, merged, columns):
            matching.bury(rows.filter(are_deletes(rows, condition)))

    def _file_set(self, tables: Tables) -> FileSet:
        parts = (self.storage, self._notes, self._order, tables.stored)
        if tables.state is None:
            return FileSet(*parts)
        if found := self.delta.replace_objections():
            raise StateError(f"{self.keyed.table.uri}: {'; '.join(found)}")
        return FileSet(*parts, self.delta.active_table(), tables.state.version)

    def _commit(self, tables: Tables, files: FileSet, outcomes: Counter[str]) -> Document:
        state, now, end = tables.state, self.clock(), tables.batch.until + 1
        adds = files.adds({} if state is None else state.properties, now)
        plan = CommitPlan(adds, (), tables.stored, (), (), files.removes(), state is not None)
        plan = replace(plan, description=self._made_of(tables.changes))
        rewritten = sum(each.size for each in plan.removes)
        document = {
            "behind": end <= tables.changes.version,
            "chores": self.chores,
            "share": round(files.share(rewritten), 4),
            "rewritten": rewritten,
            "outcomes": dict(outcomes),
            "updated": int(now),
            "anchor": self.changes.anchor(end - 1) if end else "",
        }
        entries, rows = [add.entry for add in adds], outcomes["new"] + outcomes["changed"]
        try:
            with self.activity.committing(entries, rows, plan, evolves=False):
                self._land(plan, end, document)
        except CommitConflict:
            files.close(has_landed=False)
            raise
        files.close(has_landed=True)
        self._log.info("merged", version=end - 1, **outcomes, share=document["share"])
        return document

    def _land(self, plan: CommitPlan, position: int, document: Document) -> None:
        commit_id = str(uuid.uuid4())
        ours = {"app_id": self.keyed.table.app_id, "commit_id": commit_id, "output_ids": []}
        marks = Marks(position + 1, commit_id, {"merged": position, **document, **ours})
        self.delta.commit(plan, marks, self.clock())

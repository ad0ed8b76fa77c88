"""The commit that applies or discards a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penguin_py.certificates import Certificates
from penguin_py.delta.output_ids import replaced_mark
from penguin_py.groups.group_planner import Removals
from penguin_py.model import Add, CommitPlan
from penguin_py.planning.memory import Snapshot
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.view import TableView


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A planned log entry: its plan, its new and removed rows, and its marks."""

    plan: CommitPlan
    rows: int
    removals: Removals
    rewritten: tuple[Add, ...]
    marks: tuple[str, ...]
    groups: Mapping[str, int]
    unreplaced: Mapping[str, tuple[tuple[str, str], ...]]
    # Outputs whose rows it brings again and which must not be committed any more.
    replaced: tuple[str, ...] = ()


class GroupCommits(TablePart):
    """Commits of groups to one table, and their record in memory."""

    def __init__(self, context: TableContext, view: TableView, certificates: Certificates) -> None:
        super().__init__(context)
        self._view = view
        self._certificates = certificates

    def land(self, snapshot: Snapshot, commit: GroupCommit) -> None:
        """Land the commit on the snapshot's version. Raises `CommitError`."""
        now = self._clock()
        memory, plan = snapshot.memory, commit.plan
        ids = [add.output_id for add in plan.adds if add.output_id is not None]
        ids += [*commit.marks, *map(replaced_mark, commit.replaced)]
        progress = replace(memory.progress, depth=len(plan.partition_columns))
        after = replace(
            memory, progress=progress, groups=commit.groups, unreplaced=commit.unreplaced
        )
        made = {add.entry.path for add in commit.rewritten}
        files = [add.entry for add in plan.adds if add.entry.path not in made]
        evolves = snapshot.state is not None and bool(plan.changed)
        with self._activity.committing(files, commit.rows, plan, evolves=evolves):
            after = self._view.commit(plan, after, ids, now, self._certificates.revoke)
        version = 0 if snapshot.state is None else snapshot.state.version + 1
        self._view.committed(after, (), version, ids)
        rewritten = sum(add.entry.size for add in commit.rewritten)
        if commit.marks:
            self._activity.replaced(commit.removals.rows, rewritten)
        self._log.info(
            "group_committed",
            groups=list(commit.marks),
            files=len(files),
            removed_files=len(plan.removes),
            rewritten_files=len(commit.rewritten),
            replaced_rows=commit.removals.rows,
            txn_version=after.txn_version,
            new_columns=list(plan.changed),
        )
        self._view.save(after, now)

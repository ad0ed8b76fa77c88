"""Discarding of outputs and groups that can never be committed, so that later ones continue.

Promise: a discarded output never comes later, even if its file appears in the table's directory.
Its output ids are logged as if committed, in one commit without a file.

Rows that a discarded group was to replace stay in the table. Later groups must remove them: the
ranges are logged (`Memory.unreplaced`), and the first group that overlaps a range replaces all of
it. Source files need no such note, since any later reading of a file names it. Whole outputs are
removed at once, because a later group only names the outputs of its own predecessor.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from blizzard_core.errors import BlizzardError
from blizzard_core.handover.groups import Group, decode_group, group_path
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_core.threads import INLINE
from penguin_py.delta.output_ids import discard_mark
from penguin_py.groups.commits import GroupCommit, GroupCommits
from penguin_py.groups.group_planner import (
    GroupPlanner,
    Removals,
    fully_removed_outputs,
    require_replaced_outputs,
)
from penguin_py.groups.group_status import commit_mark, last_committed
from penguin_py.intake.manifests import Manifests
from penguin_py.model import CommitConflict, CommitPlan, TableState
from penguin_py.planning.memory import Snapshot
from penguin_py.planning.replacement import ranges_of
from penguin_py.table.view import TableView

# How often it is planned again when another commit came first.
TRIES = 12


class DiscardRefused(BlizzardError):
    """The discard is refused, without any change. The message has reason and remedy."""


@dataclass(frozen=True, slots=True)
class DiscardResult:
    """The discarded outputs, and a source's group with its number; ``rows`` were removed with it.

    If the group's manifest is ``lost``, its files and its replaced rows are unknown.
    """

    outputs: tuple[str, ...]
    group: tuple[str, int] | None
    rows: int
    lost: bool = False


class Discarder:
    """Discards outputs and groups of one table."""

    def __init__(
        self,
        storage: Storage,
        view: TableView,
        planner: GroupPlanner,
        commits: GroupCommits,
    ) -> None:
        self._storage = storage
        self._view = view
        self._planner = planner
        self._commits = commits
        self._manifests = Manifests(storage, INLINE)

    def discard(
        self,
        outputs: Sequence[str],
        source: str | None,
        blocked: Container[str],
        *,
        dry_run: bool,
    ) -> DiscardResult:
        """Discard these outputs and, of a ``source``, the next group; both are then in the log.

        Only groups of ``blocked`` sources can be discarded. Outputs that are discarded already are
        skipped, so an interrupted command can be repeated. Raises `DiscardRefused`,
        `CommitError`, `StateError`, `StorageError`.
        """
        conflict: CommitConflict | None = None
        group: tuple[str, int] | None = None
        for _ in range(TRIES):
            snapshot = self._view.sync()
            found, commit = self._planned(snapshot, outputs, source, blocked)
            if group is not None and found.group != group:
                raise DiscardRefused(f"{group_path(*group)} was applied meanwhile")
            group = found.group
            if dry_run or commit is None:
                return found
            try:
                self._commits.land(snapshot, commit)
            except CommitConflict as error:
                conflict = error
                continue
            return found
        raise conflict or CommitConflict("others commit all the time")

    def _planned(
        self,
        snapshot: Snapshot,
        outputs: Sequence[str],
        source: str | None,
        blocked: Container[str],
    ) -> tuple[DiscardResult, GroupCommit | None]:
        """Plan the discard; return it and its log entry, None if the log has it already."""
        state, memory = snapshot.state, snapshot.memory
        if state is None:
            raise DiscardRefused(
                "there is no table yet, so nothing can be recorded; its first sound file creates it"
            )
        known = self._view.output_ids(memory)
        there = self._planner.find_outputs([o for o in outputs if o in known], state.version)
        if there:
            raise DiscardRefused(
                f"output {min(there)!r} is in the table, in {there[min(there)][0]}; delete its rows"
                " first, if they are to go"
            )
        marks: list[str] = []
        groups, going = dict(memory.groups), Removals()
        unreplaced = dict(memory.unreplaced)
        given_up = list(outputs)
        number, lost = None, False
        if source is not None:
            seq = last_committed(source, memory.groups, known) + 1
            number = (source, seq)
            group = self._next(source, seq)
            if source not in blocked:
                raise DiscardRefused(
                    f"{group_path(source, seq)} is not blocked by a problem of its own, so it"
                    " cannot be discarded"
                )
            lost = group is None
            marks.append(commit_mark(source, seq))
            groups[source] = seq
            if group is not None:
                given_up += [file.output_id for file in group.files]
                going = self._plan_removes(state, group, known)
                remaining = ranges_of([*unreplaced.get(source, ()), *group.replace])
                if remaining:
                    unreplaced[source] = tuple(
                        zip(remaining.firsts, remaining.behinds, strict=True)
                    )
        for output in dict.fromkeys(given_up):
            marks += [name for name in (output, discard_mark(output)) if name not in known]
        found = DiscardResult(tuple(dict.fromkeys(given_up)), number, going.rows, lost)
        if not marks:
            return found, None
        plan = CommitPlan((), (), state.schema, (), state.partition_columns, removes=going.removes)
        plan = replace(plan, replaces=True)
        return found, GroupCommit(plan, 0, going, (), tuple(marks), groups, unreplaced)

    def _next(self, source: str, seq: int) -> Group | None:
        """Return the source's next group; None if its manifest is lost. Raises `DiscardRefused`."""
        data = self._manifests.read({source: seq}).get(source)
        path = group_path(source, seq)
        if data is not None:
            return decode_group(data, f"{self._storage.uri}/{path}", source, seq)
        if max(self._manifests.listed().get(source, (0,))) > seq:
            return None
        raise DiscardRefused(f"{path} is not there, and none after it: no group of {source} waits")

    def _plan_removes(self, state: TableState, group: Group, known: Container[str]) -> Removals:
        """Plan the removal of a discarded group's whole outputs. Raises `DiscardRefused`."""
        if not fully_removed_outputs(group):
            return Removals()
        try:
            require_replaced_outputs(group, known)
            return self._planner.plan_removes(state, group, known)
        except SchemaMismatch as error:
            raise DiscardRefused(f"{group_path(group.source, group.seq)}: {error}") from error

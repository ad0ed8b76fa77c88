"""Groups of one table, applied in the order of their numbers, one commit each.

Promise: the groups of a source are applied in order, each once, and none is skipped. The log entry
with the files also records the group. So a crash at any step, a lost answer or another Penguin
leave nothing uncertain. A group that cannot be applied blocks the later ones of its source only. A
manifest that cannot be understood blocks all groups of the table. Files that arrive by listing
continue in either case.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from blizzard_core.errors import StateError
from blizzard_core.handover.groups import Group, decode_group, group_path
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.certificates import Certificates
from penguin_py.groups.commits import GroupCommit, GroupCommits
from penguin_py.groups.discard import Discarder, DiscardResult
from penguin_py.groups.group_planner import (
    GroupPlanner,
    Removals,
    fully_removed_outputs,
    require_replaced_outputs,
)
from penguin_py.groups.group_status import GroupStatus, commit_mark, last_committed
from penguin_py.groups.rewrite_notes import RewriteNotes
from penguin_py.groups.rewriter import Rewriter
from penguin_py.intake.manifests import Manifests
from penguin_py.model import CommitConflict, CommitRefused
from penguin_py.planning.commit_plan import columns_without
from penguin_py.planning.memory import Memory, Snapshot
from penguin_py.planning.replacement import replaced_ranges, unreplaced_by
from penguin_py.table.part import TableContext, TablePart
from penguin_py.table.view import TableView

# How often a commit is planned again at once when another came first.
TRIES = 12
# How long an applied manifest stays, for people.
KEPT_SECS = 30 * 86_400.0


class GroupRunner(TablePart):
    """The groups of one table. Not thread-safe."""

    def __init__(self, context: TableContext, view: TableView, certificates: Certificates) -> None:
        super().__init__(context)
        self._view = view
        self._manifests = Manifests(self._storage, self._pool)
        self._planner = GroupPlanner(self._table, self._storage, self._delta, self._pool)
        self._notes = RewriteNotes(self._storage, self._table.state_name, self._clock)
        self._commits = GroupCommits(context, view, certificates)
        # The listed manifests; None: not listed since the start.
        self._newest: dict[str, int] | None = None
        self._blocked: dict[str, str] = {}
        # The blocked sources that wait only for other sources.
        self._behind: frozenset[str] = frozenset()
        # Commits that the table refused, by source: on which version, and why.
        self._refused: dict[str, tuple[int, str]] = {}

    def discard(
        self, outputs: Sequence[str], source: str | None, *, dry_run: bool
    ) -> DiscardResult:
        """See `Discarder`. Unless it is a ``dry_run`` a turn has to come before."""
        blocked = self._blocked.keys() - self._behind
        if dry_run:
            snapshot = self._view.sync()
            found = self.outlook(snapshot).items()
            blocked = {s for s, status in found if status.blocked} | snapshot.memory.blocked.keys()
        discarding = Discarder(self._storage, self._view, self._planner, self._commits)
        return discarding.discard(outputs, source, blocked, dry_run=dry_run)

    def forget(self) -> None:
        """Make the next turn read everything again, as after an error."""
        self._newest = None
        self._blocked.clear()

    def turn(self) -> bool:
        """Apply the next group of each source that has one; True if any was applied."""
        if self._newest is None:
            self.look()
        memory = self._view.remembered() or self._view.sync().memory
        last = {source: memory.groups.get(source, 0) for source in self._sources(memory)}
        if not last:
            return False
        there = self._manifests.read({source: seq + 1 for source, seq in last.items()})
        blocked = dict(self._gaps(last, there))
        if blocked:  # or another Penguin has applied them, and they were cleaned up since
            self._advance(self._view.sync())
            known = self._view.remembered() or memory
            if any(known.groups.get(source, 0) != last[source] for source in blocked):
                return True  # go on from there
        groups: dict[str, Group] = {}
        for source, data in there.items():
            try:
                groups[source] = self._decoded(source, last[source] + 1, data)
            except StateError as error:
                blocked[source] = str(error)
        self._behind = frozenset(groups if blocked else ())
        if blocked:  # their replaced rows are unknown
            names = ", ".join(sorted(blocked))
            blocked |= dict.fromkeys(groups, f"the table's groups wait for those of {names}")
            groups.clear()
        done = [source for source, group in groups.items() if self._apply(source, group, blocked)]
        self._report_blocked(blocked)
        if groups or blocked or self._activity.groups is None:
            known = self._view.remembered() or memory
            self._activity.stands(
                {s: GroupStatus(known.groups.get(s, 0), blocked.get(s)).to_json() for s in last}
            )
        return bool(done)

    def look(self) -> None:
        """List the manifests, for sources and numbers that nobody names; clear left-overs.

        Applied ones that are older than a month go, but never the last of a source. Called
        once at a start and at each sweep.
        """
        snapshot = self._view.sync()
        listed = self._manifests.listed()
        self._newest = {source: max(found) for source, found in listed.items()}
        self._advance(snapshot)
        memory = self._view.remembered() or snapshot.memory
        oldest = self._clock() - KEPT_SECS
        for source, found in listed.items():
            last = min(memory.groups.get(source, 0), max(found))
            for seq, entry in found.items():
                if seq < last and entry.modified < oldest:
                    self._manifests.remove(entry)
        state = snapshot.state
        if state is not None:
            version = state.version
            count = self._notes.clear(
                version, lambda: {known.path for known in self._delta.known_paths(version)}
            )
            if count:
                self._log.info("rewritten_files_cleared", files=count)

    def pending(self, snapshot: Snapshot) -> set[str] | None:
        """Return the files of unapplied manifests; None if one is not understood."""
        memory, known = snapshot.memory, self._view.output_ids(snapshot.memory)
        found: set[str] = set()
        for source, listed in self._manifests.listed().items():
            last = last_committed(source, memory.groups, known)
            for seq in [seq for seq in listed if seq > last]:
                data = self._manifests.read({source: seq}).get(source)
                try:
                    group = None if data is None else self._decoded(source, seq, data)
                except StateError:
                    return None
                found.update(() if group is None else (file.path for file in group.files))
        return found

    def outlook(self, snapshot: Snapshot) -> dict[str, GroupStatus]:
        """Return each source's progress, and whether its next group can be applied.

        Writes nothing.
        """
        memory, known = snapshot.memory, self._view.output_ids(snapshot.memory)
        listed = self._manifests.listed()
        self._newest = {source: max(found) for source, found in listed.items()}
        names = self._sources(memory)
        last = {source: last_committed(source, memory.groups, known) for source in names}
        there = self._manifests.read({source: seq + 1 for source, seq in last.items()})
        blocked = dict(self._gaps(last, there))
        due: dict[str, int] = {}
        for source, data in there.items():
            seq = last[source] + 1
            try:
                group = self._decoded(source, seq, data)
                self._planner.plan_adds(snapshot.state, group, known)
                if snapshot.state is not None and fully_removed_outputs(group):
                    self._planner.plan_removes(snapshot.state, group, known)
                due[source] = seq
            except (StateError, SchemaMismatch) as error:
                blocked[source] = _explain(source, seq, error)
        return {s: GroupStatus(last[s], blocked.get(s), due.get(s)) for s in names}

    def _sources(self, memory: Memory) -> list[str]:
        return [*dict.fromkeys([*self._table.source_ids, *memory.groups, *(self._newest or ())])]

    def _gaps(
        self, last: Mapping[str, int], there: Mapping[str, bytes]
    ) -> Sequence[tuple[str, str]]:
        """Return the sources with a missing next manifest, and what to do."""
        newest = self._newest or {}
        absent = [(s, seq + 1) for s, seq in last.items() if s not in there]
        missing = [(source, seq) for source, seq in absent if newest.get(source, 0) > seq]
        uri = self._storage.uri
        problem = "is missing, and number {} is there; restore it"
        return [
            (source, f"{uri}/{group_path(source, seq)}: {problem.format(newest[source])}")
            for source, seq in missing
        ]

    def _decoded(self, source: str, seq: int, data: bytes) -> Group:
        return decode_group(data, f"{self._storage.uri}/{group_path(source, seq)}", source, seq)

    def _advance(self, snapshot: Snapshot) -> None:
        """Advance to the groups whose marks are among the output ids."""
        memory = snapshot.memory
        if snapshot.state is None:
            return
        behind = [
            source
            for source, newest in (self._newest or {}).items()
            if newest > memory.groups.get(source, 0)
        ]
        if behind:
            known = self._view.output_ids(memory)
            moved = {source: last_committed(source, memory.groups, known) for source in behind}
            moved = {source: seq for source, seq in moved.items() if seq}
            self._view.remember(replace(memory, groups={**memory.groups, **moved}))

    def _apply(self, source: str, group: Group, blocked: dict[str, str]) -> bool:
        """Apply a group, or say in ``blocked`` why it waits. Raises `CommitError` and others."""
        rewriting: Rewriter | None = None
        conflict: CommitConflict | None = None
        for _ in range(TRIES):
            snapshot = self._view.sync()
            known = self._view.output_ids(snapshot.memory)
            if last_committed(source, snapshot.memory.groups, known) >= group.seq:
                self._passed(snapshot, source, known)  # another Penguin was faster
                return True
            version = -1 if snapshot.state is None else snapshot.state.version
            if self._refused.get(source, (-2, ""))[0] == version:
                blocked[source] = self._refused[source][1]
                return False
            whole = _with_unreplaced(group, snapshot.memory)
            if rewriting is None:
                rewriting = Rewriter(
                    self._storage, self._notes, replaced_ranges(whole), self._clock
                )
            try:
                landed = self._tried(snapshot, source, whole, rewriting)
            except CommitConflict as error:
                conflict = error
                continue
            except (SchemaMismatch, CommitRefused) as error:
                blocked[source] = _explain(source, group.seq, error)
                if isinstance(error, CommitRefused):
                    self._refused[source] = (version, blocked[source])
                return False
            if landed is not None:
                return landed
        raise conflict or CommitConflict(f"{self._table.uri}: others commit all the time")

    def _tried(
        self, snapshot: Snapshot, source: str, group: Group, rewriting: Rewriter
    ) -> bool | None:
        """Try once; return whether it was applied, None if the table had to change first."""
        state, memory = snapshot.state, snapshot.memory
        ahead = [group]
        if state is None:
            ahead = self._until_files(group)
            if not ahead[-1].files:
                return False  # without a table there is no place yet to remember a number
        known = self._view.output_ids(memory)
        for each in ahead:
            require_replaced_outputs(each, known)
        plan, rows = self._planner.plan_adds(state, ahead[-1], known)
        marks = tuple(commit_mark(source, each.seq) for each in ahead)
        groups = {**memory.groups, source: ahead[-1].seq}
        if state is None:
            self._commits.land(snapshot, GroupCommit(plan, rows, Removals(), (), marks, groups, {}))
            return True
        if plan.changed:
            # delta-rs takes columns by the call that overwrites alone, and removes by the other.
            columns = replace(plan, adds=(), replaces=False)
            unchanged = GroupCommit(
                columns, 0, Removals(), (), (), memory.groups, memory.unreplaced
            )
            self._commits.land(snapshot, unchanged)
            return None
        going = self._planner.plan_removes(state, group, known)
        rewritten = rewriting.adds(
            going.mixed, columns_without(plan.schema, plan.partition_columns), state
        )
        plan = replace(plan, adds=(*plan.adds, *rewritten), removes=going.removes)
        unreplaced = dict(memory.unreplaced)
        rest = unreplaced_by(group, unreplaced.pop(source, ())).rest
        unreplaced |= {source: rest} if rest else {}
        commit = GroupCommit(
            plan, rows, going, tuple(rewritten), marks, groups, unreplaced, group.outputs
        )
        self._commits.land(snapshot, commit)
        rewriting.landed(rewritten)
        return True

    def _until_files(self, group: Group) -> list[Group]:
        """Return the group and those behind it, up to the first with files."""
        found = [group]
        while not found[-1].files:
            seq = found[-1].seq + 1
            data = self._manifests.read({group.source: seq}).get(group.source)
            if data is None:
                break
            found.append(self._decoded(group.source, seq, data))
        return found

    def _passed(self, snapshot: Snapshot, source: str, known: Container[str]) -> None:
        memory = snapshot.memory
        last = last_committed(source, memory.groups, known)
        self._view.remember(replace(memory, groups={**memory.groups, source: last}))

    def _report_blocked(self, blocked: Mapping[str, str]) -> None:
        for source, why in blocked.items():
            if self._blocked.get(source) != why:
                self._log.warning("group_blocked", source=source, error=why)
        for source in self._blocked.keys() - blocked.keys():
            self._log.info("group_unblocked", source=source)
        self._blocked = dict(blocked)
        memory = self._view.remembered()
        if memory is not None and memory.blocked != self._blocked:
            # The mirror shows the writers of groups why they are not in the table.
            self._view.save(replace(memory, blocked=self._blocked), self._clock())


def _with_unreplaced(group: Group, memory: Memory) -> Group:
    """Return the group with the ranges that discarded groups left unreplaced."""
    due = unreplaced_by(group, memory.unreplaced.get(group.source, ())).due
    return replace(group, replace=(*group.replace, *due)) if due else group


def _explain(source: str, seq: int, error: Exception) -> str:
    """Return why a group waits, with its manifest's name."""
    text = str(error)
    name = group_path(source, seq)
    return text if name in text else f"{name}: {text}"

"""Plans of groups: the files that join the table, and the rows that leave it.

Promise: a plan holds for the version it was made on, and planning only reads. A group that cannot
be applied raises `SchemaMismatch` with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from urllib.parse import unquote

from blizzard_core.delta_json import relative
from blizzard_core.handover.groups import Group
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.active_files import ActiveFiles, spelled_values
from penguin_py.delta.entry import REWRITE_ALL, removal_path
from penguin_py.delta.output_ids import discard_mark
from penguin_py.delta.table import DeltaLog
from penguin_py.groups.outputs import Outputs, footers_of
from penguin_py.groups.rewriter import PartlyReplacedFile
from penguin_py.groups.rows import ReplacedRows, count_replaced
from penguin_py.intake.naming import is_blizzards
from penguin_py.model import CommitPlan, Remove, TableState
from penguin_py.planning.batch_planner import schema_rules
from penguin_py.planning.commit_plan import make_plan
from penguin_py.planning.replacement import TextRanges, find_affected, replaced_ranges
from penguin_py.settings import Table

# Paths of files that are known to lack the columns are forgotten when they are so many more
# than the table has.
FORGOTTEN_AT = 100_000


@dataclass(frozen=True, slots=True)
class Removals:
    """The removals of a group: whole files, and files that keep some rows.

    ``rows`` counts the rows that are replaced.
    """

    removes: tuple[Remove, ...] = ()
    mixed: tuple[PartlyReplacedFile, ...] = ()
    rows: int = 0


class GroupPlanner:
    """A planner for the groups of one table. It caches facts about files, which never change."""

    def __init__(self, table: Table, storage: Storage, log: DeltaLog, pool: Executor) -> None:
        self._table = table
        self._storage = storage
        self._delta = log
        self._pool = pool
        self._rules = schema_rules(table)
        self._outputs = Outputs(storage, log, self._pool)
        # Files without statistics that turned out to lack these columns.
        self._lacking: dict[tuple[str, ...], set[str]] = {}

    def plan_adds(
        self, state: TableState | None, group: Group, known: Container[str]
    ) -> tuple[CommitPlan, int]:
        """Plan the commit of the group's files; return it and the number of their rows.

        Raises `SchemaMismatch` and `StorageError`.
        """
        require_replaced_outputs(group, known)
        footers = footers_of(self._storage, group.files, self._pool)
        plan = make_plan(state, footers, known, self._rules)
        if plan.rejections:
            rejection = plan.rejections[0]
            raise SchemaMismatch(
                f"{rejection.entry.path} does not fit ({rejection.stage}): {rejection.reason};"
                " correct the table, or discard the group with `penguin discard --group`"
            )
        if state is not None and (group.replace or group.source_files or group.outputs):
            found = self._delta.replace_objections()
            if found:
                raise SchemaMismatch(f"the table takes no group: {'; '.join(found)}")
        rows = sum(footer.metadata.num_rows for footer in footers)
        return replace(plan, replaces=True), rows

    def plan_removes(self, state: TableState, group: Group, known: Container[str]) -> Removals:
        """Plan the rows that the group removes. Raises `SchemaMismatch`, `StorageError`."""
        wanted = replaced_ranges(group)
        whole_outputs = fully_removed_outputs(group)
        if not wanted and not whole_outputs:
            return Removals()
        active = self._delta.active_files()
        # Files with units travel by manifest, so a name of Blizzard's own excludes them.
        found = find_affected(active, wanted, is_blizzards)
        whole = dict.fromkeys(found.whole)
        whole.update(dict.fromkeys(self._places(active, whole_outputs, state.version, known)))
        doubtful = [place for place in found.doubtful if place not in whole]
        looked = self._look(active, doubtful, wanted)
        removes, mixed = [], []
        rows = sum(active.rows[place].as_py() or 0 for place in whole)
        for place in [*whole, *doubtful]:
            seen = looked.get(place)
            if seen is not None and seen.leaving == 0:
                continue
            path, size = removal_path(active.paths[place].as_py()), active.sizes[place].as_py()
            values = spelled_values(active, place)
            removes.append(Remove(path, size, values))
            if seen is not None:
                rows += seen.leaving
                if seen.leaving < seen.rows:
                    mixed.append(PartlyReplacedFile(path, size, values))
        return Removals(tuple(removes), tuple(mixed), rows)

    def find_outputs(self, outputs: Sequence[str], version: int) -> dict[str, list[str]]:
        """Return the outputs that have files of their own, with these files."""
        return self._locate(self._delta.active_files(), outputs, version)[0] if outputs else {}

    def _locate(
        self, active: ActiveFiles, outputs: Sequence[str], version: int
    ) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Return the files of each output, and the positions of all active files."""
        names = [unquote(path) for path in active.paths.to_pylist()]
        sizes = dict(zip(names, active.sizes.to_pylist(), strict=True))
        there = self._outputs.places(outputs, sizes, version)
        return there, {path: place for place, path in enumerate(names)}

    def _places(
        self, active: ActiveFiles, outputs: Sequence[str], version: int, known: Container[str]
    ) -> Iterable[int]:
        """Return the positions of the outputs' whole files. Raises `SchemaMismatch`."""
        if not outputs:
            return []
        there, numbers = self._locate(active, outputs, version)
        lost = [o for o in outputs if o not in there and discard_mark(o) not in known]
        if lost:
            raise SchemaMismatch(
                f"the rows of output {lost[0]!r} are in no file of its own any more: a compaction"
                " has mixed them with others, or a RESTORE has brought back older files. So they"
                " cannot be found. Delete them with another engine, then run `penguin discard"
                " --output`. With _source_file in metadata_columns rows are found in any file"
            )
        return [numbers[path] for output in outputs for path in there.get(output, ())]

    def _look(
        self, active: ActiveFiles, places: Sequence[int], wanted: Mapping[str, TextRanges]
    ) -> dict[int, ReplacedRows]:
        """Read the columns of files whose statistics do not suffice. Raises `SchemaMismatch`."""
        lacking = self._lacking.setdefault(tuple(sorted(wanted)), set())

        def look(place: int) -> ReplacedRows:
            spelled = active.paths[place].as_py()
            if spelled in lacking:
                return ReplacedRows(0, 0, lacks=True)
            path = relative(spelled, self._storage.uri)
            if path is None:
                raise SchemaMismatch(f"{spelled} is outside of the table's directory{REWRITE_ALL}")
            return count_replaced(self._storage, path, active.sizes[place].as_py(), wanted)

        found = dict(zip(places, self._pool.map(look, places), strict=True))
        new = {active.paths[place].as_py() for place, looked in found.items() if looked.lacks}
        if len(lacking) > FORGOTTEN_AT + len(active):
            lacking.clear()
        lacking |= new
        return found


def require_replaced_outputs(group: Group, known: Container[str]) -> None:
    """Raise `SchemaMismatch` while an output that the group replaces is not committed."""
    missing = [output for output in group.outputs if output not in known]
    if missing:
        raise SchemaMismatch(
            f"waits until output {missing[0]!r} is committed, whose rows it replaces. `penguin"
            " reconcile` commits it if its file exists. If the file is quarantined or missing, run"
            " `penguin discard --output`"
        )


def fully_removed_outputs(group: Group) -> tuple[str, ...]:
    """Return the outputs whose files are removed completely: no column selects their rows."""
    return group.outputs if not group.source_files else ()

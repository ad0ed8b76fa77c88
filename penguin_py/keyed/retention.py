"""Merged changes that leave their table by `keep_changes`.

Nothing that a merge may still need leaves. The ``txn`` of an application in the change table says
how many versions had been merged when files left it last: rows of fewer versions cannot be merged
again from what is there.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import StateError
from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.changes import active_files
from penguin_py.keyed.pruning import bounds_of, may_have_deletes
from penguin_py.model import CommitPlan, TableState
from penguin_py.settings import KeyedTable

LEFT_APP_ID = "keyed/left"


def check_retention(keyed: KeyedTable, log: DeltaLog, merged: int) -> None:
    """Raise `StateError` if rows of ``merged`` versions lack changes that left the table."""
    gone = log.transaction(LEFT_APP_ID)
    if gone > merged:
        raise StateError(
            f"{keyed.table.uri}: {merged:,} versions of {keyed.changes.uri} are merged in it, and"
            f" keep_changes has let changes of {gone:,} versions go, so others cannot be merged"
            " again. Go back to the former settings, or RESTORE it to a newer version; to give up"
            " the keys whose changes are gone, delete it"
        )


def drop_changes(
    keyed: KeyedTable, log: DeltaLog, state: TableState, merged: int, now: float
) -> dict[str, int]:
    """Take merged files older than ``keep_changes`` out of the change table; count them.

    All of its rows are merged, by ``merged`` versions. Raises `StateError`, `CommitError`.
    """
    if found := log.replace_objections():
        raise StateError(f"{keyed.changes.uri}: {'; '.join(found)}")
    active, partitions = log.active_table(), state.partition_columns
    oldest = pa.scalar(int((now - (keyed.keep_changes or now)) * 1000), pa.timestamp("ms"))
    is_old = pc.less(active["modification_time"].combine_chunks().cast(pa.timestamp("ms")), oldest)
    leaving = active.filter(may_leave(active, is_old, keyed.sequence[0], keyed.deletes))
    try:
        files = active_files(leaving, keyed.changes.uri, partitions)
        removes = tuple(file.removal for file in files)
    except SchemaMismatch as error:
        raise StateError(f"{keyed.changes.uri}: {error}") from error
    if files:
        plan = CommitPlan((), (), state.schema, (), partitions, removes, replaces=True)
        log.remove(plan, LEFT_APP_ID, merged, now)
    return {"files": len(files), "rows": sum(file.rows or 0 for file in files)}


def may_leave(files: pa.Table, old: pa.Array, by: str, deletes: DeleteCondition | None) -> pa.Array:
    """Return which of the old files the lowest sequence of all others, its column ``by``, lets go.

    A file with a delete stays while a change that may be older than it stays: merged again without
    the delete, that change would bring its key back.
    """
    if deletes is None:
        return old
    held = may_have_deletes(files, deletes)
    low, high = bounds_of(files, by)
    while True:
        rest = None if low is None else low.filter(pc.invert(old))
        if rest is None or rest.null_count:
            return pc.and_not(old, held)
        reaches = pc.greater_equal(high, pc.min(rest))  # null if nothing else stays, or unknown
        staying = pc.and_(held, pc.fill_null(reaches, len(rest) > 0))
        leaving = pc.and_not(old, staying)
        if leaving.equals(old):
            return old
        old = leaving

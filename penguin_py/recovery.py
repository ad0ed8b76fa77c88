"""Finding a table's memory again: reads the log and the mirror, writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from blizzard_py.core import checkpoint
from blizzard_py.core.errors import StateError
from blizzard_py.core.floor import raised
from blizzard_py.core.log import get_logger
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Progress, is_hidden
from penguin_py.delta import DeltaLog
from penguin_py.memory import (
    CHORES,
    SETTLED_SECS,
    Memory,
    committed,
    merged_ids,
    mirror_from_json,
    mirror_path,
    rebuilt,
)
from penguin_py.model import TableState
from penguin_py.settings import Table


def recover(
    table: Table,
    storage: Storage,
    log: DeltaLog,
    state: TableState | None,
    accept: Callable[[str], bool],
    folded: int,
    now: float,
) -> Memory:
    """The memory for ``state``, in the order that `penguin_py.memory` gives.

    ``accept`` tells which of the log's names could be files of ours; all of them
    are read only if nothing else is left. Output ids of versions up to ``folded``
    need not be found. Raises `StateError` and `StorageError`.
    """
    oldest = lookback_floor(table.partition_filter, now)
    if state is None:
        depth = None if table.partition_types is None else len(table.partition_types)
        return Memory(Progress(depth=depth, floor=oldest), chores=dict.fromkeys(CHORES, int(now)))
    memory = _remembered(table, storage, log, state)
    depth = len(state.partition_columns)
    if memory is None or memory.progress.depth not in (None, depth):
        known = log.known_paths(state.version)
        ours = [e for e in known if not is_hidden(e.path) and accept(e.path)]
        get_logger(table=table.name).info(
            "progress_rebuilt_from_log", files=len(ours), txn_version=state.txn_version
        )
        if state.removed_kept_secs < SETTLED_SECS:
            # A file below these may be one whose removal the log has forgotten already.
            ours = [replace(entry, modified=0.0) for entry in ours]
        memory = rebuilt(ours, depth, state.txn_version, now, table.grace_period_secs)
        # Otherwise the first poll would list every partition the table ever had.
        floored = raised(memory.progress, table.max_tracked_partitions, oldest, ())
        memory = replace(memory, progress=floored)
        if not ours and oldest is not None:
            memory = replace(memory, progress=replace(memory.progress, floor=oldest))
    ids = merged_ids(memory.output_ids, log.recent_output_ids(folded, state.version))
    return replace(memory, progress=replace(memory.progress, depth=depth), output_ids=ids)


def check_partitioning(table: Table, state: TableState) -> None:
    """Refuse a configuration that contradicts the table. Raises `StateError`."""
    configured = table.partition_types
    if configured is not None and tuple(configured) != state.partition_columns:
        raise StateError(
            f"{table.uri}: the table is partitioned by"
            f" {list(state.partition_columns)}, the configuration says {list(configured)};"
            " make partition_by agree with the table"
        )


def _remembered(table: Table, storage: Storage, log: DeltaLog, state: TableState) -> Memory | None:
    own = log.own_commit(state.txn_version, state.version)
    path = mirror_path(table.state_name)
    try:
        mirror = checkpoint.load(storage, path, mirror_from_json)
    except StateError as error:
        if own is None:
            raise
        get_logger(table=table.name).warning("mirror_ignored", error=str(error))
        mirror = None
    if own is None:
        same = mirror is not None and mirror.txn_version == state.txn_version
        return mirror if same else None
    where = f"{storage.uri}: commitInfo of version {own.version}"
    earlier = () if mirror is None else mirror.output_ids
    memory = committed(own.document, state.txn_version, earlier, where)
    if mirror is None:
        return memory
    if mirror.commit_id == memory.commit_id:
        return mirror
    return replace(memory, chores=mirror.chores)

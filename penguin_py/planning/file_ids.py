"""Output ids from other mirrors and from files, when memory and log have lost them.

A log is cleaned up in time, and Penguin's state may be lost or restored from a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.errors import StateError
from blizzard_core.handover.groups import COMMITTERS_FOLDER
from blizzard_core.storage.protocol import Entry, Storage
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.footers import read_footers
from penguin_py.intake.naming import is_grouped
from penguin_py.model import TableState
from penguin_py.planning.memory import Memory, mirror_from_json, mirror_path

# Footers that are held at once.
AT_ONCE = 256


def ids_of_mirrors(
    storage: Storage, log: DeltaLog, state: TableState, after: int
) -> tuple[str, ...] | None:
    """Return the output ids in other instances' mirrors, of commits behind version ``after``.

    None if no mirror of this log covers the commits that are gone. Raises `StorageError`.
    """
    found: list[str] = []
    is_covered = False
    for mirror in _mirrors(storage):
        seen = mirror.seen
        if seen.table_id != state.table_id or not after < seen.version <= state.version:
            continue
        if seen.anchor and log.anchor(seen.version) not in ("", seen.anchor):
            continue
        found += mirror.output_ids
        is_covered |= seen.version == state.version or log.has_commit(seen.version + 1)
    return tuple(found) if is_covered else None


def ids_of_files(
    storage: Storage, log: DeltaLog, accept: Callable[[str], bool]
) -> tuple[tuple[str, ...], int]:
    """Return the output ids in the footers of the table's files, and the number of files read.

    Rows that a compaction has rewritten carry none. Raises `StorageError`.
    """
    active = log.active_files()
    named = zip(map(unquote, active.paths.to_pylist()), active.sizes.to_pylist(), strict=True)
    files = [Entry(path, size, 0.0) for path, size in named if is_grouped(path) or accept(path)]
    found: list[str] = []
    remaining = list(files)
    while remaining:
        footers = read_footers(storage, remaining[:AT_ONCE], log.pool)
        if footers.failed:
            raise footers.failed[0].error
        found += [footer.output_id for footer in footers.sound if footer.output_id is not None]
        remaining = [*footers.unread, *remaining[AT_ONCE:]]
    return tuple(found), len(files)


def _mirrors(storage: Storage) -> list[Memory]:
    suffix = mirror_path("").rpartition("/")[2]
    found = []
    for page in storage.list_range(f"{COMMITTERS_FOLDER}/", f"{COMMITTERS_FOLDER}0"):
        for path in [entry.path for entry in page.entries if entry.path.endswith(suffix)]:
            try:
                mirror = checkpoint.load(storage, path, mirror_from_json)
            except StateError:
                continue  # of another instance; its own start stops for it
            found += [] if mirror is None else [mirror]
    return found

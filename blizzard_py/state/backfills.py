"""Backfills of a table or an API: runs beside the live source, each with a checkpoint of its own.

Their state is named after the live one's: ``{id}_backfill_{from}..{to}``.
"""

from __future__ import annotations

from blizzard_core.errors import NotFound
from blizzard_core.settings.checks.places import RESERVED
from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.progress import CLOCK_STEP_SECS
from blizzard_py.state.journal import Journal
from blizzard_py.state.state_paths import STATE_FOLDER, StatePaths

# Between a source's name and the range in the name of a backfill's state.
BACKFILL = RESERVED


def backfills_of(sink: Storage, live_id: str) -> tuple[str, ...]:
    """The ids of a source's backfills so far. Raises `StorageError`.

    Configurations refuse a source that is called ``x_backfill_old``; of an older release
    there may be one beside ``x``, and its backfills are not those of ``x``.
    """
    found = checkpoints(sink, f"{live_id}{BACKFILL}")
    others = tuple(f"{name}{BACKFILL}" for name in found if not is_backfill(name))
    return tuple(name for name in found if is_backfill(name) and not name.startswith(others))


def is_backfill(source_id: str) -> bool:
    """Return whether an id is a backfill's: a range follows."""
    return ".." in source_id.partition(BACKFILL)[2]


def checkpoints(sink: Storage, prefix: str = "") -> tuple[str, ...]:
    """The ids of all states of a table that begin so. Raises `StorageError`."""
    stem = f"{STATE_FOLDER}/{prefix}"
    try:
        return tuple(
            paths.id
            for page in sink.list_range(stem, f"{stem}\U0010ffff")
            for entry in page.entries
            if (paths := StatePaths.of_checkpoint(entry.path)) is not None
        )
    except NotFound:  # a local table that nothing was written to yet
        return ()


def begins_at(sink: Storage, live_id: str, now: float, concurrency: int) -> float:
    """Return ``now``, or when the source or a backfill of it has committed a batch last, if later.

    What came before counts no more, and what commits after counts from here. A store tells times in
    whole seconds, and its clock may have been put back since: so ``now`` alone could lie before
    what is there. Raises `StateError`, `StorageError`.
    """
    latest = now
    for run in (live_id, *backfills_of(sink, live_id)):
        journal = Journal(sink, run, concurrency)
        recent = [batch for batch, at in journal.written() if at >= now - CLOCK_STEP_SECS]
        latest = max([latest, *(record.finished_ts for record in journal.read(recent))])
    return latest

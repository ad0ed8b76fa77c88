"""The other runs of a source: its backfills and its replays, each with a checkpoint of its own.

Their state is named after the live one's: ``{id}_backfill_{from}..{to}``, ``{id}~replay`` for
whole files and ``{id}~records`` for single records. (No name in a configuration has a ``~``.)
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
REPLAY_SUFFIX = "~replay"
RECORDS_SUFFIX = "~records"


def replays_of(live_id: str) -> tuple[str, str]:
    """The ids of a source's replays, whether they ever ran or not."""
    return f"{live_id}{REPLAY_SUFFIX}", f"{live_id}{RECORDS_SUFFIX}"


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


def siblings_of(sink: Storage, live_id: str) -> tuple[str, ...]:
    """All other runs that may have settled files of the source. Raises `StorageError`."""
    return (*replays_of(live_id), *backfills_of(sink, live_id))


def is_run(source_id: str) -> bool:
    """Return whether an id is that of a replay or a backfill."""
    return source_id.endswith((REPLAY_SUFFIX, RECORDS_SUFFIX)) or is_backfill(source_id)


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
    """``now``, or the latest at which any run of the source has committed a batch.

    What runs have taken counts no more if it came before, and who commits after counts from
    here. Each counts on from a time that a store told it in whole seconds, and that store's clock
    may have been put back since: so ``now`` alone could lie before what is there. Raises
    `StateError`, `StorageError`.
    """
    latest = now
    for run in (live_id, *siblings_of(sink, live_id)):
        journal = Journal(sink, run, concurrency)
        recent = [batch for batch, at in journal.written() if at >= now - CLOCK_STEP_SECS]
        latest = max([latest, *(record.finished_ts for record in journal.read(recent))])
    return latest

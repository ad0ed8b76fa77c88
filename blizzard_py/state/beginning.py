"""When a source is started over, told so that everything that was done lies before it."""

from __future__ import annotations

from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.progress import CLOCK_STEP_SECS
from blizzard_py.state.journal import Journal
from blizzard_py.state.siblings import siblings_of


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

"""The work that the checkpoint still has on an item, by its name. Pure."""

from __future__ import annotations

from blizzard_core.text import iso
from blizzard_py.sources.story import Waiting
from blizzard_py.state.source_state import PendingWork


def waiting(
    work: PendingWork,
    path: str,
    max_retries: int,
) -> Waiting | None:
    """Return what the checkpoint has still to do on the file by name, None if nothing."""
    tries = work.retries[path].count if path in work.retries else None
    for batch in work.in_flight:
        if any(entry.path == path for entry in batch.files):
            outcome = next((f.outcome for f in batch.results.finished if f.path == path), None)
            reason = f"in flight in batch {batch.batch}, {batch.phase}" + (
                f" ({outcome})" if outcome else f" (attempt {batch.attempt})"
            )
            return Waiting(
                "in_flight",
                f"{reason}, since {iso(batch.started_ts)}",
                batch.batch,
                batch.phase,
                batch.attempt,
                batch.started_ts,
                tries,
                max_retries if tries is not None else None,
            )
    if tries is not None:
        reason = (
            f"could not be read; waits for another try, {iso(work.retries[path].after)} at the"
            " earliest"
            f" (retry {tries} of {max_retries}, then it is quarantined)"
        )
        return Waiting("retry", reason, tries=tries, max_tries=max_retries)
    queued = next((file for file in work.queue if file.path == path), None)
    if queued is not None and queued.request:
        reason = f"taken by request {queued.request}, and queued for a batch of it"
        return Waiting("requested", reason)
    if queued is not None:
        return Waiting("late_queue", "late, and queued for the next batch (late_files: ingest)")
    return None

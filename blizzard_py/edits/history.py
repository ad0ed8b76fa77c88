"""Backups of the checkpoint from manual changes: listed, compared, and restored.

A version is a backup that `checkpoint_edit.change` made of the checkpoint before a change. It is
restored only where that keeps the promise: **the source has published nothing since**, and all data
that the version needs still exists. Then its statements about files are still true, and only manual
changes are undone. Otherwise later rows would come twice, so it is refused: `blizzard checkpoint
rebuild` makes a checkpoint that knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blizzard_core.errors import StateError
from blizzard_py.edits.checkpoint_store import EditRefused, Stored, Version
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.stale import require_current, world_of
from blizzard_py.sources.tables.newer_groups import published_since
from blizzard_py.state.checkpoint_file import with_journal_names
from blizzard_py.state.journal import Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_tracker import ProcessedTracker
from blizzard_py.state.seen_rows import segment_path
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import StatePaths


def differences(before: SourceState, after: SourceState) -> list[tuple[str, str, str]]:
    """Return what differs, as (what, before, after); a line for each partition."""
    old, new = _facts(before), _facts(after)
    names = dict.fromkeys((*old, *new))
    return [
        (name, old.get(name, "-"), new.get(name, "-"))
        for name in names
        if old.get(name, "-") != new.get(name, "-")
    ]


def _facts(state: SourceState) -> Mapping[str, str]:
    """Return a state as comparable texts."""
    progress = state.progress
    found: dict[str, Any] = {
        "state": progress.state,
        "watermark": progress.value,
        "floor": progress.floor,
        "files queued": len(state.queue) or None,
        "files for another try": len(state.retries) or None,
        "batches in flight": len(state.in_flight) or None,
        "last group": state.group_seq or None,
    }
    if state.columns is not None:
        found["columns"] = dict(state.columns.watermark)
    if state.units is not None:
        found["units open"] = len(state.units.open)
    for partition, known in sorted(progress.partitions.items()):
        done = f", {len(known.done):,} done above it" if known.done else ""
        found[f"partition {partition or '(none)'}"] = f"{known.watermark}{done}"
    return {name: str(value) for name, value in found.items() if value is not None}


def rolled_back(source: SourcePipeline, seen: Stored, to: Version) -> SourceState:
    """Return the state of that version, to replace the ``seen`` one.

    Raises `EditRefused` where rows would come twice or be skipped, `StorageError`.
    """
    if to.until is None:
        raise EditRefused("that is the present checkpoint; `checkpoint log` lists the others")
    _check_same(seen.state, to)
    _check_counts(source, seen.state, to)
    _check_nothing_published(source, to, to.until)
    _check_there(source, to)
    old = to.state
    try:
        old = with_journal_names(source.sink, source.id, old)
    except StateError as error:
        raise EditRefused(f"{to.name} needs missing data: {error}") from error
    # Names that sweeps noted since stay in the ledger, unless the source was started over.
    again = seen.state.reset_ts != old.reset_ts
    ledger = old.ledger if again else seen.state.ledger
    # Batches that ran then run again, as after a crash: they were not committed.
    unfolded = old.unfolded if again else seen.state.unfolded
    return replace(
        old,
        totals=seen.state.totals,
        ledger=ledger,
        unfolded=unfolded,
        requests=seen.state.requests,
    )


def _check_same(now: SourceState, to: Version) -> None:
    old = to.state
    if now.source != old.source:
        raise EditRefused(
            f"{to.name} is of another source or place; `blizzard rename` moves a state"
        )
    if old.progress.state == "Initial" and old.columns is None and old.units is None:
        raise EditRefused(
            f"in {to.name} nothing was ingested; `blizzard checkpoint reset` starts a source over"
        )
    if any(batch.phase == "publishing" for batch in old.in_flight):
        raise EditRefused(
            f"{to.name} is in the middle of publishing a batch; use `blizzard checkpoint rebuild`"
        )


def _check_counts(source: SourcePipeline, now: SourceState, to: Version) -> None:
    """Raise `EditRefused` if more batches have ended than in the version, on any clock."""
    before, after = to.state.totals.batches, now.totals.batches
    if before != after:
        raise EditRefused(
            f"{before:,} batches had ended when {to.name} was replaced, and {after:,} by now. Their"
            " rows would come twice. Use `blizzard checkpoint rebuild`, which knows them, or"
            " `checkpoint set`"
        )
    if source.parts.has_files:
        try:
            require_current(to.state, source.parts, world_of(source.parts, to.state))
        except StateError as error:
            raise EditRefused(str(error)) from error


def _check_nothing_published(source: SourcePipeline, to: Version, until: float) -> None:
    """Raise `EditRefused` if a batch has ended since, by the store's times."""
    journal = Journal(source.sink, source.id, source.parts.concurrency)
    since = [batch for batch, at in journal.written() if at >= until]
    if since:
        raise EditRefused(
            f"{len(since):,} batches were published since {to.name} was replaced, {since[0]} for"
            " one: what they ingested would come twice. Use `blizzard checkpoint rebuild`, which"
            " knows of them, or `checkpoint set`"
        )
    if published_since(source.sink, source.parts.letters_id, to.state) is not None:
        raise EditRefused(f"groups were published since {to.name}; use `blizzard checkpoint reset`")


def _check_there(source: SourcePipeline, to: Version) -> None:
    """Raise `EditRefused` if a segment that the version names was removed since."""
    sink, state = source.sink, to.state
    try:
        Ledger(sink, source.id).load(state.ledger)
        ProcessedTracker(sink, StatePaths(source.id).processed).load(state.processed or ())
    except StateError as error:
        raise EditRefused(
            f"{to.name} needs missing data: {error}; use `blizzard checkpoint rebuild`"
        ) from error
    columns = state.columns
    missing = [
        segment.segment
        for segment in (() if columns is None else columns.seen)
        if sink.stat(segment_path(source.id, segment)) is None
    ]
    if missing:
        raise EditRefused(f"{to.name} counts on the digests {missing[0]}, which are gone")

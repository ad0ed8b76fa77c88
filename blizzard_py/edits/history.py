"""Backups of the checkpoint from manual changes: listed, compared, and restored.

A version is a backup that `checkpoint_edit.change` made of the checkpoint before a change. It is
restored only where that keeps the promise: **the source has published nothing since**, and all data
that the version needs still exists. Then its statements about files are still true, and only manual
changes are undone. Otherwise later rows would come twice, so it is refused: `blizzard checkpoint
rebuild` makes a checkpoint that knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blizzard_core.errors import StateError
from blizzard_py.edits.checkpoint_store import EditRefused, Stored, Version
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.sources.stale import require_current, world_of
from blizzard_py.sources.tables.newer_groups import find_newer
from blizzard_py.state.checkpoint_file import with_journal_names
from blizzard_py.state.journal import Journal
from blizzard_py.state.ledger import Ledger
from blizzard_py.state.processed_set import ProcessedSet
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
    progress = state.position.progress
    found: dict[str, Any] = {
        "state": progress.state,
        "watermark": progress.value,
        "floor": progress.floor,
        "files queued": len(state.work.queue) or None,
        "files for another try": len(state.work.retries) or None,
        "batches in flight": len(state.work.in_flight) or None,
        "last group": state.ids.group_seq or None,
    }
    if state.kind.columns is not None:
        found["columns"] = dict(state.kind.columns.watermark)
    if state.kind.units is not None:
        found["units open"] = len(state.kind.units.open)
    for partition, known in sorted(progress.partitions.items()):
        done = f", {len(known.done):,} done above it" if known.done else ""
        found[f"partition {partition or '(none)'}"] = f"{known.watermark}{done}"
    return {name: str(value) for name, value in found.items() if value is not None}


def roll_back(source: SourceView, seen: Stored, to: Version) -> SourceState:
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
    again = seen.state.position.reset_ts != old.position.reset_ts
    ledger = old.names.ledger if again else seen.state.names.ledger
    # Batches that ran then run again, as after a crash: they were not committed.
    unfolded = old.names.unfolded if again else seen.state.names.unfolded
    return (
        old.with_work(requests=seen.state.work.requests)
        .with_names(ledger=ledger, unfolded=unfolded)
        .with_summary(totals=seen.state.summary.totals)
    )


def _check_same(now: SourceState, to: Version) -> None:
    old = to.state
    if now.source != old.source:
        raise EditRefused(
            f"{to.name} is of another source or place; `blizzard rename` moves a state"
        )
    if (
        old.position.progress.state == "Initial"
        and old.kind.columns is None
        and old.kind.units is None
    ):
        raise EditRefused(
            f"in {to.name} nothing was ingested; `blizzard checkpoint reset` starts a source over"
        )
    if any(batch.phase == "publishing" for batch in old.work.in_flight):
        raise EditRefused(
            f"{to.name} is in the middle of publishing a batch; use `blizzard checkpoint rebuild`"
        )


def _check_counts(source: SourceView, now: SourceState, to: Version) -> None:
    """Raise `EditRefused` if more batches have ended than in the version, on any clock."""
    before, after = to.state.summary.totals.batches, now.summary.totals.batches
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


def _check_nothing_published(source: SourceView, to: Version, until: float) -> None:
    """Raise `EditRefused` if a batch has ended since, by the store's times."""
    journal = Journal(source.sink, source.id, source.parts.concurrency)
    since = [batch for batch, at in journal.list_batches() if at >= until]
    if since:
        raise EditRefused(
            f"{len(since):,} batches were published since {to.name} was replaced, {since[0]} for"
            " one: what they ingested would come twice. Use `blizzard checkpoint rebuild`, which"
            " knows of them, or `checkpoint set`"
        )
    if find_newer(source.sink, source.parts.letters_id, to.state) is not None:
        raise EditRefused(f"groups were published since {to.name}; use `blizzard checkpoint reset`")


def _check_there(source: SourceView, to: Version) -> None:
    """Raise `EditRefused` if a segment that the version names was removed since."""
    sink, state = source.sink, to.state
    try:
        Ledger(sink, source.id).load(state.names.ledger)
        ProcessedSet(sink, StatePaths(source.id).processed).load(state.names.processed or ())
    except StateError as error:
        raise EditRefused(
            f"{to.name} needs missing data: {error}; use `blizzard checkpoint rebuild`"
        ) from error
    columns = state.kind.columns
    missing = [
        segment.segment
        for segment in (() if columns is None else columns.seen)
        if sink.stat(segment_path(source.id, segment)) is None
    ]
    if missing:
        raise EditRefused(f"{to.name} counts on the digests {missing[0]}, which are gone")

"""Stale checkpoints of sources that publish groups: go on with what still holds.

Only the owner of the checkpoint publishes groups of a table or an API, and each number is saved
before its manifest is written. So a checkpoint is stale if there is a group above its last number.
The table then has other slices than the checkpoint says, and a replacement could leave rows twice.
The manifests say which rows the newer readings replaced. If one of them is gone, the source stops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Storage
from blizzard_py.slices.names import Range, snapshot_range
from blizzard_py.slices.units.trust import read_since
from blizzard_py.state.committers import manifest, numbers_from
from blizzard_py.state.source_state import SourceState


@dataclass(frozen=True, slots=True)
class Since:
    """Groups published since a checkpoint: the last number, and what is known to be replaced.

    ``missing`` is the first number of which nothing is known any more.
    """

    last: int
    replaced: tuple[Range, ...]
    missing: int | None


def find_newer(sink: Storage, source_id: str, state: SourceState, applied: int = 0) -> Since | None:
    """Return what the state does not know, a batch of its own included; None if it is the newest.

    ``applied`` is the last group that the table's log tells of. Costs a LIST. Raises
    `StorageError`, `StateError` for a manifest that is not understood.
    """
    own = (
        batch.results.group.seq for batch in state.work.in_flight if batch.results.group is not None
    )
    first = min((*own, state.ids.group_seq + 1))
    found = numbers_from(sink, source_id, first)
    last = max(*found, applied, 0)
    if last <= state.ids.group_seq:
        return None
    missing = next((number for number in range(first, last + 1) if number not in found), None)
    if missing is not None:
        return Since(last, (), missing)
    groups = (manifest(sink, source_id, number) for number in range(first, last + 1))
    return Since(last, tuple(each for group in groups for each in group.replace), None)


def with_units(state: SourceState, since: Since, source_id: str, where: str) -> SourceState:
    """Return a unit source's state without anything that newer commits made invalid.

    Raises `StateError` where that cannot be told.
    """
    known = state.kind.units
    if known is not None and not known.anew:
        _check(since, where, "checkpoint reset --units")
        if snapshot_range(source_id) in since.replaced:
            raise StateError(
                f"{where}: is older than the last beginning from nothing of its source, and what"
                " it says of units holds no more; restore a newer one, or begin anew with"
                " `blizzard checkpoint reset --units`, which replaces what is published"
            )
        known = read_since(known, source_id, since.replaced)
    units = None if known is None else replace(known, readings=())
    return _dead_lettered(state, since).with_kind(units=units)


def with_columns(state: SourceState, since: Since, source_id: str, where: str) -> SourceState:
    """Return the same for a source whose windows or snapshots are replaced."""
    known = state.kind.columns
    if known is None:
        return _dead_lettered(state, since)
    boundaries = known.boundaries
    if known.watermark and boundaries:
        _check(since, where, "checkpoint reset")
        lowest = min(first for first, _ in since.replaced).removeprefix(f"{source_id}/")
        # The lowest slice always begins at the beginning of all values.
        boundaries = tuple(text for text in boundaries if text <= lowest) or ("",)
    without_window = replace(
        known, boundaries=boundaries, window=None, tasks=(), done=(), slices=()
    )
    return _dead_lettered(state, since).with_kind(columns=without_window)


def _dead_lettered(state: SourceState, since: Since) -> SourceState:
    """Return the state without batches: published ones have manifests, others are planned again."""
    return state.with_work(in_flight=(), retries={}).with_ids(group_seq=since.last)


def _check(since: Since, where: str, remedy: str) -> None:
    if since.missing is not None:
        raise StateError(
            f"{where}: is older than what was published, which is group {since.last}, and what"
            f" group {since.missing} replaced is not known any more; restore a newer one, or have"
            f" all read again and replaced, with `blizzard {remedy}`"
        )

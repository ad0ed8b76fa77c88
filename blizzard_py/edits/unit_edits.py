"""An operator's changes of a source's work units. Pure: each returns the next state.

`blizzard_py.edits.checkpoint_edit` saves them in the checkpoint. Each drops a running batch, which
would otherwise finish over the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from blizzard_core.errors import UnitError
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.slices.instants import in_utc, stamp
from blizzard_py.slices.units.outcomes import mark_units, with_high
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import UnitsState, key_parts, unit_key
from blizzard_py.slices.units.values import LONE, unit_name
from blizzard_py.sources.tables import unit_states
from blizzard_py.sources.tables.sliced import OWN_ID
from blizzard_py.sources.tables.unit_plans import UnitOutlook
from blizzard_py.state.source_state import IssuedIds, KindState, PendingWork, SourceState, Summary


def set_high(
    state: SourceState,
    found: UnitOutlook,
    key: str,
    high: datetime | None,
    values: Sequence[Mapping[str, str]] | None,
) -> SourceState:
    """Return the state with a unit read up to ``high``; None reads it again.

    ``found`` is a look at the state, ``values`` what the source has now. Raises `EditRefused` for
    a unit that there is not: it would count for the cut-off of all others.
    """
    if (
        high is not None
        and state.kind.units is not None
        and state.kind.units.anew
        and state.ids.group_seq
    ):
        raise EditRefused(
            "--high: the source starts over, and its next replacement removes all published rows."
            " Let it be read once, then give the high watermark of a unit"
        )
    begin, name = key_parts(key, "--unit")
    if name not in _names(values):
        raise EditRefused(f"--unit: the source has no unit {name!r}; `blizzard plan` lists them")
    partition = next((pair for pair in found.laid.partitions if pair[0] == begin), None)
    if partition is None:
        raise EditRefused(
            f"--unit: no partition begins at {stamp(begin)}; `blizzard plan` lists them"
        )
    units = with_high(_known(state, found), key, partition, high)
    return unit_states.with_progress(_without_readings(state.with_kind(units=units)))


def start_over(state: SourceState, *, adopt: bool) -> SourceState:
    """Return the state before any reading: the first one replaces everything.

    Rows of a source that was not read by units have no `_unit` and are never replaced. That is
    refused, unless ``adopt`` is set.
    """
    was_read = state.kind.columns is not None or state.position.progress.value is not None
    if state.kind.units is None and was_read and not adopt:
        raise EditRefused(
            "this source was not read by units, so its rows in the table have no unit and are never"
            f" replaced. Delete them, and give the source {OWN_ID}; or give --adopt, and they stay"
            " with the new ones"
        )
    return SourceState(
        source=state.source,
        work=PendingWork(requests=state.work.requests),
        ids=IssuedIds(group_seq=state.ids.group_seq),
        kind=KindState(units=UnitsState(anew=True)),
        summary=Summary(totals=state.summary.totals),
    )


def read_again(
    state: SourceState,
    found: UnitOutlook,
    span: Pair,
    values: Sequence[Mapping[str, str]] | None,
    only: Sequence[str],
) -> tuple[SourceState, tuple[str, ...]]:
    """Return the state with the units in ``span`` marked, and their keys.

    They are read again from their beginning; ``only`` narrows them down to values of these names.
    Raises `EditRefused` if there are none, or no such value.
    """
    names = _names(values)
    odd = [name for name in only if name not in names]
    if odd:
        raise EditRefused(f"--values: {odd[0]!r} is none of the source's; see `blizzard plan`")
    low, high = in_utc(span[0], "--from"), in_utc(span[1], "--to")
    keys = tuple(
        unit_key(begin, name)
        for begin, end in found.laid.partitions
        if begin < high and end > low
        for name in names
        if not only or name in only
    )
    if not keys:
        raise EditRefused(f"no partition has time from {stamp(low)} to {stamp(high)}")
    return with_marks(state, found, keys), keys


def with_marks(state: SourceState, found: UnitOutlook, keys: Sequence[str]) -> SourceState:
    """Return the state with these units to be read again."""
    try:
        units = mark_units(_known(state, found), keys)
    except UnitError as error:
        raise EditRefused("; ".join(error.problems)) from error
    return _without_readings(state.with_kind(units=units))


def _names(values: Sequence[Mapping[str, str]] | None) -> list[str]:
    return [LONE] if values is None else [unit_name(one) for one in values]


def _known(state: SourceState, found: UnitOutlook) -> UnitsState:
    """Return what is known, with the spec that it is of."""
    known = state.kind.units or UnitsState(anew=True)
    return replace(known, spec=found.state.spec)


def _without_readings(state: SourceState) -> SourceState:
    units = None if state.kind.units is None else replace(state.kind.units, readings=())
    in_flight = {entry.path for batch in state.work.in_flight for entry in batch.files}
    retries = {path: retry for path, retry in state.work.retries.items() if path not in in_flight}
    return state.with_work(in_flight=(), retries=retries).with_kind(units=units)

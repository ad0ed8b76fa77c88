"""A source's state after a batch of units, and the state for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.names import snapshot_range
from blizzard_py.slices.units.outcomes import record_failure, record_success, replaced_range
from blizzard_py.slices.units.state import UnitReading, UnitsState, highest, unit_of
from blizzard_py.sources.tables.window_tasks import progress_of_text
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.source_state import SourceState

# Failing units that `status` names.
_NAMED = 20


def read_by(state: SourceState, batch: Batch) -> dict[str, UnitReading]:
    """Return the readings of the batch's units by their names."""
    items = {entry.path for entry in batch.files}
    known = state.kind.units or UnitsState()
    return {reading.key: reading for reading in known.readings if reading.key in items}


def ranges_of(source_id: str, state: SourceState, batch: Batch, done: set[str]) -> Replaced | None:
    """Return what the units that were read replace; None where none was.

    The first group after a start from nothing replaces everything that the source has published.
    Later readings bring the other units again, and slices of another cut must be removed.
    """
    readings = [reading for key, reading in read_by(state, batch).items() if key in done]
    if not readings:
        return None
    if state.kind.units is not None and state.kind.units.anew:
        return Replaced((snapshot_range(source_id),))
    return Replaced(tuple(replaced_range(source_id, reading) for reading in readings))


def after(state: SourceState, batch: Batch) -> SourceState:
    """Return the state with the outcomes of the batch's units.

    If none of several units could be read, the source is down rather than each unit bad. Then no
    unit's failure counts, and only the batch's retries show the waiting units.
    """
    known = state.kind.units
    if known is None:
        return state
    readings = read_by(state, batch)
    is_down = len(batch.results.finished) > 1 and all(
        f.outcome == "retry" for f in batch.results.finished
    )
    for file in batch.results.finished:
        reading = readings.get(file.path)
        if reading is None:
            continue  # an edit has given the batch's readings up
        if file.outcome == "ingested":
            known = replace(record_success(known, reading), anew=False)
        elif not is_down:
            known = record_failure(known, reading, moment(reading.at), file.error)
    remaining = tuple(reading for reading in known.readings if reading.key not in readings)
    return with_progress(state.with_kind(units=replace(known, readings=remaining)))


def read_again(state: SourceState, batch: Batch) -> set[str]:
    """Return the batch's units that were read before and are read from their beginning again."""
    known = state.kind.units or UnitsState()
    return {
        key
        for key, reading in read_by(state, batch).items()
        if reading.slices[0] == key.partition("/")[0]
        and unit_of(known, key, reading.part_to).high is not None
    }


def with_progress(state: SourceState) -> SourceState:
    """Return the state with the highest of all high watermarks in its usual field."""
    top = None if state.kind.units is None else highest(state.kind.units)
    return state if top is None else state.with_position(progress=progress_of_text(stamp(top)))


def units_status(state: SourceState, blocked: str | None) -> dict[str, Any]:
    """Return ``units`` of ``status --json``; ``blocked`` is why the next group is not committed."""
    known = state.kind.units or UnitsState()
    failing = {key: unit for key, unit in known.open.items() if unit.failures}
    named = sorted(failing.items(), key=lambda item: (-item[1].failures, item[0]))[:_NAMED]
    return {
        "closed_to": dict(known.closed_to),
        "open": len(known.open),
        "failing": len(failing),
        "redo": len(known.redo),
        "failures": [_failure(key, unit) for key, unit in named],
        "blocked_group": blocked,
        "last_group": state.ids.group_seq or None,
    }


def _failure(key: str, unit: Any) -> Mapping[str, Any]:
    return {
        "name": key,
        "failures": unit.failures,
        "next_try": unit.next_try,
        "error": unit.error,
    }

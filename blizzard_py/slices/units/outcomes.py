"""The units' state after a reading, or after an operator's request. Pure.

A success moves a unit's high watermark and its slices. A failure is counted and pauses the unit.
Stored times are compared as text, which has a fixed width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from blizzard_core.errors import StateError, UnitError
from blizzard_core.text import one_line, printable, shortened
from blizzard_py.slices.compare import shown
from blizzard_py.slices.edges import known_after
from blizzard_py.slices.instants import in_utc, stamp
from blizzard_py.slices.names import Range, unit_range, unit_slice
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import (
    OpenUnit,
    UnitReading,
    UnitsState,
    key_parts,
    known_end,
    parse_moment,
    unit_of,
)

# The pause in seconds after the first failure, and the longest one. It doubles with each failure,
# so that a unit that always fails does not use up an API's quota.
PAUSE_SECS = (60, 86_400)

MOST_MARKS = 20_000


def record_success(state: UnitsState, reading: UnitReading) -> UnitsState:
    """Return the state after a published reading: its end is the high watermark.

    The high watermark never falls. Failures and a mark to read the unit again are removed. Raises
    `StateError` for a reading that begins within a slice: rows would be in the table twice.
    """
    known = unit_of(state, reading.key, reading.part_to)
    begin = reading.key.partition("/")[0]
    low = reading.slices[0]
    if known.high is not None and begin < low < known.high and low not in known.slices:
        raise StateError(
            f"{shown(reading.key)}: was read from {low}, within a slice that stays in the table;"
            " restore the checkpoint"
        )
    older = known.slices if known.slices and known.slices[0] < low else (begin,)
    slices = known_after(older, reading.slices)
    high = max(known_end(known) or reading.to, reading.to)
    read = OpenUnit(high=high, slices=slices, read_at=reading.at)
    marks = tuple(key for key in state.redo if key != reading.key)
    return replace(state, open={**state.open, reading.key: read}, redo=marks)


def record_failure(
    state: UnitsState, reading: UnitReading, now: datetime, error: str
) -> UnitsState:
    """Return the state after a failed reading: one more failure and a pause.

    The pause doubles each time, up to a day. High watermark, slices and marks stay. ``error`` is
    saved on one line, shortened.
    """
    known = unit_of(state, reading.key, reading.part_to)
    failures = known.failures + 1
    first, longest = PAUSE_SECS
    pause = timedelta(seconds=min(longest, first * 2 ** min(failures - 1, 30)))
    why = shortened(printable(one_line(error)), 500)
    next_try = stamp(in_utc(now, "now") + pause)
    waits = replace(known, failures=failures, next_try=next_try, error=why)
    return replace(state, open={**state.open, reading.key: waits})


def mark_units(state: UnitsState, keys: Iterable[str]) -> UnitsState:
    """Mark units: they are read again from their beginning at once, and their rows replaced.

    Raises `UnitError` for more than 20,000 marks, `StateError` for a key that is no unit.
    """
    marks = dict.fromkeys([*state.redo, *keys])
    if len(marks) > MOST_MARKS:
        raise UnitError(
            f"{len(marks):,} units would be read again, and {MOST_MARKS:,} can be marked; take a"
            " shorter range, and the next when that is read"
        )
    open_ = dict(state.open)
    for key in marks:
        key_parts(key)
        if key in open_ and key not in state.redo:
            open_[key] = replace(open_[key], next_try=None)
    return replace(state, open=open_, redo=tuple(marks))


def with_high(state: UnitsState, key: str, partition: Pair, high: datetime | None) -> UnitsState:
    """Return the state with the unit read up to ``high``. None forgets it: it is read as new.

    A lower value than before is moved down to the beginning of a slice, or forgets the unit if no
    slice is known there: later times are read again, and slices are replaced completely. If it is
    higher than the range read so far, the time of the last reading is dropped. Raises `UnitError`
    for a value outside of the partition.
    """
    begin, end = partition
    known = unit_of(state, key, stamp(end))
    if key_parts(key)[0] != begin:
        raise UnitError(f"{shown(key)} does not begin at {stamp(begin)}")
    if high is None:
        return replace(state, open={**state.open, key: OpenUnit()})
    wanted = in_utc(high, "high")
    if not begin < wanted <= end:
        raise UnitError(f"{stamp(wanted)} is not within {stamp(begin)} to {stamp(end)}")
    wanted_text = stamp(wanted)
    if known.high is None and key in state.open and wanted_text < stamp(end):
        raise UnitError(
            f"{shown(key)} was forgotten or has failed, so its rows in the table cannot be divided"
            f" at {wanted_text}. Read the whole unit first, or give its end {stamp(end)} to skip it"
        )
    is_known = wanted_text <= (known_end(known) or "")
    read_at = known.read_at if is_known else None
    if known.high is None:
        read = OpenUnit(wanted_text, (stamp(begin),), read_at)
    elif wanted_text >= known.high:
        # The range above counts as published, as a slice of its own.
        grown = (
            (*known.slices, known.high)
            if wanted_text > known.high and known.slices
            else known.slices
        )
        read = OpenUnit(wanted_text, grown, read_at)
    else:
        lower = max((text for text in known.slices if text <= wanted_text), default=stamp(begin))
        remaining = tuple(text for text in known.slices if text < lower)
        read = OpenUnit(lower, remaining, read_at) if remaining else OpenUnit()
    return replace(state, open={**state.open, key: read})


def replaced_range(source_id: str, reading: UnitReading) -> Range:
    """Return the range of `_unit` that the reading replaces."""
    begin, name = key_parts(reading.key)
    low = parse_moment(reading.slices[0], reading.key)
    return unit_range(source_id, begin, name, low)


def slice_texts(source_id: str, reading: UnitReading) -> tuple[str, ...]:
    """Return what `_unit` holds in the rows of each of the reading's slices, in their order."""
    begin, name = key_parts(reading.key)
    lows = (parse_moment(text, reading.key) for text in reading.slices)
    return tuple(unit_slice(source_id, begin, name, low) for low in lows)

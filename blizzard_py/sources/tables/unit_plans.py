"""The units that the next batch of a run reads, and their queries. Pure.

A **run** is the work of one poll. It reads each due unit once, however long that takes, and at most
`max_units_per_run` units. So units in grace, which are always due, are read once a poll; those that
fail meanwhile come again when their pause is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import get_args

from blizzard_py.connections.placeholders import FROM, TO, Values, unit_placeholder
from blizzard_py.connections.query_spec import Units
from blizzard_py.slices.instants import clock_of, moment, stamp
from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.due import Due, due, reading_of
from blizzard_py.slices.units.planner import PlannedUnit, Reason, limit_units
from blizzard_py.slices.units.ranges import LaidOut, laid_out, spec_of
from blizzard_py.slices.units.state import (
    UnitReading,
    UnitsState,
    check_spec,
    key_parts,
    unit_key,
    unit_of,
)
from blizzard_py.slices.units.values import LONE, unit_name, values_named


@dataclass(slots=True)
class UnitRun:
    """One run: since when, how many units may still be read (None: all), which were."""

    began: float
    remaining: int | None
    read_units: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class UnitOutlook:
    """The units that are due at a time, and the state as that look leaves it."""

    state: UnitsState
    laid: LaidOut
    values: Sequence[Mapping[str, str]] | None
    due: Due


def preview(
    known: UnitsState | None,
    units: Units,
    values: Sequence[Mapping[str, str]] | None,
    now: datetime,
    where: str,
) -> UnitOutlook:
    """Return what is due now, as far as `max_units_per_run` goes.

    Raises `StateError` for a state of other partitions, `UnitError` as `laid_out` and `due` do.
    """
    state = UnitsState(anew=True) if known is None else known
    state = check_spec(state, spec_of(units.range, units.fields), where)
    laid = laid_out(units.range, now)
    names = [LONE] if values is None else [unit_name(one) for one in values]
    state = compact(state, laid.partitions, names, units.terms.shift)
    found = due(state, laid.partitions, values, units.terms, now)
    return UnitOutlook(state, laid, values, found)


def to_read(found: UnitOutlook, run: UnitRun, waiting: Collection[str]) -> list[PlannedUnit]:
    """Return the units that the run still has to read; above its limit, those that waited longest.

    ``waiting`` are units of a batch in which no unit could be read. A unit that failed alone has
    its own pause.
    """
    chosen = []
    alone = {key for key, unit in found.state.open.items() if unit.failures}
    for unit in found.due.units:
        key = unit_key(unit.partition[0], unit.name)
        if unit.execute and key not in run.read_units and (key in alone or key not in waiting):
            chosen.append(unit)
    if run.remaining is None or len(chosen) <= run.remaining:
        return chosen
    turns = []
    for unit in chosen:
        begin = stamp(unit.partition[0])
        known = unit_of(found.state, f"{begin}/{unit.name}", stamp(unit.partition[1]))
        turns.append(known.read_at or begin)
    return [unit for unit in limit_units(chosen, run.remaining, turns) if unit.execute]


def plan_reading(unit: PlannedUnit, units: Units, now: datetime) -> UnitReading:
    """Return what is saved of a unit before it is read; a whole where no part can be asked for."""
    if units.reads_parts:
        return reading_of(unit, units.terms, now)
    begin, end = unit.partition
    end_text = stamp(end)
    return UnitReading(unit_key(begin, unit.name), end_text, (stamp(begin),), end_text, stamp(now))


def slice_values(reading: UnitReading, units: Units) -> list[Values]:
    """Return the placeholders' values in each slice of a reading; times are in the range's zone."""
    zone = clock_of(units.range.zone)
    begins = [moment(text).astimezone(zone) for text in reading.slices]
    ends = [*begins[1:], moment(reading.to).astimezone(zone)]
    name = key_parts(reading.key)[1]
    own = {
        unit_placeholder(field): value for field, value in values_named(name, units.fields).items()
    }
    return [{**own, FROM: low, TO: high} for low, high in zip(begins, ends, strict=True)]


def without_limit(units: Units) -> Units:
    """Return the units without a limit; `values_of` has checked that there are enough."""
    return replace(units, terms=replace(units.terms, limit=None, min_units=0))


def counts_of(found: UnitOutlook) -> dict[str, int]:
    """Return how many units there are by what becomes of them, those that are closed as done."""
    counts = dict.fromkeys(get_args(Reason), 0)
    for unit in found.due.units:
        counts[unit.reason] += 1
    counts["done"] += found.due.closed
    return counts


def gaps_of(laid: LaidOut) -> list[str]:
    """Return a warning for each stretch of the range that no partition covers."""
    return [
        f"nothing reads {stamp(low)} to {stamp(high)}, which no partition has"
        for low, high in laid.gaps
    ]


def warnings_of(found: UnitOutlook) -> list[str]:
    """Return what people should know: time that nothing reads, an end that went back."""
    gaps = gaps_of(found.laid)
    ahead = sum(unit.reason == "ahead" for unit in found.due.units)
    if ahead:
        gaps.append(
            f"{ahead:,} units were read beyond where the range ends now, and are left alone until"
            " it ends behind that again"
        )
    return gaps

"""The configured range and scheme of a source, and its partitions at a given time. Pure.

Partitions depend only on the start and the scheme, so they are the same in every run; only the last
one may grow. A setting that would move them is a problem of the configuration (`problems`). A
change that would move them stops a source with state (`blizzard_py.slices.units.state.check_spec`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.slices.compare import shown
from blizzard_py.slices.instants import is_moving, resolve, stamp, zone_of
from blizzard_py.slices.units.schemes import Pair, composite, partitions, scheme

# Any time: fixed times do not depend on it, and two moving ends keep their order.
_ANY = datetime(2020, 1, 15, 12, tzinfo=UTC)
_HALF_A_YEAR = timedelta(days=182)

_WHOLE_DAYS = re.compile(r"P\d+D", re.ASCII)
_HOURS = re.compile(r"P\d+DT\d+H", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the range with a scheme of its own; both ends as configured."""

    by: str
    start: str
    end: str


@dataclass(frozen=True, slots=True)
class UnitRange:
    """``units.range``, ``partition`` and ``partial`` as configured."""

    start: str = "2019-01-01"
    end: str = "-"
    zone: str = "UTC"
    partition: str | tuple[Part, ...] = "none"
    partial: bool = True


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The range at a time, its partitions, and gaps that nothing will ever read."""

    start: datetime
    end: datetime
    partitions: Sequence[Pair]
    gaps: Sequence[Pair] = ()


def laid_out(range_: UnitRange, now: datetime) -> LaidOut:
    """Return the partitions at a time.

    Raises `UnitError` for each problem of `problems`, and for more than 200,000 partitions.
    """
    found = problems(range_)
    if found:
        raise UnitError(*found)
    zone, partial = range_.zone, range_.partial
    start = resolve(range_.start, now, zone, start=True)
    end = resolve(range_.end, now, zone)
    if isinstance(range_.partition, str):
        return LaidOut(start, end, partitions(start, end, range_.partition, partial, zone))
    parts = [
        (part.by, resolve(part.start, now, zone, start=True), resolve(part.end, now, zone))
        for part in range_.partition
    ]
    found_parts, gaps = composite(start, end, parts, partial, zone)
    # What parts have before the range begins is not read, either.
    first = min(begin for _, begin, _ in parts)
    return LaidOut(start, end, found_parts, [(first, start), *gaps] if first < start else gaps)


def problems(range_: UnitRange) -> list[str]:
    """Return the problems of a range: texts, zone, schemes, order of the ends, moving starts."""
    try:
        zone_of(range_.zone)
    except UnitError as error:
        return [f"zone: {problem}" for problem in error.problems]
    found = range_problems(range_.start, range_.end, range_.zone)
    if not isinstance(range_.partition, str):
        return found + _part_problems(range_, range_.partition)
    try:
        by = scheme(range_.partition)
    except UnitError as error:
        return [*found, *(f"partition: {problem}" for problem in error.problems)]
    if not found and is_moving(range_.start) and not _keeps_its_grid(range_, by):
        found.append(
            f"from: {shown(range_.start)} moves, and partitions would with it: whole days (P30D)"
            " keep daily and hourly ones where they are, hours (P30DT0H) hourly ones, nothing"
            " the others; without a zone of its own, and in a zone in which each day has a midnight"
        )
    return found


def range_problems(start: Any, end: Any, zone: Any = "UTC") -> list[str]:
    """Return what is wrong with a range's ends as they are configured."""
    found = []
    moments = []
    for key, text in (("from", start), ("to", end)):
        try:
            moments.append(resolve(text, _ANY, zone, start=key == "from"))
        except UnitError as error:
            found += [f"{key}: {problem}" for problem in error.problems]
    if len(moments) == 2 and is_moving(start) == is_moving(end) and moments[0] >= moments[1]:
        found.append(f"to: {shown(end)} is not behind from: {shown(start)}")
    return list(dict.fromkeys(found))


def spec_of(range_: UnitRange, fields: Sequence[str]) -> dict[str, str]:
    """Return what all partitions and names depend on. A change stops a source with state.

    A moving start is given as it is configured, any other as its instant.
    """
    moves = is_moving(range_.start)
    start = range_.start.strip() if moves else _stored_end(range_.start, range_.zone)
    if isinstance(range_.partition, str):
        by = scheme(range_.partition)
    else:
        spans = sorted(
            (_stored_end(p.start, range_.zone), scheme(p.by), _stored_end(p.end, range_.zone))
            for p in range_.partition
        )
        by = ", ".join(f"{name} {low} {high}" for low, name, high in spans)
    name = ",".join(field.strip() for field in fields)
    return {"from": start, "zone": range_.zone.strip(), "partition": by, "name": name}


def _stored_end(text: str, zone: str) -> str:
    return text.strip() if is_moving(text) else stamp(resolve(text, _ANY, zone))


def _keeps_its_grid(range_: UnitRange, by: str) -> bool:
    """Return whether boundaries that are counted from tomorrow's start are among today's."""
    start = range_.start.strip()
    if _WHOLE_DAYS.fullmatch(start):
        if by == "daily":
            return _has_midnights(range_.zone)
        return by == "hourly" and _shifts_by_hours(range_.zone)
    return by == "hourly" and bool(_HOURS.fullmatch(start)) and _shifts_by_hours(range_.zone)


@cache
def _has_midnights(zone: str) -> bool:
    """Return whether the zone has every midnight. Days counted from a skipped one begin at 1:00."""
    where = zone_of(zone)
    # Where rules end that are no longer in force, and a start that moves will never be.
    first = datetime(2020, 1, 1)  # noqa: DTZ001  # a wall time
    days = ((first + timedelta(days=n)).replace(tzinfo=where) for n in range(40 * 366))
    return all(day.astimezone(UTC).astimezone(where).hour == 0 for day in days)


def _shifts_by_hours(zone: str) -> bool:
    """Return whether daylight saving leaves full hours full hours."""
    where = zone_of(zone)
    offsets = [(_ANY + half).astimezone(where).utcoffset() for half in (timedelta(), _HALF_A_YEAR)]
    first, second = (offset or timedelta() for offset in offsets)
    return (first - second) % timedelta(hours=1) == timedelta()


def _part_problems(range_: UnitRange, parts: tuple[Part, ...]) -> list[str]:
    found = []
    if is_moving(range_.start):
        found.append(f"from: {shown(range_.start)} moves, and parts need one that stays")
    for part in parts:
        by = shown(part.by)
        if is_moving(part.start):
            found.append(
                f"partition: {by} begins at {shown(part.start)}, which moves; write a time that"
                " stays"
            )
        try:
            scheme(part.by)
            low = resolve(part.start, _ANY, range_.zone, start=True)
            high = resolve(part.end, _ANY, range_.zone)
        except UnitError as error:
            found += [f"partition: {problem}" for problem in error.problems]
            continue
        if high <= low and not is_moving(part.end):
            found.append(
                f"partition: {by} begins at {shown(part.start)}, and its end {shown(part.end)} is"
                " not behind that; give each scheme its own start, before `to` of the range"
            )
    if not parts:
        found.append("partition: there is no scheme")
    return list(dict.fromkeys(found))  # the end of a part is the start of the next one

"""Partitions: a range cut at a boundary every hour, day, week, month or year from its start.

The *k*-th boundary is the start plus *k* periods, never the previous boundary plus one. Otherwise
months from a 31st would stay at the shortest month's last day. So partitions depend only on the
start and the scheme, and only the last one may grow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.slices.calendars import later
from blizzard_py.slices.compare import shown
from blizzard_py.slices.cutting import pieces
from blizzard_py.slices.instants import in_utc, instant, stamp, zone_of

Pair = tuple[datetime, datetime]
Boundary = Callable[[int], datetime | None]

NONE = "none"
_PERIODS = {
    "hourly": "hour",
    "daily": "day",
    "weekly": "week",
    "monthly": "month",
    "yearly": "year",
}

# No period has more boundaries in the calendar.
_HOURS_OF_CALENDAR = 10_000 * 366 * 24
# More partitions are a mistake in the range, and nobody can read a plan of them.
MOST_PARTITIONS = 200_000


def scheme(text: Any) -> str:
    """Return the scheme's name in lower case. An empty text and None are ``none``.

    Raises `UnitError` unless it is none, hourly, daily, weekly, monthly or yearly.
    """
    if text is None:
        return NONE
    name = text.strip().lower() if isinstance(text, str) else None
    if name in _PERIODS:
        return str(name)
    if name in {"", NONE}:
        return NONE
    raise UnitError(f"{shown(text)} is no partition: {', '.join([NONE, *_PERIODS])}")


def partitions(
    start: datetime, end: datetime, by: str | None = NONE, partial: bool = True, zone: str = "UTC"
) -> list[Pair]:
    """Cut [start, end) into half-open pairs in UTC by a scheme on the calendar of ``zone``.

    Days, weeks, months and years are steps of the wall clock, so a day may have 23 or 25 hours;
    hours are absolute. A week begins on the weekday of the start, and the start's time of day is
    in every boundary. The last pair ends at ``end`` if ``partial``. Otherwise it is left out until
    it is complete. The result is empty if the start is not before the end.

    Raises `UnitError` for unknown schemes and zones, times without a zone, and for more than
    200,000 partitions, with their number.
    """
    begin, behind = in_utc(start, "start"), in_utc(end, "end")
    name, where = scheme(by), zone_of(zone)
    return _cut(begin, behind, name, where, partial)


def composite(
    start: datetime,
    end: datetime,
    parts: Iterable[Any],
    partial: bool = True,
    zone: str = "UTC",
) -> tuple[list[Pair], list[Pair]]:
    """Return the partitions of [start, end), whose parts have their own schemes, and its gaps.

    Each part is ``(by, from, to)``, or a mapping of these. Parts are sorted, cut to the range and
    partitioned one by one. Gaps are ranges that are never read: between, before and behind parts.
    With ``partial=False`` also the rest of a part that ends within the range. A range that waits
    until its partition is complete is no gap.

    Raises `UnitError` for parts that overlap or miss an end, and as `partitions` does.
    """
    begin, behind = in_utc(start, "start"), in_utc(end, "end")
    where = zone_of(zone)
    found: list[Pair] = []
    waits = behind
    for name, part_from, part_to in _parts(parts):
        low, high = max(part_from, begin), min(part_to, behind)
        cuts = _cut(low, high, name, where, partial, len(found))
        found += cuts
        if low < high == behind:
            waits = cuts[-1][1] if cuts else low
    return found, _gaps(begin, waits, found)


def _parts(parts: Any) -> list[tuple[str, datetime, datetime]]:
    if isinstance(parts, str | Mapping) or not isinstance(parts, Iterable):
        raise UnitError(f"{shown(parts)} is no list of parts, each with by, from and to")
    found_parts = [_part(part) for part in parts]
    if not found_parts:
        raise UnitError("there is no part; name one, or none of them and a scheme")
    filled = sorted((part for part in found_parts if part[1] < part[2]), key=lambda part: part[1])
    for (_, _, to), (_, other, _) in pairwise(filled):
        if other < to:
            raise UnitError(
                f"two parts overlap: one ends at {stamp(to)}, the next begins at {stamp(other)}"
            )
    return filled


def _part(part: Any) -> tuple[str, datetime, datetime]:
    if isinstance(part, Mapping):
        unknown = part.keys() - {"by", "from", "to"}
        if unknown:
            raise UnitError(f"a part has by, from and to, not {shown(sorted(map(str, unknown)))}")
        part = (part.get("by"), part.get("from"), part.get("to"))
    if not isinstance(part, Sequence) or isinstance(part, str) or len(part) != 3:
        raise UnitError(f"{shown(part)} is no part: it has by, from and to")
    by, part_from, part_to = part
    if part_from is None or part_to is None:
        raise UnitError(f"a part needs both ends, from and to: {shown(part)}")
    return scheme(by), in_utc(part_from, "a part's from"), in_utc(part_to, "a part's to")


def _gaps(begin: datetime, behind: datetime, found: Sequence[Pair]) -> list[Pair]:
    """Return what of [begin, behind) lies in no pair; these rise."""
    gaps = []
    reached = begin
    for low, high in [*found, (behind, behind)]:
        if reached < low:
            gaps.append((reached, low))
        reached = max(reached, high)
    return gaps


def _cut(
    start: datetime, end: datetime, name: str, zone: tzinfo, partial: bool, before: int = 0
) -> list[Pair]:
    if start >= end:
        return []
    if name == NONE:
        return [(start, end)]
    boundary = _boundary(start, _PERIODS[name], zone)
    count = _count(end, boundary)
    if before + count > MOST_PARTITIONS:
        raise UnitError(
            f"{name} from {stamp(start)} to {stamp(end)} makes {before + count:,} partitions, and"
            f" at most {MOST_PARTITIONS:,} can be planned; take longer ones, or a later start"
        )
    found = list(pieces(start, end, boundary, UnitError))
    return found if partial or boundary(count) == end else found[:-1]


def _boundary(start: datetime, period: str, zone: tzinfo) -> Boundary:
    """Return the function from k to the k-th boundary, which is None beyond the calendar."""
    if period == "hour":
        return lambda k: later(start, period, k)
    try:
        origin = start.astimezone(zone).replace(tzinfo=None, fold=0)
    except OverflowError as error:
        raise UnitError(f"{stamp(start)} is no time in {zone}") from error

    def boundary(k: int) -> datetime | None:
        wall = later(origin, period, k)
        try:
            return None if wall is None else instant(wall, zone)
        except OverflowError:
            return None

    return boundary


def _count(end: datetime, boundary: Boundary) -> int:
    """Return the number of partitions: the first k whose boundary is not below the end."""

    def is_over(k: int) -> bool:
        found = boundary(k)
        return found is None or found >= end

    return bisect_left(range(_HOURS_OF_CALENDAR), True, lo=1, key=is_over)

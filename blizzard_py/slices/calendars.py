"""Steps in a calendar, or over integers: a boundary every so many units from an origin.

The *k*-th boundary is counted from the origin, never from the one before. Otherwise months from a
31st would stay at the shortest month's last day.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, TypeVar

from dateutil.relativedelta import relativedelta

MONTHS = {"month": 1, "year": 12}
LENGTHS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}

Time = TypeVar("Time", date, datetime)

# Clocks are put back by a day at most, where a date line moved.
_BACK_AT_MOST, _QUARTER = timedelta(hours=25), timedelta(minutes=15)


def one_unit(unit: Any) -> str:
    """Return the name of a unit in the singular, ``day`` for ``days``; empty if it is no text."""
    return unit.strip().lower().removesuffix("s") if isinstance(unit, str) else ""


def positive_int(amount: Any) -> int | None:
    """Return the amount if it is a whole number above 0, otherwise None."""
    return (
        amount if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0 else None
    )


def later(origin: Time, unit: str, steps: int) -> Time | None:
    """Return so many units after the origin, the day clamped; None beyond the calendar."""
    try:
        if unit in LENGTHS:
            return origin + LENGTHS[unit] * steps
        return origin + relativedelta(months=MONTHS[unit] * steps)  # type: ignore[no-any-return]  # dateutil has no types
    except (OverflowError, ValueError):
        return None


def lowest_wall(moment: datetime, zone: tzinfo) -> datetime:
    """Find the lowest wall time that a zone's clocks show from a moment on, without a zone.

    It is the wall time itself, except before clocks are put back: wall times that will be shown
    again are not over yet. So it never falls, and cuts rows by wall time without gap or overlap.
    """
    at = moment.astimezone(UTC)  # time that passes is not what a zone's own clocks show
    here = at.astimezone(zone)
    wall = here.replace(tzinfo=None)
    try:
        ahead = (at + _BACK_AT_MOST).astimezone(zone)
    except OverflowError:
        return wall
    if (ahead.utcoffset() or timedelta()) >= (here.utcoffset() or timedelta()):
        return wall
    # Zones change at full quarters of an hour.
    first = at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)
    steps = range(1, _BACK_AT_MOST // _QUARTER + 1)
    later_walls = (
        (first + step * _QUARTER).astimezone(zone).replace(tzinfo=None) for step in steps
    )
    return min(wall, *later_walls)

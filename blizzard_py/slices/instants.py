"""Instants as text, as a zone's wall time, and as UTC milliseconds.

Inside of `blizzard_py.slices` every instant is a `datetime` in UTC, in whole milliseconds. Days and
months are counted on the wall clock of a zone. With daylight saving time a skipped wall time means
the moment of the jump, and of a repeated one the first counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from blizzard_core.errors import UnitError
from blizzard_py.slices.compare import shown

_STAMP_WIDTH = 24
_SECOND = timedelta(seconds=1)

_ZONE = r"Z|[+-]\d\d:?\d\d|[A-Za-z][A-Za-z0-9_+/-]*"
_WALL = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?: ?({_ZONE}))?)?", re.ASCII
)
_BACK = re.compile(rf"P(\d{{1,9}})D(?:T(\d\d?)H(?:(\d\d?)M)?)?(?:\.({_ZONE}))?", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)

# Zone abbreviations of North American sources that the zone database lacks, each a fixed offset.
# It has `EST`, `MST` and `HST`, with the same meaning.
_ABBREVIATIONS = {
    "AST": -4, "ADT": -3, "EDT": -4, "CST": -6, "CDT": -5,
    "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8,
}  # fmt: skip


def resolve(text: Any, now: datetime, zone: str = "UTC", start: bool = False) -> datetime:
    """Return the instant that a text means, in UTC, cut to milliseconds. ``now`` is an aware time.

    Wall times and days are those of ``zone``, unless the text names another one:

    - ``2021-07-05``: midnight. ``2021-07-05 18:20:00.123``, with a blank or ``T``: wall time,
      which may end in ``Z``, ``+02:00``, ``+0200``, ``PST`` or ``Europe/Berlin``.
    - ``P3D``: now, floored to the day, then three calendar days back. ``P3DT7H``: floored to
      the hour, then days, then hours back (0 to 23). ``P3DT7H5M``: floored to the minute. Each
      with ``.ZONE`` behind it.
    - ``-``: now, floored to the minute; refused for a ``start``, which must stay where it is.

    Dates and times that YAML made of such text are accepted as well. Raises `UnitError` for
    everything else; no text is accepted in part.
    """
    where, here = zone_of(zone), in_utc(now, "now")
    if isinstance(text, datetime):
        return in_utc(text, "instant") if text.tzinfo else _checked(text, text, where)
    if isinstance(text, date):
        return _checked(text, datetime.combine(text, time()), where)
    if not isinstance(text, str):
        raise UnitError(f"{shown(text)} is no instant: write a date, a time or a duration back")
    stripped = text.strip()
    if stripped == "-":
        if start:
            raise UnitError("`-` means now and stands for an end only; a start needs a time")
        return _back(stripped, here, where, (0, 0, 0))
    if found := _BACK.fullmatch(stripped):
        days, hours, minutes, other = found.groups()
        back = (int(days), _part(hours), _part(minutes))
        if (back[1] or 0) > 23 or (back[2] or 0) > 59:
            raise UnitError(f"{shown(text)} goes back 23 hours and 59 minutes beside days at most")
        return _back(stripped, here, zone_of(other) if other else where, back)
    if found := _WALL.fullmatch(stripped):
        day, clock, fraction, other = found.groups()
        wall = f"{day}T{clock or '00:00:00'}.{(fraction or '')[:3]:0<3}"
        return _checked(stripped, _parsed(stripped, wall), zone_of(other) if other else where)
    raise UnitError(
        f"{shown(text)} is no instant: write 2021-07-05, 2021-07-05 18:20:00 (with a zone behind"
        " it, if it is another), P3D, P3DT7H, P3DT7H5M, or - for now"
    )


def is_moving(text: Any) -> bool:
    """Return whether an instant's text means another time tomorrow."""
    return isinstance(text, str) and text.strip().startswith(("P", "-"))


def zone_of(name: Any) -> tzinfo:
    """Return a zone by its name in the zone database, an offset, or an abbreviation.

    Raises `UnitError` for all others, and for names that mean another zone on another machine.
    """
    if not isinstance(name, str):
        raise UnitError(f"{shown(name)} is no time zone")
    return _zone_of(name.strip())


@cache
def _zone_of(name: str) -> tzinfo:
    if name in {"Z", "UTC"}:
        return UTC
    if name in _ABBREVIATIONS:
        return timezone(timedelta(hours=_ABBREVIATIONS[name]), name)
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        if int(hours) <= 18 and int(minutes) <= 59:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return timezone(-offset if sign == "-" else offset)
    elif name in _known() and name != "localtime":
        return ZoneInfo(name)
    raise UnitError(f"{shown(name)} is no time zone: write Europe/Berlin, +02:00 or UTC")


@cache
def _known() -> set[str]:
    return available_timezones()


def clock_of(name: str) -> tzinfo:
    """Return the zone by its name, or UTC if its clocks never differ from UTC."""
    zone = zone_of(name)
    seen = [datetime(2020, month, 1, tzinfo=UTC).astimezone(zone).utcoffset() for month in (1, 7)]
    return zone if any(seen) else UTC


def in_utc(given: Any, what: str) -> datetime:
    """Return the same instant in UTC, cut to milliseconds. Raises `UnitError` without a zone."""
    if not isinstance(given, datetime):
        raise UnitError(f"{what}: {shown(given)} is no time")
    found: datetime = given
    if found.tzinfo is not UTC:
        if found.utcoffset() is None:
            raise UnitError(f"{what}: {shown(given)} says no zone")
        try:
            found = found.astimezone(UTC)
        except OverflowError as error:
            raise UnitError(f"{what}: {shown(given)} is no time in UTC") from error
    rest = found.microsecond % 1000
    return found.replace(microsecond=found.microsecond - rest) if rest else found


def instant(wall: datetime, zone: tzinfo) -> datetime:
    """Return in UTC when a zone's clocks first show a wall time, or the jump that skips it.

    Raises `OverflowError` at the ends of the calendar.
    """
    found = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    return _jump(wall.replace(microsecond=0), zone)


def _jump(wall: datetime, zone: tzinfo) -> datetime:
    """Return the moment when clocks skip this wall time. Zones jump on whole seconds."""
    below = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # by the clock after the jump
    above = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)  # by the clock before it
    before = below.astimezone(zone).utcoffset()

    def is_after(secs: int) -> bool:
        return (below + secs * _SECOND).astimezone(zone).utcoffset() != before

    return below + bisect_left(range((above - below) // _SECOND), True, key=is_after) * _SECOND


def stamp(moment: datetime) -> str:
    """Return an instant in UTC as text of fixed width, which sorts by time."""
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def moment(text: str) -> datetime:
    """Return the instant of a `stamp`. Raises `ValueError` if the text is no stamp or no time."""
    found = datetime.fromisoformat(text)
    if len(text) != _STAMP_WIDTH or found.tzinfo is not UTC:
        raise ValueError(f"{text!r} is not written as {stamp(datetime(2020, 2, 1, tzinfo=UTC))}")
    return found


def _part(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _back(
    text: str, now: datetime, zone: tzinfo, back: tuple[int, int | None, int | None]
) -> datetime:
    """Return now, floored to the smallest named unit, then moved back by ``back``."""
    days, hours, minutes = back
    try:
        local = now.astimezone(zone).replace(second=0, microsecond=0)
        if hours is None:
            local = local.replace(hour=0, minute=0, fold=0)
        elif minutes is None:
            local = local.replace(minute=0)
        # The hour that occurs twice is the one that it is now, unless another day is meant.
        wall = local.replace(tzinfo=None) - timedelta(days=days)
        twice = days == 0 and local.fold == 1 and hours is not None
        found = local.astimezone(UTC) if twice else instant(wall.replace(fold=0), zone)
        return found - timedelta(hours=hours or 0, minutes=minutes or 0)
    except OverflowError as error:
        raise UnitError(f"{shown(text)} lies before the first year there is") from error


def _parsed(text: str, wall: str) -> datetime:
    try:
        return datetime.fromisoformat(wall)
    except ValueError as error:
        raise UnitError(f"{shown(text)}: there is no such day or time") from error


def _checked(text: Any, wall: datetime, zone: tzinfo) -> datetime:
    try:
        return in_utc(instant(wall, zone), "instant")
    except OverflowError as error:
        raise UnitError(f"{shown(text)} is no time in UTC") from error

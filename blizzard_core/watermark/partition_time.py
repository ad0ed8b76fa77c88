"""The time in a partition's name, and the partition where a lookback begins. Pure.

Examples: ``date=2024-01-28``, ``dt=20240128``, ``2024/01/28/14``,
``year=2024/month=01/day=28/hour=14``, also below other keys (``region=eu/date=2024-01-28``).

Times separate directories in current use from those with a future time or none. A few tiny
objects below ``date=9999-12-31`` must neither replace real partitions nor close them.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # each Python worker of Spark would load the settings of sources for it
    from blizzard_core.settings.time_formats import PartitionFilter

_KEY = r"(?:[A-Za-z][\w.]*=)?"
_DAY = re.compile(rf"{_KEY}(\d{{4}})-?(\d{{2}})-?(\d{{2}})(?:[T_ -]?(\d{{2}})(?:[:_-]?\d{{2}})*)?")
_MONTH = re.compile(rf"{_KEY}(\d{{4}})-(\d{{2}})")
_YEAR = re.compile(r"(?:(?:year|yyyy|yr|y)=)?(\d{4})", re.IGNORECASE)
_PARTS = (
    re.compile(r"(?:(?:month|mon|mm|mo|m)=)?(\d{1,2})", re.IGNORECASE),
    re.compile(r"(?:(?:day|dd|d)=)?(\d{1,2})", re.IGNORECASE),
    re.compile(r"(?:(?:hour|hh|hr|h)=)?(\d{1,2})", re.IGNORECASE),
)
_HOUR = re.compile(r"(?:(?:hour|hh|hr|h)=)?(\d{1,2})", re.IGNORECASE)
_FIRST_YEAR = 1970
_NUMBER = re.compile(r"\d+")
# The longest that a year, a month, a day and an hour can be, in seconds.
_LENGTHS = (366 * 86_400.0, 31 * 86_400.0, 86_400.0, 3600.0)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time in a name: from ``begin`` to ``end`` (exclusive), epoch seconds, as UTC."""

    begin: float
    end: float


def span_of(partition: str) -> TimeRange | None:
    """Return the time of a partition's name, None if it has none."""
    components = partition.split("/")
    for place, component in enumerate(components):
        rest = components[place + 1 :]
        if named := _DAY.fullmatch(component):
            hour = named[4] or _hour(rest)
            day = [int(named[1]), int(named[2]), int(named[3])]
            return _span(day if hour is None else [*day, int(hour)])
        if named := _MONTH.fullmatch(component):
            return _span([int(named[1]), int(named[2])])
        if named := _YEAR.fullmatch(component):
            return _span([int(named[1]), *_numbers(rest)])
    return None


def is_timed(partition: str) -> bool:
    """Return whether the partition's name says a time."""
    return span_of(partition) is not None


def family_of(partition: str) -> str:
    """Return the family of a partition: its name up to the time, without numbers.

    ``region=eu/date=2024-01-28`` and ``region=us/date=2024-01-28`` are two families: writers follow
    one another in time within a family, not across families. Components behind the time
    (``date=2024-01-28/run=…``) do not matter.
    """
    components = partition.split("/")
    return _NUMBER.sub("#", "/".join(components[: _place(components) + 1]))


def head_of(partition: str) -> str:
    """Return the part before the time in a partition's name (``region=eu``), ``""`` if none.

    Partitions with one head follow one another in the order of names as they do in time,
    and no others lie between those of two times.
    """
    components = partition.split("/")
    place = _place(components)
    return "/".join(components[:place]) if place < len(components) else ""


def _place(components: list[str]) -> int:
    """Return where the time begins, behind the last component if there is none."""
    return next((n for n, each in enumerate(components) if span_of(each)), len(components))


def _hour(rest: list[str]) -> str | None:
    found = _HOUR.fullmatch(rest[0]) if rest else None
    return found[1] if found else None


def _numbers(components: list[str]) -> list[int]:
    """Return month, day and hour, as far as the components behind a year have them."""
    found: list[int] = []
    for component, pattern in zip(components, _PARTS, strict=False):
        named = pattern.fullmatch(component)
        if named is None:
            break
        found.append(int(named[1]))
    return found


def _span(parts: list[int]) -> TimeRange | None:
    """Build the range from year, month, day and hour, as many as there are."""
    year, month, day, hour = (*parts, *(1, 1, 1, 0)[len(parts) :])
    if year < _FIRST_YEAR:
        return None
    try:
        begin = dt.datetime(year, month, day, hour, tzinfo=dt.UTC).timestamp()
    except ValueError:
        return None
    return TimeRange(begin, begin + _LENGTHS[len(parts) - 1])


_FOUR_DIGITS = 1000


def lookback_floor(partition_filter: PartitionFilter | None, now: float) -> str | None:
    """Return the oldest partition wanted at ``now`` (UTC), or None for all.

    It lies ``lookback`` units back, in the template's finest unit. It is always a whole prefix, so
    it never cuts a name. Before the year 1000 there is none: its name would be shorter and sort
    above all others.
    """
    if partition_filter is None or partition_filter.lookback is None:
        return None
    template, back = partition_filter.prefix_template, partition_filter.lookback
    try:
        moment = _back(dt.datetime.fromtimestamp(now, dt.UTC), template, back)
    except (OverflowError, ValueError):  # before the first year
        return None
    return None if moment.year < _FOUR_DIGITS else moment.strftime(template)


def _back(moment: dt.datetime, template: str, back: int) -> dt.datetime:
    if "%H" in template:
        return moment - dt.timedelta(hours=back)
    if any(code in template for code in ("%d", "%j", "%F")):
        return moment - dt.timedelta(days=back)
    months = moment.year * 12 + moment.month - 1 - (back if "%m" in template else 12 * back)
    return moment.replace(year=months // 12, month=months % 12 + 1, day=1)

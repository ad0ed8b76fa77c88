"""The time that a partition's name says. Pure.

``date=2024-01-28``, ``dt=20240128``, ``2024/01/28/14``, ``year=2024/month=01/day=28/hour=14`` and
what lies around them (``region=eu/date=2024-01-28``). It tells directories that lie
ahead of time, or have none, from those that writers use now: a few tiny objects below
``date=9999-12-31`` must neither be tracked in place of real partitions nor close them.
"""

from __future__ import annotations

import datetime as dt
import re

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


def time_of(partition: str) -> float | None:
    """When the partition's time begins (epoch seconds, as UTC), None if its name says none."""
    components = partition.split("/")
    for place, component in enumerate(components):
        rest = components[place + 1 :]
        if named := _DAY.fullmatch(component):
            hour = named[4] or _hour(rest)
            return _epoch(int(named[1]), int(named[2]), int(named[3]), int(hour or 0))
        if named := _MONTH.fullmatch(component):
            return _epoch(int(named[1]), int(named[2]))
        if named := _YEAR.fullmatch(component):
            return _epoch(int(named[1]), *_numbers(rest))
    return None


def is_timed(partition: str) -> bool:
    """Whether the partition's name says a time."""
    return time_of(partition) is not None


def _hour(rest: list[str]) -> str | None:
    found = _HOUR.fullmatch(rest[0]) if rest else None
    return found[1] if found else None


def _numbers(components: list[str]) -> list[int]:
    """Month, day and hour, as far as the components behind a year say them."""
    found: list[int] = []
    for component, pattern in zip(components, _PARTS, strict=False):
        named = pattern.fullmatch(component)
        if named is None:
            break
        found.append(int(named[1]))
    return found


def _epoch(year: int, month: int = 1, day: int = 1, hour: int = 0) -> float | None:
    if year < _FIRST_YEAR:
        return None
    try:
        return dt.datetime(year, month, day, hour, tzinfo=dt.UTC).timestamp()
    except ValueError:
        return None

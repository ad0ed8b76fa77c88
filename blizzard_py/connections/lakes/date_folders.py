"""Date folders: a scan skips those whose content is too old.

A pattern consists of ``{year}``, ``{month}``, ``{day}``, ``{hour}``, ``{minute}`` and text, for
instance ``year={year}/month={month}``. A folder contains times from its own to that of the next
folder. So the folder that a start falls into is kept, and so are its parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from blizzard_core.errors import ConfigurationError
from blizzard_py.slices.calendars import later
from blizzard_py.slices.compare import as_utc, shown
from blizzard_py.slices.iso import IsoText

_PARTS = ("year", "month", "day", "hour", "minute")
_LEAST = (("year", 1), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0))
_PLACE = re.compile(r"\{([^{}]*)\}")


def folder_time(pattern: str, path: str) -> datetime | None:
    """Return the time that a path's folders name, in UTC; None if they name none.

    Folders above and files below do not matter. Raises `ConfigurationError` for a pattern with an
    unknown placeholder, or one that leaves out a greater unit.
    """
    found = folder_period(pattern, path)
    return None if found is None else found[0]


def folder_period(pattern: str, path: str) -> tuple[datetime, datetime | None] | None:
    """Return begin and end of the time that a path's folders name, in UTC.

    The end belongs to the next folder; it is None after the last year. Raises as `folder_time`.
    """
    levels = _levels(pattern)
    names = _names(path)
    whole = len(levels)
    for first in range(len(names) - whole, -1, -1):
        found = _period(levels, names[first : first + whole])
        if found is not None:
            return found
    return None


def folders(pattern: str, names: Iterable[str], start: Any = None) -> list[str]:
    """Return the names that may hold something at or above ``start``, in the order given.

    A name may end at any level of the pattern (``2026``, ``2026/05``). Names that do not match the
    pattern are kept too: they must be looked into. Raises `ConfigurationError` as `folder_time`
    does, and for a start that is no time.
    """
    levels = _levels(pattern)
    begin = _start(start)
    return [name for name in names if begin is None or _may_reach(levels, name, begin)]


@lru_cache(maxsize=64)
def _levels(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return one expression for each folder of the pattern."""
    seen: list[str] = []
    levels = []
    for level in pattern.strip("/").split("/"):
        texts = _PLACE.split(level)
        for i in range(1, len(texts), 2):
            seen.append(texts[i])
            digits = r"\d{4}" if texts[i] == "year" else r"\d{1,2}"
            texts[i] = f"(?P<{texts[i]}>{digits})" if texts[i] in _PARTS else texts[i]
        texts[::2] = [re.escape(text) for text in texts[::2]]
        levels.append("".join(texts))
    if not seen or sorted(seen) != sorted(_PARTS[: len(seen)]):
        raise ConfigurationError(
            f"the folder pattern {shown(pattern)} needs {{year}}, then without a gap "
            "{month}, {day}, {hour}, {minute}, each once"
        )
    return tuple(re.compile(level, re.ASCII) for level in levels)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _period(
    levels: tuple[re.Pattern[str], ...], names: list[str]
) -> tuple[datetime, datetime | None] | None:
    """Return begin and end of folders that match the pattern's first levels.

    None if they do not match, or do not name a time yet (``{day}`` above ``{year}``). The end is
    None after the last year.
    """
    parts: dict[str, int] = {}
    for level, name in zip(levels, names, strict=False):
        match = level.fullmatch(name)
        if match is None:
            return None
        parts |= {part: int(digits) for part, digits in match.groupdict().items()}
    known = _PARTS[: len(parts)]
    if not parts or set(known) != set(parts):
        return None
    try:
        begin = datetime(*(parts.get(part, low) for part, low in _LEAST), tzinfo=UTC)  # type: ignore[misc, arg-type]  # five integers
    except ValueError:
        return None
    return begin, later(begin, known[-1], 1)


def _may_reach(levels: tuple[re.Pattern[str], ...], name: str, begin: datetime) -> bool:
    names = _names(name)
    periods = [_period(levels, names[i : i + len(levels)]) for i in range(len(names))]
    ends = [period[1] for period in periods if period is not None]
    return not ends or any(end is None or end > begin for end in ends)


def _start(start: Any) -> datetime | None:
    if start is None:
        return None
    if isinstance(start, datetime):
        return as_utc(start)
    if isinstance(start, date):
        return datetime(start.year, start.month, start.day, tzinfo=UTC)
    form = IsoText.of(start) if isinstance(start, str) else None
    if form is None:
        raise ConfigurationError(f"{shown(start)} is not a time to compare folders with")
    return form.moment()

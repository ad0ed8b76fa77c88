"""The beginnings of slices, at which replacing readings begin and are cut. Pure.

A reading of [low, to) is cut where the next one will begin, and it begins itself at the beginning
of a slice (`lowered`). So it replaces complete slices, everything from its beginning on, and rows
need no time. Work units compare instants and stored texts, windows compare values of their column.
A snapshot is one slice that begins before all values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time, timedelta, tzinfo
from operator import lt
from typing import Any, TypeVar

from blizzard_py.slices.instants import instant

T = TypeVar("T")
Below = Callable[[Any, Any], bool]

# This many beginnings are stored, apart from the first. Otherwise the state of a unit that is read
# every minute would grow without end. A reading that needs an older one begins with the first.
KEPT = 32


def cut(low: T, to: T, next_low: T, is_below: Below = lt) -> tuple[T, ...]:
    """Return where the slices of a reading of [low, to) begin: ``low``, and where the next will.

    One slice if the next reading begins within neither. ``low`` of None is before everything.
    """
    is_inside = (low is None or is_below(low, next_low)) and is_below(next_low, to)
    return (low, next_low) if is_inside else (low,)


def next_begin(
    to: datetime, shift: timedelta, at: datetime, days_of: tzinfo | None = None
) -> datetime | None:
    """Return where the next reading begins after one that ends at ``to``; None off the calendar.

    ``shift`` is abstinence less grace. ``at`` is the time of the reading: later times are still
    unknown then. With ``days_of`` cuts are at midnights of that zone, for requests of whole days.
    """
    try:
        begin = min(to, at) + shift
        if days_of is not None:
            day = begin.astimezone(days_of).replace(tzinfo=None).date()
            begin = instant(datetime.combine(day, time.min), days_of)
    except OverflowError:
        return None
    return begin


def replacement_begin(low: T, begins: Iterable[T], first: T, is_below: Below = lt) -> T:
    """Return where a reading from ``low`` has to begin, to replace complete slices.

    It is the last of the rising ``begins`` that is not above ``low``, or ``first`` without any.
    """
    found = first
    for begin in begins:
        if not is_below(low, begin):
            found = begin
    return found


def known_after(known: Sequence[str], read: Sequence[str]) -> tuple[str, ...]:
    """Return the beginnings that are known after a reading whose slices begin at ``read``."""
    found = [*(text for text in known if text < read[0]), *read]
    return tuple([found[0], *found[-KEPT:]] if len(found) > KEPT + 1 else found)

"""The beginnings of slices: what every reading that replaces another goes by. Pure.

A reading of [low, to) is cut where the next one will begin, and it begins itself where a slice
does (`lowered`). So it replaces whole slices, everything from its beginning on, and no row needs to
carry a time. Work units compare instants and stored texts, windows the values of their column; a
snapshot is one slice that begins before everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time, timedelta, tzinfo
from operator import lt
from typing import Any, TypeVar

from blizzard_py.slices.instants import instant

T = TypeVar("T")
Below = Callable[[Any, Any], bool]

# So many beginnings are known, beside the first: what is read every minute would else grow for
# ever. A reading that needs an older one begins with the first.
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

    ``shift`` is abstinence less grace, ``at`` when it is read: of what is still to come then
    nothing is known. With ``days_of`` cuts are at midnights of that zone, since requests say
    whole days.
    """
    try:
        begin = min(to, at) + shift
        if days_of is not None:
            day = begin.astimezone(days_of).replace(tzinfo=None).date()
            begin = instant(datetime.combine(day, time.min), days_of)
    except OverflowError:
        return None
    return begin


def lowered(low: T, begins: Iterable[T], first: T, is_below: Below = lt) -> T:
    """Return where a reading that wants to begin at ``low`` has to, to replace whole slices.

    That is the last of ``begins``, which rise, that is not above; ``first`` where none is known.
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

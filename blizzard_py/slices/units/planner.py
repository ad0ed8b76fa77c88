"""The plan of units: which ones to read, their ranges and the reasons. Pure.

For unit *u* in partition [p0, p1): *h* is its high watermark, none if it never succeeded, and
``shift`` is abstinence less grace. ``cut_off`` is the highest *h* of all units, moved by
``shift``. ``low`` is the unit's own *h* moved likewise, not before p0. The first reason that holds
applies (`verdict`):

==============  ==========  =================================================================
reason          reads       holds
==============  ==========  =================================================================
``waiting``     nothing     failed lately, and its pause is not over
``new``         [p0, p1)    no *h*, or one that is not above p0
``abstinent``   nothing     low is not below p1, but *h* is
``done``        nothing     low is not below p1
``incomplete``  [low, p1)   *h* is below p1: also where the cut-off has passed it
``ahead``       nothing     *h* is above p1: the end went back, and a reading up to it would
                            replace more than it reads
``grace``       [low, p1)   p1 is above the cut-off
``done``        nothing     otherwise
==============  ==========  =================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

Pair = tuple[datetime, datetime]
Reason = Literal["waiting", "new", "abstinent", "done", "incomplete", "ahead", "grace", "redo"]

# A high watermark that is moved beyond the calendar stays at its ends.
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class PlannedUnit(NamedTuple):
    """The plan of one unit: [``start``, ``end``) is read if ``execute``.

    If it is not executed although its reason is one to read, it is beyond the limit of the run.
    Reason ``redo``: an operator requested another reading. It is a tuple, because a plan may have
    hundreds of thousands.
    """

    values: Mapping[str, Any]
    name: str
    partition: Pair
    start: datetime
    end: datetime
    high: datetime | None
    execute: bool
    reason: Reason


class Verdict(NamedTuple):
    """The decision whether a unit is read, from where, and why."""

    execute: bool
    low: datetime
    reason: Reason


def verdict(
    partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
) -> Verdict:
    """Return whether a unit that does not wait is read; the table above without its first line."""
    begin, end = partition
    if high is None or high <= begin:
        return Verdict(True, begin, "new")
    try:
        low = high + shift
    except OverflowError:
        low = move_high(high, shift)
    if low < begin:
        low = begin
    elif low >= end:
        return Verdict(False, end, "abstinent" if high < end else "done")
    if high < end:
        return Verdict(True, low, "incomplete")
    if high > end:
        return Verdict(False, low, "ahead")
    if cut_off is not None and end > cut_off:
        return Verdict(True, low, "grace")
    return Verdict(False, low, "done")


def limit_units(
    units: Sequence[PlannedUnit], most: int | None, turns: Sequence[str] = ()
) -> list[PlannedUnit]:
    """Return the units, of which only the first ``most`` are executed.

    The lowest ``turns`` come first, if there are any, then the given order.
    """
    if most is None:
        return list(units)
    chosen = [at for at, unit in enumerate(units) if unit.execute]
    if len(chosen) <= most:
        return list(units)
    if turns:
        chosen.sort(key=lambda at: turns[at])
    found = list(units)
    for at in chosen[most:]:
        found[at] = found[at]._replace(execute=False)
    return found


def move_high(high: datetime, shift: timedelta) -> datetime:
    """Return a high watermark moved by abstinence less grace, within the calendar."""
    try:
        return high + shift
    except OverflowError:
        return _LAST if shift > timedelta(0) else _FIRST

"""Which units are read, from where to where, and why: `plan`, pure and public.

For unit *u* in partition [p0, p1): *h* is its high watermark, none if it never succeeded, and
``shift`` abstinence less grace. ``cut_off`` is the highest *h* of all moved by ``shift``, ``low``
the unit's own, not before p0. Reasons, the first that holds:

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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from blizzard_core.errors import UnitError
from blizzard_py.units import limits
from blizzard_py.units.instants import in_utc, shown, stamp
from blizzard_py.units.values import LONE, unit_name

Pair = tuple[datetime, datetime]
Reason = Literal["waiting", "new", "abstinent", "done", "incomplete", "ahead", "grace", "redo"]

# A high watermark that is moved beyond the calendar stays at its ends.
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class PlannedUnit(NamedTuple):
    """What becomes of one unit: [``start``, ``end``) is read if ``execute``.

    One that is not, although its reason is to read, is beyond the limit of the run. The reason
    ``redo`` is that of a unit which an operator wants read again. A tuple, since a plan may
    hold hundreds of thousands.
    """

    values: Mapping[str, Any]
    name: str
    partition: Pair
    start: datetime
    end: datetime
    high: datetime | None
    execute: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """All units, by partition, then by value in the order given; ``cut_off`` may be None."""

    cut_off: datetime | None
    units: list[PlannedUnit]


class Verdict(NamedTuple):
    """Whether a unit is read, from where, and why."""

    execute: bool
    low: datetime
    reason: Reason


def plan(
    ranges: Iterable[Pair],
    units: Iterable[Mapping[str, Any]] | None,
    state: Mapping[tuple[datetime, str], datetime | None] | None,
    grace: float | timedelta,
    abstinent: float | timedelta,
    limit: int | None = None,
    min_units: int = 0,
) -> Plan:
    """What becomes of each unit: each of ``units`` in each of ``ranges``.

    ``ranges`` are pairs as `partitions` gives them, ``units`` dicts as `unit_list` does; None, or
    no dict, is one unit ``{}``. ``state`` maps the start of a partition and a unit's name
    (`unit_name`: its value; ``{}`` of the only unit) to its high watermark, or None. Grace and
    abstinence are days of 24 hours, or durations. ``limit`` is as `limit` gives it: the first so
    many are executed, and the others keep their reason.

    Raises `UnitError` for ranges that are empty or overlap, units of one name, fewer values than
    ``min_units``, and whatever is not of these types.
    """
    pairs = _pairs(ranges)
    given = None if units is None else _named(units)
    limits.enough(None if given is None or LONE in given else len(given), min_units)
    named = given or {LONE: {}}
    shift = limits.days(abstinent, "abstinent") - limits.days(grace, "grace")
    most = None if limit is None else limits.limit(limit)
    highs = _highs({} if state is None else state)
    top = max((high for high in highs.values() if high is not None), default=None)
    cut_off = None if top is None else moved(top, shift)
    found = []
    for pair in pairs:
        begin, end = pair
        # Nearly all units of a partition were never read, or up to its end: these are told once.
        unread: Verdict | None = None
        whole: Verdict | None = None
        for name, values in named.items():
            high = highs.get((begin, name))
            if high is None:
                told = unread = unread or verdict(pair, None, cut_off, shift)
            elif high == end:
                told = whole = whole or verdict(pair, high, cut_off, shift)
            else:
                told = verdict(pair, high, cut_off, shift)
            execute, low, reason = told
            found.append(PlannedUnit(values, name, pair, low, end, high, execute, reason))
    return Plan(cut_off, limited(found, most))


def settled(earlier: datetime | None, low: datetime, high: datetime, ok: bool) -> datetime | None:
    """The high watermark after a reading of [low, high): its end, but never lower than before.

    A reading that failed, or that reads nothing, changes nothing. Raises `UnitError` if it ends
    before it begins, and for times without a zone.
    """
    before = None if earlier is None else in_utc(earlier, "earlier")
    begin, end = in_utc(low, "low"), in_utc(high, "high")
    if begin > end:
        raise UnitError(f"a reading from {stamp(begin)} cannot end before, at {stamp(end)}")
    if not ok or begin == end:
        return before
    return end if before is None else max(before, end)


def verdict(
    partition: Pair, high: datetime | None, cut_off: datetime | None, shift: timedelta
) -> Verdict:
    """Whether a unit that does not wait is read; the table above without its first line."""
    begin, end = partition
    if high is None or high <= begin:
        return Verdict(True, begin, "new")
    try:
        low = high + shift
    except OverflowError:
        low = moved(high, shift)
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


def limited(
    units: Sequence[PlannedUnit], most: int | None, turns: Sequence[str] = ()
) -> list[PlannedUnit]:
    """The units with the first ``most`` that are executed, the others not.

    By their ``turns`` where there are any, the lowest first, then as they stand.
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


def moved(high: datetime, shift: timedelta) -> datetime:
    """A high watermark moved by abstinence less grace, within the calendar."""
    try:
        return high + shift
    except OverflowError:
        return _LAST if shift > timedelta(0) else _FIRST


def _pairs(ranges: Any) -> list[Pair]:
    try:
        told = sorted((in_utc(low, "range"), in_utc(high, "range")) for low, high in ranges)
    except (TypeError, ValueError) as error:
        raise UnitError(f"{shown(ranges)} are no ranges: pairs of times") from error
    reached = _FIRST
    for low, high in told:
        if low < reached or low >= high:
            raise UnitError(
                f"the range from {stamp(low)} to {stamp(high)} is empty, or overlaps another"
            )
        reached = high
    return told


def _named(units: Any) -> dict[str, Mapping[str, Any]]:
    """The units by name, in the order given."""
    if isinstance(units, str | Mapping) or not isinstance(units, Iterable):
        raise UnitError(f"{shown(units)} are no units: a list of dicts")
    found: dict[str, Mapping[str, Any]] = {}
    for one in units:
        if not isinstance(one, Mapping):
            raise UnitError(f"{shown(one)} is no unit: a dict of fields")
        name = unit_name(one)
        if name in found:
            raise UnitError(f"two units are called {shown(name)}")
        found[name] = one
    return found


def _highs(state: Any) -> Mapping[tuple[datetime, str], datetime | None]:
    """The state, its times in UTC and names as `unit_name` has them; itself if it is that."""
    if not isinstance(state, Mapping):
        raise UnitError(f"{shown(state)} is no state: (start of the partition, unit) to a time")
    is_plain = True
    known: datetime | None = None
    for key, high in state.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise UnitError(f"{shown(key)} is no key: (start of the partition, unit)")
        begin, name = key
        if not name or type(name) is not str:
            if name is not None and not isinstance(name, str):
                raise UnitError(f"{shown(key)} is no key: (start of the partition, unit)")
            is_plain = False
        # Units of a partition mostly stand together.
        if begin is not known and in_utc(begin, "state") is not begin:
            is_plain = False
        known = begin
        if high is not None and in_utc(high, "state") is not high:
            is_plain = False
    if is_plain:  # the state of a large plan is not copied
        return state
    return {
        (in_utc(begin, "state"), name or LONE): None if high is None else in_utc(high, "state")
        for (begin, name), high in state.items()
    }

"""The next reading of a source, from its state: the planner with pauses, marks and slices. Pure.

Closed units are only counted, so the cost of planning depends on open units.

The planner has only high watermarks. This module adds three rules:

- A complete unit is due until it was read *after* its grace. If its last reading failed, or was
  beyond the limit, the cut-off has moved past it meanwhile.
- A unit that was read up to a future time (the end of its range, or a clock was ahead) is known
  only up to the time of that reading.
- If the limit applies, units that were read longest ago come first. Otherwise units in grace,
  which are read each time, would keep all others waiting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from blizzard_py.slices.edges import cut, next_begin, replacement_begin
from blizzard_py.slices.instants import in_utc, stamp
from blizzard_py.slices.units.limits import enough
from blizzard_py.slices.units.planner import PlannedUnit, limit_units, move_high, verdict
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import (
    OpenUnit,
    UnitReading,
    UnitsState,
    highest,
    key_parts,
    known_end,
    owes,
    parse_moment,
    unit_key,
    unit_of,
)
from blizzard_py.slices.units.values import LONE, unit_name


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of reading units: ``grace`` and ``abstinent``, the ``limit`` of a run, ``min_units``.

    ``everything`` includes the closed units, which are otherwise only counted. With ``days_of``
    requests are for whole days of that zone, and readings are cut at its midnights.
    """

    grace: timedelta = timedelta(0)
    abstinent: timedelta = timedelta(0)
    limit: int | None = None
    min_units: int = 0
    everything: bool = False
    days_of: tzinfo | None = None

    @property
    def shift(self) -> timedelta:
        """Abstinence less grace: from a high watermark to where the next reading begins."""
        return self.abstinent - self.grace


@dataclass(frozen=True, slots=True)
class Due:
    """The due units: ``units`` by partition and value, each ``start`` where a slice begins.

    ``closed`` is the number of units that were only counted. ``retired`` are names in the state
    that the configuration no longer has.
    """

    cut_off: datetime | None
    units: tuple[PlannedUnit, ...]
    closed: int
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _PlanTerms:
    """Facts that all units of one plan share."""

    state: UnitsState
    marks: frozenset[str]
    cut_off: datetime | None
    shift: timedelta
    now: datetime


@dataclass(frozen=True, slots=True)
class _Span:
    """A partition, and its ends as they are stored."""

    partition: Pair
    begin: str
    end: str
    is_last: bool


def due(
    state: UnitsState,
    partitions: Sequence[Pair],
    values: Sequence[Mapping[str, str]] | None,
    terms: Terms,
    now: datetime,
) -> Due:
    """Return the plan of each unit now.

    ``values`` of None is one unit ``{}``; an empty list is no unit. ``partitions`` rise. Raises
    `UnitError` if there are fewer values than ``min_units``.
    """
    enough(None if values is None else len(values), terms.min_units)
    named = {LONE: {}} if values is None else {unit_name(one): one for one in values}
    top = highest(state)
    cut_off = None if top is None else move_high(top, terms.shift)
    plan_terms = _PlanTerms(state, frozenset(state.redo), cut_off, terms.shift, in_utc(now, "now"))
    names = list(named)
    found, turns = [], []
    wait: tuple[datetime | None, str] = None, ""
    for at, columns in _places(plan_terms, partitions, names, everything=terms.everything):
        begin, end = partitions[at]
        # Most partitions begin where the one before ends.
        begin_text = wait[1] if wait[0] == begin else stamp(begin)
        wait = end, stamp(end)
        span = _Span(partitions[at], begin_text, wait[1], at == len(partitions) - 1)
        for column in columns:
            name = names[column]
            key = f"{span.begin}/{name}"
            known = unit_of(state, key, span.end, is_last=span.is_last)
            found.append(_planned(plan_terms, span, key, named[name], known))
            turns.append(known.read_at or span.begin)
    heard = dict.fromkeys([*state.closed_to, *(key.partition("/")[2] for key in state.open)])
    return Due(
        cut_off,
        tuple(limit_units(found, terms.limit, turns)),
        len(partitions) * len(named) - len(found),
        tuple(name for name in heard if name not in named),
    )


def reading_of(unit: PlannedUnit, terms: Terms, now: datetime) -> UnitReading:
    """Return what is saved of a unit before it is read; ``now`` is that of `due`."""
    begin, end = unit.partition
    at = in_utc(now, "now")
    following = next_begin(unit.end, terms.shift, at, terms.days_of)
    begins = cut(unit.start, unit.end, following or unit.start)
    slices = tuple(stamp(low) for low in begins)
    return UnitReading(unit_key(begin, unit.name), stamp(end), slices, stamp(unit.end), stamp(at))


def _places(
    terms: _PlanTerms, partitions: Sequence[Pair], names: Sequence[str], *, everything: bool
) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the units to plan: partitions in order, each with its values, by their numbers.

    These are units above the closed ones that are out of grace, and older ones with an entry.
    """
    if not partitions:
        return
    ends = [end for _, end in partitions]
    firsts: dict[str, int] = {}
    for name in names:
        reached = terms.state.closed_to.get(name)
        firsts[name] = 0
        if reached is not None and terms.cut_off is not None and not everything:
            passed = min(parse_moment(reached, name), terms.cut_off)
            # The last one is always planned: it may have shrunk.
            firsts[name] = min(bisect_right(ends, passed), len(ends) - 1)
    bounds = {name: stamp(partitions[first][0]) for name, first in firsts.items()}
    columns = {name: column for column, name in enumerate(names)}
    older: dict[int, set[int]] = {}
    for key in (*terms.state.open, *terms.marks):
        text, _, name = key.partition("/")
        if name in bounds and text < bounds[name]:
            begin, _ = key_parts(key)
            at = bisect_right(ends, begin)
            if partitions[at][0] == begin:
                older.setdefault(at, set()).add(columns[name])
    everyone = range(len(names))
    common = max(firsts.values(), default=0)
    for at in sorted({*older, *range(min(firsts.values(), default=len(ends)), common)}):
        known = older.get(at, set())
        yield at, [c for c in everyone if c in known or firsts[names[c]] <= at]
    for at in range(common, len(ends)):
        yield at, everyone


def _planned(
    terms: _PlanTerms, span: _Span, key: str, values: Mapping[str, str], known: OpenUnit
) -> PlannedUnit:
    begin, end = span.partition
    name = key[len(span.begin) + 1 :]
    high = None
    if known.high is not None:
        high = end if known.high == span.end else parse_moment(known.high, key)
    known_to = high
    if begin < terms.now and known.read_at is not None and known.high != known_end(known):
        known_to = parse_moment(known.read_at, key)
    execute, low, reason = verdict(span.partition, known_to, terms.cut_off, terms.shift)
    if known.next_try is not None and parse_moment(known.next_try, key) > terms.now:
        execute, reason = False, "waiting"
    elif key in terms.marks and reason != "new" and known_to is not None and known_to <= end:
        execute, low, reason = True, begin, "redo"
    elif reason == "done" and low < end <= terms.now and owes(known, end, terms.shift):
        execute, reason = True, "grace"
    if execute:
        low = slice_begin(low, begin, high, [parse_moment(text, key) for text in known.slices])
    return PlannedUnit(values, name, span.partition, low, end, high, execute, reason)


def slice_begin(
    low: datetime, begin: datetime, high: datetime | None, slices: Sequence[datetime]
) -> datetime:
    """Return where a reading from ``low`` begins: at the beginning of a slice.

    Nothing is published from ``high`` on, so nothing there would be replaced in part.
    """
    if high is None or low <= begin:
        return begin
    return low if low >= high else replacement_begin(low, slices, begin)

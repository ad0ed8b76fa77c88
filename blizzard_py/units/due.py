"""What a source reads next, from its state: the planner with pauses, marks and slices. Pure.

Units that are closed and stay so are counted and not looked at, so planning costs what is open.

Two things the planner cannot know that has high watermarks alone. A complete unit is due until
it was read *after* its grace: where its last reading failed, or was beyond the limit, the
cut-off has moved past it meanwhile. And where the limit binds, whoever was read longest ago has
its turn: units in grace, which are read each time, would else keep all others waiting.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from blizzard_py.units.instants import in_utc, stamp
from blizzard_py.units.limits import enough
from blizzard_py.units.outcomes import UnitReading
from blizzard_py.units.planner import PlannedUnit, Verdict, limited, moved, verdict
from blizzard_py.units.schemes import Pair
from blizzard_py.units.slices import cut, widened
from blizzard_py.units.state import (
    OpenUnit,
    UnitsState,
    highest,
    key_parts,
    owes,
    stored_moment,
    unit_key,
    unit_of,
)
from blizzard_py.units.values import LONE, unit_name


@dataclass(frozen=True, slots=True)
class Terms:
    """How units are read: ``grace`` and ``abstinent``, the ``limit`` of a run, ``min_units``.

    ``everything`` also looks at the closed units, which are only counted else.
    """

    grace: timedelta = timedelta(0)
    abstinent: timedelta = timedelta(0)
    limit: int | None = None
    min_units: int = 0
    everything: bool = False

    @property
    def shift(self) -> timedelta:
        """Abstinence less grace: from a high watermark to where the next reading begins."""
        return self.abstinent - self.grace


@dataclass(frozen=True, slots=True)
class Due:
    """What is due: ``units`` by partition and value, each ``start`` where a slice begins.

    ``closed`` are those that were only counted. ``retired`` are names that the state knows and
    the configuration no longer has.
    """

    cut_off: datetime | None
    units: tuple[PlannedUnit, ...]
    closed: int
    retired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all units of one plan have in common."""

    state: UnitsState
    marks: frozenset[str]
    cut_off: datetime | None
    shift: timedelta
    now: datetime


def due(
    state: UnitsState,
    partitions: Sequence[Pair],
    values: Sequence[Mapping[str, str]] | None,
    terms: Terms,
    now: datetime,
) -> Due:
    """What becomes of each unit now. ``values`` of None is one unit ``{}``; an empty list none.

    ``partitions`` rise. Raises `UnitError` where there are fewer values than ``min_units``.
    """
    enough(None if values is None else len(values), terms.min_units)
    named = {LONE: {}} if values is None else {unit_name(one): one for one in values}
    top = highest(state)
    cut_off = None if top is None else moved(top, terms.shift)
    asked = _Asked(state, frozenset(state.redo), cut_off, terms.shift, in_utc(now, "now"))
    places = _places(asked, partitions, list(named), everything=terms.everything)
    texts: dict[int, str] = {}
    found, turns = [], []
    rows = list(named.items())
    last = len(partitions) - 1
    for at, column in places:
        name, chosen = rows[column]
        begin = texts.get(at)
        if begin is None:
            begin = texts[at] = stamp(partitions[at][0])
        key = f"{begin}/{name}"
        known = unit_of(state, key, stamp(partitions[at][1]), is_last=at == last)
        found.append(_planned(asked, partitions[at], key, chosen, known))
        turns.append(known.read_at or begin)
    names = dict.fromkeys([*state.closed_to, *(key.partition("/")[2] for key in state.open)])
    return Due(
        cut_off,
        tuple(limited(found, terms.limit, turns)),
        len(partitions) * len(named) - len(places),
        tuple(name for name in names if name not in named),
    )


def reading_of(unit: PlannedUnit, terms: Terms, now: datetime) -> UnitReading:
    """What is saved of a unit that is executed, before it is read; ``now`` is that of `due`."""
    begin, end = unit.partition
    slices = tuple(stamp(low) for low in cut(unit.start, unit.end, terms.shift))
    return UnitReading(
        unit_key(begin, unit.name), stamp(end), slices, stamp(unit.end), stamp(in_utc(now, "now"))
    )


def _places(
    asked: _Asked, partitions: Sequence[Pair], names: Sequence[str], *, everything: bool
) -> list[tuple[int, int]]:
    """Which units are looked at, as partition and value: those that may be open, in order."""
    if not partitions:
        return []
    ends = [end for _, end in partitions]
    columns = {name: column for column, name in enumerate(names)}
    firsts = []
    for name in names:
        reached = asked.state.closed_to.get(name)
        first = 0
        if reached is not None and asked.cut_off is not None and not everything:
            passed = min(stored_moment(reached, name), asked.cut_off)
            # The last one is always looked at: it may have shrunk.
            first = min(bisect_right(ends, passed), len(ends) - 1)
        firsts.append(first)
    found = {(at, column) for column, first in enumerate(firsts) for at in range(first, len(ends))}
    begins = [begin for begin, _ in partitions]
    for key in (*asked.state.open, *asked.marks):
        begin, name = key_parts(key)
        at = bisect_left(begins, begin)
        if name in columns and at < len(begins) and begins[at] == begin:
            found.add((at, columns[name]))
    return sorted(found)


def _planned(
    asked: _Asked, partition: Pair, key: str, values: Mapping[str, str], known: OpenUnit
) -> PlannedUnit:
    begin, end = partition
    high = None if known.high is None else stored_moment(known.high, key)
    found = verdict(partition, high, asked.cut_off, asked.shift)
    if known.next_try is not None and stored_moment(known.next_try, key) > asked.now:
        found = Verdict(False, found.low, "waiting")
    elif key in asked.marks and found.reason != "new" and high is not None and high <= end:
        found = Verdict(True, begin, "redo")
    elif found.reason == "done" and found.low < end <= asked.now and owes(known, end, asked.shift):
        found = Verdict(True, found.low, "grace")
    low = found.low
    if found.execute:
        slices = [stored_moment(text, key) for text in known.slices]
        low = widened(low, begin, high, slices)
    name = key.partition("/")[2]
    return PlannedUnit(values, name, partition, low, end, high, found.execute, found.reason)

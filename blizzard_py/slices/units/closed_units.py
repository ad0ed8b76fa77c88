"""The fold of units that are complete and out of grace into ``closed_to``. Pure.

So the size of the state depends on open units, not on all earlier ones. Only the beginnings of old
slices are lost: after the grace period is lengthened, such a partition is read from its beginning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter

from blizzard_py.slices.instants import stamp
from blizzard_py.slices.units.planner import move_high
from blizzard_py.slices.units.schemes import Pair
from blizzard_py.slices.units.state import (
    OpenUnit,
    UnitsState,
    highest,
    key_parts,
    owes,
    parse_moment,
    unit_key,
)

_BEGIN, _END = itemgetter(0), itemgetter(1)


def compact(
    state: UnitsState, partitions: Sequence[Pair], names: Iterable[str], shift: timedelta
) -> UnitsState:
    """Return the same state in less room, with ``closed_to`` of each name as far as it can go.

    It passes partitions that are complete, were read after their grace, and are not marked. It
    never passes the last one, which may grow. Units before the first partition are removed: a
    moving start has passed them. ``shift`` is the present abstinence less grace.
    """
    top = highest(state)
    if top is None or not partitions:
        return state
    cut_off = move_high(top, shift)
    marks = set(state.redo)
    open_ = dict(state.open)

    def is_over(key: str, unit: OpenUnit, end: datetime) -> bool:
        if unit.high != stamp(end) or end > cut_off or key in marks:
            return False
        return not owes(unit, end, shift)

    closed_to = dict(state.closed_to)
    for name in names:
        reached = closed_to.get(name)
        first = 0
        if reached is not None:
            first = bisect_right(partitions, parse_moment(reached, name), key=_END)
        for begin, end in partitions[first:-1]:
            key = unit_key(begin, name)
            if key not in open_ or not is_over(key, open_[key], end):
                break
            del open_[key]
            closed_to[name] = stamp(end)
    for key, unit in list(open_.items()):
        begin, name = key_parts(key)
        at = bisect_left(partitions, begin, key=_BEGIN)
        is_behind = closed_to.get(name, "") > stamp(begin) and at < len(partitions) - 1
        known = at < len(partitions) and partitions[at][0] == begin
        if begin < partitions[0][0] or (
            is_behind and known and is_over(key, unit, partitions[at][1])
        ):
            del open_[key]
    first_key = stamp(partitions[0][0])
    redo = tuple(key for key in state.redo if key >= first_key)
    return replace(state, closed_to=closed_to, open=open_, redo=redo)

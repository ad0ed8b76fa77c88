"""Corrections of unreliable state: times of a clock that was ahead, slices cut since. Pure.

A unit has the rows that existed when it was read (`OpenUnit.read_at`), whatever its high watermark
is. So an unreliable unit gets an earlier ``read_at``. The next reading begins at the beginning of a
slice and replaces all rows behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from blizzard_py.slices.instants import in_utc, stamp
from blizzard_py.slices.names import Range, unit_prefix
from blizzard_py.slices.units.outcomes import PAUSE_SECS
from blizzard_py.slices.units.planner import move_high
from blizzard_py.slices.units.state import OpenUnit, UnitsState, key_parts, parse_moment


def put_right(state: UnitsState, now: datetime) -> UnitsState:
    """Return the state without readings planned after ``now`` and without pauses that are too long.

    A clock was ahead then, or is behind now. Times after the reading will be read again.
    """
    here = in_utc(now, "now")
    last, longest = stamp(here), stamp(move_high(here, timedelta(seconds=PAUSE_SECS[1])))
    odd = {}
    for key, unit in state.open.items():
        read_at, next_try = unit.read_at, unit.next_try
        if read_at is not None and read_at > last:
            odd[key] = replace(unit, read_at=last)
        if next_try is not None and next_try > longest:
            odd[key] = replace(odd.get(key, unit), next_try=None)
    return replace(state, open={**state.open, **odd}) if odd else state


def is_ahead(state: UnitsState, now: datetime) -> bool:
    """Return whether a unit was read at a time in the future, according to its state."""
    last = stamp(in_utc(now, "now"))
    return any(unit.read_at is not None and unit.read_at > last for unit in state.open.values())


def read_since(state: UnitsState, source_id: str, replaced: Sequence[Range]) -> UnitsState:
    """Return the state after unknown readings that replaced these ranges of `_unit`.

    At the beginning of such a reading a slice begins, and later slices may be cut differently. So
    the unit is read again from there, and a closed unit from its beginning.
    """
    lowest: dict[str, str] = {}
    for first, _ in replaced:
        prefix, _, low = first.rpartition("/")
        lowest[prefix] = min(low, lowest.get(prefix, low))
    open_ = {}
    for key, unit in state.open.items():
        prefix = unit_prefix(source_id, *key_parts(key))
        open_[key] = _lowered(unit, lowest.pop(prefix, None))
    marks = dict.fromkeys(state.redo)
    marks.update(dict.fromkeys(_closed(state.closed_to, source_id, lowest)))
    return replace(state, open=open_, redo=tuple(marks))


def _lowered(unit: OpenUnit, low: str | None) -> OpenUnit:
    if low is None or unit.high is None or low >= unit.high:
        return unit
    slices = [*(text for text in unit.slices if text < low), low]
    read_at = low if unit.read_at is None else min(unit.read_at, low)
    return replace(unit, slices=tuple(slices), read_at=read_at)


def _closed(closed_to: Mapping[str, str], source_id: str, units: Iterable[str]) -> Iterator[str]:
    """Yield the keys of those units that are closed. ``units`` are as `unit_prefix` has them."""
    begins: dict[str, list[str]] = {}
    for unit in units:
        begin, _, value = unit.removeprefix(f"{source_id}/").partition("/")
        begins.setdefault(value, []).append(begin)
    for name, reached in closed_to.items():
        value = unit_prefix(source_id, parse_moment(reached, name), name).rpartition("/")[2]
        yield from (f"{begin}/{name}" for begin in begins.get(value, ()) if begin < reached)

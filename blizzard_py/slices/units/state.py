"""The state of a source's work units from run to run, kept compact. Pure.

``units`` of the checkpoint::

    {"spec": {"from": "2019-01-01T00:00:00.000Z", "zone": "UTC", "partition": "monthly",
              "name": "surveyId"},
     "closed_to": {"id1": "2020-02-01T00:00:00.000Z"},
     "open": {"2020-02-01T00:00:00.000Z/id1": {"high": "2020-02-21T00:00:00.000Z",
         "slices": ["2020-02-01T00:00:00.000Z", "2020-02-18T00:00:00.000Z"],
         "read_at": "2020-02-21T09:30:00.000Z", "failures": 0, "next_try": null, "error": null}},
     "redo": []}

Times are texts of `blizzard_py.slices.instants.stamp`. A **unit's key** is the beginning of its
partition, ``/`` and its name (`blizzard_py.slices.units.values.unit_name`). It identifies the unit
everywhere: here, in batches, on the command line.

Up to ``closed_to`` every partition of the value is complete and out of grace: its high watermark
is its end, and its slices are forgotten. An entry under ``open`` has precedence. It is of a later
unit, or of an older one that fails or is read again. ``high`` is null for a unit that never
succeeded. ``redo`` are units to be read again from their beginning. ``spec`` is what all
partitions depend on. ``anew``: nothing was read since a start over, so the first group replaces
everything that the source has published. ``readings`` belong to the running batch, and are saved
with it before its job starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated

import msgspec

from blizzard_core.errors import StateError
from blizzard_py.slices.compare import shown
from blizzard_py.slices.instants import moment, stamp

Stamp = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
UnitKey = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/")]


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """One unit's state. ``slices`` are the rising beginnings of the known slices.

    ``read_at`` is when the last successful reading was planned: nothing that arrived later is in
    the table, even if ``high`` is later. It is None if an operator set ``high``. ``failures``
    counts failures since then. The unit waits until ``next_try``, because of ``error``.
    """

    high: Stamp | None = None
    slices: tuple[Stamp, ...] = ()
    read_at: Stamp | None = None
    failures: Annotated[int, msgspec.Meta(ge=0)] = 0
    next_try: Stamp | None = None
    error: str | None = None


_NEW = OpenUnit()


@dataclass(frozen=True, slots=True)
class UnitReading:
    """A unit's reading of [``slices[0]``, ``to``), as it is saved before it begins.

    ``slices`` are the beginnings of its slices, at least one. Each has its own requests and files.
    ``part_to`` is the end of the partition when it was planned, ``at`` the time of planning.
    """

    key: UnitKey
    part_to: Stamp
    slices: tuple[Stamp, ...]
    to: Stamp
    at: Stamp


@dataclass(frozen=True, slots=True)
class UnitsState:
    """The state of all units of a source. ``UnitsState()`` is a cold start."""

    spec: Mapping[str, str] = field(default_factory=dict)
    closed_to: Mapping[str, Stamp] = field(default_factory=dict)
    open: Mapping[str, OpenUnit] = field(default_factory=dict)
    redo: tuple[UnitKey, ...] = ()
    readings: tuple[UnitReading, ...] = ()
    anew: bool = False


def unit_key(part_from: datetime, name: str) -> str:
    """Return the key of a unit: its partition's beginning (an instant in UTC), and its name."""
    return f"{stamp(part_from)}/{name}"


def key_parts(key: str, where: str = "units") -> tuple[datetime, str]:
    """Return the partition's beginning and the name in a key. Raises `StateError` if it is none."""
    begin, slash, name = key.partition("/")
    if not slash:
        raise StateError(f"{where}: {shown(key)} is no unit: 2020-02-01T00:00:00.000Z/NAME is one")
    return parse_moment(begin, where), name


def parse_moment(text: str, where: str) -> datetime:
    """Return a stored instant. Raises `StateError` if there is no such day or time."""
    try:
        return moment(text)
    except ValueError as error:
        raise StateError(f"{where}: there is no {shown(text)}; restore it") from error


def unit_of(state: UnitsState, key: str, part_to: str, *, is_last: bool = False) -> OpenUnit:
    """Return what is known of a unit whose partition ends at ``part_to``, closed or not.

    The last partition may end before its closed part, if the range's end was moved back. Its high
    watermark is then above its end, and the planner has to know that.
    """
    found = state.open.get(key)
    if found is not None:
        return found
    begin, _, name = key.partition("/")
    reached = state.closed_to.get(name)
    if reached is None or reached <= begin:
        return _NEW
    return OpenUnit(high=reached if is_last else min(reached, part_to))


def owes(unit: OpenUnit, part_to: datetime, shift: timedelta) -> bool:
    """Return whether a unit has not been read since its partition and its grace ended.

    ``shift`` is abstinence less grace. False if the time of its reading is unknown.
    """
    if unit.read_at is None:
        return False
    try:
        return _read_at(unit.read_at) < part_to - min(shift, timedelta(0))
    except OverflowError:
        return True


@lru_cache(1024)
def _read_at(text: str) -> datetime:
    """Return the instant of a reading, which all units of its batch share."""
    return moment(text)


def known_end(unit: OpenUnit) -> Stamp | None:
    """Return up to when a unit is known: its high watermark, but not after its last reading."""
    if unit.high is None or unit.read_at is None:
        return unit.high
    return min(unit.high, unit.read_at)


def highest(state: UnitsState) -> datetime | None:
    """Return the highest high watermark, including values that are no longer configured."""
    highs = (unit.high for unit in state.open.values() if unit.high is not None)
    top = max([*highs, *state.closed_to.values()], default=None)
    return None if top is None else parse_moment(top, "units")


def check_units(state: UnitsState, where: str) -> UnitsState:
    """Return the state if its times are valid and its slices rise. Raises `StateError` if not.

    For a caller that decodes it as part of a larger document, which checks the types.
    """
    for name, text in state.closed_to.items():
        parse_moment(text, f"{where}.closed_to[{name!r}]")
    for key in state.redo:
        key_parts(key, f"{where}.redo")
    for key, unit in state.open.items():
        at = f"{where}.open[{key!r}]"
        begin, _ = key_parts(key, at)
        for stored_time in (unit.high, unit.read_at, unit.next_try, *unit.slices):
            if stored_time is not None:
                parse_moment(stored_time, at)
        known = list(unit.slices)
        if known != sorted(set(known)) or (known and (known[0] < stamp(begin))):
            raise StateError(f"{at}: the slices do not rise from its beginning; restore it")
        if known and (unit.high is None or known[-1] >= unit.high):
            raise StateError(f"{at}: a slice begins behind the high watermark; restore it")
    return state


def check_spec(state: UnitsState, spec: Mapping[str, str], where: str) -> UnitsState:
    """Return the state, if it is of these partitions and values. A fresh one gets their ``spec``.

    Raises `StateError` with both if they differ: all partitions would shift, and rows published
    under other keys would never be replaced.
    """
    if not state.spec:
        return replace(state, spec=dict(spec))
    if dict(state.spec) == dict(spec):
        return state
    raise StateError(
        f"{where}: the units were {_spec_text(state.spec)}, and are configured as"
        f" {_spec_text(spec)}, which would shift all of them; configure what they were, or begin"
        " anew with `blizzard checkpoint reset --units`, which replaces on the way what is"
        " published"
    )


def _spec_text(spec: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in spec.items())

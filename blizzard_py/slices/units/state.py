"""The state of a source's work units from run to run, kept compact. Pure.

``units`` of the checkpoint::

    {"spec": {"from": "2019-01-01T00:00:00.000Z", "zone": "UTC", "partition": "monthly",
              "name": "surveyId"},
     "closed_to": {"id1": "2020-02-01T00:00:00.000Z"},
     "open": {"2020-02-01T00:00:00.000Z/id1": {"high": "2020-02-21T00:00:00.000Z",
         "slices": ["2020-02-01T00:00:00.000Z", "2020-02-18T00:00:00.000Z"],
         "read_at": "2020-02-21T09:30:00.000Z", "failures": 0, "next_try": null, "error": null}},
     "redo": []}

Times are `blizzard_py.slices.instants.stamp` s. A **unit's key** is where its partition begins,
``/`` and its name (`blizzard_py.slices.units.values.unit_name`), which is what it is told by
everywhere: here, in batches, on the command line.

Up to ``closed_to`` every partition of the value is complete and out of grace: its high watermark
is its end, and its slices are forgotten. An entry under ``open`` goes before it: of a unit that
is younger, or older and failing or read again. ``high`` is null for one that never succeeded.
``redo`` are the units that are read again from their beginning, whatever they have. ``spec`` is
what all partitions depend on. ``anew``: nothing was read since a start from nothing, so what the
source has published in its life is replaced as a whole by the first group. ``readings`` are those
of the batch that is under way, saved with it before its job starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from blizzard_core.errors import StateError
from blizzard_py.slices.compare import shown
from blizzard_py.slices.instants import moment, stamp

Stamp = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
UnitKey = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/")]


@dataclass(frozen=True, slots=True)
class OpenUnit:
    """One unit's state. ``slices`` are where those begin that are known, rising.

    ``read_at`` is when the reading was planned that succeeded last: nothing that arrived later
    is in the table, also where ``high`` lies behind it; None where somebody has said how far it
    is. ``failures`` count since; until ``next_try`` it waits; ``error`` is why.
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

    ``slices`` are where they begin, at least one; each goes to requests and files of its own.
    ``part_to`` is where the partition ended when it was planned, ``at`` when that was.
    """

    key: UnitKey
    part_to: Stamp
    slices: tuple[Stamp, ...]
    to: Stamp
    at: Stamp


@dataclass(frozen=True, slots=True)
class UnitsState:
    """See above. ``UnitsState()`` is a cold start."""

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
    return stored_moment(begin, where), name


def stored_moment(text: str, where: str) -> datetime:
    """Return a stored instant. Raises `StateError` if there is no such day or time."""
    try:
        return moment(text)
    except ValueError as error:
        raise StateError(f"{where}: there is no {shown(text)}; restore it") from error


def unit_of(state: UnitsState, key: str, part_to: str, *, is_last: bool = False) -> OpenUnit:
    """Return what is known of a unit whose partition ends at ``part_to``, closed or not.

    The last partition of a range may end before where it was closed, when the range's end went
    back; its high watermark then is above its end, which the planner must see.
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
    """Return whether a unit has not been read since its partition, and the grace of it, was over.

    ``shift`` is abstinence less grace. What is not known to be owed is not.
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


def reached(unit: OpenUnit) -> Stamp | None:
    """Up to when a unit is known: its high watermark, but nothing that was still to come then."""
    if unit.high is None or unit.read_at is None:
        return unit.high
    return min(unit.high, unit.read_at)


def highest(state: UnitsState) -> datetime | None:
    """Return the highest high watermark, including values that are no longer configured."""
    highs = (unit.high for unit in state.open.values() if unit.high is not None)
    top = max([*highs, *state.closed_to.values()], default=None)
    return None if top is None else stored_moment(top, "units")


def units_to_json(state: UnitsState) -> dict[str, Any]:
    """Return what the checkpoint has under ``units``."""
    document: dict[str, Any] = msgspec.to_builtins(state)
    for key in ("anew", "readings"):
        if not document[key]:
            del document[key]
    return document


def checked(state: UnitsState, where: str) -> UnitsState:
    """Return the state if its times are valid and its slices rise. Raises `StateError` if not.

    For who decodes it as a part of something larger; types are checked there.
    """
    for name, text in state.closed_to.items():
        stored_moment(text, f"{where}.closed_to[{name!r}]")
    for key in state.redo:
        key_parts(key, f"{where}.redo")
    for key, unit in state.open.items():
        at = f"{where}.open[{key!r}]"
        begin, _ = key_parts(key, at)
        for told in (unit.high, unit.read_at, unit.next_try, *unit.slices):
            if told is not None:
                stored_moment(told, at)
        known = list(unit.slices)
        if known != sorted(set(known)) or (known and (known[0] < stamp(begin))):
            raise StateError(f"{at}: the slices do not rise from its beginning; restore it")
        if known and (unit.high is None or known[-1] >= unit.high):
            raise StateError(f"{at}: a slice begins behind the high watermark; restore it")
    return state


def guarded(state: UnitsState, spec: Mapping[str, str], where: str) -> UnitsState:
    """Return the state, if it is of these partitions and values. A fresh one gets their ``spec``.

    Raises `StateError` with both where they differ: all partitions would shift, and what was
    published under other keys would never be replaced.
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

"""Work units as an API for a user's own programs: pure, and not used by the daemon itself.

All functions depend only on their arguments: they open and store nothing. Times are aware
datetimes. Returned times are in UTC, in whole milliseconds. Every error is a `UnitError`, which is
a `ConfigError`. The code that the daemon uses too is in `blizzard_py.slices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.slices.compare import shown
from blizzard_py.slices.instants import in_utc, resolve, stamp
from blizzard_py.slices.units import limits
from blizzard_py.slices.units.limits import limit
from blizzard_py.slices.units.planner import PlannedUnit, Verdict, limit_units, move_high, verdict
from blizzard_py.slices.units.ranges import range_problems
from blizzard_py.slices.units.schemes import Pair, composite, partitions, scheme
from blizzard_py.slices.units.values import LONE, unit_list, unit_name, units_from

__all__ = [
    "Plan",
    "PlannedUnit",
    "UnitError",
    "advance_high",
    "check",
    "composite",
    "limit",
    "partitions",
    "plan",
    "resolve",
    "scheme",
    "unit_list",
    "unit_name",
    "units_from",
]

_FIRST = datetime.min.replace(tzinfo=UTC)
_HOLDS = {"datetime": "range", "unit": "units"}


@dataclass(frozen=True, slots=True)
class Plan:
    """All units by partition, then by value in the given order. ``cut_off`` may be None."""

    cut_off: datetime | None
    units: list[PlannedUnit]


def plan(
    ranges: Iterable[Pair],
    units: Iterable[Mapping[str, Any]] | None,
    state: Mapping[tuple[datetime, str], datetime | None] | None,
    grace: float | timedelta,
    abstinent: float | timedelta,
    limit: int | None = None,
    min_units: int = 0,
) -> Plan:
    """Return the plan of each unit: each of ``units`` in each of ``ranges``.

    ``ranges`` are pairs as from `partitions`, ``units`` are dicts as from `unit_list`. Without
    units there is one unit ``{}``. ``state`` maps the start of a partition and a unit's name
    (`unit_name`: its value, or ``{}`` for the only unit) to its high watermark, or None. Grace and
    abstinence are days of 24 hours, or durations. ``limit`` is as from `limit`: only the first
    units are executed, and the others keep their reason.

    Raises `UnitError` for ranges that are empty or overlap, units with the same name, fewer values
    than ``min_units``, and arguments of other types.
    """
    pairs = _pairs(ranges)
    given = None if units is None else _named(units)
    limits.enough(None if given is None or LONE in given else len(given), min_units)
    named = given or {LONE: {}}
    shift = _days(abstinent, "abstinent") - _days(grace, "grace")
    most = None if limit is None else limits.limit(limit)
    highs = _highs({} if state is None else state)
    top = max((high for high in highs.values() if high is not None), default=None)
    cut_off = None if top is None else move_high(top, shift)
    found = []
    for pair in pairs:
        begin, end = pair
        # Nearly all units were never read, or up to the end: these two are computed only once.
        unread: Verdict | None = None
        whole: Verdict | None = None
        for name, values in named.items():
            high = highs.get((begin, name))
            if high is None:
                verdict_found = unread = unread or verdict(pair, None, cut_off, shift)
            elif high == end:
                verdict_found = whole = whole or verdict(pair, high, cut_off, shift)
            else:
                verdict_found = verdict(pair, high, cut_off, shift)
            execute, low, reason = verdict_found
            found.append(PlannedUnit(values, name, pair, low, end, high, execute, reason))
    return Plan(cut_off, limit_units(found, most))


def advance_high(
    earlier: datetime | None, low: datetime, high: datetime, ok: bool
) -> datetime | None:
    """Return the high watermark after a reading of [low, high): its end, if that is higher.

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


def check(definitions: Any) -> list[str]:
    """Return the problems of a list of ``{name, type, range or units}``; none if it is valid.

    ``type`` is ``datetime``, with a ``range`` of ``from`` and ``to`` (and ``zone``), or ``unit``
    with ``units`` as for `unit_list`; at most one of each. None is valid.
    """
    if definitions is None:
        return []
    if not isinstance(definitions, list | tuple):
        return [f"{shown(definitions)} is no list of watermarks"]
    problems = []
    types: list[str] = []
    for number, definition in enumerate(definitions, 1):
        if not isinstance(definition, Mapping):
            problems.append(f"watermark {number}: {shown(definition)} has no name and type")
            continue
        name = definition.get("name")
        where = f"watermark {number}"
        if isinstance(name, str) and name.strip():
            where = f"{where} ({shown(name.strip())})"
        else:
            problems.append(f"{where}: has no name")
        problems += [f"{where}: {problem}" for problem in _problems(definition, types)]
    return problems


def _problems(definition: Mapping[Any, Any], types: list[str]) -> list[str]:
    kind = definition.get("type")
    if not isinstance(kind, str) or kind not in _HOLDS:
        return [f"{shown(kind)} is no type: datetime or unit"]
    found = []
    if kind in types:
        found.append(f"there is a watermark of type {kind} already, and there can be one")
    types.append(kind)
    holds = _HOLDS[kind]
    other = next(key for key in _HOLDS.values() if key != holds)
    if definition.get(other) is not None:
        found.append(f"type {kind} has {holds}, not {other}")
    if definition.get(holds) is None:
        return [*found, f"type {kind} needs {holds}"]
    return found + (_range if kind == "datetime" else _units)(definition)


def _range(definition: Mapping[Any, Any]) -> list[str]:
    definition_range = definition["range"]
    if not isinstance(definition_range, Mapping):
        return [f"{shown(definition_range)} is no range: it has from and to"]
    missing = [
        f"the range needs {key}" for key in ("from", "to") if definition_range.get(key) is None
    ]
    return missing or range_problems(
        definition_range["from"], definition_range["to"], definition_range.get("zone") or "UTC"
    )


def _units(definition: Mapping[Any, Any]) -> list[str]:
    name = definition.get("name")
    try:
        unit_list(name if isinstance(name, str) and name.strip() else "unit", definition["units"])
    except UnitError as error:
        return list(error.problems)
    return []


def _days(value: Any, what: str) -> timedelta:
    """Return a number of days, 24 hours each, or a duration, to the millisecond. None is 0.

    Raises `UnitError` below 0 and for other values. Durations longer than the calendar are cut.
    """
    if value is None:
        return timedelta(0)
    if isinstance(value, timedelta):
        found = value
    else:
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:  # noqa: PLR0124  # NaN alone is not itself
            raise UnitError(f"{what}: {shown(value)} is no number of days")
        found = timedelta(days=max(-1, min(value, 3_700_000)))
    if found < timedelta(0):
        raise UnitError(f"{what}: {shown(value)} days are below none")
    return timedelta(milliseconds=found // timedelta(milliseconds=1))


def _pairs(ranges: Any) -> list[Pair]:
    try:
        pairs = sorted((in_utc(low, "range"), in_utc(high, "range")) for low, high in ranges)
    except (TypeError, ValueError) as error:
        raise UnitError(f"{shown(ranges)} are no ranges: pairs of times") from error
    reached = _FIRST
    for low, high in pairs:
        if low < reached or low >= high:
            raise UnitError(
                f"the range from {stamp(low)} to {stamp(high)} is empty, or overlaps another"
            )
        reached = high
    return pairs


def _named(units: Any) -> dict[str, Mapping[str, Any]]:
    """Return the units by name, in the given order."""
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
    """Return the state with times in UTC and names as in `unit_name`; unchanged if it has these."""
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
        # Units of the same partition are mostly adjacent.
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

"""What is wrong with watermarks that are written as definitions: `check`, pure and public."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from blizzard_core.errors import UnitError
from blizzard_py.units.instants import is_moving, resolve, shown
from blizzard_py.units.values import unit_list

# Any day will do: two ends that both move keep their order, but for a day with a jump.
_SOME_DAY = datetime(2020, 1, 15, 12, tzinfo=UTC)

_HOLDS = {"datetime": "range", "unit": "units"}


def check(definitions: Any) -> list[str]:
    """The problems of a list of ``{name, type, range or units}``, in words; none if it is fine.

    ``type`` is ``datetime``, with a ``range`` of ``from`` and ``to`` (and ``zone``), or ``unit``
    with ``units`` as `unit_list` takes them; at most one of each. None is fine.
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


def range_problems(start: Any, end: Any, zone: Any = "UTC") -> list[str]:
    """What is wrong with a range's ends as they are configured."""
    found = []
    moments = []
    for key, text in (("from", start), ("to", end)):
        try:
            moments.append(resolve(text, _SOME_DAY, zone, start=key == "from"))
        except UnitError as error:
            found += [f"{key}: {problem}" for problem in error.problems]
    if len(moments) == 2 and is_moving(start) == is_moving(end) and moments[0] >= moments[1]:
        found.append(f"to: {shown(end)} is not behind from: {shown(start)}")
    return list(dict.fromkeys(found))


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
    told = definition["range"]
    if not isinstance(told, Mapping):
        return [f"{shown(told)} is no range: it has from and to"]
    missing = [f"the range needs {key}" for key in ("from", "to") if told.get(key) is None]
    return missing or range_problems(told["from"], told["to"], told.get("zone") or "UTC")


def _units(definition: Mapping[Any, Any]) -> list[str]:
    name = definition.get("name")
    try:
        unit_list(name if isinstance(name, str) and name.strip() else "unit", definition["units"])
    except UnitError as error:
        return list(error.problems)
    return []

"""The next poll of a source of work units, for `blizzard plan`. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from blizzard_core.errors import SourceError
from blizzard_py.app.queries.plan import selection_of
from blizzard_py.app.source_kinds import PlanOptions
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.query_spec import Units
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.units.outcomes import replaced_range
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import UnitReading, unit_key
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.unit_names import values_of
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState

# Shows the statement, or the first request, that reads slices.
_Show = Callable[[Sequence[Values]], tuple[str | None, dict[str, Any] | None]]


def unit_plan_of(found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
    """Return the document of one source from its settings and state.

    Raises `SourceError`, `StateError`, `StorageError`, `UnitError`.
    """
    found.check(state)
    query_spec, now = cast("UnitSource", found.source).query_spec, options.now
    units = query_spec.units
    assert units is not None  # noqa: S101  # it has such
    units = replace(units, terms=replace(units.terms, everything=options.everything))
    values = _values(units, offline=options.offline)
    units = replace(units, terms=replace(units.terms, min_units=0))  # `values_of` has looked
    outlook = unit_plans.preview(state.kind.units, units, values, now, found.id)
    settings, kind, selection = selection_of(options, found)
    show = partial(kind.show_slices, query_spec.connection, selection)
    listed = [_describe_unit(unit, units, now, found.id, show) for unit in outlook.due.units]
    broken = [f"{unit['name']}: {unit['error']}" for unit in listed if "error" in unit]
    due = outlook.due
    counts = Counter("execute" if unit.execute else unit.reason for unit in due.units)
    counts["done"] += due.closed
    return {
        "kind": settings.kind,
        "state": state.position.progress.state,
        "range": {"from": stamp(outlook.laid.start), "to": stamp(outlook.laid.end)},
        "cut_off": None if due.cut_off is None else stamp(due.cut_off),
        "units": listed,
        "counts": {"execute": 0, "done": 0, **counts},
        "retired": list(due.retired),
        "warnings": [*unit_plans.warnings_of(outlook), *broken],
    }


def _values(units: Units, *, offline: bool) -> Sequence[Mapping[str, str]] | None:
    if offline and units.table is not None:
        raise SourceError(
            "units.values.from: which values there are is known by asking only; leave --offline out"
        )
    return values_of(units)


def _describe_unit(
    unit: PlannedUnit, units: Units, now: dt.datetime, source_id: str, show: _Show
) -> dict[str, Any]:
    """Return a planned unit; its request only if it is read."""
    begin, end = unit.partition
    reading = unit_plans.plan_reading(unit, units, now) if unit.execute else None
    low = unit.start if reading is None else moment(reading.slices[0])
    return {
        "name": unit_key(begin, unit.name),
        "unit": dict(unit.values),
        "partition": {"from": stamp(begin), "to": stamp(end)},
        "from": stamp(low),
        "to": stamp(unit.end),
        "high_watermark": None if unit.high is None else stamp(unit.high),
        "execute": unit.execute,
        "reason": unit.reason,
        "slices": [] if reading is None else _pairs(reading),
        "replaces": None if reading is None else list(replaced_range(source_id, reading)),
        **_request_document(reading, units, show),
    }


def _request_document(reading: UnitReading | None, units: Units, show: _Show) -> dict[str, Any]:
    """Return the request of the first slice, or the statement of the whole reading.

    A unit whose values cannot stand there costs itself alone: ``error`` says why.
    """
    found: dict[str, Any] = {"query": None, "request": None}
    if reading is None:
        return found
    try:
        query, request = show(unit_plans.slice_values(reading, units))
    except SourceError as error:
        return {**found, "error": str(error)}
    return {"query": query, "request": request}


def _pairs(reading: UnitReading) -> list[list[str]]:
    ends = [*reading.slices[1:], reading.to]
    return [list(pair) for pair in zip(reading.slices, ends, strict=True)]

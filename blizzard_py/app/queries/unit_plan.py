"""The next poll of a source of work units, for `blizzard plan`. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_core.settings.document import QuerySettings
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.connections.protocol import ReadSelection, SourceConnection
from blizzard_py.connections.query_spec import Units
from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.units.outcomes import replaced_range
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import UnitReading, unit_key
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.unit_names import values_of
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState


def unit_plan_of(
    source: UnitSource,
    state: SourceState,
    settings: tuple[str, QuerySettings, ReadSelection],
    now: dt.datetime,
    *,
    offline: bool,
    everything: bool,
) -> dict[str, Any]:
    """Return the document of one source from its id, settings and state at ``now``.

    With ``everything`` units that are closed are listed, too. Raises `SourceError`,
    `StateError`, `StorageError`, `UnitError`.
    """
    units = source.query_spec.units
    assert units is not None  # noqa: S101  # it has such
    units = replace(units, terms=replace(units.terms, everything=everything))
    values = _values(units, offline=offline)
    units = replace(units, terms=replace(units.terms, min_units=0))  # `values_of` has looked
    found = unit_plans.preview(state.kind.units, units, values, now, settings[0])
    describer = _UnitDescriber(source.query_spec.connection, settings, units, now)
    listed = [describer.unit(unit) for unit in found.due.units]
    broken = [f"{unit['name']}: {unit['error']}" for unit in listed if "error" in unit]
    due = found.due
    counts = Counter("execute" if unit.execute else unit.reason for unit in due.units)
    counts["done"] += due.closed
    return {
        "kind": settings[1].kind,
        "state": state.position.progress.state,
        "range": {"from": stamp(found.laid.start), "to": stamp(found.laid.end)},
        "cut_off": None if due.cut_off is None else stamp(due.cut_off),
        "units": listed,
        "counts": {"execute": 0, "done": 0, **counts},
        "retired": list(due.retired),
        "warnings": [*unit_plans.warnings_of(found), *broken],
    }


def _values(units: Units, *, offline: bool) -> Sequence[Mapping[str, str]] | None:
    if offline and units.table is not None:
        raise SourceError(
            "units.values.from: which values there are is known by asking only; leave --offline out"
        )
    return values_of(units)


class _UnitDescriber:
    def __init__(
        self,
        connection: SourceConnection,
        settings: tuple[str, QuerySettings, ReadSelection],
        units: Units,
        now: dt.datetime,
    ) -> None:
        self._connection = connection
        self._id, self._settings, self._selection = settings
        self._units = units
        self._now = now

    def unit(self, unit: PlannedUnit) -> dict[str, Any]:
        """Return a planned unit; its request only if it is read."""
        begin, end = unit.partition
        reading = None
        if unit.execute:
            reading = unit_plans.plan_reading(unit, self._units, self._now)
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
            "replaces": None if reading is None else list(replaced_range(self._id, reading)),
            **self._request_document(reading),
        }

    def _request_document(self, reading: UnitReading | None) -> dict[str, Any]:
        """Return the request of the first slice, or the statement of the whole reading.

        A unit whose values cannot stand there costs itself alone: ``error`` says why.
        """
        if reading is None:
            return {"query": None, "request": None}
        try:
            return self._render_request(reading)
        except SourceError as error:
            return {"query": None, "request": None, "error": str(error)}

    def _render_request(self, reading: UnitReading) -> dict[str, Any]:
        slices = unit_plans.slice_values(reading, self._units)
        kind = kind_of(self._settings)
        query, request = kind.show_slices(self._connection, self._selection, slices)
        return {"query": query, "request": request}


def _pairs(reading: UnitReading) -> list[list[str]]:
    ends = [*reading.slices[1:], reading.to]
    return [list(pair) for pair in zip(reading.slices, ends, strict=True)]

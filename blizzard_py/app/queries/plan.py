"""The next poll of a table or an API, or of its work units, for `blizzard plan`. Writes nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from blizzard_core.errors import SourceError
from blizzard_core.settings.document import QuerySettings
from blizzard_py.app.queries.kinds import QueryKind, kind_of
from blizzard_py.app.source_kinds import PlanOptions
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import ReadBound, ReadSelection
from blizzard_py.connections.query_spec import Units
from blizzard_py.connections.sqlite_session import is_time, until
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.reading import BoundKind, Window
from blizzard_py.slices.calendars import lowest_wall
from blizzard_py.slices.instants import moment, stamp
from blizzard_py.slices.lookback import effective
from blizzard_py.slices.units.outcomes import replaced_range
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import UnitReading, unit_key
from blizzard_py.sources.tables import replacing, unit_plans, windows
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.sources.tables.unit_names import values_of
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.column_state import ColumnState, StoredWindow
from blizzard_py.state.source_state import SourceState

# Shows the statement, or the first request, that reads slices.
_Show = Callable[[Sequence[Values]], tuple[str | None, dict[str, Any] | None]]

# What a bound of this kind may miss, for people (docs/reference/tables.md has the whole table).
PROMISES: Mapping[BoundKind, str] = {
    "version": "nothing is missed",
    "settled": "missed are times that the writer does not take from its transaction or later",
    "clock": "missed are rows of transactions that take longer than settle",
    "max": "missed are lower values that are committed later",
    "rows": "missed are lower values that are committed later",
}


def plan_of(found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
    """Return the document of one source from its settings and state.

    Raises `SourceError`, `StateError`, `StorageError`.
    """
    found.check(state)
    source, now, offline = cast("WindowSource", found.source), options.now, options.offline
    query_spec, known = source.query_spec, state.kind.columns or ColumnState()
    settings, kind, selection = selection_of(options, found)
    if query_spec.snapshot:  # a window of everything, which no watermark begins
        known = known if offline else source.preview(state)
        known = replace(known, window=known.window or StoredWindow("clock"), watermark={})
    watermark = windows.from_stored(known.watermark)
    stored = known.window
    bound: ReadBound
    if stored is not None:
        bound = ReadBound(stored.kind, windows.from_stored(stored.up_to))
    elif offline:
        bound = _offline(settings, selection, now, watermark)
    else:
        bound = query_spec.connection.bound(query_spec.bound_kind, query_spec.settle_secs)
    if stored is None:
        stored = windows.plan_window(known, query_spec, selection.fields, bound, now.timestamp())
    tasks = known.tasks if known.window is not None else ()
    slices: tuple[tuple[str, Window], ...] = ()
    if stored is not None and query_spec.replaces:
        slices = tuple(replacing.slices_of(source.id, known, stored, query_spec))
    if slices and not tasks and not offline:
        sliced = (query_spec.connection.tasks(window, query_spec.split) for _, window in slices)
        tasks = tuple(t for at, some in enumerate(sliced) for t in replacing.number_tasks(at, some))
    elif stored is not None and not tasks and not offline:
        tasks = tuple(query_spec.connection.tasks(windows.window_of(stored), query_spec.split))
        stored = stored if tasks else None
    query, request = None, None
    if stored is not None:
        window = windows.window_of(stored)
        query, request = kind.show_window(
            query_spec.access.driver, query_spec.connection, selection, window
        )
    return {
        "kind": settings.kind,
        "state": state.position.progress.state,
        "watermark": dict(known.watermark),
        "effective": windows.to_stored(effective(watermark, query_spec.backward, now)),
        "bound": {
            "kind": bound.kind,
            "value": windows.to_stored(bound.value),
            "held_by": bound.held_by,
        },
        "window": None
        if stored is None
        else {"after": dict(stored.after), "up_to": dict(stored.up_to), "low": dict(stored.low)},
        "query": query,
        "request": request,
        "tasks": [{"name": task.name, "where": task.where} for task in tasks],
        "reread": settings.marks.reread,
        "replaces": [[slices[0][0], f"{source.id}0"]] if slices else [],
        "warnings": []
        if query_spec.snapshot
        else [f"{bound.kind}: {PROMISES[bound.kind]}", *bound.warnings],
    }


def selection_of(
    options: PlanOptions, found: SourceView
) -> tuple[QuerySettings, QueryKind[Any], ReadSelection]:
    """Return a source's settings, their kind, and the rows and columns to read."""
    pipeline = options.config.pipelines[found.pipeline]
    settings = pipeline.query_sources[found.source_name]
    driver = options.config.connections[settings.connection].driver
    kind = kind_of(settings)
    return settings, kind, kind.selection(pipeline, settings, driver)


def _offline(
    source: QuerySettings, selection: ReadSelection, now: dt.datetime, stored: Mapping[str, Any]
) -> ReadBound:
    """Return the bound as of ``now``, if the schema says that the columns are times.

    A value has the form of the stored one: text of SQLite, a time without a zone, a date.
    """
    mark = source.marks
    kinds = {field.name: field.type for field in selection.fields}
    if mark.bound in {"max", "version", "rows"} or not mark.columns:
        raise SourceError(
            f"bound {mark.bound or 'version'} is known by asking only; leave --offline out"
        )
    moment = now - (
        dt.timedelta(microseconds=1)
        if mark.bound == "settled"
        else dt.timedelta(seconds=mark.advanced.settle)
    )
    value: dict[str, Any] = {}
    for column in mark.columns:
        kind = kinds.get(column, "timestamp")
        if stored.get(column) is not None:
            value[column] = _formed(column, moment, stored[column], selection.walls)
        elif kind == "date":
            value[column] = moment.date() - dt.timedelta(days=1)
        elif kind == "timestamp":
            value[column] = moment
        elif kind == "string":
            value[column] = moment.isoformat()
        else:
            raise SourceError(
                f"column {column} is {kind}: where it ends is known by asking only; leave"
                " --offline out"
            )
    return ReadBound(mark.bound or "clock", value)


def _formed(column: str, moment: dt.datetime, like: Any, zone: dt.tzinfo) -> Any:
    if isinstance(like, str) and is_time(like):
        return until(moment, like, zone)
    if isinstance(like, dt.datetime):
        return moment if like.tzinfo else lowest_wall(moment, zone)
    if isinstance(like, dt.date):
        return lowest_wall(moment, zone).date() - dt.timedelta(days=1)
    raise SourceError(
        f"column {column}: the watermark is {like!r}, which is no time: where it ends is known by"
        " asking only; leave --offline out"
    )


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

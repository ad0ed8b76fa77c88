"""The effects of operators' requests on a source's state, by the kind of the request.

The source's owner applies them between batches; without an owner a command does.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Container
from dataclasses import fields
from typing import Any

import msgspec

from blizzard_core.errors import StateError, UnitError
from blizzard_py.app import value_ranges
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.connections.query_spec import Units
from blizzard_py.edits import unit_edits
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.ingest.request_acceptance import Applied, RequestEffects, RequestRefused
from blizzard_py.job import FieldSpec, IngestSettings
from blizzard_py.requests.document import Request
from blizzard_py.slices.compare import shown
from blizzard_py.slices.units.state import key_parts
from blizzard_py.slices.units.values import unit_name, values_named
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.unit_plans import UnitOutlook
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState

_DECIDES_READING = {
    "connection",
    "query",
    "table",
    "filter",
    "request",
    "records",
    "pages",
    "units",
    "watermark",
    "snapshot",
}
# Secrets, and how fast units are read, which may differ from machine to machine.
_DECIDES_NOTHING: Any = {
    "request": {"headers"},
    "units": {
        "values": {"from_": {"storage_options"}},
        "advanced": {"max_units_per_run", "min_units", "parallel", "pacing"},
    },
}


def effects_of(parts: SourceContext, source: Source[Any]) -> RequestEffects:
    """Return how a source executes requests. Connects to nothing."""

    def apply(state: SourceState, request: Request, now: float) -> Applied:
        try:
            return _applied(parts, source, state, request, now)
        except EditRefused as error:
            raise RequestRefused(str(error)) from error
        except UnitError as error:
            raise RequestRefused("; ".join(error.problems)) from error

    selecting = RequestSelector(parts, source)
    return RequestEffects(
        apply,
        selecting.select,
        selecting.put_away,
        fingerprint_of(parts),
        selecting.keep_for,
        selecting.close,
    )


def fingerprint_of(parts: SourceContext) -> str:
    """Return a digest of the settings that decide which rows come of an item, and of no secret."""
    found = {
        "rows": _settings_of_rows(parts.ingest),
        "source": parts.source.model_dump(
            mode="json", include=_DECIDES_READING, exclude=_DECIDES_NOTHING
        ),
        "query": parts.query_fingerprint,
    }
    document = msgspec.json.encode(found, enc_hook=repr, order="sorted")
    return f"sha256:{hashlib.sha256(document).hexdigest()[:32]}"


def _settings_of_rows(ingest: IngestSettings) -> dict[str, Any]:
    """Return the job settings of the digest.

    Requests carry the digest, so neither the names nor the form of the values may change.
    """
    added = ingest.added_columns
    path = {"path_columns": [*map(_field, added.path)], "path_template": added.path_template}
    return {
        **(path if added.path else {}),
        "fields": [_field(spec) for spec in ingest.schema.fields],
        "unexpected_fields": ingest.schema.unexpected_fields,
        "metadata_columns": added.metadata,
        "deduplicate_by": ingest.sql.deduplicate_by,
        "transform": ingest.sql.transform,
        "on_bad_record": ingest.tolerance.on_bad_record,
        "max_bad_fraction": ingest.tolerance.max_bad_fraction,
        "partition_template": ingest.layout.partition_template,
        "partition_rules": ingest.layout.partition_rules,
    }


def _field(spec: FieldSpec) -> dict[str, Any]:
    """Return a column; its name in the records only if it is another one."""
    found = {each.name: getattr(spec, each.name) for each in fields(spec)}
    found["children"] = [_field(child) for child in spec.children]
    return found if spec.source else {k: v for k, v in found.items() if k != "source"}


def _applied(
    parts: SourceContext, source: Source[Any], state: SourceState, request: Request, now: float
) -> Applied:
    match request.kind:
        case "mark_units":
            return _mark_units(parts, units_of(parts.name, source), state, request, now)
        case "advance_watermark":
            return _advance_watermark(parts, state, request, now)
        case "reingest":
            return _reingest(parts, source, state, request)
        case "close_letters":
            return Applied(state, {}, is_running=True)


def _mark_units(
    parts: SourceContext, source: UnitSource, state: SourceState, request: Request, now: float
) -> Applied:
    found = look(source, state, dt.datetime.fromtimestamp(now, dt.UTC))
    keys = tuple(dict.fromkeys(request.select["units"]))
    begins = {begin for begin, _ in found.laid.partitions}
    for key in keys:
        if not _is_unit(configured(source), key, begins):
            # Its mark would stay for ever, and what asked for it would count as done.
            raise RequestRefused(f"{shown(key)} is no unit of {parts.name}; see `blizzard plan`")
    return Applied(unit_edits.with_marks(state, found, keys), {"units": len(keys)})


def _is_unit(units: Units, key: str, begins: Container[dt.datetime]) -> bool:
    """Return whether a key may be a unit's. Asks nobody: values in a table may be any."""
    try:
        begin, name = key_parts(key)
        values_named(name, units.fields)
    except (StateError, UnitError):
        return False
    return begin in begins and (units.listed is None or name in map(unit_name, units.listed))


def _advance_watermark(
    parts: SourceContext, state: SourceState, request: Request, now: float
) -> Applied:
    # Arrow's functions, which no poll needs.
    from blizzard_py.edits.event_time import advance_watermark  # noqa: PLC0415  # see above

    if parts.event_time is None:
        raise RequestRefused(f"{parts.name}: its pipeline has no query over event_time")
    to_ms = request.select["to_ms"]
    return Applied(
        advance_watermark(state, parts.event_time.settings, parts.branches, to_ms, now), {}
    )


def _reingest(
    parts: SourceContext, source: Source[Any], state: SourceState, request: Request
) -> Applied:
    if request.select.get("values"):
        return value_ranges.accept_range(parts, source, state, request)
    if parts.query_fingerprint is not None:
        raise RequestRefused(
            f"{parts.name}: a query over event time has passed what would come, so nothing is"
            " brought into windows that are published"
        )
    if not parts.has_files and not request.select.get("letters"):
        raise RequestRefused(f"{parts.name}: has no files; only its dead letters can be replayed")
    if not parts.has_files and request.options.get("mode") == "replace":
        raise RequestRefused(f"{parts.name}: has no files that could replace what they had")
    return Applied(state, {}, is_running=True)


def units_of(name: str, source: Source[Any]) -> UnitSource:
    """Return the source of this name as one of units. Raises `EditRefused` for another one."""
    if not isinstance(source, UnitSource):
        raise EditRefused(f"{name} is not read by work units")
    return source


def look(source: UnitSource, state: SourceState, now: dt.datetime) -> UnitOutlook:
    """Return the present partitions and the spec that the state must have."""
    return unit_plans.preview(state.kind.units, configured(source), (), now, "the checkpoint")


def configured(source: UnitSource) -> Units:
    """Return how the units of a source are configured, without a limit of a run."""
    units = source.query_spec.units
    assert units is not None  # noqa: S101  # it is read by such
    return unit_plans.without_limit(units)

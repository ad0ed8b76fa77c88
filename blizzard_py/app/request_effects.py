"""The effects of operators' requests on a source's state, by the kind of the request.

Between batches the source's owner asks for them; so does a command where nobody owns the source.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from blizzard_core.errors import StateError, UnitError
from blizzard_py.connections.asking import Units
from blizzard_py.edits import unit_edits
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.ingest.request_runner import Done, Executor, RequestRefused
from blizzard_py.requests.document import Request
from blizzard_py.slices.units.state import key_parts
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.unit_plans import Looked
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState

_DECIDES_ROWS = (
    "fields",
    "partition_template",
    "partition_rules",
    "on_bad_record",
    "max_bad_fraction",
    "metadata_columns",
    "unexpected_fields",
    "transform",
    "deduplicate_by",
)
_DECIDES_READING = {"connection", "query", "table", "units", "watermark", "snapshot"}


def executor_of(parts: Parts, source: Source[Any]) -> Executor:
    """Return how a source does requests. Asks nobody."""

    def apply(state: SourceState, request: Request, now: float) -> Done:
        effect = _EFFECTS[request.kind]
        try:
            return effect(parts, source, state, request, now)
        except EditRefused as error:
            raise RequestRefused(str(error)) from error
        except UnitError as error:
            raise RequestRefused("; ".join(error.problems)) from error

    return Executor(apply, fingerprint_of(parts))


def fingerprint_of(parts: Parts) -> str:
    """Return a digest of the settings that decide which rows come of an item, and of no secret."""
    ingest = asdict(parts.ingest)
    found = {
        "rows": {name: ingest[name] for name in _DECIDES_ROWS},
        "source": parts.source.model_dump(mode="json", include=_DECIDES_READING),
        "query": parts.query,
    }
    document = msgspec.json.encode(found, enc_hook=repr, order="sorted")
    return f"sha256:{hashlib.sha256(document).hexdigest()[:32]}"


def _mark_units(
    parts: Parts, source: Source[Any], state: SourceState, request: Request, now: float
) -> Done:
    found = look_of(parts, source, state, now)
    keys = request.select["units"]
    for key in keys:
        try:
            key_parts(key, "units")
        except StateError as error:
            raise RequestRefused(str(error)) from error
    return Done(unit_edits.with_marks(state, found, keys), {"units": len(keys)})


def _advance_watermark(
    parts: Parts, _source: Source[Any], state: SourceState, request: Request, now: float
) -> Done:
    # Arrow's functions, which no poll needs.
    from blizzard_py.edits.event_time import advanced  # noqa: PLC0415  # see above

    if parts.event_time is None:
        raise RequestRefused(f"{parts.name}: its pipeline has no query over event_time")
    to_ms = request.select["to_ms"]
    return Done(advanced(state, parts.event_time, parts.branches, to_ms, now), {})


_EFFECTS: Mapping[str, Callable[[Parts, Source[Any], SourceState, Request, float], Done]] = {
    "mark_units": _mark_units,
    "advance_watermark": _advance_watermark,
}


def look_of(parts: Parts, source: Source[Any], state: SourceState, now: float) -> Looked:
    """Return the units of a source at a time. Raises `EditRefused` for one without any."""
    if not isinstance(source, UnitSource):
        raise EditRefused(f"{parts.name} is not read by work units")
    return look(source, state, dt.datetime.fromtimestamp(now, dt.UTC))


def look(source: UnitSource, state: SourceState, now: dt.datetime) -> Looked:
    """The partitions now, and the spec that the state has to be of."""
    return unit_plans.looked(state.units, configured(source), (), now, "the checkpoint")


def configured(source: UnitSource) -> Units:
    """Return how the units of a source are configured, without a limit of a run."""
    units = source.asking.units
    assert units is not None  # noqa: S101  # it is read by such
    return unit_plans.without_limit(units)

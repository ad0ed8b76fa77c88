"""The story of a work unit, for `blizzard explain`: readings, groups, commits. Writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_py.explain import Explanation, Located, TaskEvidence
from blizzard_py.explain import explain as explain_item
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import key_parts, unit_key
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.tables import unit_plans
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState


def explain_unit(parts: SourceContext, source: UnitSource, uri: str, name: str) -> Explanation:
    """Explain the unit called ``name``, or the first that the next poll reads."""
    state = read_state(parts.stores.sink, parts.id) or SourceState()
    source.check(state)
    planned: list[PlannedUnit] = []
    try:
        planned = list(source.preview(state).due.units)
    except BlizzardError:
        if not name:
            raise
    if not name:
        chosen = next((unit for unit in planned if unit.execute), planned[0] if planned else None)
        name = "" if chosen is None else unit_key(chosen.partition[0], chosen.name)
    found = explain_item(parts, source, Located(uri, parts.name, name, "names it", ()))
    unit = next((u for u in planned if unit_key(u.partition[0], u.name) == name), None)
    return replace(
        found, uri=name, file=None, task=TaskEvidence(None, None, _unit_document(state, name, unit))
    )


def _unit_document(
    state: SourceState, name: str, unit: PlannedUnit | None
) -> dict[str, Any] | None:
    """Return what is known of the unit."""
    known = state.kind.units
    if known is None:
        return None
    own = known.open.get(name)
    document: dict[str, Any] = {"last_group": state.ids.group_seq or None}
    if own is not None:
        document |= {
            "high_watermark": own.high,
            "read_at": own.read_at,
            "slices": list(own.slices),
            "failures": own.failures,
            "next_try": own.next_try,
            "error": own.error,
        }
    else:
        document["closed_to"] = known.closed_to.get(key_parts(name)[1]) if name else None
    if unit is not None:
        document |= {"execute": unit.execute, "reason": unit.reason}
    reading = next((one for one in known.readings if one.key == name), None)
    if reading is not None:
        document["reading"] = unit_plans.reading_document(reading)
    return document

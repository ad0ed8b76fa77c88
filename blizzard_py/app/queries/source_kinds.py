"""Kinds of query sources by what one item is: a window of a query, or a unit of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from blizzard_core.errors import BlizzardError
from blizzard_core.text import counted, printable
from blizzard_py.app.source_kinds import SHOWN_NAMES, PlanOptions
from blizzard_py.explain import Explanation, Located, TaskEvidence
from blizzard_py.explain import explain as explain_item
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.notation import short_text
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.state import key_parts, unit_key
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.sources.tables.window_tasks import is_item_name, item_name
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState


class WindowKind:
    """A query source that is read window by window."""

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.plan import plan_of  # noqa: PLC0415  # see above

        return plan_of(found, state, options)

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        state = read_state(parts.stores.sink, parts.id) or SourceState()
        known = cast("WindowSource", source).preview(state)
        remaining = [each.name for each in known.tasks if each.name not in known.done]
        name = place.path or next(iter(remaining), "0")
        name = name if is_item_name(name) else item_name(known.seq, name)
        found = explain_item(parts, source, replace(place, path=name))
        statements = {item_name(known.seq, each.name): each.where for each in known.tasks}
        window, chunk = known.window if name in statements else None, known.chunk
        if chunk is not None and name in chunk.items:
            window, statements[name] = chunk.window, chunk.items[name].where
        ends = None
        if window is not None:
            ends = {"after": dict(window.after), "up_to": dict(window.up_to)}
        return replace(found, uri=name, file=None, task=TaskEvidence(ends, statements.get(name)))

    def effect(self, found: SourceView, _before: SourceState, after: SourceState) -> Iterator[str]:
        source = cast("WindowSource", found.source)
        known = source.preview(after)
        if known.window is None:
            yield "the next poll would find nothing to read"
            return
        yield printable(f"the next poll would read up to {short_text(known.window.up_to)}:")
        yield from (printable(f"  {task.where}") for task in known.tasks[:SHOWN_NAMES])
        if source.query_spec.replaces:
            yield "and replace everything published from there on"
        else:
            yield "its rows that are already in the table come twice"


class UnitKind:
    """A query source that is read unit by unit."""

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.plan import unit_plan_of  # noqa: PLC0415  # see above

        return unit_plan_of(found, state, options)

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        state = read_state(parts.stores.sink, parts.id) or SourceState()
        source.check(state)
        name, planned = place.path or "", list[PlannedUnit]()
        try:
            planned = list(cast("UnitSource", source).preview(state).due.units)
        except BlizzardError:
            if not name:
                raise
        if not name:
            first = next((u for u in planned if u.execute), planned[0] if planned else None)
            name = "" if first is None else _key(first)
        found = explain_item(parts, source, Located(place.uri, parts.name, name, "names it", ()))
        unit = next((u for u in planned if _key(u) == name), None)
        task = TaskEvidence(None, None, _unit_document(state, name, unit))
        return replace(found, uri=name, file=None, task=task)

    def effect(self, found: SourceView, _before: SourceState, after: SourceState) -> Iterator[str]:
        due = [u for u in cast("UnitSource", found.source).preview(after).due.units if u.execute]
        yield f"the next poll would read {counted(len(due), 'unit')}" + (":" if due else "")
        for unit in due[:SHOWN_NAMES]:
            yield printable(f"  {_key(unit)} from {stamp(unit.start)} to {stamp(unit.end)}")
        if after.kind.units is not None and after.kind.units.anew:
            yield "and with the first of them replace all that the source has published"


def _key(unit: PlannedUnit) -> str:
    return unit_key(unit.partition[0], unit.name)


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
        document["reading"] = {
            "from": reading.slices[0],
            "to": reading.to,
            "slices": list(reading.slices),
        }
    return document

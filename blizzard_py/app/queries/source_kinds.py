"""Kinds of query sources by what one item is: a window of a query, or a unit of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from blizzard_core.text import counted, printable
from blizzard_py.app.queries.kinds import kind_of as query_kind_of
from blizzard_py.app.source_kinds import SHOWN_NAMES, PlanOptions
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.explain import Explanation, Located, TaskEvidence
from blizzard_py.explain import explain as explain_item
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.notation import short_text
from blizzard_py.slices.units.state import unit_key
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Opener, Source
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.sources.tables.window_tasks import is_item_name, item_name
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState


def window_source(source: Source[Any]) -> WindowSource | None:
    """Return the source if it is read window by window, else None."""
    return source if isinstance(source, WindowSource) else None


def unit_source(source: Source[Any]) -> UnitSource | None:
    """Return the source if it is read unit by unit, else None."""
    return source if isinstance(source, UnitSource) else None


class WindowKind:
    """A query source that is read window by window."""

    def opener(self, parts: SourceContext) -> Opener:
        assert parts.query_spec is not None  # noqa: S101  # as `kind_of` says
        return partial(WindowSource, query_spec=parts.query_spec)

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.plan import plan_of  # noqa: PLC0415  # see above

        found.check(state)
        settings = options.config.pipelines[found.pipeline].query_sources[found.source_name]
        connection = options.config.connections[settings.connection]
        query = (connection, settings, _selection(options, found))
        source = cast("WindowSource", found.source)
        return plan_of(source, state, query, options.now, offline=options.offline)

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

    def opener(self, parts: SourceContext) -> Opener:
        assert parts.query_spec is not None  # noqa: S101  # as `kind_of` says
        return partial(UnitSource, query_spec=parts.query_spec)

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.unit_plan import unit_plan_of  # noqa: PLC0415  # see above

        found.check(state)
        settings = options.config.pipelines[found.pipeline].query_sources[found.source_name]
        return unit_plan_of(
            cast("UnitSource", found.source),
            state,
            (found.id, settings, _selection(options, found)),
            options.now,
            offline=options.offline,
            everything=options.everything,
        )

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        from blizzard_py.app.queries.unit_explain import explain_unit  # noqa: PLC0415  # as above

        return explain_unit(parts, cast("UnitSource", source), place.uri, place.path or "")

    def effect(self, found: SourceView, _before: SourceState, after: SourceState) -> Iterator[str]:
        due = [u for u in cast("UnitSource", found.source).preview(after).due.units if u.execute]
        yield f"the next poll would read {counted(len(due), 'unit')}" + (":" if due else "")
        for unit in due[:SHOWN_NAMES]:
            name = unit_key(unit.partition[0], unit.name)
            yield printable(f"  {name} from {stamp(unit.start)} to {stamp(unit.end)}")
        if after.kind.units is not None and after.kind.units.anew:
            yield "and with the first of them replace all that the source has published"


def _selection(options: PlanOptions, found: SourceView) -> ReadSelection:
    pipeline = options.config.pipelines[found.pipeline]
    settings = pipeline.query_sources[found.source_name]
    driver = options.config.connections[settings.connection].driver
    return query_kind_of(settings).selection(pipeline, settings, driver)

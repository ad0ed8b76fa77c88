"""Kinds of sources by what one item is: a file, a window of a query, or a unit of time.

A new kind is a class that meets `Source`, a class here that meets `SourceKind`, and one line of
`KINDS`. Each kind imports what only commands need when a command asks for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

from blizzard_core.settings.document import Config
from blizzard_core.text import counted, printable
from blizzard_py.app.queries.kinds import kind_of as query_kind_of
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.explain import Explanation, Located, TaskEvidence
from blizzard_py.explain import explain as explain_item
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.notation import short_text
from blizzard_py.slices.units.state import unit_key
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.composite_source import CompositeFiles
from blizzard_py.sources.files.opening import open_files
from blizzard_py.sources.protocol import Opener, Source
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.sources.tables.window_tasks import is_item_name, item_name
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState

# So many names an effect lists.
_SHOWN_NAMES = 10


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The poll to plan: when it is, and how much is asked and listed.

    ``now`` is aware. ``offline`` connects to nothing. ``everything`` also lists closed units.
    """

    config: Config
    now: dt.datetime
    offline: bool
    everything: bool

    def selection(self, found: SourceView) -> ReadSelection:
        """Return the rows and columns that a query source reads."""
        pipeline = self.config.pipelines[found.pipeline]
        settings = pipeline.query_sources[found.source_name]
        driver = self.config.connections[settings.connection].driver
        return query_kind_of(settings).selection(pipeline, settings, driver)


class SourceKind(Protocol):
    """The operations of commands and daemons that depend on a source's kind."""

    def has(self, parts: SourceContext) -> bool:
        """Return whether a source with these parts is of this kind."""

    def opener(self, parts: SourceContext) -> Opener:
        """Return what makes the source of its parts. Connects to nothing."""

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        """Return the next poll as a document.

        Raises `SourceError`, `StateError`, `StorageError`.
        """

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        """Return the story of one item; of the next one where a query's place names none."""

    def effect(self, found: SourceView, before: SourceState, after: SourceState) -> Iterator[str]:
        """Yield lines about the next poll from ``after`` instead of ``before``. May connect."""


def window_source(source: Source[Any]) -> WindowSource | None:
    """Return the source if it is read window by window, else None."""
    return source if isinstance(source, WindowSource) else None


def unit_source(source: Source[Any]) -> UnitSource | None:
    """Return the source if it is read unit by unit, else None."""
    return source if isinstance(source, UnitSource) else None


class FileKind:
    """One source of files."""

    def has(self, parts: SourceContext) -> bool:
        return parts.query_spec is None

    def opener(self, _parts: SourceContext) -> Opener:
        return open_files

    def plan(self, found: SourceView, state: SourceState, _options: PlanOptions) -> dict[str, Any]:
        files = found.discover(state, full=True)
        on_disk = found.parts.stores.source.uri.startswith("/")
        return {
            "state": state.position.progress.state,
            "watermark": state.position.progress.value,
            "files": [{"path": entry.path, "size": entry.size} for entry in files.files],
            "list_requests": 0 if on_disk else files.requests,
            "directories_read": files.requests if on_disk else None,
            "keys_listed": files.keys,
            "notes": list(files.notes),
        }

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        return explain_item(parts, source, place)

    def effect(self, found: SourceView, before: SourceState, after: SourceState) -> Iterator[str]:
        # An edit's rules, which no daemon needs.
        from blizzard_py.edits import checkpoint_edit  # noqa: PLC0415  # see above

        found_effect = checkpoint_edit.effect(found, before, after)
        for paths, noun, text in (
            (found_effect.skipped, "new file", "would be skipped and not be ingested"),
            (
                found_effect.again,
                "passed file",
                "would be ingested, and files done before come twice",
            ),
        ):
            yield f"{counted(len(paths), noun)} {text}" + (", among them:" if paths else "")
            yield from (f"  {printable(path)}" for path in paths[:_SHOWN_NAMES])


class SharedFileKind(FileKind):
    """Sources of files that share one worker and one checkpoint."""

    def has(self, parts: SourceContext) -> bool:
        return bool(parts.members)

    def opener(self, _parts: SourceContext) -> Opener:
        return partial(CompositeFiles, opens=open_files)


class WindowKind:
    """A query source that is read window by window."""

    def has(self, parts: SourceContext) -> bool:
        return parts.query_spec is not None and parts.query_spec.units is None

    def opener(self, parts: SourceContext) -> Opener:
        assert parts.query_spec is not None  # noqa: S101  # as `has` says
        return partial(WindowSource, query_spec=parts.query_spec)

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.plan import plan_of  # noqa: PLC0415  # see above

        found.check(state)
        settings = options.config.pipelines[found.pipeline].query_sources[found.source_name]
        connection = options.config.connections[settings.connection]
        query = (connection, settings, options.selection(found))
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
        yield from (printable(f"  {task.where}") for task in known.tasks[:_SHOWN_NAMES])
        if source.query_spec.replaces:
            yield "and replace everything published from there on"
        else:
            yield "its rows that are already in the table come twice"


class UnitKind:
    """A query source that is read unit by unit."""

    def has(self, parts: SourceContext) -> bool:
        return parts.query_spec is not None and parts.query_spec.units is not None

    def opener(self, parts: SourceContext) -> Opener:
        assert parts.query_spec is not None  # noqa: S101  # as `has` says
        return partial(UnitSource, query_spec=parts.query_spec)

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        # What shows statements, which no daemon needs.
        from blizzard_py.app.queries.unit_plan import unit_plan_of  # noqa: PLC0415  # see above

        found.check(state)
        settings = options.config.pipelines[found.pipeline].query_sources[found.source_name]
        return unit_plan_of(
            cast("UnitSource", found.source),
            state,
            (found.id, settings, options.selection(found)),
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
        for unit in due[:_SHOWN_NAMES]:
            name = unit_key(unit.partition[0], unit.name)
            yield printable(f"  {name} from {stamp(unit.start)} to {stamp(unit.end)}")
        if after.kind.units is not None and after.kind.units.anew:
            yield "and with the first of them replace all that the source has published"


# The first that fits counts.
KINDS: tuple[SourceKind, ...] = (SharedFileKind(), FileKind(), WindowKind(), UnitKind())


def kind_of(parts: SourceContext) -> SourceKind:
    """Return the kind of the source with these parts."""
    return next(kind for kind in KINDS if kind.has(parts))

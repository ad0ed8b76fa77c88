"""Kinds of sources by what one item is: a file, a window of a query, or a unit of time.

A new kind is a class that meets `Source`, a class that meets `SourceKind`, and one line of
`opener_of` and of `blizzard_py.app.wiring.kind_of`. Each kind imports what only commands need when
one asks for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from blizzard_core.settings.document import Config
from blizzard_core.text import counted, printable
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.composite_source import CompositeFiles
from blizzard_py.sources.files.hint_pacing import notification_notes
from blizzard_py.sources.files.list_budget import budget_document
from blizzard_py.sources.files.small_samples import disorder
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.protocol import CheckpointServices, Opener, Source, SourceScan
from blizzard_py.state.source_state import SourceState

if TYPE_CHECKING:
    from blizzard_py.explain import Explanation, Located


def open_files(parts: SourceContext, upkeep: CheckpointServices) -> FileSource:
    """Return the source of files that ``parts`` describe. Sends no request to a store."""
    if parts.files.units is None and parts.files.use_watermark:
        return WatermarkFiles(parts, upkeep)
    # Most sources have watermarks.
    from blizzard_py.sources.files.offered_files import ReplaceableFiles  # noqa: PLC0415  # see above
    from blizzard_py.sources.files.processed_name_files import SetFiles  # noqa: PLC0415  # see above

    if parts.files.units is not None:
        return ReplaceableFiles(parts, parts.files.units, upkeep)
    return SetFiles(parts, upkeep)


def opener_of(parts: SourceContext) -> Opener:
    """Return what makes the source of its parts. Connects to nothing."""
    if parts.query_spec is None:
        return partial(CompositeFiles, opens=open_files) if parts.members else open_files
    # Sources of files need none of the connections.
    from blizzard_py.sources.tables.source import WindowSource  # noqa: PLC0415  # see above
    from blizzard_py.sources.tables.units import UnitSource  # noqa: PLC0415  # see above

    is_by_units = parts.query_spec.units is not None
    return partial(UnitSource if is_by_units else WindowSource, query_spec=parts.query_spec)


# So many names an effect lists.
SHOWN_NAMES = 10


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The poll to plan: when it is, and how much is asked and listed.

    ``now`` is aware. ``offline`` connects to nothing. ``everything`` also lists closed units.
    """

    config: Config
    now: dt.datetime
    offline: bool
    everything: bool


class SourceKind(Protocol):
    """The operations of commands that depend on a source's kind."""

    def plan(self, found: SourceView, state: SourceState, options: PlanOptions) -> dict[str, Any]:
        """Return the next poll as a document.

        Raises `SourceError`, `StateError`, `StorageError`.
        """

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        """Return the story of one item; of the next one where a query's place names none."""

    def effect(self, found: SourceView, before: SourceState, after: SourceState) -> Iterator[str]:
        """Yield lines about the next poll from ``after`` instead of ``before``. May connect."""


class FileKind:
    """Sources of files."""

    def plan(self, found: SourceView, state: SourceState, _options: PlanOptions) -> dict[str, Any]:
        files = found.discover(state, full=True)
        source, progress = found.parts.files, state.position.progress
        on_disk = found.parts.stores.source.uri.startswith("/")
        return {
            "state": state.position.progress.state,
            "watermark": state.position.progress.value,
            "files": [{"path": entry.path, "size": entry.size} for entry in files.files],
            "list_requests": 0 if on_disk else files.requests,
            "directories_read": files.requests if on_disk else None,
            "keys_listed": files.keys,
            "ignored": files.ignored.to_json(),
            "list_budget": budget_document(source, state, progress, found.parts.clock()),
            "notes": [
                *files.notes,
                *notification_notes(source),
                *self._name_notes(found, files),
                *self._path_notes(found, files),
            ],
        }

    def _name_notes(self, found: SourceView, files: SourceScan) -> Iterator[str]:
        """Yield notes on names that are not taken, and on those that do not sort in time."""
        if files.ignored.files:
            yield files.ignored.note
        source = found.parts.files
        if source.use_watermark and source.advanced.order_guard != "off":
            found_disorder = disorder(files.files)
            yield from [found_disorder.message] if found_disorder else []

    def _path_notes(self, found: SourceView, files: SourceScan) -> Iterator[str]:
        """Yield a note on new files without values for columns of their paths."""
        added = found.parts.ingest.added_columns
        if not added.path:
            return
        from blizzard_py.formats.path_columns import path_values  # noqa: PLC0415  # it brings Arrow
        from blizzard_py.lines.failure import FileFailed  # noqa: PLC0415  # see above

        problems = {}
        for entry in files.files:
            try:
                path_values(entry.path, added.path, added.path_template)
            except FileFailed as error:
                problems[entry.path] = error.reason
        for path, reason in islice(problems.items(), 1):
            count = counted(len(problems), "new file")
            yield f"{count} would become dead letters, such as {printable(path)}: {reason}"

    def explain(self, parts: SourceContext, source: Source[Any], place: Located) -> Explanation:
        from blizzard_py.explain import explain  # noqa: PLC0415  # see the module's docstring

        return explain(parts, source, place)

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
            yield from (f"  {printable(path)}" for path in paths[:SHOWN_NAMES])

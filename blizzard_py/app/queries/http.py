"""Query sources of kind ``http``: the records of an API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from blizzard_core.settings.connections import ConnectionSettings, HttpConnectionSettings
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.units import UnitSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_py.connections.http import reader
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.placeholders import (
    FROM,
    TO,
    Values,
    formats_in,
    names_in,
    problems_in_text,
    texts_in,
)
from blizzard_py.connections.protocol import ReadSelection, SourceConnection, WindowSplit
from blizzard_py.connections.unit_comparisons import with_end_before
from blizzard_py.job import as_read
from blizzard_py.reading import Access, Window
from blizzard_py.schema.field_specs import field_spec
from blizzard_py.slices.instants import is_moving

if TYPE_CHECKING:  # a daemon connects only when it polls
    from blizzard_py.connections.http import connection as api

# A text that is nothing but a placeholder.
_ALONE = re.compile(r"\{[\w.:-]+\}")
# An end that moves and is always a midnight.
_WHOLE_DAYS = re.compile(r"P\d+D", re.ASCII)


class HttpQueries:
    """Sources that read an API. A record may lack any field."""

    has_fixed_columns = False

    def texts(self, source: HttpSourceSettings) -> Iterator[tuple[Key, str]]:
        request = source.request
        yield ("request", "path"), request.path
        for name, value in request.params.items():
            yield from ((("request", "params", name), text) for text in texts_in(value))
        yield from ((("request", "body"), text) for text in texts_in(request.body))

    def ends(self, _pipeline: PipelineSettings, source: HttpSourceSettings) -> set[tuple[str, str]]:
        return {end for _, text in self.texts(source) for end in formats_in(text)}

    def end_problems(
        self, pipeline: PipelineSettings, source: HttpSourceSettings, units: UnitSettings
    ) -> Iterator[tuple[Key, str]]:
        ends = self.ends(pipeline, source)
        forms = {end: {form for other, form in ends if other == end} for end in (FROM, TO)}
        one_day = all(forms.values()) and {"date"} in forms.values()
        if one_day and "date" not in forms[FROM] & forms[TO]:
            problem = (
                "has one end as a day and the other with its time: rows between them would be read"
                " twice or not at all; use one format for both: {from:date} and {to:date}, or none"
            )
            yield ("request",), problem
        ends_at = units.range.to
        moves = is_moving(ends_at) and not _WHOLE_DAYS.fullmatch(ends_at.strip())
        if (TO, "date") in ends and moves:
            problem = (
                f"is {ends_at}, which is within a day, and {{to:date}} says days: each poll would"
                " ask for the same day again; write P0D for up to today, or another format"
            )
            yield ("units", "range", "to"), problem

    def placeholder_problems(
        self, source: HttpSourceSettings, known: Sequence[str], _driver: str
    ) -> Iterator[tuple[Key, str]]:
        for key, text in self.texts(source):
            # Without units nothing is filled in; other braces of a body are its own.
            if source.units is not None or _is_meant(key, text):
                placeholders = known if source.units is not None else ()
                yield from ((key, problem) for problem in problems_in_text(text, placeholders))

    def selection(
        self, pipeline: PipelineSettings, source: HttpSourceSettings, _driver: str
    ) -> ReadSelection:
        return ReadSelection(
            fields=as_read(tuple(map(field_spec, pipeline.schema_.fields))),
            columns=tuple(source.marks.columns),
            nulls=source.marks.advanced.nulls,
        )

    def split(self, _source: HttpSourceSettings) -> WindowSplit:
        return WindowSplit()

    def access(self, connection: ConnectionSettings, source: HttpSourceSettings) -> Access:
        # The checks of the configuration let no other connection through.
        return reader.access(http_source(cast("HttpConnectionSettings", connection), source))

    def excludes_end(self, source: HttpSourceSettings) -> bool:
        return source.watermark is not None and source.watermark.push.to is not None

    def show_window(
        self, _driver: str, connection: SourceConnection, _selection: ReadSelection, window: Window
    ) -> tuple[None, dict[str, Any] | None]:
        found = cast("api.ApiConnection", connection).requests(window)
        return None, _shown(found[0]) if found else None

    def show_slices(
        self, connection: SourceConnection, _selection: ReadSelection, slices: Sequence[Values]
    ) -> tuple[None, dict[str, Any]]:
        return None, _shown(cast("api.ApiConnection", connection).unit_request(slices[0]))


def _shown(request: Mapping[str, Any]) -> dict[str, Any]:
    return {key: request[key] for key in ("method", "url", "params", "body")}


def _is_meant(key: Key, text: str) -> bool:
    """Return whether braces in a request without units can only be meant as a placeholder."""
    return bool(names_in(text)) or key[-1] == "path" or bool(_ALONE.fullmatch(text.strip()))


def http_source(settings: HttpConnectionSettings, source: HttpSourceSettings) -> HttpSource:
    """Return the configuration of one source: its connection and its requests."""
    request, units = source.request, source.units
    if units is not None and units.advanced.inclusive:
        sent = {name: _inclusive(getattr(request, name)) for name in ("path", "params", "body")}
        request = request.model_copy(update=sent)
    return HttpSource(settings, request, source.records, source.pages, source.watermark)


def _inclusive(value: Any) -> Any:
    """Return a text of a request, or a body of any depth, for an API that includes the end."""
    if isinstance(value, str):
        return with_end_before(value)
    if isinstance(value, Mapping):
        return {key: _inclusive(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_inclusive(inner) for inner in value]
    return value

"""From the settings of work units to what plans them."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from blizzard_core.settings.checks.sources import Asked
from blizzard_core.settings.document import PipelineSettings
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import UnitSettings, UnitsOfTable
from blizzard_core.settings.tables import SinkSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_py.connections.asking import Units, ValuesTable
from blizzard_py.connections.compared import with_dates, with_end_before
from blizzard_py.connections.placeholders import (
    FROM,
    TO,
    formats_in,
    names_in,
    texts_in,
    unit_placeholder,
)
from blizzard_py.reading import Access
from blizzard_py.slices.instants import clock_of
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.limits import limit
from blizzard_py.slices.units.ranges import Part, UnitRange
from blizzard_py.slices.units.values import unit_list

# Databases in which a column's collation decides how text compares, or nobody knows what does.
_FOLDING = frozenset({"mysql", "sqlite", "jdbc"})
# By this a statement says how it compares text.
_COMPARES = re.compile(r"\b(?:collate|binary|nlssort)\b", re.IGNORECASE)


def range_of(units: UnitSettings) -> UnitRange:
    """The range and its partitions as configured."""
    told = units.range
    by: str | tuple[Part, ...]
    if isinstance(units.partition, str):
        by = units.partition
    else:
        by = tuple(Part(part.by, part.from_, part.to) for part in units.partition)
    return UnitRange(told.from_, told.to, told.zone, by, units.advanced.partial)


def units_of(pipeline: PipelineSettings, source: Asked, units: UnitSettings, driver: str) -> Units:
    """The units as their source plans them. Raises `UnitError` for values that are none."""
    values = units.values
    listed = None
    if values is not None and values.list_ is not None:
        listed = tuple(unit_list(values.name, values.list_))
    return Units(
        range_of(units),
        Terms(
            dt.timedelta(seconds=units.grace),
            dt.timedelta(seconds=units.cooldown),
            limit(units.advanced.max_units_per_run),
            units.advanced.min_units,
            days_of=clock_of(units.range.zone)
            if (TO, "date") in ends_in(pipeline, source)
            else None,
        ),
        () if values is None else values.fields,
        listed,
        None if values is None or values.from_ is None else _table(pipeline.sink, values.from_),
        bounds_in(source),
        units.advanced.parallel,
        units.advanced.pacing,
        folds(source, driver),
    )


def folds(source: Asked, driver: str) -> bool:
    """Return whether the source may take values for one that look alike, and does not tell."""
    texts = [text for _, text in texts_of(source)]
    return driver in _FOLDING and not any(map(_COMPARES.search, texts))


def _table(sink: SinkSettings, values: UnitsOfTable) -> ValuesTable:
    options = dict(values.storage_options or sink.storage_options)
    uri = _beside(sink.table_uri, values.table)
    access = Access("delta", uri, {"storage_options": options})
    return ValuesTable(access, tuple(values.fields), values.filters)


def _beside(table_uri: str, given: str) -> str:
    """A place as it is given, or as a path from the table."""
    if "://" in given or given.startswith("/"):
        return given
    scheme, colons, path = table_uri.rpartition("://")
    host, _, rest = path.partition("/") if colons else ("", "", path)
    joined = posixpath.normpath(posixpath.join(f"/{rest}" if colons else rest, given))
    return f"{scheme}{colons}{host}{joined}" if colons else joined


def texts_of(source: Asked) -> Iterator[tuple[Key, str]]:
    """All texts that may hold placeholders, each with its key below the source."""
    if isinstance(source, TableSourceSettings):
        given = {"query": source.query, "filter": source.filter}
        yield from (((key,), text) for key, text in given.items() if text)
        return
    request = source.request
    yield ("request", "path"), request.path
    for name, value in request.params.items():
        yield from ((("request", "params", name), text) for text in texts_in(value))
    yield from ((("request", "body"), text) for text in texts_in(request.body))


def dates_of(pipeline: PipelineSettings) -> set[str]:
    """The fields that are declared to be dates."""
    return {field.name for field in pipeline.schema_.fields if field.type == "date"}


def statement_of(pipeline: PipelineSettings, source: TableSourceSettings, text: str) -> str:
    """A query or a filter as it is asked: beside a column of dates an end says a date."""
    if source.units is None:
        return text
    found = with_dates(text, dates_of(pipeline))
    return with_end_before(found) if source.units.advanced.inclusive else found


def request_text(units: UnitSettings | None, value: Any) -> Any:
    """A text of a request, or a body of any depth, as it is asked."""
    if units is None or not units.advanced.inclusive:
        return value
    if isinstance(value, str):
        return with_end_before(value)
    if isinstance(value, Mapping):
        return {key: request_text(units, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [request_text(units, inner) for inner in value]
    return value


def ends_in(pipeline: PipelineSettings, source: Asked) -> set[tuple[str, str]]:
    """The ends that are asked for, each with its format as it is asked, ``""`` for none."""
    texts = [text for _, text in texts_of(source)]
    if isinstance(source, TableSourceSettings):
        dates = dates_of(pipeline)
        texts = [with_dates(text, dates) for text in texts]
    return {end for text in texts for end in formats_in(text)}


def bounds_in(source: Asked) -> frozenset[str]:
    """Return which ends of a unit's time the request says."""
    return frozenset({FROM, TO} & {n for _, text in texts_of(source) for n in names_in(text)})


def known_placeholders(source: Asked) -> tuple[str, ...]:
    """Return what placeholders there are."""
    units = source.units
    if units is None:
        return ()
    fields = () if units.values is None else units.values.fields
    return (FROM, TO, *map(unit_placeholder, fields))

"""From the settings of work units to what plans them."""

from __future__ import annotations

import datetime as dt
import posixpath
import re

from blizzard_core.settings.document import PipelineSettings, QuerySettings
from blizzard_core.settings.tables import SinkSettings
from blizzard_core.settings.units import UnitSettings, UnitsOfTable
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.connections.placeholders import (
    FROM,
    TO,
    names_in,
    unit_placeholder,
)
from blizzard_py.connections.query_spec import Units, ValuesTable
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
    """Return the range and its partitions as configured."""
    range_settings = units.range
    by: str | tuple[Part, ...]
    if isinstance(units.partition, str):
        by = units.partition
    else:
        # By their starts: tools may write the keys of a map in another order.
        ordered = sorted(units.partition.items(), key=lambda part: part[1])
        ends = [*(start for _, start in ordered[1:]), range_settings.to]
        by = tuple(
            Part(name, start, end) for (name, start), end in zip(ordered, ends, strict=False)
        )
    return UnitRange(
        range_settings.from_, range_settings.to, range_settings.zone, by, units.advanced.partial
    )


def units_of(
    pipeline: PipelineSettings, source: QuerySettings, units: UnitSettings, driver: str
) -> Units:
    """Return the units for planning. Raises `UnitError` for invalid values."""
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
            if (TO, "date") in kind_of(source).ends(pipeline, source)
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


def folds(source: QuerySettings, driver: str) -> bool:
    """Return whether the source may treat different values as equal without saying so."""
    texts = [text for _, text in kind_of(source).texts(source)]
    return driver in _FOLDING and not any(map(_COMPARES.search, texts))


def _table(sink: SinkSettings, values: UnitsOfTable) -> ValuesTable:
    options = dict(values.storage_options or sink.storage_options)
    uri = _relative_to_table(sink.table_uri, values.table)
    access = Access("delta", uri, {"storage_options": options})
    return ValuesTable(access, tuple(values.fields), values.filters)


def _relative_to_table(table_uri: str, given: str) -> str:
    """Return a place as given, or resolve it from the table."""
    if "://" in given or given.startswith("/"):
        return given
    scheme, colons, path = table_uri.rpartition("://")
    host, _, rest = path.partition("/") if colons else ("", "", path)
    joined = posixpath.normpath(posixpath.join(f"/{rest}" if colons else rest, given))
    return f"{scheme}{colons}{host}{joined}" if colons else joined


def bounds_in(source: QuerySettings) -> frozenset[str]:
    """Return which ends of a unit's time the request says."""
    return frozenset(
        {FROM, TO} & {n for _, text in kind_of(source).texts(source) for n in names_in(text)}
    )


def placeholders(source: QuerySettings) -> tuple[str, ...]:
    """Return what placeholders there are."""
    units = source.units
    if units is None:
        return ()
    fields = () if units.values is None else units.values.fields
    return (FROM, TO, *map(unit_placeholder, fields))

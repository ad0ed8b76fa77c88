"""From the settings of work units to what plans them."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.query_checks import Asked
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.units import UnitSettings
from blizzard_core.settings.yaml_file import Key
from blizzard_py.connections.placeholders import FROM, TO, names_in, texts_in, unit_placeholder
from blizzard_py.units.ranges import Part, UnitRange


def range_of(units: UnitSettings) -> UnitRange:
    """The range and its partitions as configured."""
    told = units.range
    by: str | tuple[Part, ...]
    if isinstance(units.partition, str):
        by = units.partition
    else:
        by = tuple(Part(part.by, part.from_, part.to) for part in units.partition)
    return UnitRange(told.from_, told.to, told.zone, by, units.partial)


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


def bounds_in(source: Asked) -> frozenset[str]:
    """Which ends of a unit's time the request says."""
    return frozenset({FROM, TO} & {n for _, text in texts_of(source) for n in names_in(text)})


def known_placeholders(source: Asked) -> tuple[str, ...]:
    """What placeholders there are."""
    units = source.units
    if units is None:
        return ()
    fields = () if units.values is None else units.values.fields
    return (FROM, TO, *map(unit_placeholder, fields))

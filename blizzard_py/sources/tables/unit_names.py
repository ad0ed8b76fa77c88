"""The values that a source's work units have now: as configured, or as a Delta table has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError, Unavailable, UnitError
from blizzard_py.connections.drivers import connect, reader_of
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.connections.query_spec import Units, ValuesTable
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Window
from blizzard_py.slices.units.limits import enough
from blizzard_py.slices.units.values import check_distinct, unit_name, units_from


def values_of(units: Units) -> Sequence[Mapping[str, str]] | None:
    """Return the values, None if there is one unit for all. Never an empty list.

    Raises `Unavailable` for a table that is unreadable or has too few values or none. It does the
    same for values that the source may not distinguish. Unknown values must not look like removed
    ones.
    """
    found: Sequence[Mapping[str, str]] | None = units.listed
    if units.table is not None:
        found = _in_table(units.table)
    try:
        enough(None if found is None else len(found), units.terms.min_units)
        if units.folds:
            check_distinct(found or ())
    except UnitError as error:
        raise Unavailable(f"units: {'; '.join(error.problems)}") from error
    return found


def _in_table(table: ValuesTable) -> Sequence[Mapping[str, str]]:
    where = f"units.values.from.table: {table.access.uri}"
    try:
        found = units_from(_rows(table), list(table.fields), table.filters)
    except BlizzardError as error:
        raise Unavailable(f"{where}: {error}") from error
    if not found:
        raise Unavailable(
            f"{where}: no row of it passes the filters, which is not taken for `no units`; nothing"
            " is read until one does"
        )
    # Files have no lasting order, and a compaction must not change the order of values.
    return sorted(found, key=unit_name)


def _rows(table: ValuesTable) -> Iterator[dict[str, Any]]:
    names = dict.fromkeys((*table.fields, *table.filters))
    fields = tuple(FieldSpec(name, "string", nullable=True) for name in names)
    with closing(connect(table.access, ReadSelection(table="", fields=fields))) as connection:
        window = Window(up_to=connection.bound("version", 0).value)
        tasks = connection.tasks(window, WindowSplit())
    read = reader_of(table.access.driver)
    for task in tasks:
        for batch in read(table.access, task.spec, fields):
            assert isinstance(batch, pa.RecordBatch)  # noqa: S101  # Delta's reader gives nothing else
            yield from batch.to_pylist()

"""A lake's columns in the form of the protocol: kind, and the matching schema entry. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.protocol import ColumnKind, ReadSelection, SourceColumn
from blizzard_py.schema.arrow_fields import field_of
from blizzard_py.slices.column_order import order_of

_KINDS: dict[str, ColumnKind] = {
    "time": "time",
    "date": "date",
    "integer": "number",
    "float": "number",
    "decimal": "number",
    "text": "text",
}


def columns_of(schema: pa.Schema) -> list[SourceColumn]:
    """Return all columns of an Arrow schema."""
    return [
        SourceColumn(
            each.name,
            str(each.type),
            _KINDS.get(order_of(each.type) or "", "other"),
            field_of(each),
        )
        for each in schema
    ]


def instants_in(schema: pa.Schema) -> Callable[[str], bool]:
    """Return a function that says whether a column of that name has times with a zone."""
    names = {
        each.name.lower() for each in schema if pa.types.is_timestamp(each.type) and each.type.tz
    }
    return lambda name: name.lower() in names


def check_there(what: str, wanted: Iterable[str], there: Sequence[str]) -> None:
    """Raise `SourceError` if columns are missing; it names them and those that exist."""
    missing = [name for name in wanted if name not in there]
    if missing:
        many = len(missing) > 1
        raise SourceError(
            f"{what}: no column{'s' if many else ''} {', '.join(missing)}; there are"
            f" {', '.join(there) or 'none'}; correct the schema, or restore the column"
        )


def undeclared(selection: ReadSelection, there: Sequence[str]) -> Sequence[str]:
    """Return the columns that a task's spec must name: all, unless the schema names some."""
    return () if selection.fields else there

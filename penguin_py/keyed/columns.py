"""Columns of changes and of the keyed table. Pure."""

from __future__ import annotations

import pyarrow as pa

from blizzard_core.errors import StateError
from blizzard_core.table.schema_fit import SchemaMismatch, merge
from penguin_py.keyed.deletes import check_condition
from penguin_py.keyed.order import Order, check_types
from penguin_py.settings import KeyedTable


def change_columns(keyed: KeyedTable, schema: pa.Schema) -> pa.Schema:
    """Return the columns of changes. Raises `StateError` if the settings do not fit them."""
    try:
        check_types(schema, Order(keyed.keys, keyed.sequence))
        if keyed.deletes is not None:
            check_condition(schema, keyed.deletes)
    except SchemaMismatch as error:
        raise StateError(f"{keyed.changes.uri}: {error}") from error
    return pa.schema([field.with_nullable(True) for field in schema])


def stored_columns(keyed: KeyedTable, changes: pa.Schema) -> pa.Schema:
    """Return the columns that the keyed table has of those of changes."""
    return pa.schema([field for field in changes if field.name not in keyed.leave_out])


def merged_columns(before: pa.Schema, new: pa.Schema) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a table with the new ones, and those that it lacks or widens.

    Raises `SchemaMismatch` for unrelated types.
    """
    columns = merge(before, new, (), "overwrite")
    places = {field.name: before.get_field_index(field.name) for field in columns}
    changed = tuple(
        field.name
        for field in columns
        if places[field.name] < 0 or not before.field(places[field.name]).equals(field)
    )
    return columns, changed


def widened(columns: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return columns with the types that a table has for them, if it has them."""
    places = [(field, table.get_field_index(field.name)) for field in columns]
    return pa.schema([field if at < 0 else table.field(at) for field, at in places])

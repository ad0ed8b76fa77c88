"""Changes that are deletes. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.table.schema_fit import SchemaMismatch


def check_condition(schema: pa.Schema, condition: DeleteCondition) -> None:
    """Raise `SchemaMismatch` if the table has no such column, or another type in it."""
    name = condition.column
    if name not in schema.names:
        raise SchemaMismatch(f"has no column {name!r}, which deletes names")
    try:
        are_deletes(schema.empty_table(), condition)
    except pa.ArrowException as error:
        kind = schema.field(name).type
        needs = f"compares with {condition.values[0]!r}" if condition.values else "takes as boolean"
        raise SchemaMismatch(f"has {name!r} as {kind}, which deletes {needs}") from error


def are_deletes(rows: pa.Table, condition: DeleteCondition | None) -> pa.Array:
    """Return which rows are deletes; a null in the column makes none, except for `IS NULL`."""
    if condition is None:
        return pa.repeat(False, rows.num_rows)
    column = rows[condition.column].combine_chunks()
    if condition.kind == "in":
        return pc.is_in(column, value_set=pa.array(condition.values).cast(column.type))
    if condition.kind == "true":
        return pc.and_(pc.is_valid(column), pc.fill_null(column, False))
    return pc.is_null(column) if condition.kind == "null" else pc.is_valid(column)

"""Changes that are deletes, and files that may hold some. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.keyed.pruning import Bound, may_exceed


def check_condition(schema: pa.Schema, condition: DeleteCondition) -> None:
    """Raise `SchemaMismatch` if the table has no such column, or another type in it."""
    name = condition.column
    place = schema.get_field_index(name)
    if place < 0:
        raise SchemaMismatch(f"has no column {name!r}, which deletes names")
    kind = schema.field(place).type
    if condition.kind == "true" and not pa.types.is_boolean(kind):
        raise SchemaMismatch(f"has {name!r} as {kind}; deletes needs a condition, as in {name} = 1")
    if condition.kind == "in":
        try:
            pa.array(condition.values).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatch(
                f"has {name!r} as {kind}, which deletes compares with {condition.values[0]!r}"
            ) from error


def are_deletes(rows: pa.Table, condition: DeleteCondition | None) -> pa.Array:
    """Return which rows are deletes; a null in the column makes none, except for `IS NULL`."""
    if condition is None:
        return pa.repeat(False, rows.num_rows)
    column = rows[condition.column]
    if condition.kind == "in":
        found = pc.is_in(column, value_set=pa.array(condition.values).cast(column.type))
    elif condition.kind == "true":
        found = pc.fill_null(column, False)
    else:
        found = pc.is_null(column) if condition.kind == "null" else pc.is_valid(column)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def may_have_deletes(
    condition: DeleteCondition, rows: int | None, nulls: int | None, low: Bound, high: Bound
) -> bool:
    """Return whether a file may have deletes, by its bounds of the column; None is unknown."""
    if condition.kind == "null":
        return nulls != 0
    if rows is not None and nulls == rows:
        return False
    values = [v.encode() if isinstance(v, str) else v for v in condition.values]
    if condition.kind != "in" or not isinstance(low, type(values[0])):
        return True
    return any(low <= value and may_exceed(high, value) for value in values)  # type: ignore[operator]  # of one type

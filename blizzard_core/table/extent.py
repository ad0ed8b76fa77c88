"""Limits of depth and width of columns, beyond which Penguin rejects a file. Pure.

Blizzard checks the same limits before it writes anything and before it adds a column for a new
field. Otherwise every later file of the pipeline would be rejected.
"""

from __future__ import annotations

import pyarrow as pa

from blizzard_core.limits import FILE_COLUMNS, FILE_LEVELS
from blizzard_core.table.schema_fit import SchemaMismatch


def check_extent(schema: pa.Schema) -> None:
    """Raise `SchemaMismatch` for columns that are nested too deep, or for too many."""
    for field in schema:
        if _depth(field.type) > FILE_LEVELS:
            raise SchemaMismatch(
                f"column {field.name!r} is nested more than {FILE_LEVELS} levels deep"
            )
    check_width(sum(leaves(field.type) for field in schema))


def check_width(columns: int) -> None:
    """Raise `SchemaMismatch` for too many columns, fields of structs counted."""
    if columns > FILE_COLUMNS:
        raise SchemaMismatch(f"has {columns:,} columns; at most {FILE_COLUMNS:,} are taken")


def leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns that values of this type take."""
    return sum(leaves(inner) for inner in children(kind)) if pa.types.is_nested(kind) else 1


def children(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types one level down."""
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_nested(kind) else []


def _depth(kind: pa.DataType) -> int:
    return 1 + max((_depth(inner) for inner in children(kind)), default=0)

"""The schema entry that holds an Arrow column without loss. Pure."""

from __future__ import annotations

import pyarrow as pa

from blizzard_core.settings.schema import DECIMAL_DIGITS, FieldType
from blizzard_py.job import FieldSpec

_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def field_of(column: pa.Field) -> FieldSpec:
    """Return the schema entry that holds a column without loss; text for unsupported types."""
    kind, name, nullable = column.type, column.name, column.nullable
    kinds = pa.types
    if kinds.is_dictionary(kind):
        return field_of(column.with_type(kind.value_type))
    if kinds.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS and kind.scale >= 0:
        return FieldSpec(name, "decimal", nullable, precision=kind.precision, scale=kind.scale)
    if kinds.is_uint64(kind):
        return FieldSpec(name, "decimal", nullable, precision=20, scale=0)
    return (
        FieldSpec(name, *_nested(kind, nullable))
        if kinds.is_nested(kind)
        else FieldSpec(name, _plain(kind), nullable)
    )


def _nested(kind: pa.DataType, nullable: bool) -> tuple[FieldType, bool, tuple[FieldSpec, ...]]:
    if pa.types.is_struct(kind):
        parts = tuple(field_of(kind.field(place)) for place in range(kind.num_fields))
        return "struct", nullable, parts
    if pa.types.is_map(kind):
        return "map", nullable, (field_of(kind.item_field),)
    return "list", nullable, (field_of(kind.value_field),)


def _plain(kind: pa.DataType) -> FieldType:
    kinds = pa.types
    checks: tuple[tuple[FieldType, bool], ...] = (
        ("boolean", kinds.is_boolean(kind)),
        ("int32", (kinds.is_integer(kind) and kind.bit_width < 32) or kinds.is_int32(kind)),
        ("int64", kinds.is_integer(kind)),
        ("float32", kinds.is_float32(kind) or kinds.is_float16(kind)),
        ("float64", kinds.is_float64(kind)),
        ("timestamp", kinds.is_timestamp(kind)),
        ("date", kinds.is_date(kind)),
        ("binary", any(holds(kind) for holds in _BINARIES)),
    )
    return next((name for name, holds in checks if holds), "string")

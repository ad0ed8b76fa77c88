"""Arrow's nested types with other types for the values at their ends. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with what ``leaf`` makes of each value's type in it, at any depth."""
    kinds = pa.types

    def made(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaves(field.type, leaf))

    if kinds.is_struct(kind):
        return pa.struct([made(kind.field(place)) for place in range(kind.num_fields)])
    if kinds.is_map(kind):
        return pa.map_(made(kind.key_field), made(kind.item_field), keys_sorted=kind.keys_sorted)
    if kinds.is_fixed_size_list(kind):
        return pa.list_(made(kind.value_field), kind.list_size)
    if kinds.is_large_list(kind):
        return pa.large_list(made(kind.value_field))
    if kinds.is_list(kind):
        return pa.list_(made(kind.value_field))
    return leaf(kind)

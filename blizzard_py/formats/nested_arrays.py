"""The parts of nested Arrow arrays, and arrays of such parts; slices count from 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.table.extent import leaves


def null_mask(array: pa.Array) -> pa.Array | None:
    """Return where an array is null, as constructors take it."""
    return array.is_null() if array.null_count else None


def list_offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of each list's values in ``array.flatten()``."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def is_list(kind: pa.DataType) -> bool:
    """Return whether the values are lists, however Arrow stores them."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(holds(kind) for holds in kinds)


def map_entries(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of maps."""
    array = pa.concat_arrays([array])  # the children of a slice would still be whole
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    return offsets, array.keys.slice(start, end - start), array.items.slice(start, end - start)


def struct_of(names: Sequence[str], parts: Sequence[pa.Array], like: pa.Array) -> pa.Array:
    """Return structs of these parts that are null where ``like`` is."""
    fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=null_mask(like))


def map_leaves(array: pa.Array, leaf: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the array with ``leaf`` applied to the values in it, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        parts = [map_leaves(part, leaf) for part in array.flatten()]
        return struct_of([field.name for field in kind], parts, array)
    if is_list(kind):
        values = map_leaves(array.flatten(), leaf)
        return pa.ListArray.from_arrays(list_offsets(array), values, mask=null_mask(array))
    if pa.types.is_map(kind):
        offsets, keys, items = map_entries(array)
        keys, items = map_leaves(keys, leaf), map_leaves(items, leaf)
        return pa.MapArray.from_arrays(offsets, keys, items, mask=null_mask(array))
    return leaf(array)


def nan_leaves(values: pa.Array, at: int) -> Iterator[int]:
    """Yield the numbers of Parquet columns, outside lists and maps, that hold NaN.

    ``at`` is the number of the array's first one.
    """
    if pa.types.is_floating(values.type):
        if pc.any(pc.is_nan(values)).as_py():
            yield at
    elif pa.types.is_struct(values.type):
        for field, child in zip(values.type, values.flatten(), strict=True):
            yield from nan_leaves(child, at)
            at += leaves(field.type)

"""The parts of nested Arrow arrays, and arrays of such parts; slices count from 0."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError
from blizzard_core.table.extent import children
from blizzard_py.job import FieldSpec

_T = TypeVar("_T")
_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


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


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of `plain_array`; fields inside keep their metadata."""
    return kind if _is_plain(kind) else _made_plain(kind)


# A table may have a thousand columns, and thousands of batches. Only the answer may be kept: types
# whose fields have other metadata, such as ids, are equal.
@lru_cache(4096)
def _is_plain(kind: pa.DataType) -> bool:
    return bool(_made_plain(kind) == kind)


def _made_plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_storage(kind)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        key, item = _plain_field(kind.key_field), _plain_field(kind.item_field)
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if not pa.types.is_nested(kind):
        return _VIEWS.get(kind, kind)
    inner = _plain_field(kind.value_field)
    if pa.types.is_fixed_size_list(kind) and inner.type == kind.value_type:
        return kind
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    return pa.large_list(inner) if is_large else pa.list_(inner)


def _plain_storage(kind: pa.BaseExtensionType) -> pa.DataType:
    if isinstance(kind, pa.UuidType | pa.JsonType):
        return kind
    return pa.bool_() if isinstance(kind, pa.Bool8Type) else plain_type(kind.storage_type)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_array(array: pa.Array) -> pa.Array:
    """Return the values in a layout that all of Arrow takes apart and casts.

    They are in no views, and in no extension types but those of JSON and UUID.
    """
    kind = plain_type(array.type)
    if kind == array.type:
        return array
    if isinstance(array, pa.ExtensionArray):
        return array.storage.cast(kind) if pa.types.is_boolean(kind) else plain_array(array.storage)
    if pa.types.is_struct(kind):
        parts = [plain_array(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=null_mask(array))
    if pa.types.is_map(kind):
        offsets, keys, items = map_entries(array)
        keys, items = plain_array(keys), plain_array(items)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=null_mask(array))
    if not pa.types.is_nested(kind):
        return array.cast(kind)
    lists = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    values, offsets = plain_array(array.flatten()), list_offsets(array)
    if lists is pa.LargeListArray:
        offsets = offsets.cast(pa.int64())
    # Arrow's own cast of a list view makes an array that is not valid.
    return lists.from_arrays(offsets, values, type=kind, mask=null_mask(array))


def map_entries(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of maps."""
    array = pa.concat_arrays([array])  # the children of a slice would still be whole
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, pa.scalar(start, pa.int32()))
    return offsets, array.keys.slice(start, end - start), array.items.slice(start, end - start)


def mapped_items(
    array: pa.Array,
    change: Callable[[pa.Array], pa.Array],
    key: Callable[[pa.Array], pa.Array] = lambda keys: keys,
) -> pa.Array:
    """Return lists of what ``change`` makes of their items, or maps of what it makes of theirs."""
    if not pa.types.is_map(array.type):
        values = change(array.flatten())
        return pa.ListArray.from_arrays(list_offsets(array), values, mask=null_mask(array))
    offsets, keys, items = map_entries(array)
    return pa.MapArray.from_arrays(offsets, key(keys), change(items), mask=null_mask(array))


def struct_of(names: Sequence[str], parts: Sequence[pa.Array], like: pa.Array) -> pa.Array:
    """Return structs of these parts that are null where ``like`` is."""
    fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=null_mask(like))


def with_missing_fields(spec: FieldSpec, array: pa.Array) -> pa.Array:
    """Return the values with null for fields that a column has in its structs, and they do not.

    Required fields stay missing. Raises `SourceError` for a field that a struct has twice.
    """
    kind = array.type
    if spec.type == "struct" and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise SourceError(
                f"column {spec.name!r} has two fields {twice!r}; write the file again with one"
            )
        parts = dict(zip(names, array.flatten(), strict=True))
        for child in spec.children:
            if child.name in parts:
                parts[child.name] = with_missing_fields(child, parts[child.name])
            elif child.nullable:
                parts[child.name] = pa.nulls(len(array))
        return struct_of(list(parts), list(parts.values()), array) if parts else array
    is_repeated = pa.types.is_map(kind) if spec.type == "map" else is_list(kind)
    if spec.type in {"list", "map"} and is_repeated:
        return mapped_items(array, partial(with_missing_fields, spec.children[0]))
    return array


def map_leaves(array: pa.Array, leaf: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the array with ``leaf`` applied to the values in it, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind) and kind.num_fields:
        parts = [map_leaves(part, leaf) for part in array.flatten()]
        return struct_of([field.name for field in kind], parts, array)
    if is_list(kind) or pa.types.is_map(kind):
        inner = partial(map_leaves, leaf=leaf)
        return mapped_items(array, inner, inner)
    return leaf(array)


def map_leaves_with(
    array: pa.Array, told: Sequence[_T], leaf: Callable[[pa.Array, _T], pa.Array]
) -> pa.Array:
    """Return the array with ``leaf`` applied as by `map_leaves`, with what is told of each.

    Raises `pa.ArrowInvalid` if other leaves are told of than there are.
    """
    if len(told) != sum(1 for _ in leaf_types(array.type)):
        raise pa.ArrowInvalid(f"{len(told):,} values of other leaves than {array.type} has")
    left = deque(told)
    return map_leaves(array, lambda values: leaf(values, left.popleft()))


def leaf_rows(array: pa.Array) -> Iterator[npt.NDArray[np.int64]]:
    """Yield for each leaf of `map_leaves` the rows of the array to which its values belong."""

    def walk(array: pa.Array, rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        kind = array.type
        if pa.types.is_struct(kind) and kind.num_fields:
            for part in array.flatten():
                yield from walk(part, rows)
        elif is_list(kind):
            yield from walk(array.flatten(), np.repeat(rows, np.diff(list_offsets(array))))
        elif pa.types.is_map(kind):
            offsets, keys, items = map_entries(array)
            rows = np.repeat(rows, np.diff(offsets))
            yield from walk(keys, rows)
            yield from walk(items, rows)
        else:
            yield rows

    return walk(array, np.arange(len(array)))


def by_column(
    schema: pa.Schema, of: Callable[[int, pa.DataType], _T], usual: _T
) -> dict[str, tuple[_T, ...]]:
    """Return what is told of the leaves of each column, without columns where all is ``usual``.

    ``of`` gets the number of a leaf among all and its type. The order is that of `map_leaves`.
    """
    found, number = {}, 0
    for field in schema:
        kinds = list(leaf_types(field.type))
        told = tuple(of(at, kind) for at, kind in enumerate(kinds, number))
        number += len(kinds)
        if any(each != usual for each in told):
            found[field.name] = told
    return found


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the leaves of `map_leaves`, in its order."""
    inner = children(kind)
    if not inner:
        yield kind
    for each in inner:
        yield from leaf_types(each)

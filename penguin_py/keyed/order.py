"""Keys of rows, and which of two rows of a key is newer. Pure.

A row is newer if its sequence is higher, from the first column of the sequence to the last; with
equal sequences, if it arrived later. Rows without a key or a sequence have no place in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.table.schema_fit import SchemaMismatch


@dataclass(frozen=True, slots=True)
class Order:
    """The columns of the key, and those of the sequence."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both, each once."""
        return tuple(dict.fromkeys((*self.keys, *self.sequence)))


def check_types(schema: pa.Schema, order: Order) -> None:
    """Raise `SchemaMismatch` for columns that are missing or have no order."""
    for name in order.columns:
        place = schema.get_field_index(name)
        if place < 0:
            raise SchemaMismatch(f"has no column {name!r}, which keys or sequence_by names")
        kind = schema.field(place).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise SchemaMismatch(
                f"has {name!r} as {kind}, which is no column for keys or sequence_by; give it"
                " another type by a transform"
            )


def complete(rows: pa.Table, order: Order) -> pa.Array:
    """Return which rows have a key and a sequence."""
    found = pa.repeat(True, rows.num_rows)
    for name in order.columns:
        found = pc.and_(found, pc.is_valid(_flat(rows[name])))
    return found


def key_array(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Return a value for each row that equals another row's if the keys do; null for a null key.

    Several columns become one binary value: each with its length before it, so that no two keys
    have the same.
    """
    if len(keys) == 1:
        return _flat(rows[keys[0]])
    parts: list[pa.Array] = []
    for name in keys:
        part = _binary(_flat(rows[name]))
        parts += [pc.binary_length(part).cast(pa.string()).cast(pa.binary()), part]
    return pc.binary_join_element_wise(*parts, b":")


def _binary(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest row of each key, sorted by ``keys``; ``tied`` rows lost to another by arrival."""

    rows: pa.Table
    keys: pa.Array
    tied: int


def newest_rows(rows: pa.Table, order: Order) -> Newest:
    """Return the newest row of each key. All rows are `complete`, and in order of arrival."""
    key = "\N{KEY}"  # no column of a table has this name
    sorting = [(key, "ascending"), *((name, "ascending") for name in order.sequence)]
    keyed = rows.select(list(order.sequence)).append_column(key, key_array(rows, order.keys))
    places = pc.sort_indices(keyed, sort_keys=sorting)  # stable, so arrival decides last
    keys = _flat(keyed[key]).take(places)
    count = len(keys)
    if count < 2:
        return Newest(rows.take(places), keys, 0)
    is_last = pc.not_equal(keys[1:], keys[:-1])
    beaten = places.slice(0, count - 1).filter(pc.invert(is_last))
    winner = places.slice(1).filter(pc.invert(is_last))
    tied = count_different(rows, beaten, rows, winner, order.sequence)
    last = pa.concat_arrays([is_last, pa.array([True])])
    return Newest(rows.take(places.filter(last)), keys.filter(last), tied)


def count_different(
    ones: pa.Table, at: pa.Array, others: pa.Table, beside: pa.Array, sequence: Sequence[str]
) -> int:
    """Count the pairs of rows with one sequence and different content.

    Columns of metadata, which begin with an underscore, are not compared.
    """
    same = None
    for name in sequence:
        one, other = _flat(ones[name]).take(at), _flat(others[name]).take(beside)
        equal = pc.fill_null(pc.equal(one.cast(other.type), other), False)
        same = equal if same is None else pc.and_(same, equal)
    at, beside = at.filter(same), beside.filter(same)
    if not len(at):
        return 0
    found = None
    for name in ones.column_names:
        if name.startswith("_") or name not in others.column_names:
            continue
        differs = _different(_flat(ones[name]).take(at), _flat(others[name]).take(beside))
        found = differs if found is None else pc.or_(found, differs)
    return 0 if found is None else int(pc.sum(found).as_py() or 0)


def _different(ones: pa.Array, others: pa.Array) -> pa.Array:
    if pa.types.is_nested(ones.type):
        if ones.type == others.type:  # values of Python lack times behind the year 9999
            same = [one.equals(other) for one, other in zip(ones, others, strict=True)]
            return pc.invert(pa.array(same, pa.bool_()))
        pairs = zip(ones.to_pylist(), others.to_pylist(), strict=True)
        return pa.array([one != other for one, other in pairs], pa.bool_())
    values = pc.fill_null(pc.not_equal(ones.cast(others.type), others), False)
    return pc.or_(values, pc.xor(pc.is_null(ones), pc.is_null(others)))


def compare(ours: Sequence[pa.Array], theirs: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return where our sequence is higher than theirs, and where it is equal.

    A null of theirs is lower than everything.
    """
    above: Any = pa.scalar(False)
    equal: Any = pa.scalar(True)
    for one, other in reversed(list(zip(ours, theirs, strict=True))):
        fitting = other.cast(one.type)
        alike = pc.fill_null(pc.equal(one, fitting), False)
        above = pc.or_(pc.fill_null(pc.greater(one, fitting), True), pc.and_(alike, above))
        equal = pc.and_(alike, equal)
    return above, equal


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

"""Keys of rows, which of two rows of a key is newer, and which are deletes. Pure.

A row is newer if its sequence is higher, from the first column of the sequence to the last; with
equal sequences, if it arrived later. Rows without a key or a sequence have no place in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from blizzard_core.table.schema_fit import SchemaMismatch


@dataclass(frozen=True, slots=True)
class Order:
    """The columns of the key, those of the sequence, and what makes a change a delete."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    deletes: DeleteCondition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of key and sequence, each once."""
        return tuple(dict.fromkeys((*self.keys, *self.sequence)))


def check_columns(schema: pa.Schema, order: Order) -> None:
    """Raise `SchemaMismatch` for columns that are missing, or of a type that does not fit."""
    condition = order.deletes
    for name in (*order.columns, *([condition.column] if condition else [])):
        if name not in schema.names:
            raise SchemaMismatch(f"has no column {name!r}, which the settings of keyed name")
    for name in order.columns:
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            text = "which is no column for keys or sequence_by; give it another type by a transform"
            raise SchemaMismatch(f"has {name!r} as {kind}, {text}")
    if condition is None:
        return
    try:
        are_deletes(schema.empty_table(), condition)
    except pa.ArrowException as error:
        column, values = condition.column, ", ".join(map(repr, condition.values)) or "true"
        text = f"has {column!r} as {schema.field(column).type}, which deletes compares with"
        raise SchemaMismatch(f"{text} {values}") from error


def are_deletes(rows: pa.Table, condition: DeleteCondition | None) -> pa.Array:
    """Return which rows are deletes; a null in the column makes none, except for `IS NULL`."""
    if condition is None:
        return pa.repeat(False, rows.num_rows)
    column = rows[condition.column].combine_chunks()
    if condition.kind == "in":
        return pc.is_in(column, value_set=pa.array(condition.values).cast(column.type))
    if condition.kind == "true":
        return pc.fill_null(pc.and_(column, True), False)
    return pc.is_null(column) if condition.kind == "null" else pc.is_valid(column)


def complete(rows: pa.Table, order: Order) -> pa.Table:
    """Return the rows that have a key and a sequence."""
    return rows.filter(reduce(pc.and_, (pc.is_valid(rows[name]) for name in order.columns)))


def key_values(rows: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    """Return a value for each row that equals another row's if the keys do; null for a null key.

    Several columns become one binary value: each with its length before it, so that no two keys
    have the same.
    """
    if len(keys) == 1:
        return rows[keys[0]]
    parts: list[pa.ChunkedArray] = []
    for name in keys:
        part = _binary(rows[name])
        parts += [pc.binary_length(part).cast(pa.string()).cast(pa.binary()), part]
    return pc.binary_join_element_wise(*parts, b":")


def _binary(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


def newest_rows(rows: pa.Table, order: Order) -> tuple[pa.Table, pa.Array, int]:
    """Return the newest row of each key, sorted by key; the keys; and how many rows were tied.

    All rows are `complete`, and in order of arrival. A tied row lost by arrival alone.
    """
    key = "\N{KEY}"  # no column of a table has this name
    sorting = [(key, "ascending"), *((name, "ascending") for name in order.sequence)]
    keyed = rows.select(list(order.sequence)).append_column(key, key_values(rows, order.keys))
    places = pc.sort_indices(keyed, sort_keys=sorting)  # stable, so arrival decides last
    keys = keyed[key].combine_chunks().take(places)
    is_last = pa.concat_arrays([pc.not_equal(keys[1:], keys[:-1]), pa.array([True])])[: len(keys)]
    is_beaten = pc.invert(is_last)[:-1]
    beaten, winners = (rows.take(each.filter(is_beaten)) for each in (places[:-1], places[1:]))
    equal = compare(winners, beaten, order)[1]
    tied = count_different(beaten.filter(equal), winners.filter(equal))
    return rows.take(places.filter(is_last)), keys.filter(is_last), tied


def compare(ours: pa.Table, theirs: pa.Table, order: Order) -> tuple[pa.Array, pa.Array]:
    """Return where the sequence of our row is higher than that of theirs, and where it is equal.

    A null of theirs is lower than everything.
    """
    above: Any = pa.repeat(False, len(ours))
    equal: Any = pa.repeat(True, len(ours))
    for name in reversed(order.sequence):
        one, other = ours[name].combine_chunks(), theirs[name].combine_chunks()
        alike = pc.fill_null(pc.equal(one, other), False)
        above = pc.or_(pc.fill_null(pc.greater(one, other), True), pc.and_(alike, above))
        equal = pc.and_(alike, equal)
    return above, equal


def count_different(ones: pa.Table, others: pa.Table) -> int:
    """Count pairs of rows with different content in the columns of ``ones``.

    Columns of metadata, which begin with an underscore, are not compared.
    """
    names = [name for name in ones.column_names if not name.startswith("_")]
    pairs = [[rows[name].combine_chunks() for rows in (ones, others)] for name in names]
    found = reduce(pc.or_, starmap(_different, pairs), pa.repeat(False, len(ones)))
    return int(pc.sum(found).as_py() or 0)


def _different(ones: pa.Array, others: pa.Array) -> pa.Array:
    if pa.types.is_nested(ones.type):  # values of Python lack times behind the year 9999
        same = [one.equals(other) for one, other in zip(ones, others, strict=True)]
        return pc.invert(pa.array(same, pa.bool_()))
    values = pc.fill_null(pc.not_equal(ones, others), False)
    return pc.or_(values, pc.xor(pc.is_null(ones), pc.is_null(others)))

"""Digests of rows, by which rows that were read before are recognised.

A digest is 16 bytes of BLAKE2b over the values of some columns. Each value is one byte "null or
not", then fixed bytes: integers, times and days as 64 bits, floats as IEEE doubles, text as its
length. The texts follow. So null is not the empty text, and ``("a", "bc")`` is not
``("ab", "c")``. The result depends on values alone: not on the process, the width of a column's
type, batches, or releases of Python and pyarrow. It must never change, because checkpoints store
digests.

It is BLAKE2b and not a faster sum, because rows are untrusted. A person who chooses values must not
find two rows with the same digest: the second would be dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Context
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError, WatermarkError
from blizzard_py.slices.compare import shown


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with ``leaf`` applied to the type of each value in it, at any depth."""
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


SIZE = 16
DIGEST = pa.binary(SIZE)

_Fixed = npt.NDArray[np.uint8]

# Wider than any decimal of Arrow, so that nothing is rounded.
_EXACT = Context(prec=100)

# A column's values: bytes of fixed width, and text of any length behind them.
_Parts = tuple[_Fixed, pa.Array | None]


def digests(batch: pa.RecordBatch, columns: Sequence[str] = ()) -> pa.FixedSizeBinaryArray:
    """Return a digest of each row: of the given columns, or of all columns in order of name.

    Raises `SourceError` if the batch lacks one of the columns.
    """
    names = list(columns) or sorted(batch.schema.names)
    missing = [name for name in names if name not in batch.schema.names]
    if missing:
        raise SourceError(f"rows have no column {shown(missing[0])} to tell them apart by")
    fixed: list[_Fixed] = []
    texts: list[pa.Array] = []
    for name in names:
        values, text = _parts(batch.column(name))
        fixed += [values]
        texts += [] if text is None else [text]
    if not batch.num_rows:
        return pa.array([], DIGEST)
    data, begins = _joined(np.hstack(fixed), texts)
    summed = b"".join([blake2b(data[a:b], digest_size=SIZE).digest() for a, b in pairwise(begins)])
    return pa.FixedSizeBinaryArray.from_buffers(
        DIGEST, batch.num_rows, [None, pa.py_buffer(summed)]
    )


def at_bound(batch: pa.RecordBatch, bound: Mapping[str, Any]) -> pa.BooleanArray:
    """Return which rows have the bound's value in some column: those that a tie may bring again.

    Raises `WatermarkError` if a column cannot be compared with its bound.
    """
    found = pa.array(np.zeros(batch.num_rows, dtype=bool))
    for name, value in bound.items():
        if value is not None:
            found = pc.or_(found, pc.fill_null(_equal(name, batch.column(name), value), False))
    return found


def _equal(name: str, column: pa.Array, value: Any) -> pa.BooleanArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        if pa.types.is_timestamp(column.type):
            return pc.equal(column, pa.scalar(value, pa.timestamp("us", column.type.tz)))
        # A number above the signed range has a type only beside its column's.
        kind = column.type if pa.types.is_uint64(column.type) else None
        return pc.equal(column, pa.scalar(value, kind))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise WatermarkError(
            f"column {name} ({column.type}) cannot be compared with {shown(value)}: {error}"
        ) from error


def _joined(table: _Fixed, texts: list[pa.Array]) -> tuple[memoryview, list[int]]:
    """Join the bytes of all rows. Return them with each row's beginning and the end of the last.

    The fixed part of a row has the lengths of its texts, which follow it.
    """
    rows, width = table.shape
    data = table.tobytes()
    if not texts:
        return memoryview(data), list(range(0, (rows + 1) * width, width))
    kind = pa.binary(width)
    heads = pa.FixedSizeBinaryArray.from_buffers(kind, rows, [None, pa.py_buffer(data)])
    parts = [heads.cast(pa.large_binary()), *texts, pa.scalar(b"", pa.large_binary())]
    joined = pc.binary_join_element_wise(*parts)
    _, offsets, content = joined.buffers()
    begin = np.frombuffer(offsets, "<i8", rows + 1, joined.offset * 8)
    return memoryview(content or b""), begin.tolist()


def _parts(column: pa.Array) -> _Parts:
    """Return the column in canonical form."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _parts(column.dictionary_decode())
    present = np.asarray(column.is_valid()).astype(np.uint8).reshape(-1, 1)
    for fits, canonical in _CANONICAL:
        if fits(kind):
            values = canonical(column)
            if isinstance(values, pa.Array):
                lengths = np.asarray(pc.binary_length(values)).astype("<i8")
                return np.hstack([present, _bytes_of(lengths)]), values
            blank = values if column.null_count == 0 else values * present
            return np.hstack([present, blank]), None
    return _parts(_as_json(column))


def _bytes_of(numbers: npt.NDArray[Any]) -> _Fixed:
    return numbers.reshape(-1, 1).view(np.uint8)


def _integers(column: pa.Array) -> _Fixed:
    if pa.types.is_uint64(column.type):  # above the signed range: its bits as they are
        return _bytes_of(np.asarray(column.fill_null(0)).astype("<u8"))
    return _bytes_of(np.asarray(column.cast(pa.int64()).fill_null(0)).astype("<i8"))


def _floats(column: pa.Array) -> _Fixed:
    numbers = np.asarray(column.cast(pa.float64()).fill_null(0.0)).astype("<f8") + 0.0  # no -0.0
    numbers[np.isnan(numbers)] = np.nan
    return _bytes_of(numbers)


_PER_MICRO = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def _times(column: pa.Array) -> _Fixed:
    """Return microseconds, and the nanoseconds beyond them: the same for every unit."""
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    ticks = np.asarray(column.view(width).cast(pa.int64()).fill_null(0)).astype("<i8")
    factor, divisor = _PER_MICRO[column.type.unit]
    micros, nanos = np.divmod(ticks * factor, divisor)
    return np.hstack([_bytes_of(micros), _bytes_of(nanos.astype("<i2"))])


def _days(column: pa.Array) -> _Fixed:
    return _integers(column.cast(pa.date32()).view(pa.int32()))


def _texts(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary()).fill_null(b"")


def _decimals(column: pa.Array) -> pa.Array:
    """Return text without trailing zeros: a scale belongs to the type, not to the value."""
    values = column.to_pylist()
    plain = [None if v is None else f"{v.normalize(_EXACT):f}" for v in values]
    return _texts(pa.array(plain, pa.string()))


def _as_json(column: pa.Array) -> pa.Array:
    """Return values without canonical bytes (lists, structs, maps, intervals) as JSON text."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError, KeyError):
        ones = [column.slice(row, 1) for row in range(len(column))]
        values = [value for one in ones for value in _known_to_python(one)]
    return pa.array([_json_of(value) for value in values], pa.string())


def _known_to_python(one: pa.Array) -> list[Any]:
    """Return a single value. Days, texts and zones unknown to Python become numbers or bytes."""
    try:
        return one.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    except (ValueError, OverflowError, KeyError):
        return one.cast(with_leaves(one.type, _raw)).to_pylist()  # type: ignore[no-any-return]  # see above


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _raw(kind.value_type)
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.large_binary() if _is_text(kind) else kind


def _json_of(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True, default=repr)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind))


_CANONICAL: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Any]]] = (
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_boolean(kind), _integers),
    (pa.types.is_floating, _floats),
    (_is_time, _times),
    (pa.types.is_date, _days),
    (pa.types.is_null, lambda column: np.zeros((len(column), 8), np.uint8)),
    (_is_text, _texts),
    (pa.types.is_decimal, _decimals),
)

"""Files and row groups that may hold keys of a batch, by their bounds. Pure.

Promise: no file with a key of the batch is left out. Bounds count outwards, since writers cut
them: delta-rs logs timestamps down to the millisecond, and text by its first 32 characters. A
column whose bounds are unknown leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penguin_py.intake.file_statistics import TEXT_CHARACTERS, column_bounds, leaf_columns

# A bound in a form that sorts as the column does: text as its bytes, times as microseconds.
Bound: TypeAlias = int | bytes | None
Bounds: TypeAlias = Mapping[str, tuple[Bound, Bound]]

_MICROS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
# Above every text that goes on behind a cut bound.
_ABOVE = b"\xff"
# How much later the moment may be that was cut to a millisecond.
_CUT_MICROS = 999


class KeyRanges:
    """The values of each key column in a batch."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self._values = {}
        for name in keys:
            found = _comparable(rows[name].combine_chunks())
            if found is not None:
                unique = pc.unique(found)
                self._values[name] = unique.take(pc.sort_indices(unique))

    def may_meet(self, bounds: Bounds) -> bool:
        """Return whether rows within these bounds may have a key of the batch."""
        return all(
            self._meets(values, *bounds[name])
            for name, values in self._values.items()
            if name in bounds
        )

    @staticmethod
    def _meets(values: pa.Array, low: Bound, high: Bound) -> bool:
        if low is None or high is None:
            return True
        at = int(pc.search_sorted(values, pa.scalar(low, values.type)).as_py())
        return at < len(values) and bool(values[at].as_py() <= high)


def _comparable(values: pa.Array) -> pa.Array | None:
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    return values.cast(pa.binary()) if pa.types.is_string(kind) else None


def logged_bounds(values: pa.ChunkedArray | pa.Array, *, upper: bool) -> list[Bound]:
    """Return the bounds of many files, as the log has them for one column, rounded outwards."""
    kind = values.type
    if pa.types.is_string(kind):
        texts = values.to_pylist()
        return [None if text is None else _text_bound(text, upper) for text in texts]
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    found = _comparable(flat)
    if found is None:
        return [None] * len(values)
    if upper and pa.types.is_timestamp(kind):
        found = pc.add(found, _CUT_MICROS)
    return list(found.to_pylist())


def _text_bound(text: str, upper: bool) -> bytes:
    raw = text.encode()
    return raw + _ABOVE if upper and len(text) >= TEXT_CHARACTERS else raw


def groups_that_may_meet(
    metadata: pq.FileMetaData, schema: pa.Schema, ranges: KeyRanges, names: Sequence[str]
) -> list[int]:
    """Return the row groups of a file that may have a key of the batch."""
    leaves = leaf_columns(metadata, schema)
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        bounds: dict[str, tuple[Bound, Bound]] = {}
        for name in names:
            leaf = leaves.get((name,))
            raw = None if leaf is None or leaf.signed else column_bounds([group], leaf)
            if leaf is not None and raw is not None:
                bounds[name] = (
                    _raw_bound(raw.low, leaf.type, upper=False),
                    _raw_bound(raw.high, leaf.type, upper=True),
                )
        if ranges.may_meet(bounds):
            found.append(number)
    return found


def _raw_bound(raw: object, kind: pa.DataType, *, upper: bool) -> Bound:
    if isinstance(raw, bytes):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return raw if is_text or pa.types.is_string_view(kind) else None
    if not isinstance(raw, int) or isinstance(raw, bool):
        return None
    if pa.types.is_timestamp(kind):
        times, parts = _MICROS[kind.unit]
        return -(-raw * times // parts) if upper else raw * times // parts
    return raw if pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) else None


def lowest_bound(values: pa.ChunkedArray | pa.Array) -> Bound:
    """Return the lowest value of a column as a bound; None if it has no such form or no rows."""
    found = _comparable(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
    return None if found is None else pc.min(found).as_py()


def may_exceed(high: Bound, lowest: Bound) -> bool:
    """Return whether a file whose upper bound is ``high`` may have values from ``lowest`` on."""
    if isinstance(high, int) and isinstance(lowest, int):
        return high >= lowest
    if isinstance(high, bytes) and isinstance(lowest, bytes):
        return high >= lowest
    return True

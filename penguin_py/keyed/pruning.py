"""Files that may hold certain values, by the bounds in the log. Pure.

Promise: no file with a key of the batch, nor with a delete that is asked for, is left out. Bounds
count outwards, since writers cut them: delta-rs logs timestamps down to the millisecond, and text
by its first 32 characters. Where bounds are unknown, a file may hold everything. Files come as
delta-rs's flattened table; it may mistake a column with a dot in its name for a field of a struct.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.settings.keyed import DeleteCondition
from penguin_py.intake.file_statistics import TEXT_CHARACTERS

# Above every text that goes on behind a cut bound.
_ABOVE = b"\xff"
# How much later the moment may be that was cut to a millisecond.
_CUT_MICROS = 999


def may_hold(files: pa.Table, column: str, values: pa.Array) -> pa.Array:
    """Return which files may have one of the values."""
    wanted, (low, high) = _comparable(values), bounds_of(files, column)
    if wanted is None or low is None or wanted.type != low.type:
        return pa.repeat(True, len(files))
    wanted = pc.unique(wanted.drop_null()).sort()
    if not len(wanted):
        return pa.repeat(False, len(files))
    at = pc.search_sorted(wanted, low).cast(pa.int64())
    first = wanted.take(pc.min_element_wise(at, len(wanted) - 1, skip_nulls=False))
    found = pc.and_(pc.less(at, len(wanted)), pc.less_equal(first, high))
    return pc.fill_null(found, True)


def may_exceed(files: pa.Table, column: str, values: pa.Array) -> pa.Array:
    """Return which files may have values from the lowest of these on."""
    wanted, high = _comparable(values), bounds_of(files, column)[1]
    if wanted is None or high is None or wanted.type != high.type:
        return pa.repeat(True, len(files))
    return pc.fill_null(pc.greater_equal(high, pc.min(wanted)), True)


def may_have_deletes(files: pa.Table, condition: DeleteCondition) -> pa.Array:
    """Return which files may have rows that meet the condition."""
    nulls = _statistic(files, "null_count", condition.column)
    none = 0 if condition.kind == "null" else files["num_records"].combine_chunks()
    all_ = pa.repeat(True, len(files))
    found = all_ if nulls is None else pc.fill_null(pc.not_equal(nulls, none), True)
    if condition.kind == "in":
        found = pc.and_(found, may_hold(files, condition.column, pa.array(condition.values)))
    return found


def bounds_of(files: pa.Table, column: str) -> tuple[pa.Array | None, pa.Array | None]:
    """Return the bounds of a column in each file, in a form that sorts; None if unknown."""
    low, high = (_statistic(files, side, column) for side in ("min", "max"))
    if low is None or high is None:
        return None, None
    raised = _comparable(high)
    if pa.types.is_timestamp(high.type):
        raised = pc.add(raised, _CUT_MICROS)
    elif raised is not None and pa.types.is_binary(raised.type):
        is_cut = pc.greater_equal(pc.utf8_length(high.cast(pa.string())), TEXT_CHARACTERS)
        raised = pc.if_else(is_cut, pc.binary_join_element_wise(raised, _ABOVE, b""), raised)
    return _comparable(low), raised


def _statistic(files: pa.Table, kind: str, column: str) -> pa.Array | None:
    name = f"{kind}.{column}"
    return None if "." in column or name not in files.column_names else files[name].combine_chunks()


def _comparable(values: pa.Array) -> pa.Array | None:
    """Return values in a form that sorts as they do: text as bytes, times as microseconds."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    is_text = pa.types.is_string(kind) or pa.types.is_string_view(kind)
    return values.cast(pa.string()).cast(pa.binary()) if is_text else None

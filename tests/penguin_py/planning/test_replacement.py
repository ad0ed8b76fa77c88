"""The files and rows that a group replaces, with bounds that may be truncated."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.handover.groups import SOURCE_FILE_COLUMN, UNIT_COLUMN, Group
from penguin_py.planning.replacement import (
    ActiveFiles,
    AffectedFiles,
    Bounds,
    find_affected,
    mask_replaced,
    ranges_of,
    replaced_ranges,
)

TEXT = st.text("ab\U0001f600/0", max_size=5)
PAIRS = st.lists(st.tuples(TEXT, TEXT).filter(lambda pair: pair[0] < pair[1]), max_size=4)


def active(*files: tuple[str | None, str | None, int | None], rows: int = 3) -> ActiveFiles:
    bounds = Bounds(
        pa.array([low for low, _, _ in files], pa.string()),
        pa.array([high for _, high, _ in files], pa.string()),
        pa.array([nulls for _, _, nulls in files], pa.int64()),
    )
    names = [f"{place}.parquet" for place in range(len(files))]
    count = [rows] * len(files)
    return ActiveFiles(pa.array(names), pa.array(count), pa.array(count), {UNIT_COLUMN: bounds}, {})


def found(
    files: ActiveFiles, *pairs: tuple[str, str], never: Any = lambda _path: False
) -> AffectedFiles:
    return find_affected(files, {UNIT_COLUMN: ranges_of(pairs)}, never)


def test_bounds_within_a_range_need_no_look() -> None:
    files = active(("b", "bz", 0), ("b", "bz", 1), ("b", "bz", None), ("a", "b", 0), ("c", "d", 0))
    assert found(files, ("b", "c")) == AffectedFiles((0,), (1, 2, 3))


def test_a_cut_bound_stands_for_all_that_begins_with_it() -> None:
    # The upper bound "b" may be that of a file with "bxyz".
    files = active(("a", "b", 0), ("a", "ax", 0))
    assert found(files, ("bx", "by")) == AffectedFiles((), (0,))
    # And "bx" may be that of a file with "bxz", which is behind the range.
    assert found(active(("b", "bx", 0)), ("b", "bxy")) == AffectedFiles((), (0,))


def test_a_file_without_bounds_is_read_unless_all_null() -> None:
    files = active((None, None, None), (None, None, 3), (None, None, 1))
    assert found(files, ("b", "c")) == AffectedFiles((), (0, 2))
    assert found(files, ("b", "c"), never=lambda path: path == "0.parquet") == AffectedFiles(
        (), (2,)
    )


def test_a_column_that_the_table_lacks_has_no_such_rows() -> None:
    files = active(("b", "bz", 0))
    assert find_affected(
        files, {SOURCE_FILE_COLUMN: ranges_of([("b", "c")])}, lambda _p: False
    ) == (AffectedFiles((), ()))


def test_a_source_file_is_the_range_of_itself() -> None:
    group = Group("p_s", 1, 1, "b", (), (), ("s3://a", "s3://b"))
    ranges = replaced_ranges(group)[SOURCE_FILE_COLUMN]
    assert "s3://a" in ranges
    assert "s3://a0" not in ranges
    assert "s3://" not in ranges


@given(PAIRS, TEXT)
def test_ranges_hold_what_one_of_the_pairs_holds(pairs: list[tuple[str, str]], value: str) -> None:
    assert (value in ranges_of(pairs)) == any(first <= value < behind for first, behind in pairs)


@given(PAIRS, st.lists(TEXT | st.none(), min_size=1, max_size=4), st.integers(0, 5))
def test_truncated_bounds_hide_no_file_with_rows_in_range(
    pairs: list[tuple[str, str]], values: list[str | None], cut: int
) -> None:
    ranges = ranges_of(pairs)
    if not ranges:
        return
    texts = [value for value in values if value is not None]
    low, high = (min(texts)[:cut], max(texts)[:cut]) if texts else (None, None)
    files = active((low, high, values.count(None)), rows=len(values))
    told = find_affected(files, {UNIT_COLUMN: ranges}, lambda _path: False)
    going = mask_replaced(
        {UNIT_COLUMN: pa.chunked_array([values])}, {UNIT_COLUMN: ranges}, len(values)
    )
    expected = [value is not None and value in ranges for value in values]
    if not texts:
        return
    assert going.to_pylist() == expected
    if told.whole:
        assert all(expected)
    if any(expected):
        assert told.whole or told.doubtful

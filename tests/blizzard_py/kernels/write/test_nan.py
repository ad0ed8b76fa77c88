"""Footers say which columns hold NaN, since no statistics of Parquet do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.handover.outputs import NAN_COLUMNS_KEY, nan_columns_of
from blizzard_core.storage.local import LocalStorage
from blizzard_core.table.nan_columns import nan_columns
from blizzard_py.job import OutputLayout
from blizzard_py.kernels.write.parquet_file import ParquetFormat
from blizzard_py.kernels.write.rolling_outputs import OutputSet, StagedNames

NAN = float("nan")
INNER = pa.struct([("x", pa.float64()), ("l", pa.list_(pa.float32())), ("y", pa.float32())])
SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("s", INNER)])
PLAIN: dict[str, Any] = {"id": 1, "f": 0.5, "g": None, "s": {"x": 1.0, "l": [NAN], "y": 0.5}}
# Columns by their numbers in Parquet: id, f, g, s.x, s.l, s.y.
ROWS = [
    ([PLAIN, {**PLAIN, "s": None}], set()),
    ([{**PLAIN, "f": NAN}, PLAIN], {1}),
    ([PLAIN, {**PLAIN, "g": NAN, "s": {"x": 0.5, "l": None, "y": NAN}}], {2, 5}),
    ([], set()),
]


@pytest.mark.parametrize(("rows", "expected"), ROWS)
def test_columns_with_nan_are_known_by_number(
    rows: list[dict[str, Any]], expected: set[int]
) -> None:
    assert nan_columns(pa.Table.from_pylist(rows, SCHEMA)) == expected
    # A struct that is null hides what its fields hold below it.
    hidden = pa.StructArray.from_arrays(
        [pa.array([NAN])], fields=[pa.field("x", pa.float64())], mask=pa.array([True])
    )
    assert nan_columns(pa.table({"s": hidden})) == set()


@pytest.mark.parametrize(("rows", "expected"), ROWS[:3])
def test_the_footer_names_the_columns_that_hold_nan(
    tmp_path: Path, rows: list[dict[str, Any]], expected: set[int]
) -> None:
    form = ParquetFormat(SCHEMA, OutputLayout("snappy", 1 << 27))
    outputs = OutputSet(LocalStorage(str(tmp_path)), StagedNames("s", "p", "t", 1), form)
    for row in rows:
        outputs.add("", pa.Table.from_pylist([row], SCHEMA))
    (output,) = outputs.close()
    footer = pq.read_metadata(tmp_path / output.staged)
    assert nan_columns_of(footer.metadata) == expected


@pytest.mark.parametrize("text", [b"many", b"1;2"])
def test_a_footer_that_is_not_understood_says_nothing(text: bytes) -> None:
    assert nan_columns_of({NAN_COLUMNS_KEY.encode(): text}) is None
    assert nan_columns_of({}) is None
    assert nan_columns_of(None) is None

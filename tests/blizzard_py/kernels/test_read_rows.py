"""Rows of lines and rows that are read as text are kept for the next window, too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.kernels.read_rows import RowFilter
from blizzard_py.reading import Recognition, Told
from tests.support.memory_store import MemoryStorage

TOLD = Told(("at", "id"), whole=False)


def kept(found: RowFilter) -> int:
    marks = found.marks("x", lambda _: "staged")
    return 0 if marks is None else marks.count


@pytest.mark.parametrize("keep", ["at", "above"])
@pytest.mark.parametrize("value", [2, "2026-05-01T01:00:00Z"])
def test_digests_are_kept_where_values_cannot_be_compared(keep: Any, value: Any) -> None:
    asked = Recognition(TOLD, keep, {"at": value})
    lines = RowFilter(asked, MemoryStorage("mem://lake"))
    assert lines.fresh_lines([b'{"id": 1, "at": "2026-05-01T01:00:00Z"}']).tolist() == [True]
    assert kept(lines) == 1
    read_as_text = RowFilter(Recognition(TOLD, keep, {"at": 9}), MemoryStorage("mem://lake"))
    batch = pa.RecordBatch.from_pylist([{"id": 1, "at": "10"}])
    assert read_as_text.fresh(batch).tolist() == [True]
    assert kept(read_as_text) == 1

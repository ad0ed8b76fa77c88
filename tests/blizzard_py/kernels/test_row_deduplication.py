"""Rows of lines and rows that are read as text are kept for the next window, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.kernels.row_deduplication import RowFilter
from blizzard_py.reading import DedupSpec, RowFingerprint
from tests.support.memory_store import MemoryStorage
from tests.support.published_rows import Published

TOLD = RowFingerprint(("at", "id"), whole=False)


def stored_digests(found: RowFilter) -> int:
    marks = found.marks("x", lambda _: "staged")
    return 0 if marks is None else marks.count


@pytest.mark.parametrize("keep", ["at", "above"])
@pytest.mark.parametrize("value", [2, "2026-05-01T01:00:00Z"])
def test_digests_are_stored_for_incomparable_values(keep: Any, value: Any) -> None:
    asked = DedupSpec(TOLD, keep, {"at": value})
    lines = RowFilter(asked, MemoryStorage("mem://lake"))
    assert lines.fresh_lines([b'{"id": 1, "at": "2026-05-01T01:00:00Z"}']).tolist() == [True]
    assert stored_digests(lines) == 1
    read_as_text = RowFilter(DedupSpec(TOLD, keep, {"at": 9}), MemoryStorage("mem://lake"))
    batch = pa.RecordBatch.from_pylist([{"id": 1, "at": "10"}])
    assert read_as_text.fresh(batch).tolist() == [True]
    assert stored_digests(read_as_text) == 1


AT = datetime(2026, 5, 4, tzinfo=UTC)


def events(*rows: tuple[int, datetime | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "at": pa.array([row[1] for row in rows], pa.timestamp("us", "UTC")),
        }
    )


def test_published_stores_digests_only_at_the_old_bound() -> None:
    published = Published(("id", "at"))
    first = events((1, AT - timedelta(1)), (2, AT), (3, AT), (4, None))
    assert published.fresh(first, "at", {"at": AT}).num_rows == 4
    assert [one.count for one in published.listed] == [2]
    second = events((2, AT), (3, AT), (5, AT), (2, AT + timedelta(1)))
    fresh = published.fresh(second, "at", {"at": AT + timedelta(1)})
    assert fresh.column("id").to_pylist() == [5, 2]


def test_each_version_of_a_key_has_its_own_digest() -> None:
    published = Published(("id", "at"))
    published.fresh(events((1, AT)), "above", {"at": AT})
    assert (
        published.fresh(events((1, AT), (1, AT + timedelta(1))), "above", {"at": AT}).num_rows == 1
    )

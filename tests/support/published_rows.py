"""Rows of successive windows, without those that were published before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from blizzard_py.kernels.row_deduplication import RowFilter
from blizzard_py.reading import DedupSpec, RowFingerprint
from blizzard_py.state.column_state import SeenSegment
from blizzard_py.state.seen_rows import SeenRows, segment_path
from tests.support.memory_store import MemoryStorage


class Published:
    """Dedup lookup of a source's tasks, with the segments that its checkpoint would list."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.listed: tuple[SeenSegment, ...] = ()
        self._store = MemoryStorage("mem://lake")
        self._rows = SeenRows(self._store, "source", 1)
        self._told = RowFingerprint(tuple(sorted(columns)), whole=False)

    def fresh(
        self,
        batch: pa.RecordBatch,
        keep: Any,
        values: Mapping[str, Any],
        expired: Callable[[SeenSegment], bool] = lambda _: False,
    ) -> pa.RecordBatch:
        """Return the new rows of a window; drop the digests of the others as they expire."""
        seen = tuple((segment_path("source", one), self._told) for one in self.listed)
        rows = RowFilter(DedupSpec(self._told, keep, values, seen), self._store)
        found = batch.filter(pa.array(rows.fresh(batch)))
        staged: list[str] = []

        def stage(content: bytes) -> str:
            self._store.put_atomic("staged", content)
            staged.append("staged")
            return "staged"

        rows.marks("item", stage)
        like = SeenSegment("", 1, dict(values))
        self.listed = self._rows.adding(self.listed, staged, like, expired)
        self._rows.clean_up()
        return found

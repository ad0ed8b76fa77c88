"""Sorting of more rows than memory holds: sorted runs on a local disk, then one merge.

Only the sort columns of all runs are in memory together. Their order says how many rows of each run
come next. Since each run is sorted, these rows are adjacent in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_py.job import SortKey
from blizzard_py.kernels.write.spill import Block, Spill


@dataclass(slots=True)
class SortedRun:
    """Sorted rows in the spill file; ``keys`` are their sort columns once more."""

    rows: list[Block]
    keys: list[Block]
    _next: int = field(default=0, init=False)  # the first row that is left
    _block: int = field(default=0, init=False)  # its block
    _start: int = field(default=0, init=False)  # that block's first row

    def take(self, count: int, spill: Spill, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the next ``count`` rows."""
        end = self._next + count
        while self._next < end:
            block = self.rows[self._block]
            [batch] = spill.read([block], schema)
            skip = self._next - self._start
            taken = min(block.rows - skip, end - self._next)
            yield batch.slice(skip, taken)
            self._next += taken
            if skip + taken == block.rows:
                self._block += 1
                self._start = self._next


def order_of(table: pa.Table, keys: Sequence[SortKey]) -> pa.Array:
    """Return row numbers in sorted order; equal rows keep their order, null comes last."""
    return pc.sort_indices(
        table.select([key.column for key in keys]),
        sort_keys=[(k.column, "descending" if k.descending else "ascending") for k in keys],
    )


def reordered(columns: list[pa.ChunkedArray], order: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return rows in the given order. Empties ``columns``, so that rows are in memory once."""
    columns.reverse()
    done: list[pa.Array] = []
    while columns:
        # Reordering a single chunk is twice as fast.
        done.append(columns.pop().combine_chunks().take(order))
    return pa.table(done, schema=schema)


def merged_runs(
    runs: Sequence[SortedRun],
    keys: Sequence[SortKey],
    spill: Spill,
    schema: pa.Schema,
    at_once: int,
) -> Iterator[pa.Table]:
    """Yield all rows of the runs in one order, in tables of ``at_once`` rows."""
    order = _order(runs, keys, spill, schema)
    ends = np.cumsum([sum(block.rows for block in run.rows) for run in runs])
    starts = np.concatenate([[0], ends[:-1]])
    taken = np.zeros(len(runs), np.int64)
    for first in range(0, len(order), at_once):
        part = order[first : first + at_once].astype(np.int64)
        owner = np.searchsorted(ends, part, side="right")
        counts = np.bincount(owner, minlength=len(runs))
        rows = pa.Table.from_batches(
            (
                batch
                for run, count in zip(runs, counts.tolist(), strict=True)
                for batch in run.take(count, spill, schema)
            ),
            schema,
        )
        before = np.cumsum(counts) - counts  # where each run's rows begin in `rows`
        places = pa.array(before[owner] + part - starts[owner] - taken[owner])
        columns = rows.columns
        del rows
        yield reordered(columns, places, schema)
        taken += counts


def _order(
    runs: Sequence[SortedRun], keys: Sequence[SortKey], spill: Spill, schema: pa.Schema
) -> npt.NDArray[np.uint64]:
    """Return the sorted order of all runs' rows; their sort columns are then released."""
    columns = pa.schema([schema.field(key.column) for key in keys])
    batches = (batch for run in runs for batch in spill.read(run.keys, columns))
    order: npt.NDArray[np.uint64] = order_of(
        pa.Table.from_batches(batches, columns), keys
    ).to_numpy()
    return order

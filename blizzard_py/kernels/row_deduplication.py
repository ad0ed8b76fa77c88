"""The new rows of a task, and the digests by which the next window recognises them.

A row that was published before (`blizzard_py.reading.Recognition`) is dropped before any other
check, even if it is bad: its letter is already in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.checkpoint.digests import WIDTH
from blizzard_core.errors import WatermarkError
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.ndjson.extract import members
from blizzard_py.reading import DedupSpec, ReadMarks, RowFingerprint
from blizzard_py.slices.digests import DIGEST, at_bound, digests
from blizzard_py.state.processed_set import digests_at

Kept = npt.NDArray[np.bool_]


class RowFilter:
    """Keeps new rows, batch by batch, and collects digests for the next window."""

    def __init__(self, dedup: DedupSpec, sink: Storage) -> None:
        self._known = dedup
        seen: dict[RowFingerprint, bytes] = {}
        for path, told in dedup.seen:
            seen[told] = seen.get(told, b"") + digests_at(sink, path).tobytes()
        self._seen = {told: _array(marks) for told, marks in seen.items()}
        self._digests = bytearray()

    @property
    def needs_check(self) -> bool:
        """True if rows must be checked; otherwise all of them are new."""
        return bool(self._known.keep)

    def fresh(self, batch: pa.RecordBatch) -> Kept:
        """Return which rows of a batch are new. Raises `SourceError` if it lacks a column."""
        return self._unseen(lambda told: _marks(batch, told), self._to_keep(batch))

    def _unseen(
        self, marks_of: Callable[[RowFingerprint], pa.FixedSizeBinaryArray], kept: pa.Array
    ) -> Kept:
        """Return which rows were not published before; store their digests for the next window."""
        marks = marks_of(self._known.told)
        fresh = pa.array(np.ones(len(marks), np.bool_))
        for told, seen in self._seen.items():
            then = marks if told == self._known.told else marks_of(told)
            fresh = pc.and_(fresh, pc.invert(pc.is_in(then, value_set=seen)))
        if self._known.keep == "above":
            # The others are already in a segment, which is kept as long as they are needed.
            kept = pc.and_(kept, fresh)
        self._digests += b"".join(marks.filter(kept).to_pylist())
        return np.asarray(fresh)

    def fresh_lines(self, lines: Sequence[bytes]) -> Kept:
        """Return which lines have new rows; a line that is no object is compared by its bytes.

        The order of a line's values is not used: all digests are stored.
        """
        rows = [_members(line) for line in lines]

        def marks_of(told: RowFingerprint) -> pa.FixedSizeBinaryArray:
            columns: dict[str, list[bytes | None]] = {"line": [line.strip() for line in lines]}
            if not told.whole:
                columns = {
                    name: [r.get(name) if r else x for r, x in zip(rows, lines, strict=True)]
                    for name in told.columns
                }
            arrays = [pa.array(values, pa.binary()) for values in columns.values()]
            return digests(pa.RecordBatch.from_arrays(arrays, list(columns)))

        return self._unseen(marks_of, pa.array(np.ones(len(lines), np.bool_)))

    def marks(self, path: str, stage: Callable[[bytes], str]) -> ReadMarks | None:
        """Return the item's marks; ``stage`` writes the digests to staging."""
        if not self._digests:
            return None
        return ReadMarks(path, stage(bytes(self._digests)), len(self._digests) // WIDTH)

    def _to_keep(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows a later window may read again.

        If that is unknown, all rows.
        """
        values = self._known.values
        try:
            if values and self._known.keep == "at":
                return at_bound(batch, values)
            if values:
                return _above(batch, values)
        except (KeyError, OverflowError, ValueError, WatermarkError, pa.ArrowNotImplementedError):
            pass  # a column that is not read, or is read as text; a number beyond Arrow's range
        return pa.array(np.ones(batch.num_rows, np.bool_))


def _above(batch: pa.RecordBatch, values: Mapping[str, Any]) -> pa.BooleanArray:
    found = pa.array(np.zeros(batch.num_rows, np.bool_))
    for name, value in values.items():
        column, least = batch.column(name), pa.scalar(value)
        if pa.types.is_string(column.type) != pa.types.is_string(least.type):
            raise WatermarkError(f"column {name} is read in another form than it is compared")
        above = pc.greater_equal(column, least.cast(column.type))
        found = pc.or_(found, pc.fill_null(above, fill_value=False))
    return found


def _marks(batch: pa.RecordBatch, told: RowFingerprint) -> pa.FixedSizeBinaryArray:
    """Return the rows' digests; undeclared columns are those of the watermark, if any."""
    names = [n for n in told.columns if n in batch.schema.names] if told.whole else told.columns
    return digests(batch, names)


def _array(marks: bytes) -> pa.FixedSizeBinaryArray:
    return pa.Array.from_buffers(DIGEST, len(marks) // WIDTH, [None, pa.py_buffer(marks)])


def _members(line: bytes) -> dict[str, bytes]:
    try:
        return members(line)
    except ValueError:  # a bad record; the parser gives the reason
        return {}

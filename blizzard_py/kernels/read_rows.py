"""Which of a task's rows are new, and the digests by which the next window will know them.

A row that was published before (`blizzard_py.reading.Recognition`) is left out before anything
else is asked of it, also a bad one: its letter is in the queue already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.checkpoint.digests import WIDTH
from blizzard_core.storage.protocol import Storage
from blizzard_py.columns.digests import DIGEST, at_bound, digests
from blizzard_py.kernels.decode.extract import members
from blizzard_py.reading import ReadMarks, Recognition
from blizzard_py.state.seen_rows import read_segment

Kept = npt.NDArray[np.bool_]


class RowFilter:
    """Tells new rows, batch by batch, and gathers what the next window has to know."""

    def __init__(self, recognition: Recognition, sink: Storage) -> None:
        self._known = recognition
        self._told = (*recognition.key, *recognition.columns) if recognition.key else ()
        seen = b"".join(read_segment(sink, path) for path in recognition.seen)
        self._seen = pa.Array.from_buffers(DIGEST, len(seen) // WIDTH, [None, pa.py_buffer(seen)])
        self._digests = bytearray()

    @property
    def asks(self) -> bool:
        """Whether rows have to be looked at; else all of them are new."""
        return bool(self._known.keep)

    def fresh(self, batch: pa.RecordBatch) -> Kept:
        """Which rows of a batch are new. Raises `SourceError` if it lacks a column."""
        return self._unseen(digests(batch, self._told), batch)

    def _unseen(self, marks: pa.FixedSizeBinaryArray, batch: pa.RecordBatch) -> Kept:
        """Which of the rows were not published before; their digests are kept for the next time."""
        fresh = pc.invert(pc.is_in(marks, value_set=self._seen))
        kept = self._to_keep(batch)
        if self._known.keep == "above":
            # The others are in a segment already, which is kept as long as they are needed.
            kept = pc.and_(kept, fresh)
        self._digests += b"".join(marks.filter(kept).to_pylist())
        return np.asarray(fresh)

    def fresh_lines(self, lines: Sequence[bytes]) -> Kept:
        """Which of the lines hold new rows; what is no object is told by its bytes."""
        rows = [_members(line) for line in lines]
        columns = [
            pa.array(
                [r.get(name) if r else line for r, line in zip(rows, lines, strict=True)],
                pa.binary(),
            )
            for name in self._told
        ]
        batch = pa.RecordBatch.from_arrays(
            columns or [pa.array([line.strip() for line in lines], pa.binary())],
            list(self._told) or ["line"],
        )
        return self._unseen(digests(batch), batch)

    def marks(self, path: str, stage: Callable[[bytes], str]) -> ReadMarks | None:
        """What is told of the item; ``stage`` puts the digests where the driver finds them."""
        if not self._digests:
            return None
        return ReadMarks(path, stage(bytes(self._digests)), len(self._digests) // WIDTH)

    def _to_keep(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows a later window may read again. Where that cannot be told all are kept."""
        values, every = self._known.values, pa.array(np.ones(batch.num_rows, np.bool_))
        try:
            if self._known.keep == "at":
                return at_bound(batch, values)
            return _above(batch, values) if values else every
        except (KeyError, ValueError, pa.ArrowNotImplementedError):
            return every


def _above(batch: pa.RecordBatch, values: Mapping[str, Any]) -> pa.BooleanArray:
    found = pa.array(np.zeros(batch.num_rows, np.bool_))
    for name, value in values.items():
        column = batch.column(name)
        above = pc.greater(column, pa.scalar(value).cast(column.type))
        found = pc.or_(found, pc.fill_null(above, fill_value=False))
    return found


def _members(line: bytes) -> dict[str, bytes]:
    try:
        return members(line)
    except ValueError:  # a bad record, for the parser to say why
        return {}

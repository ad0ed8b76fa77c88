"""Chunks with no more values than a task has memory for, however short their lines are.

A chunk is limited in bytes, but the parser's result by rows times columns: ``{}`` is a row, and so
is each object of a list. The size of a line's result is estimated from its bytes before it is
parsed. So a chunk of many rows is cut, and a single line that is too large is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blizzard_core.limits import CHUNK_CELLS, LINE_CELLS, RAW_BYTES
from blizzard_py.lines.framing import Piece, RefusedRecord

_NEWLINE, _OPEN = b"\n{"


@dataclass(frozen=True, slots=True)
class RowShape:
    """The least values of a line, and the most of each object within lists or maps."""

    columns: int
    inner: int = 0


def portions(
    items: Iterable[Piece | RefusedRecord],
    shape: RowShape,
    most: int = CHUNK_CELLS,
    line: int = LINE_CELLS,
) -> Iterator[Piece | RefusedRecord]:
    """Yield the chunks with their ``cells``, cut where these are more than ``most``.

    A line of more than ``line`` is a `RefusedRecord`.
    """
    for item in items:
        if isinstance(item, RefusedRecord):
            yield item
            continue
        data = np.frombuffer(item.data, np.uint8)
        cells = int(np.count_nonzero(data == _NEWLINE)) * shape.columns
        if shape.inner:
            cells += int(np.count_nonzero(data == _OPEN)) * shape.inner
        if cells <= most:
            yield replace(item, cells=cells)
        else:
            yield from _cut(item, data, shape, most, line)


def _cut(
    chunk: Piece, data: npt.NDArray[np.uint8], shape: RowShape, most: int, line: int
) -> Iterator[Piece | RefusedRecord]:
    ends = np.flatnonzero(data == _NEWLINE) + 1
    cells = np.full(len(ends), shape.columns)
    if shape.inner:
        objects = np.searchsorted(np.flatnonzero(data == _OPEN), ends)
        cells += np.diff(objects, prepend=0) * shape.inner
    upto = np.cumsum(cells)
    first = start = before = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(upto, before + most, "right")))
        end, some = int(ends[last - 1]), int(upto[last - 1]) - before
        if some > line:
            head = chunk.data[start : min(start + RAW_BYTES, end - 1)]
            reason = f"may become more than {line:,} values"
            yield RefusedRecord(chunk.offset + start, end - 1 - start, head, reason)
        else:
            yield Piece(chunk.data[start:end], chunk.offset + start, some)
        first, start, before = last, end, before + some

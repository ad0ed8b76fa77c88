"""A chunk's certain lines as a table; the other lines are left to the parser.

**A row from here equals the row of the exact path, value by value and buffer by buffer**, once
nested values are made from their text. Nothing is said about any other line. `scan.c` decides which
lines are certain.
"""

from __future__ import annotations

import atexit
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.formats.ndjson.fast.layout import (
    WINDOW_BYTES,
    ScanLayout,
    has_room,
    scanned_schema,
)
from blizzard_py.formats.ndjson.fast.pieces import one_table
from blizzard_py.formats.ndjson.fast.sandbox import Broken, Program, compiled
from blizzard_py.job import FieldSpec

# After a chunk that was hardly worth it, so many chunks are skipped.
PAUSE = 15
# Each call copies all columns. With very many text columns there is room for few long values in
# each. So many calls may end after so few lines; then the chunk is left to the exact path.
FEW_LINES = 64
MOST_CALLS = 3

_stderr = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The certain rows of a chunk of ``lines`` lines, and the lines that are handed over.

    ``rows_at`` and ``left_at`` are indices of lines. ``left`` has the bytes of the other lines with
    their newlines, ``starts`` their positions in the chunk. Blank lines are in neither. ``unknown``
    are names in the rows that the schema lacks: all, unless they are very many. The ``table`` has
    `scanned_schema`: structs, lists and maps are well-formed JSON text.
    """

    table: pa.Table
    lines: int
    rows_at: npt.NDArray[np.int64]
    left: list[bytes]
    left_at: npt.NDArray[np.int64]
    starts: list[int]
    unknown: frozenset[bytes]


class Scanner:
    """Scans chunks of one schema, from any number of threads, each with its own machine."""

    def __init__(
        self, program: Program, fields: Sequence[FieldSpec], unexpected: UnexpectedFields
    ) -> None:
        """Raise `Broken` if there is no room for the schema."""
        self._program = program
        self._fields = tuple(fields)
        self._skips = unexpected == "ignore"
        self._rescued = unexpected == "capture"
        self._schema = scanned_schema(fields, rescued=self._rescued)
        self._free = [self._layout()]
        self._pause = 0

    def scan(self, chunk: bytes, *, utf8: bool) -> ScanResult | None:
        """Return the chunk's certain lines; None if it is not worth trying, or has failed.

        If a chunk is not ``utf8``, only lines in ASCII are certain.
        """
        if self._pause:
            self._pause -= 1
            return None
        try:
            layout = self._free.pop()
        except IndexError:
            layout = self._layout()
        try:
            found = self._scanned(layout, chunk, utf8=utf8)
        except Broken as error:
            # Its memory may contain anything now, so it is not used again.
            _stderr.warning(
                "the fast path has failed on a chunk, which is read without it: %s", error
            )
            self._free.append(self._layout())
            return None
        self._free.append(layout)
        if found is None or len(found.left) > found.table.num_rows:
            self.pause()
        return found

    def pause(self) -> None:
        """Skip the next chunks, which are probably like this one."""
        self._pause = PAUSE

    def _layout(self) -> ScanLayout:
        return ScanLayout(self._program.machine(), self._fields, skips=self._skips)

    def _scanned(self, layout: ScanLayout, chunk: bytes, *, utf8: bool) -> ScanResult | None:
        """Return None if so little fits at a time that the exact path is faster."""
        tables: list[pa.Table] = []
        rows_at: list[npt.NDArray[np.int64]] = []
        left: list[tuple[int, int, int]] = []
        unknown: set[bytes] = set()
        lines = 0
        for start, end in _windows(chunk):
            if end - start > WINDOW_BYTES:
                left.append((lines, start, end))
                lines += 1
                continue
            layout.fill(memoryview(chunk)[start:end])
            done = few = 0
            while done < end - start:
                done = layout.scan(done, end - start, utf8=utf8)
                few += layout.lines < FEW_LINES
                if few > MOST_CALLS:
                    return None
                tables.append(self._table(layout.columns()))
                rows_at.append(layout.rows_at() + lines)
                unknown.update(layout.unknown())
                left += [(lines + at, start + a, start + b) for at, a, b in layout.left()]
                lines += layout.lines
        return ScanResult(
            one_table(tables, self._schema),
            lines,
            np.concatenate(rows_at) if rows_at else np.arange(0),
            [chunk[start:end] for _, start, end in left],
            np.array([at for at, _, _ in left], np.int64),
            [start for _, start, _ in left],
            frozenset(unknown),
        )

    def _table(self, columns: list[pa.Array]) -> pa.Table:
        if self._rescued:
            columns.append(pa.nulls(len(columns[0]), pa.string()))
        return pa.Table.from_arrays(columns, schema=self._schema)


def _windows(chunk: bytes) -> Iterator[tuple[int, int]]:
    """Yield whole lines of at most `WINDOW_BYTES`, or a single longer line."""
    start = 0
    while start < len(chunk):
        end = len(chunk)
        if end - start > WINDOW_BYTES:
            end = chunk.rfind(b"\n", start, start + WINDOW_BYTES) + 1
            end = end or chunk.find(b"\n", start) + 1
        yield start, end
        start = end


@functools.lru_cache(maxsize=2)
def scanner(fields: tuple[FieldSpec, ...], unexpected: UnexpectedFields) -> Scanner | None:
    """Return the process's scanner for a schema; None if there is none or loading fails."""
    if not has_room(fields):
        return None
    program = compiled()
    atexit.register(scanner.cache_clear)  # before the program; see `compiled`
    try:
        return None if program is None else Scanner(program, fields, unexpected)
    except Broken as error:
        _stderr.warning("the fast path is not used: %s", error)
        return None

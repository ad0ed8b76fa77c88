"""The common part of CSV and JSON files: each file is scanned.

The driver process scans each file once for the values of the watermark's columns. Tasks scan files
that can have rows of the window again and keep these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.errors import SourceError, Unavailable
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.lakes.column_ranges import later
from blizzard_py.connections.lakes.declared_columns import DeclaredColumn
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.filters import Filter
from blizzard_py.connections.lakes.window import RowWindow, mask
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import FileFailed
from blizzard_py.slices.column_order import ColumnOrder, Key, Range, column_order


@contextmanager
def blocks(storage: Storage, file: PlannedFile) -> Iterator[Iterator[bytes]]:
    """Yield a file's bytes, decompressed. Raises `SourceError`, or `Unavailable`."""
    try:
        with opened(storage, JobFile(file.name.path, file.size)) as found:
            yield found
    except FileFailed as error:
        problem = f"{storage.uri}/{file.name.path}: {error.reason}"
        raise (Unavailable if error.outcome == "retry" else SourceError)(problem) from error


@dataclass(slots=True)
class RangeCollector:
    """The range of each watermark column over the scanned rows.

    ``bad`` counts invalid rows, ``unread`` rows with a value that cannot be read.
    """

    columns: Sequence[DeclaredColumn]
    unread: int = 0
    bad: int = 0
    _low: dict[str, Key] = field(default_factory=dict)
    _high: dict[str, Key] = field(default_factory=dict)
    _nulls: set[str] = field(default_factory=set)

    def add(self, arrays: Sequence[pa.Array], unread: int) -> None:
        """Add rows as one array for each column; ``unread`` of them had an unreadable value."""
        self.unread += unread
        for column, array in zip(self.columns, arrays, strict=True):
            keys = column_order(column.name, column.type).keys(array)
            if keys.null_count:
                self._nulls.add(column.name)
            span = pc.min_max(keys).as_py()
            if span["min"] is not None:
                low, high = self._low.get(column.name), self._high.get(column.name)
                self._low[column.name] = span["min"] if low is None else min(low, span["min"])
                self._high[column.name] = later(high, span["max"])  # type: ignore[assignment]  # one is there

    @property
    def unread_in_all(self) -> int:
        """Rows that no window after the first reads; includes bad ones if no row has a value."""
        return self.unread + (0 if self._high else self.bad)

    @property
    def orders(self) -> dict[str, ColumnOrder]:
        """The comparison of each column."""
        return {column.name: column_order(column.name, column.type) for column in self.columns}

    @property
    def ranges(self) -> dict[str, Range]:
        """The range of each column."""
        return {
            column.name: Range(
                self._low.get(column.name),
                self._high.get(column.name),
                # An invalid row has no value. Without any value in the file it is read like nulls.
                column.name in self._nulls or (self.bad > 0 and not self._high),
                column.name in self._high,
            )
            for column in self.columns
        }


def filter_columns(window: RowWindow | None, condition: Filter | None) -> list[str]:
    """Return the columns that decide which rows are read."""
    return [*(window.columns if window else ()), *(condition.columns if condition else ())]


def accepted(
    window: RowWindow | None,
    condition: Filter | None,
    columns: Mapping[str, pa.Array],
    rows: int,
    where: str,
) -> pa.Array:
    """Return for each row whether it is in the window and the filter keeps it."""
    found = pa.repeat(pa.scalar(True), rows)
    if window is not None:
        found = mask(window, columns, rows, where)
    return found if condition is None else pc.and_(found, condition.keeps(columns))

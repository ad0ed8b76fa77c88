"""Facts about files of a directory: schema, value ranges, and rows without a watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from blizzard_core.text import counted
from blizzard_py.connections.lakes.column_ranges import united
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.formats.protocol import SourceRows
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import arrow_type
from blizzard_py.slices.column_order import ColumnOrder, ColumnRange, column_order


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about a file: its schema, and order and **exact** range of each watermark column.

    ``unread`` counts rows whose watermark cannot be read as its type: they count as null.
    """

    schema: pa.Schema
    orders: Mapping[str, ColumnOrder]
    ranges: Mapping[str, ColumnRange]
    unread: int = 0


@dataclass(slots=True)
class RangeCollector:
    """The range of each watermark column over the rows of a file that is scanned."""

    keys: Sequence[FieldSpec]
    _unread: int = 0
    _bad: int = 0
    _parts: dict[str, list[ColumnRange]] = field(default_factory=dict)

    def add(self, found: SourceRows) -> None:
        """Add the records of a piece."""
        self._unread += found.unread
        self._bad += len(found.bad)
        for order, array in zip(self.orders.values(), found.keys, strict=False):
            keys = order.keys(array)
            low, high = pc.min_max(keys).as_py().values()
            part = ColumnRange(low, high, bool(keys.null_count), low is not None)
            self._parts.setdefault(order.name, []).append(part)

    @property
    def _has_values(self) -> bool:
        return any(part.values for parts in self._parts.values() for part in parts)

    @property
    def unread_in_all(self) -> int:
        """Rows that no window after the first reads; includes bad ones if no row has a value."""
        return self._unread + (0 if self._has_values else self._bad)

    @property
    def orders(self) -> dict[str, ColumnOrder]:
        """The comparison of each column."""
        return {each.name: column_order(each.name, arrow_type(each)) for each in self.keys}

    @property
    def ranges(self) -> dict[str, ColumnRange]:
        """The range of each column."""
        found = {key.name: united(self._parts.get(key.name, ())) for key in self.keys}
        if self._bad and not self._has_values:
            # A bad record has no value. Without any value in the file it is read like nulls.
            return {name: replace(each, nulls=True) for name, each in found.items()}
        return found


def united_schema(facts: Sequence[FileFacts]) -> pa.Schema:
    """Return all columns, each as in the first file that has it."""
    found: dict[str, pa.Field] = {}
    for each in {id(each): each for each in facts}.values():
        for column in each.schema:
            found.setdefault(column.name, column)
    return pa.schema(list(found.values()))


def unreadable_values(facts: Sequence[FileFacts], names: Sequence[str]) -> tuple[str, ...]:
    """Return a warning if values of the watermark columns are unreadable, else nothing."""
    unread = sum(each.unread for each in facts)
    if not unread:
        return ()
    rows = counted(unread, "row")
    return (f"{rows} without a readable value of {', '.join(names)}: treated as null",)


def files_with_nulls(
    files: Sequence[PlannedFile], facts: Sequence[FileFacts], names: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return files in which no row has a watermark, and those that may have rows without one."""
    empty: list[str] = []
    some: list[str] = []
    for file, known in zip(files, facts, strict=True):
        ranges = [known.ranges.get(name, ColumnRange()) for name in names]
        if all(each.nulls for each in ranges):
            (some if any(each.values for each in ranges) else empty).append(file.name.path)
    return empty, some


def null_remarks(empty: Sequence[str], some: Sequence[str], columns: str) -> list[str]:
    """Return remarks on files with rows without a watermark, which only the first window reads."""
    found = []
    if empty:
        found.append(
            f"{counted(len(empty), 'file')} without any value of {columns}, such as {empty[-1]}."
            " Rows without a value are read with the first window and never after it. Correct the"
            " file's header or keys (only CSV ignores case and outer blanks of names), or"
            " format.delimiter. If its values are then below the watermark, run a backfill"
        )
    if some:
        found.append(
            f"{counted(len(some), 'file')} with rows that have no value of {columns}, such as"
            f" {some[-1]}. These rows are read with the first window and never after it. Fill the"
            " column, choose another one, or set watermark.advanced.nulls to never or fail"
        )
    return found

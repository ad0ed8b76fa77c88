"""The planning that lakes share, and that of tables which have versions."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.bounds import (
    Pinned,
    check_same_table,
    clock_bound,
    highest_bound,
    pinned,
    plain_selection,
    selected_columns,
    utc_now,
)
from blizzard_py.connections.lakes.column_maximum import ColumnMaximum, KnownFile
from blizzard_py.connections.lakes.fields import check_there, columns_of, instants_in, undeclared
from blizzard_py.connections.lakes.file_plan import FilePlan, PlannedFile, tasks_of, unit_plans
from blizzard_py.connections.lakes.locations import StorageCache, storage_options
from blizzard_py.connections.lakes.pruning import PrunableFiles, orders_for
from blizzard_py.connections.lakes.window import RowWindow, may_meet
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import (
    ReadBound,
    ReadSelection,
    SourceColumn,
    SourceConnection,
    WindowSplit,
)
from blizzard_py.connections.unit_comparisons import check_instants
from blizzard_py.reading import Access, BoundKind, ReadTask, Window
from blizzard_py.slices.column_order import ColumnOrder, column_order

Now = Callable[[], dt.datetime]


class LakeConnection(SourceConnection):
    """The part of a connection that depends on no format.

    Files are never changed, or tasks notice that they were.
    """

    def __init__(self, access: Access, selection: ReadSelection, now: Now = utc_now) -> None:
        # With the placeholders of work units, if any.
        self._template = selection
        self._selection = plain_selection(selection)
        self._now = now
        self._stores = StorageCache(storage_options(access))


class VersionedTable(LakeConnection):
    """One table with a history, of Delta or Iceberg.

    A dialect opens the table, and knows the files of a version and of what was added since.
    """

    def __init__(self, access: Access, selection: ReadSelection, now: Now = utc_now) -> None:
        super().__init__(access, selection, now)
        self._maxima = {name: ColumnMaximum(self._stores, name) for name in selection.columns}

    @property
    @abstractmethod
    def _what(self) -> str:
        """The table, as errors name it."""

    @abstractmethod
    def _opened(self, version: int | None = None) -> Any:
        """Return the table, as of a version if that is given and the format can."""

    @abstractmethod
    def _schema(self, table: Any) -> pa.Schema:
        """Return the table's columns."""

    @abstractmethod
    def _id(self, table: Any) -> str:
        """Return the table's own id."""

    @abstractmethod
    def _version_bound(self, table: Any) -> ReadBound:
        """Return the end of a window by versions."""

    @abstractmethod
    def _snapshot(self, table: Any, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return all files of the table's version."""

    @abstractmethod
    def _added(self, table: Any, start: int | None, end: Pinned) -> list[PlannedFile]:
        """Return the files that versions after ``start`` added; without it all files."""

    @property
    def default_bound(self) -> BoundKind | None:
        """``version``, which misses nothing; ``max`` if columns are given."""
        return "max" if self._selection.columns else "version"

    def columns(self) -> Sequence[SourceColumn]:
        """Return the table's columns, as of its last version."""
        return columns_of(self._schema(self._opened()))

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the table's last version, or the highest values in it."""
        table = self._opened()
        self._check_columns(table)
        if kind == "version":
            return self._version_bound(table)
        orders = self._orders(table)
        if kind == "clock":
            return clock_bound(orders, self._now(), settle_secs, self._selection.walls)
        return self._highest(table, orders)

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return the files of the window. Raises `SourceError` if they are no longer known."""
        end = pinned(window)
        table = self._opened(None if end is None else end.version)
        self._check_columns(table)
        rows: RowWindow | None = None
        if end is None:
            orders = self._orders(table)
            rows = RowWindow.of(window, self._selection.columns, self._selection.nulls)
            known = self._snapshot(table, orders)
            files = [each.file for each in known if may_meet(rows, orders, each.ranges)]
        else:
            start = check_same_table(window, end, self._id(table), self._what)
            files = self._added(table, start, end)
        plan = self._plan(table, files, rows, self._selection.filter)
        return tasks_of(plan, split, self._what if end is None else self._described(table))

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return files of one version that can have rows of each unit; a filter picks the rows."""
        table = self._opened()
        self._check_columns(table)
        schema = self._schema(table)
        check_instants((self._template.filter,), units, instants_in(schema))
        orders = orders_for(self._selection.filter, schema)
        pruned = PrunableFiles(self._first(table, orders), orders)
        plan = self._plan(table, (), None, self._template.filter)
        return unit_plans(plan, units, self._described(table), pruned.files)

    # --- for dialects ---------------------------------------------------------------

    def _described(self, table: Any) -> str:  # noqa: ARG002  # for dialects
        """Return the table and perhaps its version, for people."""
        return self._what

    def _check_columns(self, table: Any) -> None:
        check_there(self._what, selected_columns(self._selection), self._there(table))

    def _there(self, table: Any) -> Sequence[str]:
        """Return the names of all columns that may be selected."""
        names: Sequence[str] = self._schema(table).names
        return names

    def _first(self, table: Any, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return all files for a reading that needs no earlier one."""
        return self._snapshot(table, orders)

    def _highest(self, table: Any, orders: Mapping[str, ColumnOrder]) -> ReadBound:
        return highest_bound("max", self._snapshot(table, orders), orders, self._maxima)

    def _extra(self, table: Any) -> Mapping[str, Any]:  # noqa: ARG002  # for dialects
        """Return further values that the reader needs."""
        return {}

    # --- the same for all -----------------------------------------------------------

    def _orders(self, table: Any) -> dict[str, ColumnOrder]:
        schema = self._schema(table)
        return {
            name: column_order(name, schema.field(name).type) for name in self._selection.columns
        }

    def _plan(
        self, table: Any, files: Iterable[PlannedFile], rows: RowWindow | None, condition: str
    ) -> FilePlan:
        names = undeclared(self._selection, self._schema(table).names)
        return FilePlan(list(files), names, rows, condition, self._extra(table))

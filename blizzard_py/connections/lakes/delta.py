"""A Delta table as a source: the planning side. Tasks read with `lakes.window_rows`.

With the bound ``version`` (the default) the watermark is ``{"version": 17, "table": id}``. A window
is what the commits after the stored version added, by the log. The first window is the snapshot at
the pinned version. ``table`` is the table's own id, so a table that was dropped and created again
is noticed, whatever its version.

With ``max`` the watermark is that of the columns, and files are chosen by their statistics.

A schema that declares ``_change_type`` requests the change feed: rows come with their kind of
change, including deleted ones.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from blizzard_core.delta_json import commit_path
from blizzard_core.errors import NotFound, SourceError, Unavailable
from blizzard_core.redact import redacted
from blizzard_core.storage.opening import delta_options
from blizzard_core.threads import ThreadPool
from blizzard_py.connections.lakes import delta_log
from blizzard_py.connections.lakes.bounds import (
    TABLE,
    VERSION,
    check_same_table,
    clock_bound,
    highest_bound,
    pinned,
    plain_selection,
    refuse_bound,
    selected_columns,
    utc_now,
)
from blizzard_py.connections.lakes.column_maximum import ColumnMaximum, KnownFile
from blizzard_py.connections.lakes.delta_statistics import known_files
from blizzard_py.connections.lakes.fields import check_there, columns_of, instants_in, undeclared
from blizzard_py.connections.lakes.file_plan import FilePlan, PlannedFile, tasks_of, unit_plans
from blizzard_py.connections.lakes.locations import (
    StorageCache,
    located,
    place_of,
    storage_options,
    translate_errors,
)
from blizzard_py.connections.lakes.pruning import PrunableFiles, orders_for
from blizzard_py.connections.lakes.window import RowWindow, may_meet
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import ReadBound, ReadSelection, SourceColumn, WindowSplit
from blizzard_py.connections.unit_comparisons import check_instants
from blizzard_py.reading import Access, BoundKind, ReadTask, Window
from blizzard_py.slices.column_order import ColumnOrder, column_order

_AT_ONCE = 16


class DeltaConnection:
    """One Delta table; see the module's docstring and `Connection`."""

    def __init__(
        self, access: Access, selection: ReadSelection, now: Callable[[], dt.datetime] = utc_now
    ) -> None:
        self._template = selection
        self._selection = plain_selection("delta", selection)
        self._now = now
        self._uri = place_of(access, selection.table)
        options = storage_options(access)
        self._options = delta_options(self._uri, options, os.environ)
        self._stores = StorageCache(options)
        self._highest = {name: ColumnMaximum(self._stores, name) for name in selection.columns}

    @property
    def default_bound(self) -> BoundKind | None:
        """``version``, which misses nothing; ``max`` if columns are given."""
        return "max" if self._selection.columns else "version"

    def columns(self) -> Sequence[SourceColumn]:
        """Return the table's columns, as of its last version."""
        return columns_of(_schema(self._opened()))

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the table's last version, or the highest values in it."""
        handle = self._opened()
        self._check_columns(handle)
        if kind == "version":
            return ReadBound(kind, {VERSION: handle.version(), TABLE: str(handle.metadata().id)})
        orders = self._orders(handle)
        if kind == "clock":
            return clock_bound(orders, self._now(), settle_secs, self._selection.walls)
        if kind != "max":
            raise refuse_bound("delta", kind, ("version", "max", "clock"))
        return highest_bound(kind, self._snapshot(handle, orders), orders, self._highest)

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return the files of the window. Raises `SourceError` if the log no longer has them."""
        end = pinned(window)
        handle = self._opened(None if end is None else end.version)
        self._check_columns(handle)
        names = undeclared(self._selection, list(_schema(handle).names))
        if end is None:
            orders = self._orders(handle)
            rows = RowWindow.of(window, self._selection.columns, self._selection.nulls)
            files = [
                known.file
                for known in self._snapshot(handle, orders)
                if may_meet(rows, orders, known.ranges)
            ]
            return tasks_of(FilePlan(files, names, rows, self._selection.filter), split, self._uri)
        start = check_same_table(window, end, str(handle.metadata().id), self._uri)
        if start is None:
            files = [each.file for each in self._first(handle, {})]
        else:
            files = [self._changed(change, handle) for change in self._changes(start, handle)]
        what = f"{self._uri} version {end.version}"
        return tasks_of(FilePlan(files, names, None, self._selection.filter), split, what)

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return files of one version that can have rows of each unit; a filter picks the rows."""
        handle = self._opened()
        self._check_columns(handle)
        schema = _schema(handle)
        check_instants((self._template.filter,), units, instants_in(schema))
        orders = orders_for(self._selection.filter, schema)
        pruned = PrunableFiles(self._first(handle, orders), orders)
        names = undeclared(self._selection, list(schema.names))
        what = f"{self._uri} version {handle.version()}"
        return unit_plans(
            FilePlan((), names, None, self._template.filter), units, what, pruned.files
        )

    def hold(self, access: Access) -> AbstractContextManager[Access]:
        """Return ``access`` unchanged: files are never changed."""
        return nullcontext(access)

    def warnings(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _opened(self, version: int | None = None) -> DeltaTable:
        with self._translated_errors():
            handle = DeltaTable(self._uri, version=version, storage_options=self._options)
            delta_log.check_readable(handle.metadata().configuration, self._uri)
            return handle

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn the errors of delta-rs into errors of a connection."""
        try:
            yield
        except TableNotFoundError as error:
            raise SourceError(f"{self._uri}: is not a Delta table; correct `table`") from error
        except DeltaError as error:
            raise SourceError(
                f"{self._uri}: the table's log cannot be read: {_error_text(error)}"
            ) from error
        except OSError as error:
            raise Unavailable(f"{self._uri}: {_error_text(error)}") from error
        except BaseException as error:
            # A panic of delta-rs; the class cannot be imported and is no `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise SourceError(f"{self._uri}: cannot be read: {_error_text(error)}") from error

    def _check_columns(self, handle: DeltaTable) -> None:
        there = [*_schema(handle).names, *self._feed_columns()]
        check_there(self._uri, selected_columns(self._selection), there)

    def _feed_columns(self) -> Sequence[str]:
        """Return the change feed's columns if they are requested."""
        declared = {each.name for each in self._selection.fields}
        return delta_log.CHANGE_COLUMNS if delta_log.CHANGE in declared else ()

    def _orders(self, handle: DeltaTable) -> dict[str, ColumnOrder]:
        schema = _schema(handle)
        return {
            name: column_order(name, schema.field(name).type) for name in self._selection.columns
        }

    def _snapshot(self, handle: DeltaTable, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return the files of the handle's version. Raises `SourceError` for deletion vectors."""
        with self._translated_errors():
            features = handle.protocol().reader_features or []
            if "deletionVectors" in features and any(True for _ in handle.deletion_vectors()):
                raise delta_log.refuse_vector(self._uri, handle.version())
            actions = pa.table(handle.get_add_actions(flatten=True))
        return known_files(self._uri, actions, orders)

    def _first(self, handle: DeltaTable, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return the whole snapshot, each row an insert."""
        extra: dict[str, Any] = {}
        if self._feed_columns():
            with self._translated_errors():
                stamp = int(handle.history(1)[0].get("timestamp") or 0) / 1000
            extra = _feed_values("insert", handle.version(), stamp)
        return [
            replace(each, file=replace(each.file, values={**each.file.values, **extra}))
            for each in self._snapshot(handle, orders)
        ]

    def _changes(self, start: int, handle: DeltaTable) -> list[delta_log.FileChange]:
        commits = self._commits(start + 1, handle.version())
        if not self._feed_columns():
            return delta_log.appended(commits, self._uri)
        configuration = handle.metadata().configuration
        return delta_log.changed(commits, delta_log.is_fed(configuration), self._uri)

    def _commits(self, first: int, last: int) -> Iterator[delta_log.DeltaCommit]:
        """Yield the log's entries, several at a time. Raises `SourceError` if one is gone."""
        storage = self._stores.at(self._uri)

        def read(version: int) -> delta_log.DeltaCommit:
            where = f"{self._uri}/{commit_path(version)}"
            try:
                raw = storage.read(commit_path(version))
            except NotFound as error:
                raise SourceError(
                    f"{where}: this entry of the table's log was cleaned up before its window was"
                    f" read; to read the whole table again: `blizzard checkpoint reset`, to skip"
                    f" versions {first} to {last}: `blizzard checkpoint set --column"
                    f" version={last}`; set delta.logRetentionDuration to more than the daemon may"
                    " be stopped"
                ) from error
            return delta_log.parsed(raw, version, where)

        with translate_errors(self._uri), ThreadPool(_AT_ONCE) as pool:
            for begin in range(first, last + 1, _AT_ONCE):
                yield from pool.map(read, range(begin, min(begin + _AT_ONCE, last + 1)))

    def _changed(self, change: delta_log.FileChange, handle: DeltaTable) -> PlannedFile:
        schema = _schema(handle)
        types = {name: schema.field(name).type for name in handle.metadata().partition_columns}
        values = delta_log.partition_values(change.file.partition, types, self._uri)
        if self._feed_columns():
            values |= _feed_values(change.kind, change.version, change.timestamp)
        return PlannedFile(located(self._uri, change.file.path), change.file.size, values=values)


def _feed_values(kind: str, version: int, timestamp: float) -> dict[str, Any]:
    values: dict[str, Any] = {
        delta_log.VERSION: version,
        delta_log.TIME: dt.datetime.fromtimestamp(timestamp, dt.UTC),
    }
    return values | ({delta_log.CHANGE: kind} if kind else {})


def _schema(handle: DeltaTable) -> pa.Schema:
    """Return the table's columns. Raises `SourceError` for a type that Arrow does not have."""
    try:
        return pa.schema(handle.schema().to_arrow())
    except (DeltaError, ValueError) as error:  # Arrow raises ValueError for this
        raise SourceError(
            f"{handle.table_uri}: the table's columns cannot be read: {_error_text(error)}"
        ) from error


def _error_text(error: BaseException) -> str:
    return redacted(" ".join(str(error).partition("\n   0: ")[0].split()))[:300]

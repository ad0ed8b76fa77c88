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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from blizzard_py.connections.lakes.bounds import TABLE, VERSION, Pinned, utc_now
from blizzard_py.connections.lakes.column_maximum import KnownFile
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import (
    located,
    place_of,
    storage_options,
    translate_errors,
)
from blizzard_py.connections.lakes.planning import Now, VersionedTable
from blizzard_py.connections.lakes.statistics import delta_files
from blizzard_py.connections.protocol import ReadBound, ReadSelection
from blizzard_py.reading import Access
from blizzard_py.slices.column_order import ColumnOrder

_AT_ONCE = 16


class DeltaConnection(VersionedTable):
    """One Delta table; see the module's docstring and `Connection`."""

    def __init__(self, access: Access, selection: ReadSelection, now: Now = utc_now) -> None:
        super().__init__(access, selection, now)
        self._uri = place_of(access, selection.table)
        self._options = delta_options(self._uri, storage_options(access), os.environ)

    @property
    def _what(self) -> str:
        return self._uri

    def _described(self, table: DeltaTable) -> str:
        return f"{self._uri} version {table.version()}"

    def _id(self, table: DeltaTable) -> str:
        return str(table.metadata().id)

    def _version_bound(self, table: DeltaTable) -> ReadBound:
        return ReadBound("version", {VERSION: table.version(), TABLE: self._id(table)})

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

    def _schema(self, table: DeltaTable) -> pa.Schema:
        """Return the table's columns. Raises `SourceError` for a type that Arrow does not have."""
        try:
            return pa.schema(table.schema().to_arrow())
        except (DeltaError, ValueError) as error:  # Arrow raises ValueError for this
            raise SourceError(
                f"{table.table_uri}: the table's columns cannot be read: {_error_text(error)}"
            ) from error

    def _there(self, table: DeltaTable) -> Sequence[str]:
        return [*super()._there(table), *self._feed_columns()]

    def _feed_columns(self) -> Sequence[str]:
        """Return the change feed's columns if they are requested."""
        declared = {each.name for each in self._selection.fields}
        return delta_log.CHANGE_COLUMNS if delta_log.CHANGE in declared else ()

    def _snapshot(self, table: DeltaTable, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return the files of the table's version. Raises `SourceError` for deletion vectors."""
        with self._translated_errors():
            features = table.protocol().reader_features or []
            if "deletionVectors" in features and any(True for _ in table.deletion_vectors()):
                raise delta_log.refuse_vector(self._uri, table.version())
            actions = pa.table(table.get_add_actions(flatten=True))
        return delta_files(self._uri, actions, orders)

    def _first(self, table: DeltaTable, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        """Return the whole snapshot, each row an insert."""
        extra: dict[str, Any] = {}
        if self._feed_columns():
            with self._translated_errors():
                stamp = int(table.history(1)[0].get("timestamp") or 0) / 1000
            extra = _feed_values("insert", table.version(), stamp)
        return [
            replace(each, file=replace(each.file, values={**each.file.values, **extra}))
            for each in self._snapshot(table, orders)
        ]

    def _added(self, table: DeltaTable, start: int | None, end: Pinned) -> list[PlannedFile]:
        """Return the files of the commits after ``start``, by the log; without it the snapshot."""
        del end  # the table was opened there
        if start is None:
            return [each.file for each in self._first(table, {})]
        return [self._changed(change, table) for change in self._changes(start, table)]

    def _changes(self, start: int, table: DeltaTable) -> list[delta_log.FileChange]:
        commits = self._commits(start + 1, table.version())
        if not self._feed_columns():
            return delta_log.appended(commits, self._uri)
        configuration = table.metadata().configuration
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

    def _changed(self, change: delta_log.FileChange, table: DeltaTable) -> PlannedFile:
        schema = self._schema(table)
        types = {name: schema.field(name).type for name in table.metadata().partition_columns}
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


def _error_text(error: BaseException) -> str:
    return redacted(" ".join(str(error).partition("\n   0: ")[0].split()))[:300]

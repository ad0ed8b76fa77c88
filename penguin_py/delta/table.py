"""The Delta table: opening it, following it, committing to it, and checking each commit.

A commit has four outcomes. *Landed*: delta-rs said so, or the log has our ``txn`` with our commit
id (a lost answer looks like an error). *Failed*: the log does not have it. *Unknown*: the log
cannot be read. Failed and unknown raise `CommitError`, and the caller reads its state from the log
again. *Refused*: it did not land, and neither the store nor another writer was the reason, so it
never will; that is `CommitRefused`.

On a local disk a commit is fsynced before anything that builds on it is written: delta-rs does not
do that.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from blizzard_core.delta_json import LOG, anchored, commit_path
from blizzard_core.errors import BlizzardError, CommitError, NotFound, StateError, Unavailable
from blizzard_core.log import get_logger
from blizzard_core.settings.base import HOUR
from blizzard_core.storage.opening import delta_options
from blizzard_core.storage.protocol import Storage
from blizzard_core.table.contract import (
    TableDeclaration,
    feature_objections,
    objections,
    replace_objections,
)
from blizzard_core.text import shortened
from penguin_py.delta.active_files import ActiveFiles, active_files, columns_without_bounds
from penguin_py.delta.log import LogReader
from penguin_py.delta.logged_bounds import LoggedBounds
from penguin_py.delta.messages import (
    clean_message,
    commit_remedy,
    interval_secs,
    is_failure,
    is_passing,
    is_unsupported,
)
from penguin_py.delta.writer import LogWriter, Marks, remove
from penguin_py.model import CommitConflict, CommitPlan, CommitRefused, OwnCommit, TableState
from penguin_py.settings import Table

_KEPT = "delta.deletedFileRetentionDuration"
_RESTORE = (
    " Where it is a checkpoint that is damaged or missing and the commits before it, or an older"
    f" checkpoint, are still there: delete {LOG}/_last_checkpoint and the damaged file. Else"
    " restore the log from a backup"
)
T = TypeVar("T")


class DeltaLog(LogReader):
    """One table's log, as of the last `refresh`; ``writer`` makes its entries. Not thread-safe."""

    def __init__(self, table: Table, storage: Storage, pool: Executor) -> None:
        super().__init__(storage, pool)
        self._table = table
        self._options = delta_options(table.uri, table.storage_options, os.environ)
        self.writer = LogWriter(table, self._options)
        self._handle: DeltaTable | None = None
        self._current: TableState | None = None
        # Tells the commit that `_current` is of from another one of the same version.
        self._stamp: bytes | None = None
        # How often another log was found in the place of the one that was read.
        self.replaced = 0
        # Bounds that delta-rs does not have, by column.
        self._logged: dict[str, LoggedBounds] = {}

    def refresh(self) -> TableState | None:
        """Read the table as it is now; None if there is none.

        Raises `StateError` for a log that cannot be understood, `StorageError`
        if the store does not answer.
        """
        self._forget_replaced()
        if self._handle is not None:
            try:
                self._handle.update_incremental()
                if self._current is not None and self._handle.version() == self._current.version:
                    return self._current  # asking for our txn would read the log again
                return self._became(self._state(self._handle))
            except BlizzardError:
                raise
            except BaseException as error:  # delta-rs raises any type; opening shows the cause
                if not is_failure(error):
                    raise
                self._handle = None
        if not self._exists():
            return None
        handle = self._guarded(self._open)
        state = None if handle is None else self._guarded(partial(self._state, handle))
        self._handle = handle
        return self._became(state)

    def _became(self, state: TableState | None) -> TableState | None:
        self._stamp = None if state is None else self.stamp(state.version)
        self._current = None if state is None else replace(state, anchor=anchored(self._stamp))
        return self._current

    def _forget_replaced(self) -> None:
        """Reopen the log if the one that was read is gone: another may be there."""
        if self._handle is None or self._current is None:
            return
        if self.stamp(self._current.version) != self._stamp:
            self._handle = None
            self.replaced += 1

    def unchanged(self) -> TableState | None:
        """Return the table of the last `refresh` if there is no later version.

        None if it has, or if there is nothing to compare with. One request, where
        `refresh` makes two and more; it does not notice a log that went back, so
        refresh before anything is written. Raises `StorageError`.
        """
        state = None if self._handle is None else self._current
        if state is None or self.has_commit(state.version + 1):
            return None
        return state

    def own_commit(
        self, txn_version: int, version: int, hint: int | None = None
    ) -> OwnCommit | None:
        """Find our commit of this ``txn``, at or before ``version``; see `last_own_commit`."""
        if not txn_version:
            return None
        return self.last_own_commit(self._table.app_id, txn_version, version, hint)

    def active_files(self) -> ActiveFiles:
        """Return the files as of the last `refresh`. Raises `StateError`, `StorageError`."""
        _handle, state = self._opened()
        found = self.active_table()
        lacks = columns_without_bounds(found, state.schema, state.partition_columns)
        for column in lacks:
            if column not in self._logged:
                self._logged[column] = LoggedBounds(self._storage, self.pool, column)
        logged = {column: self._logged[column].at(state.version) for column in lacks}
        return active_files(found, state.schema, state.partition_columns, logged)

    def active_table(self) -> pa.Table:
        """Return the files as delta-rs's flattened table, as of the last `refresh`."""
        handle, _state = self._opened()
        return self._guarded(lambda: pa.table(handle.get_add_actions(flatten=True)))

    def replace_objections(self) -> list[str]:
        """Return the objections to removing files from this table, as of the last `refresh`."""
        handle, _state = self._opened()
        return replace_objections(self._guarded(lambda: declared_by(handle)), self.has_vectors())

    def has_vectors(self) -> bool:
        """Return whether a file has a deletion vector, as of the last `refresh`."""
        handle, _state = self._opened()
        declared = self._guarded(lambda: declared_by(handle))
        return "deletionVectors" in declared.features and has_vectors(handle, self._table.uri)

    def describe(self, description: str) -> None:
        """Set the table's description, in an entry of its own. Raises `CommitError`."""
        self._chore(lambda handle: handle.alter.set_table_description(description))

    def _opened(self) -> tuple[DeltaTable, TableState]:
        if self._handle is None or self._current is None:
            raise CommitError(f"{self._table.uri}: there is no table yet")
        return self._handle, self._current

    def transaction(self, app_id: str) -> int:
        """Return the newest ``txn`` of an application, 0 if none, as of the last `refresh`."""
        handle, _state = self._opened()
        return self._guarded(lambda: handle.transaction_version(app_id)) or 0

    def remove(self, plan: CommitPlan, app_id: str, txn: int, now: float) -> None:
        """Remove the plan's files on the version of the last `refresh`, or not at all.

        The entry has nothing of ours but the ``txn``. Raises `CommitError`.
        """
        self._chore(lambda handle: remove(handle, plan, app_id, txn, now))

    def optimize(self) -> dict[str, Any]:
        """Compact files to ``delta.targetFileSize``; return metrics. Raises `CommitError`."""
        return self._chore(lambda handle: handle.optimize.compact())

    def vacuum(self, retention_secs: float | None) -> int:
        """Delete files removed long enough ago; return their number. Raises `CommitError`.

        The retention is the property as parsed here: delta-rs uses its default for an interval of
        several units. Never a full vacuum, which would delete files that wait for their commit.
        """
        _handle, state = self._opened()
        least = math.ceil(state.removal_retention_secs / HOUR)
        hours = least if retention_secs is None else math.ceil(retention_secs / HOUR)
        if hours < least:
            raise CommitError(
                f"{self._table.uri}: a vacuum of what was removed {hours} hours ago would delete"
                f" files that the table keeps for {least} ({_KEPT}); set retention to {least}h"
            )
        return len(self._chore(lambda handle: handle.vacuum(hours, dry_run=False, full=False)))

    def _chore(self, action: Callable[[DeltaTable], T]) -> T:
        if self._handle is None:
            raise CommitError(f"{self._table.uri}: there is no table yet")
        try:
            return action(self._handle)
        except BaseException as error:  # see `refresh`
            if not is_failure(error):
                raise
            self._handle = None
            raise CommitError(f"{self._table.uri}: {clean_message(error)}") from error

    def commit(self, plan: CommitPlan, marks: Marks, now: float) -> None:
        """Commit the plan's adds and its schema changes.

        Raises `CommitError` unless it landed for sure, `CommitConflict` if another came first.
        """
        before = -1 if self._current is None else self._current.version
        try:
            self.writer.write(self._handle, plan, marks, now)
        except BaseException as error:  # see `refresh`; only the log's content counts
            if not is_failure(error):
                raise
            if not self._landed(marks, error):
                raise self._failure(marks, error, before) from error
            get_logger(table=self._table.name).warning(
                "commit_landed_despite_error",
                txn_version=marks.txn_version,
                error=clean_message(error),
            )
        if self._table.is_local:
            self._make_durable(before)
        if self._table.advanced.delta_checkpoint_interval is not None:
            self._checkpoint(self._table.advanced.delta_checkpoint_interval, before)

    def landed_at(self, txn_version: int) -> int | None:
        """Return the version of our newest commit, which others may have come before; for reports.

        None if it cannot be read.
        """
        newest = -1 if self._current is None else self._current.version
        try:
            while self.has_commit(newest + 1):
                newest += 1
            own = self.own_commit(txn_version, newest)
        except BlizzardError:  # the commit stands
            return None
        return None if own is None else own.version

    def _failure(self, marks: Marks, error: BaseException, before: int) -> CommitError:
        """Return the error for a commit that is not in the log."""
        where = f"{self._table.uri}: commit {marks.txn_version} did not land: "
        if self._current is not None and self._current.txn_version >= marks.txn_version:
            return CommitConflict(
                f"{where}another Penguin made commit {marks.txn_version} of"
                f" {self._table.app_id}; going on from there"
            )
        message = clean_message(error)
        others = self._current is not None and self._current.version != before
        if others or (isinstance(error, CommitFailedError) and not is_unsupported(message)):
            return CommitConflict(where + message)
        if isinstance(error, OSError | BlizzardError) or is_passing(message):
            return CommitError(where + message)
        return CommitRefused(where + message + commit_remedy(message, self._table.uri))

    def _make_durable(self, before: int) -> None:
        """Fsync the commits after version ``before``, and the directory that names them."""
        version = before + 1
        folder = Path(self._table.uri, LOG)
        while (folder / commit_path(version).rpartition("/")[2]).exists():
            self._storage.sync(commit_path(version))
            version += 1
        for place in (folder, folder.parent) if before < 0 else (folder,):
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _checkpoint(self, interval: int, before: int) -> None:
        """Make a log checkpoint if the commits since version ``before`` reached the interval."""
        try:
            state = self.refresh()
            if state is not None and (state.version + 1) // interval > (before + 1) // interval:
                self._chore(lambda handle: handle.create_checkpoint())
        except BlizzardError as error:  # the commit stands; the next one tries again
            get_logger(table=self._table.name).warning("checkpoint_failed", error=str(error))

    def _landed(self, marks: Marks, error: BaseException) -> bool:
        self._handle = None
        try:
            state = self.refresh()
            if state is None or state.txn_version < marks.txn_version:
                return False
            own = self.own_commit(marks.txn_version, state.version)
        except Exception as unreadable:
            raise CommitError(
                f"{self._table.uri}: whether commit {marks.txn_version} landed is unknown:"
                f" {clean_message(error)}; reading the log again: {clean_message(unreadable)}"
            ) from error
        return own is not None and own.document.get("commit_id") == marks.commit_id

    def _exists(self) -> bool:
        try:
            return self.exists()
        except NotFound:
            # A missing bucket is an error; a local directory is made by its first writer.
            if not self._table.is_local:
                raise
            return False

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._table.uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _state(self, handle: DeltaTable) -> TableState:
        metadata = handle.metadata()
        found = objections(declared_by(handle))
        if found:
            raise StateError(f"{self._table.uri}: {'; '.join(found)}")
        return TableState(
            version=handle.version(),
            txn_version=handle.transaction_version(self._table.app_id) or 0,
            schema=pa.schema(handle.schema().to_arrow()),
            partition_columns=tuple(metadata.partition_columns),
            created=(metadata.created_time or 0) / 1000,
            removal_retention_secs=self._removal_retention_secs(metadata.configuration.get(_KEPT)),
            table_id=str(metadata.id),
            properties=dict(metadata.configuration),
            description=metadata.description or "",
        )

    def _removal_retention_secs(self, text: str | None) -> float:
        found = interval_secs(text)
        if found is None:
            raise StateError(
                f"{self._table.uri}: the table property {_KEPT} is {shortened(str(text))!r}, which"
                " is not understood: it says how long the log remembers removed files. Set it to"
                f" a plain interval (ALTER TABLE … SET TBLPROPERTIES ('{_KEPT}' = 'interval 7"
                " days'))"
            )
        return found

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except BlizzardError:
            raise
        except OSError as error:
            raise Unavailable(f"{self._table.uri}: {clean_message(error)}") from error
        except BaseException as error:
            # Not delta-rs's own alone: a type that Arrow has no room for is Arrow's, and there is
            # no list of what another library gives up by.
            if not is_failure(error):
                raise
            unsupported = feature_objections(self.features())
            raise StateError(
                f"{self._table.uri}: {'; '.join(unsupported)}"
                if unsupported
                else f"{self._table.uri}/{LOG}: the log cannot be read:"
                f" {clean_message(error)}.{_RESTORE}"
            ) from error


def declared_by(handle: DeltaTable) -> TableDeclaration:
    """Return the protocol and metadata of the table's version. Raises delta-rs's errors."""
    protocol, metadata = handle.protocol(), handle.metadata()
    return TableDeclaration(
        protocol.min_reader_version,
        protocol.min_writer_version,
        [*(protocol.reader_features or ()), *(protocol.writer_features or ())],
        metadata.configuration,
        json.loads(handle.schema().to_json())["fields"],
        metadata.partition_columns,
    )


def has_vectors(handle: DeltaTable, uri: str) -> bool:
    """Return whether a file of the table has a deletion vector. Raises `Unavailable`."""
    try:
        return any(True for _ in handle.deletion_vectors())
    except BaseException as error:  # delta-rs raises what it likes
        if not is_failure(error):
            raise
        message = clean_message(error)
        if is_passing(message):
            raise Unavailable(f"{uri}: {message}") from error
        return True  # an unreadable one counts as present

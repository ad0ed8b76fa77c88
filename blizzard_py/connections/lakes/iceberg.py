"""An Iceberg table as a source: the planning side. Tasks read with `lakes.window_rows`.

With the bound ``version`` (the default) the watermark is ``{"version": 17, "table": uuid}``. The
version is a snapshot's sequence number, which rises with every commit; its id does not. A window is
what later snapshots appended; the first window is the snapshot at the bound. With ``max`` the
watermark is that of the columns.

The connection's ``uri`` is the catalog's address and its options are the catalog's properties, by
pyiceberg's names (``type``, ``warehouse``, …). If ``uri`` is a location in a store and there are no
options, there is no catalog. ``table`` is then a directory below it with a ``version-hint.text``,
or a ``….metadata.json``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pyarrow as pa

from blizzard_core.errors import AccessDenied, BlizzardError, SourceError, Unavailable
from blizzard_core.extras import optional_module
from blizzard_core.redact import redacted
from blizzard_core.storage.opening import SCHEMES, scheme_of
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
from blizzard_py.connections.lakes.fields import check_there, columns_of, instants_in, undeclared
from blizzard_py.connections.lakes.file_plan import FilePlan, tasks_of, unit_plans
from blizzard_py.connections.lakes.iceberg_statistics import known_files
from blizzard_py.connections.lakes.locations import (
    StorageCache,
    format_options,
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

_HINT = "metadata/version-hint.text"


class IcebergConnection:
    """One Iceberg table; see the module's docstring and `Connection`."""

    def __init__(
        self, access: Access, selection: ReadSelection, now: Callable[[], dt.datetime] = utc_now
    ) -> None:
        self._template = selection
        selection = plain_selection("iceberg", selection)
        self._access = access
        self._selection = selection
        self._now = now
        self._stores = StorageCache(storage_options(access))
        self._highest: dict[str, ColumnMaximum] = {}

    @property
    def default_bound(self) -> BoundKind | None:
        """``version``, which misses nothing; ``max`` if columns are given."""
        return "max" if self._selection.columns else "version"

    def columns(self) -> Sequence[SourceColumn]:
        """Return the table's columns, as of its current schema."""
        return columns_of(_arrow(self._opened()))

    def bound(self, kind: BoundKind, settle_secs: float) -> ReadBound:
        """Return the current snapshot or the highest values in it; nothing without a snapshot."""
        table = self._opened()
        self._check_columns(table)
        current = table.current_snapshot()
        if kind == "version":
            if table.metadata.format_version < 2:
                raise SourceError(
                    f"{self._what}: is of format version 1, whose snapshots have no order; upgrade"
                    " it to format-version 2, or use bound: max with watermark columns"
                )
            if current is None:
                return ReadBound(kind)
            uuid = str(table.metadata.table_uuid)
            return ReadBound(kind, {VERSION: current.sequence_number, TABLE: uuid})
        orders = self._orders(table)
        if kind == "clock":
            return clock_bound(orders, self._now(), settle_secs, self._selection.walls)
        if kind != "max":
            raise refuse_bound("iceberg", kind, ("version", "max", "clock"))
        ids = _ids(table)
        for name in orders:
            maximum = self._highest.setdefault(name, ColumnMaximum(self._stores, name))
            maximum.ids = ids
        with translate_errors(self._what):
            return highest_bound(
                kind, self._snapshot(table, current, orders), orders, self._highest
            )

    def tasks(self, window: Window, split: WindowSplit) -> Sequence[ReadTask]:
        """Return the files of the window. Raises `SourceError` if they are no longer known."""
        table = self._opened()
        self._check_columns(table)
        end = pinned(window)
        rows: RowWindow | None = None
        if end is None:
            orders = self._orders(table)
            rows = RowWindow.of(window, self._selection.columns, self._selection.nulls)
            known = [
                each
                for each in self._snapshot(table, table.current_snapshot(), orders)
                if may_meet(rows, orders, each.ranges)
            ]
        else:
            start = check_same_table(window, end, str(table.metadata.table_uuid), self._what)
            known = self._appended(table, start, end.version)
        plan = self._plan(table, known, rows, self._selection.filter)
        return tasks_of(plan, split, self._what)

    def unit_tasks(self, units: Sequence[Values]) -> Sequence[ReadTask | SourceError]:
        """Return files of one snapshot that can have rows of each unit; a filter picks the rows."""
        table = self._opened()
        self._check_columns(table)
        check_instants((self._template.filter,), units, instants_in(_arrow(table)))
        orders = orders_for(self._selection.filter, _arrow(table))
        pruned = PrunableFiles(self._snapshot(table, table.current_snapshot(), orders), orders)
        plan = self._plan(table, (), None, self._template.filter)
        return unit_plans(plan, units, self._what, pruned.files)

    def _plan(
        self, table: Any, known: Iterable[KnownFile], rows: RowWindow | None, condition: str
    ) -> FilePlan:
        # All columns: the schema may declare more of them when a task is retried.
        ids = _ids(table)
        extra = {"ids": ids, "inner": _inner_names(table), "beside": _identity_columns(table)}
        files = [each.file for each in known]
        names = undeclared(self._selection, _arrow(table).names)
        return FilePlan(files, names, rows, condition, extra)

    def hold(self, access: Access) -> AbstractContextManager[Access]:
        """Return ``access`` unchanged: files are never changed."""
        return nullcontext(access)

    def warnings(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @property
    def _what(self) -> str:
        return f"Iceberg table {self._selection.table}"

    def _opened(self) -> Any:
        options = format_options(self._access)
        optional_module("pyiceberg", "iceberg")
        with _translate_errors(self._what):
            from blizzard_py.connections.lakes import iceberg_io  # noqa: PLC0415  # an extra

            properties = iceberg_io.properties(storage_options(self._access))
            if options or scheme_of(self._access.uri) not in SCHEMES:
                catalogs = optional_module("pyiceberg.catalog", "iceberg")
                if self._access.uri:
                    options = {"uri": self._access.uri, **options}
                name = options.pop("name", "default")
                catalog = catalogs.load_catalog(name, **{**options, **properties})
                return iceberg_io.table_of(catalog, self._selection.table, properties)
            return iceberg_io.table_at(self._metadata_place(), properties)

    def _metadata_place(self) -> str:
        """Return the newest metadata of a table without a catalog."""
        place = place_of(self._access, self._selection.table)
        if place.endswith(".metadata.json"):
            return place
        storage = self._stores.at(place)
        if storage.stat(_HINT) is None:
            raise SourceError(
                f"{place}: has no {_HINT}, so only its catalog knows which metadata are"
                " committed; set the catalog's type and uri in the connection's options, or name a"
                " ….metadata.json"
            )
        hint = storage.read(_HINT).decode("utf-8", "replace").strip()
        if not hint.isdecimal():
            return f"{place}/metadata/{hint.removesuffix('.metadata.json')}.metadata.json"
        version = int(hint)
        # The hint is written after the metadata, and may lag behind.
        while storage.stat(f"metadata/v{version + 1}.metadata.json") is not None:
            version += 1
        return f"{place}/metadata/v{version}.metadata.json"

    def _check_columns(self, table: Any) -> None:
        check_there(self._what, selected_columns(self._selection), _arrow(table).names)
        for column in table.schema().fields:
            if getattr(column, "initial_default", None) is not None:
                raise SourceError(
                    f"{self._what}: column {column.name} has a default for older files, which is"
                    " not read; rewrite those files"
                )

    def _orders(self, table: Any) -> dict[str, ColumnOrder]:
        schema = _arrow(table)
        return {
            name: column_order(name, schema.field(name).type) for name in self._selection.columns
        }

    def _snapshot(
        self, table: Any, snapshot: Any, orders: Mapping[str, ColumnOrder]
    ) -> list[KnownFile]:
        if snapshot is None:
            return []
        with _translate_errors(self._what):
            planned = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        return known_files(planned, table.schema(), orders, self._what)

    def _appended(self, table: Any, start: int | None, end: int) -> list[KnownFile]:
        """Return the files that the snapshots after ``start`` appended, up to and with ``end``."""
        chain = self._between(table, start, end)
        if start is None:
            return self._snapshot(table, chain[0], {})
        for snapshot in chain:
            operation = None if snapshot.summary is None else snapshot.summary.operation.value
            if operation not in {"append", "replace"}:
                raise SourceError(
                    f"{self._what}: snapshot {snapshot.snapshot_id} (version"
                    f" {snapshot.sequence_number}) is of operation {operation}: it deletes or"
                    " changes rows, and a window reads appended ones only. Use bound: max with a"
                    " column that changed rows raise; to skip this version: `blizzard checkpoint"
                    f" set --column {VERSION}={snapshot.sequence_number}`"
                )
        if not chain:
            return []
        with _translate_errors(self._what):
            scan = table.incremental_append_scan(
                from_snapshot_id_exclusive=chain[-1].parent_snapshot_id,
                to_snapshot_id_inclusive=chain[0].snapshot_id,
            )
            planned = list(scan.plan_files())
        return known_files(planned, table.schema(), {}, self._what)

    def _between(self, table: Any, start: int | None, end: int) -> list[Any]:
        """Return the snapshots from ``end`` back to the one after ``start``.

        Without ``start`` only ``end``. Raises `SourceError` if the history no longer has them.
        """
        snapshot = table.current_snapshot()
        chain = []
        while snapshot is not None and (start is None or snapshot.sequence_number > start):
            if snapshot.sequence_number <= end:
                chain.append(snapshot)
                if start is None:
                    break
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        reached = start is None or (snapshot is not None and snapshot.sequence_number == start)
        whole = not chain or chain[0].sequence_number == end
        if not reached or not whole or (start is None and not chain):
            raise SourceError(
                f"{self._what}: the versions {start} to {end} are not in its history: snapshots"
                " were expired before they were read, or the table was rolled back. To read it from"
                " the beginning: `blizzard checkpoint reset`, to skip them: `blizzard"
                f" checkpoint set --column {VERSION}={end}`; keep snapshots for longer than the"
                " daemon may be stopped"
            )
        return chain


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Turn the errors of pyiceberg into errors of a connection."""
    try:
        yield
    except BlizzardError:
        raise
    except Exception as error:  # pyiceberg, its catalogs and their clients have no common base
        name = type(error).__name__
        message = redacted(" ".join(str(error).split()))[:300]
        if name in {"UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError"}:
            raise AccessDenied(
                f"{what}: the catalog denies access; check its credentials"
            ) from None
        passing = name in {"ServiceUnavailableError", "ServerError", "OAuthError"}
        if passing or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)):
            raise Unavailable(f"{what}: {name}: {message}") from error
        raise SourceError(f"{what}: {name}: {message}") from error


def _arrow(table: Any) -> pa.Schema:
    schema: pa.Schema = table.schema().as_arrow()
    return schema


def _ids(table: Any) -> dict[str, int]:
    """Return each top-level column's number, by which files identify it."""
    return {column.name: column.field_id for column in table.schema().fields}


def _inner_names(table: Any) -> dict[str, str]:
    """Return the names of nested fields, by number (as text, for JSON)."""
    schema = table.schema()
    found = {}
    for path in schema.column_names:
        if "." in path:
            found[str(schema.find_field(path).field_id)] = path.rpartition(".")[2]
    return found


def _identity_columns(table: Any) -> list[str]:
    """Return columns that files imported from Hive may have only in their path."""
    return sorted(
        {
            table.schema().find_column_name(field.source_id) or ""
            for spec in table.specs().values()
            for field in spec.fields
            if str(field.transform) == "identity"
        }
    )

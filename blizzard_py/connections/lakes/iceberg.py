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

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from blizzard_core.errors import AccessDenied, BlizzardError, SourceError, Unavailable
from blizzard_core.extras import optional_module
from blizzard_core.redact import redacted
from blizzard_core.storage.opening import SCHEMES, scheme_of
from blizzard_py.connections.lakes.bounds import TABLE, VERSION, Pinned, utc_now
from blizzard_py.connections.lakes.column_maximum import KnownFile
from blizzard_py.connections.lakes.file_plan import PlannedFile
from blizzard_py.connections.lakes.locations import (
    format_options,
    place_of,
    storage_options,
    translate_errors,
)
from blizzard_py.connections.lakes.planning import Now, VersionedTable
from blizzard_py.connections.lakes.statistics import iceberg_files
from blizzard_py.connections.protocol import ReadBound, ReadSelection
from blizzard_py.reading import Access
from blizzard_py.slices.column_order import ColumnOrder

_HINT = "metadata/version-hint.text"


class IcebergConnection(VersionedTable):
    """One Iceberg table; see the module's docstring and `Connection`."""

    def __init__(self, access: Access, selection: ReadSelection, now: Now = utc_now) -> None:
        super().__init__(access, selection, now)
        self._access = access

    @property
    def _what(self) -> str:
        return f"Iceberg table {self._selection.table}"

    def _id(self, table: Any) -> str:
        return str(table.metadata.table_uuid)

    def _version_bound(self, table: Any) -> ReadBound:
        """Return the current snapshot; nothing without one."""
        if table.metadata.format_version < 2:
            raise SourceError(
                f"{self._what}: is of format version 1, whose snapshots have no order; upgrade"
                " it to format-version 2, or use bound: max with watermark columns"
            )
        current = table.current_snapshot()
        if current is None:
            return ReadBound("version")
        return ReadBound("version", {VERSION: current.sequence_number, TABLE: self._id(table)})

    def _highest(self, table: Any, orders: Mapping[str, ColumnOrder]) -> ReadBound:
        for maximum in self._maxima.values():
            maximum.ids = _ids(table)
        with translate_errors(self._what):
            return super()._highest(table, orders)

    def _extra(self, table: Any) -> Mapping[str, Any]:
        # All columns: the schema may declare more of them when a task is retried.
        inner, beside = _inner_names(table), _identity_columns(table)
        return {"ids": _ids(table), "inner": inner, "beside": beside}

    def _opened(self, version: int | None = None) -> Any:  # noqa: ARG002  # it has its history
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
        super()._check_columns(table)
        for column in table.schema().fields:
            if getattr(column, "initial_default", None) is not None:
                raise SourceError(
                    f"{self._what}: column {column.name} has a default for older files, which is"
                    " not read; rewrite those files"
                )

    def _schema(self, table: Any) -> pa.Schema:
        schema: pa.Schema = table.schema().as_arrow()
        return schema

    def _snapshot(self, table: Any, orders: Mapping[str, ColumnOrder]) -> list[KnownFile]:
        return self._files_of(table, table.current_snapshot(), orders)

    def _files_of(
        self, table: Any, snapshot: Any, orders: Mapping[str, ColumnOrder]
    ) -> list[KnownFile]:
        if snapshot is None:
            return []
        with _translate_errors(self._what):
            planned = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        return iceberg_files(planned, table.schema(), orders, self._what)

    def _added(self, table: Any, start: int | None, end: Pinned) -> list[PlannedFile]:
        """Return the files that the snapshots after ``start`` appended, up to and with ``end``."""
        return [each.file for each in self._appended(table, start, end.version)]

    def _appended(self, table: Any, start: int | None, end: int) -> list[KnownFile]:
        chain = self._between(table, start, end)
        if start is None:
            return self._files_of(table, chain[0], {})
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
        return iceberg_files(planned, table.schema(), {}, self._what)

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

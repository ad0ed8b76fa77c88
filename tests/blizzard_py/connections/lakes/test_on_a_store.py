"""Lakes in an object store: one block of options for deltalake, pyiceberg and our own storage."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from blizzard_core.errors import SourceError, StorageError
from blizzard_core.storage.opening import delta_options, open_storage
from blizzard_py.connections.lakes import parquet, scanned, window_rows
from blizzard_py.connections.lakes.delta import DeltaConnection
from blizzard_py.connections.lakes.iceberg import IcebergConnection
from blizzard_py.connections.protocol import ReadSelection, SourceConnection
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.iceberg_catalog import FolderCatalog
from tests.support.lake_reading import Poller
from tests.support.s3_server import S3Server
from tests.support.text_lakes import access_to

FIELDS = (FieldSpec("id", "int64", nullable=True),)


def ids(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["id"]) for row in found)


def test_a_delta_table(s3: S3Server) -> None:
    uri = f"s3://{s3.new_bucket()}/lake/a table"
    options = delta_options(uri, s3.options, {})
    access = Access("delta", uri, {"storage_options": s3.options})
    for columns in ((), ("id",)):
        source: Poller | None = None
        for number in (1, 2):
            table = pa.table({"id": [number, number], "p": ["a b/ü", "x=%20"]})
            write_deltalake(uri, table, mode="append", partition_by=["p"], storage_options=options)
            if source is None:
                selection = ReadSelection(columns=columns)
                connection = DeltaConnection(access, selection)
                kind: Any = "max" if columns else "version"
                source = Poller(_always(connection), window_rows.read, access, kind, columns)
                source.poll()
        assert set(ids(source.poll())) == {2}
        write_deltalake(uri, table.slice(0, 0), mode="overwrite", storage_options=options)


def _always(connection: SourceConnection) -> Any:
    return lambda: connection


def test_directories(s3: S3Server) -> None:
    place = f"s3://{s3.new_bucket()}"
    storage = open_storage(place, s3.options)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    contents = {
        "parquet": sink.getvalue().to_pybytes(),
        "csv": b"id\n1\n2\n",
        "json": b'{"id": 1}\n{"id": 2}\n',
    }
    modules: dict[str, Any] = {"parquet": parquet, "csv": scanned, "json": scanned}
    readers = {"parquet": window_rows.read, "csv": scanned.read, "json": scanned.read}
    for form, data in contents.items():
        storage.put_atomic(f"{form}/2026/05/a.{form}", data)
        access = access_to(form, place, storage_options=s3.options)
        selection = ReadSelection(
            table=f"{form}/{{year}}/{{month}}", fields=FIELDS, columns=("id",)
        )
        connection = modules[form].connect(access, selection)
        source = Poller(_always(connection), readers[form], access, "rows", ("id",), FIELDS)
        assert ids(source.poll()) == [1, 2]
        assert source.poll() == []
        empty = modules[form].connect(
            access, ReadSelection(table="none", fields=FIELDS, columns=("id",))
        )
        assert empty.bound("rows", 0).value == {}


def test_an_iceberg_table(s3: S3Server, tmp_path: Any) -> None:
    place = f"s3://{s3.new_bucket()}"
    storage = open_storage(place, s3.options)
    table = FolderCatalog("default", warehouse=str(tmp_path)).create_table(
        "db.t", pa.schema([("id", pa.int64())])
    )
    table.append(pa.table({"id": [1, 2]}))
    # Written here and moved there: every path in the metadata is changed on the way.
    local, remote = f"file://{tmp_path}", place
    for path in tmp_path.rglob("*"):
        if path.suffix == ".parquet":
            storage.put_atomic(str(path.relative_to(tmp_path)), path.read_bytes())
        elif path.name == table.metadata_location.rpartition("/")[2]:
            document = json.loads(path.read_text().replace(local, remote))
            document["snapshots"] = []
            document["current-snapshot-id"] = None
            document["refs"] = {}
            storage.put_atomic("t/metadata/v1.metadata.json", json.dumps(document).encode())
    storage.put_atomic("t/metadata/version-hint.text", b"1")
    access = Access("iceberg", place, {"storage_options": s3.options})
    connection = IcebergConnection(access, ReadSelection(table="t"))
    assert [column.name for column in connection.columns()] == ["id"]
    assert connection.bound("version", 0).value == {}


def test_secrets_are_in_no_error(s3: S3Server) -> None:
    options = {**s3.options, "AWS_SECRET_ACCESS_KEY": "very-secret"}
    access = Access("delta", "s3://no-such-bucket/t", {"storage_options": options})
    assert "very-secret" not in repr(access)
    for connection in (
        DeltaConnection(access, ReadSelection()),
        parquet.connect(access, ReadSelection(columns=("id",))),
    ):
        with pytest.raises((SourceError, StorageError)) as caught:
            connection.bound("max", 0)
        assert "very-secret" not in str(caught.value)

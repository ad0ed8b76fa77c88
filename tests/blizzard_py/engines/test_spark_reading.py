"""Jobs that read tables in Spark: rows in Parquet files, and errors as what they were raised."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from blizzard_core.errors import PipelineStopped, SourceError, Unavailable
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.connections.sqlite import SqliteConnection
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.failures import reading_error
from blizzard_py.job import (
    ErrorTolerance,
    FieldSpec,
    IngestJob,
    IngestSettings,
    JobFile,
    OutputLayout,
    Place,
    RowSchema,
)
from blizzard_py.reading import Access, Reading, ReadTask, Window
from tests.support.flat_settings import nested
from tests.support.mariadb_server import PASSWORD as MARIADB_PASSWORD
from tests.support.mariadb_server import MariadbServer
from tests.support.scanned_files import SCANNED, moment

FIELDS = (
    FieldSpec("id", "int64", nullable=True),
    FieldSpec("amount", "decimal", nullable=True, precision=12, scale=2),
)


SELECTION = ReadSelection(table="orders", fields=FIELDS, columns=("id",))


def named(tasks: Sequence[ReadTask]) -> dict[str, ReadTask]:
    return {f"000000000000#{task.name}": task for task in tasks}


def job(folder: Path, reading: Reading, *fields: FieldSpec) -> IngestJob:
    settings = IngestSettings(
        source=Place("shop:orders"),
        sink=Place(str(folder / "lake")),
        schema=RowSchema(fields or FIELDS),
        layout=OutputLayout("snappy", file_bytes=1 << 20),
        tolerance=ErrorTolerance(max_bad_fraction=0.5),
    )
    files = tuple(JobFile(name, 0) for name in reading.tasks)
    return IngestJob(settings, "staging", "p/s/b/1", files, 1.0, reading)


def rows_of(folder: Path, staged: list[str]) -> list[int]:
    tables = [pq.ParquetFile(folder / "lake" / path).read() for path in staged]
    return sorted(row["id"] for table in tables for row in table.to_pylist())


def test_tasks_read_by_a_connections_reader(spark_engine: SparkEngine, tmp_path: Path) -> None:
    base = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(base)) as shop, shop:
        shop.execute("CREATE TABLE orders (id INTEGER, amount TEXT)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(n, f"{n}.25") for n in range(50)])
        shop.execute("INSERT INTO orders VALUES (50, 'much')")
    access = Access("sqlite", str(base))
    with contextlib.closing(SqliteConnection(access, SELECTION)) as connection:
        tasks = named(connection.tasks(Window(up_to={"id": 50}), WindowSplit("id", 2)))
    result = spark_engine.ingest(job(tmp_path, Reading(access, tasks)))
    assert {file.outcome for file in result.files} == {"ingested"}
    assert [sum(f.rows for f in result.files), sum(f.bad_rows for f in result.files)] == [50, 1]
    assert result.tasks == len(tasks) == 2
    assert rows_of(tmp_path, [output.staged for output in result.outputs]) == list(range(50))
    assert len(result.letters) == 1
    gone = FieldSpec("gone", "string", nullable=True)
    with pytest.raises(SourceError, match="column 'gone' no longer exists"):
        spark_engine.ingest(job(tmp_path, Reading(access, tasks), *FIELDS, gone))
    nowhere = Access("sqlite", str(tmp_path / "not there.db"))
    with pytest.raises(Unavailable, match="does not exist"):
        spark_engine.ingest(job(tmp_path, Reading(nowhere, tasks)))


def polled(
    engine: SparkEngine,
    folder: Path,
    connection: dict[str, Any],
    source: dict[str, Any],
    fields: dict[str, str],
) -> list[dict[str, Any]]:
    """All rows that there are once the source, configured so, has been polled."""
    document = {
        "connections": {"shop": connection},
        "pipelines": {
            "orders": {
                "sources": {"erp": {"kind": "table", "connection": "shop", **source}},
                "sink": {"table_uri": str(folder / "lake")},
                "schema": {"fields": [{"name": n, "type": kind} for n, kind in fields.items()]},
            }
        },
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(nested(Config, document)))
    config = load_config(folder / "config.yaml", {})
    with contextlib.closing(
        source_pipeline(context_of(config, ("orders", "erp"), engine))
    ) as worker:
        while worker.cycle(threading.Event()):
            pass
    files = sorted((folder / "lake").glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def test_windows_of_mariadb_come_once_through_spark(
    spark_engine: SparkEngine, tmp_path: Path, mariadb: MariadbServer
) -> None:
    base = mariadb.new_database()
    mariadb.execute(
        "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, amount decimal(20,12),"
        " at timestamp(6) NULL, KEY (at))",
        "INSERT INTO orders SELECT 18446744073709551615 - seq, seq * 0.000000000001,"
        " '2026-05-04 07:00:00.25' + INTERVAL seq SECOND FROM seq_1_to_100",
        database=base,
    )
    where = {
        "driver": "mysql",
        "uri": f"mysql://reader@127.0.0.1:{mariadb.port}/{base}",
        "password": MARIADB_PASSWORD,
    }
    source = {
        "table": "orders",
        "watermark": {"columns": ["at"], "settle": 0},
        "split": {"by": "at", "tasks": 3},
    }
    fields = {"id": "decimal(20,0)", "amount": "decimal(20,12)", "at": "timestamp"}
    rows = polled(spark_engine, tmp_path, where, source, fields)
    assert len(rows) == 100
    first = min(rows, key=lambda row: row["at"])
    assert first == {
        "id": Decimal(18446744073709551614),
        "amount": Decimal("0.000000000001"),
        "at": dt.datetime(2026, 5, 4, 12, 0, 1, 250000, tzinfo=dt.UTC),  # written in UTC-5
    }
    mariadb.execute(
        "UPDATE orders SET amount = 7, at = now(6) WHERE id = 18446744073709551614",
        "INSERT INTO orders VALUES (1, -1.5, now(6))",
        database=base,
    )
    again = polled(spark_engine, tmp_path, where, source, fields)
    assert len(again) == len(polled(spark_engine, tmp_path, where, source, fields)) == 102
    changed = {row["amount"] for row in again if row["at"].date() > first["at"].date()}
    assert changed == {Decimal(7), Decimal("-1.5")}


def test_versions_of_a_delta_table_come_once_through_spark(
    spark_engine: SparkEngine, tmp_path: Path
) -> None:
    table = str(tmp_path / "in" / "events")

    def append(first: int, last: int) -> None:
        rows = pa.table({"n": range(first, last), "day": [f"d{n % 2}" for n in range(first, last)]})
        deltalake.write_deltalake(table, rows, mode="append", partition_by=["day"])

    def numbers() -> list[int]:
        where = {"driver": "delta", "uri": str(tmp_path / "in")}
        source = {"table": "events", "watermark": {}}
        fields = {"n": "int64", "day": "string"}
        rows = polled(spark_engine, tmp_path, where, source, fields)
        assert all(row["day"] == f"d{row['n'] % 2}" for row in rows)
        return sorted(row["n"] for row in rows)

    append(0, 10)
    append(10, 20)
    assert numbers() == list(range(20))
    append(20, 30)
    deltalake.DeltaTable(table).optimize.compact()
    append(30, 40)
    assert numbers() == list(range(40))
    deltalake.DeltaTable(table).delete("n = 3")
    with pytest.raises(SourceError, match="deletes or changes rows"):
        numbers()


@pytest.mark.parametrize("name", ["excel", "avro", "xml"])
def test_windows_of_scanned_files_come_once_through_spark(
    spark_engine: SparkEngine, tmp_path: Path, name: str
) -> None:
    form = SCANNED[name]
    where = {"driver": form.driver, "uri": str(tmp_path / "in")}
    source = {
        "table": "orders",
        "watermark": {"columns": ["at"], "backward": "1d", "reread": "new_only", "key": ["id"]},
        "filter": "id <> 3",
        **({"format": form.format} if form.format else {}),
    }
    fields = {"id": "int64", "at": "timestamp", "day": "date"}

    def row(number: int, secs: int) -> dict[str, Any]:
        return {"id": number, "at": moment(secs), "day": dt.date(2026, 5, 4)}

    form.write(tmp_path / "in" / "orders" / "a", [row(1, 10), row(2, 20), row(3, 20)])
    rows = polled(spark_engine, tmp_path, where, source, fields)
    assert sorted(rows, key=lambda each: each["id"]) == [row(1, 10), row(2, 20)]
    form.write(tmp_path / "in" / "orders" / "b", [row(4, 15), row(5, 30)])
    rows = polled(spark_engine, tmp_path, where, source, fields)
    assert sorted(each["id"] for each in rows) == [1, 2, 4, 5]


def trace(kind: str, message: str) -> Exception:
    return Exception(
        'Job aborted\nTraceback (most recent call last):\n  File "x", line 1\n    boom\n'
        f"{kind}: {message}\n\n\tat org.apache.spark"
    )


def test_task_error_is_raised_again_with_its_type() -> None:
    found = reading_error(trace("blizzard_core.errors.PipelineStopped", "39 of 39 are bad"))
    assert isinstance(found, PipelineStopped)
    assert str(found) == "39 of 39 are bad"
    assert reading_error(trace("ValueError", "odd")) is None
    assert reading_error(trace("blizzard_core.errors.FencedError", "odd")) is None
    assert reading_error(Exception("no trace")) is None

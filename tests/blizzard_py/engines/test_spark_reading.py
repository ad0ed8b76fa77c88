"""Jobs that read tables in Spark: rows in Parquet files, and errors as what they were raised."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import PipelineStopped, SourceError, Unavailable
from blizzard_py.connections.jdbc.connection import JdbcConnection
from blizzard_py.connections.protocol import Selection, Split
from blizzard_py.connections.sqlite.connection import SqliteConnection
from blizzard_py.engines.spark import SparkEngine
from blizzard_py.engines.spark.failures import error_of_reading
from blizzard_py.job import FieldSpec, IngestJob, IngestSettings, JobFile, Place
from blizzard_py.reading import Access, Reading, ReadTask, Window
from tests.support.postgresql_server import PASSWORD, PostgresqlServer, postgresql_server

JAR = Path("/usr/share/java/postgresql.jar")
FIELDS = (
    FieldSpec("id", "int64", nullable=True),
    FieldSpec("amount", "decimal", nullable=True, precision=12, scale=2),
)


SELECTION = Selection(table="orders", fields=FIELDS, columns=("id",))


def named(tasks: Sequence[ReadTask]) -> dict[str, ReadTask]:
    return {f"000000000000#{task.name}": task for task in tasks}


def job(folder: Path, reading: Reading, *fields: FieldSpec) -> IngestJob:
    settings = IngestSettings(
        source=Place("shop:orders"),
        sink=Place(str(folder / "lake")),
        fields=fields or FIELDS,
        compression="none",
        parquet_compression="snappy",
        file_bytes=1 << 20,
        max_bad_fraction=0.5,
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
        tasks = named(connection.tasks(Window(up_to={"id": 50}), Split("id", 2)))
    result = spark_engine.ingest(job(tmp_path, Reading(access, tasks)))
    assert {file.outcome for file in result.files} == {"ingested"}
    assert [sum(f.rows for f in result.files), sum(f.bad_rows for f in result.files)] == [50, 1]
    assert result.tasks == len(tasks) == 2
    assert rows_of(tmp_path, [output.staged for output in result.outputs]) == list(range(50))
    assert len(result.letters) == 1
    gone = FieldSpec("gone", "string", nullable=True)
    with pytest.raises(SourceError, match="no column 'gone' any more"):
        spark_engine.ingest(job(tmp_path, Reading(access, tasks), *FIELDS, gone))
    nowhere = Access("sqlite", str(tmp_path / "not there.db"))
    with pytest.raises(Unavailable, match="is not there"):
        spark_engine.ingest(job(tmp_path, Reading(nowhere, tasks)))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_server() as found:
        found.execute(
            "CREATE TABLE orders (id bigint, amount numeric(12,2))",
            "INSERT INTO orders SELECT g, g / 4.0 FROM generate_series(1, 100) g",
        )
        yield found


@pytest.mark.skipif(not JAR.exists(), reason="`make setup` installs the driver")
def test_tasks_read_by_spark_itself(
    spark_engine: SparkEngine, server: PostgresqlServer, tmp_path: Path
) -> None:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    options = {"user": "postgres", "password": PASSWORD, "driver": "org.postgresql.Driver"}
    access = Access("jdbc", url, options)
    connection = JdbcConnection(access, SELECTION, lambda text: spark_engine.ask(access, text))
    bound = connection.bound("max", 0)
    assert bound.value == {"id": 100}
    tasks = connection.tasks(Window(up_to=bound.value), Split("id", 3))
    assert len(tasks) > 1
    result = spark_engine.ingest(job(tmp_path, Reading(access, named(tasks))))
    assert sum(file.rows for file in result.files) == 100
    assert rows_of(tmp_path, [o.staged for o in result.outputs]) == list(range(1, 101))


def trace(kind: str, message: str) -> Exception:
    return Exception(
        'Job aborted\nTraceback (most recent call last):\n  File "x", line 1\n    boom\n'
        f"{kind}: {message}\n\n\tat org.apache.spark"
    )


def test_what_a_task_raised_is_raised_again_by_its_type() -> None:
    found = error_of_reading(trace("blizzard_core.errors.PipelineStopped", "39 of 39 are bad"))
    assert isinstance(found, PipelineStopped)
    assert str(found) == "39 of 39 are bad"
    assert error_of_reading(trace("ValueError", "odd")) is None
    assert error_of_reading(trace("blizzard_core.errors.FencedError", "odd")) is None
    assert error_of_reading(Exception("no trace")) is None

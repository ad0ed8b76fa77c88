"""Readers hold a batch and not the table, whatever there is to read."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.connections.sql.batches import MAX_BYTES, MAX_ROWS
from blizzard_py.engines.spark.masters import WORKER_ENVIRONMENT
from blizzard_py.reading import Access, Window
from tests.support.database_reading import batches
from tests.support.mariadb_server import MariadbServer
from tests.support.postgresql_server import PostgresqlServer

# Reads in a process of its own, as a worker does, and tells its peak in MB and the rows.
_WORKER = """
import json, sys
from blizzard_py.connections.drivers import reader_of
from blizzard_py.reading import Access
driver, uri, statement = json.loads(sys.stdin.read())
rows = 0
for batch in reader_of(driver)(Access(driver, uri), {"statement": statement}, ()):
    rows += len(batch)
# Not getrusage, which counts what the process was before it became this one.
(line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(line.split()[1]) // 1024, rows)
"""


def peak(driver: str, uri: str, statement: str) -> tuple[int, int]:
    import json  # noqa: PLC0415  # beside its only use

    done = subprocess.run(
        [sys.executable, "-c", _WORKER],
        input=json.dumps([driver, uri, statement]), capture_output=True, text=True, check=True,
        env={**os.environ, **WORKER_ENVIRONMENT},
    )  # fmt: skip
    megabytes, rows = done.stdout.split()
    return int(megabytes), int(rows)


@pytest.mark.promise("G-168")
@pytest.mark.parametrize("driver", ["postgresql", "mysql"])
def test_ten_times_the_rows_cost_no_more_memory(request: Any, driver: str) -> None:
    if driver == "mysql":
        server: MariadbServer | PostgresqlServer = request.getfixturevalue("mariadb")
        rows = "SELECT seq AS id, repeat('x', 200) AS v FROM seq_1_to_{count}"
        uri = server.uri("test")
    else:
        server = request.getfixturevalue("postgresql")
        rows = "SELECT g AS id, repeat('x', 200) AS v FROM generate_series(1, {count}) g"
        uri = server.uri()
    small, few = peak(driver, uri, rows.format(count=100_000))
    large, many = peak(driver, uri, rows.format(count=1_000_000))
    assert (few, many) == (100_000, 1_000_000)
    assert large < small + 60
    assert large < 350


def test_a_row_of_100_mb_is_read(postgresql: PostgresqlServer) -> None:
    query = (
        "SELECT g AS id, CASE WHEN g = 500 THEN repeat('x', 104857600) ELSE 'small' END AS v"
        " FROM generate_series(1, 1000) g"
    )
    access = Access("postgresql", postgresql.uri())
    connection = PostgresqlConnection(access, ReadSelection(query=query))
    found = batches(access, connection.tasks(Window(), WindowSplit()))
    connection.close()
    sizes = {row["id"]: len(row["v"]) for batch in found for row in batch.to_pylist()}
    assert (len(sizes), sizes[500], sizes[501]) == (1000, 104857600, 5)


def test_batches_are_of_bounded_rows_and_bytes(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri())
    for query in (
        "SELECT g AS id FROM generate_series(1, 500000) g",
        "SELECT g AS id, repeat('x', 20000) AS v FROM generate_series(1, 3000) g",
    ):
        connection = PostgresqlConnection(access, ReadSelection(query=query))
        for batch in batches(access, connection.tasks(Window(), WindowSplit())):
            assert batch.num_rows <= MAX_ROWS
            assert batch.nbytes <= 1.5 * MAX_BYTES
        connection.close()


def test_a_table_of_as_many_columns_as_postgresql_takes(postgresql: PostgresqlServer) -> None:
    database = postgresql.new_database()
    columns = ", ".join(f"c{n} int" for n in range(1600))
    postgresql.execute(
        f"CREATE TABLE wide ({columns})", "INSERT INTO wide (c0, c1599) VALUES (1, 2)",
        database=database,
    )  # fmt: skip
    access = Access("postgresql", postgresql.uri(database))
    connection = PostgresqlConnection(access, ReadSelection(table="wide"))
    (batch,) = batches(access, connection.tasks(Window(), WindowSplit()))
    connection.close()
    assert (batch.num_columns, batch.num_rows) == (1600, 1)


def test_extension_types_are_read_as_their_storage_type(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri())
    connection = PostgresqlConnection(
        access, ReadSelection(query="SELECT '{}'::json AS j, 1.5 AS n")
    )
    (batch,) = batches(access, connection.tasks(Window(), WindowSplit()))
    connection.close()
    assert [str(field.type) for field in batch.schema] == ["string", "string"]

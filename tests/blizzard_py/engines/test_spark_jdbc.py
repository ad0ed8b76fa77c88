"""Spark's JDBC source against PostgreSQL, with the driver of the distribution's package."""

from __future__ import annotations

import pytest

from blizzard_core.errors import AccessDenied, BlizzardError, ConfigError, SourceError, Unavailable
from blizzard_py.connections.jdbc import JdbcConnection, dialect_of
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.jdbc import frame, query, server_label
from blizzard_py.reading import Access
from tests.support.database_reading import next_window, window_above
from tests.support.own_process import free_port
from tests.support.postgresql_server import PASSWORD, PostgresqlServer


@pytest.fixture(scope="module")
def shop(postgresql: PostgresqlServer) -> str:
    """Return the URL of a database with orders."""
    base = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id int, at timestamptz, plain timestamp, price numeric(30,20))",
        "INSERT INTO orders SELECT g, '2024-01-01 00:00+00'::timestamptz + g * interval '1 s',"
        " '2024-01-01', g / 3.0 FROM generate_series(1, 1000) g",
        "INSERT INTO orders VALUES (0, NULL, '-infinity', 'NaN')",
        database=base,
    )
    return f"jdbc:postgresql://127.0.0.1:{postgresql.port}/{base}"


def access_to(shop: str, password: str = PASSWORD) -> Access:
    return Access(
        "jdbc",
        shop,
        {"user": "postgres", "password": password, "driver": "org.postgresql.Driver"},
    )


def test_windows_are_planned_and_read_through_spark(shop: str, spark_engine: SparkEngine) -> None:
    access = access_to(shop)
    session = spark_engine.session()
    connection = JdbcConnection(
        access, ReadSelection(table="orders", columns=("at",)), query(session, access)
    )
    assert [c.kind for c in connection.columns()] == ["number", "time", "time", "number"]
    assert connection.default_bound == "clock"
    window = next_window(connection)
    tasks = connection.tasks(window, WindowSplit("id", 3))
    found = frame(session, access, [task.spec for task in tasks])
    assert found.rdd.getNumPartitions() == 3
    rows = {row["id"]: row for row in found.toArrow().to_pylist()}
    assert len(rows) == 1001
    assert (rows[0]["plain"], rows[0]["price"]) == ("-infinity", "NaN")
    assert rows[1]["price"] == "0.33333333333333333333"
    assert rows[1]["at"] == "2024-01-01T00:00:01+00:00"
    assert connection.bound("max", 0).value["at"].isoformat() == "2024-01-01T00:16:40+00:00"
    assert connection.tasks(window_above(window), WindowSplit()) == ()


def test_query_errors_contain_no_secrets(shop: str, spark_engine: SparkEngine) -> None:
    session = spark_engine.session()
    gone = Access(
        "jdbc",
        f"jdbc:postgresql://127.0.0.1:{free_port()}/shop?user=u&password=hunter22",
        {"driver": "org.postgresql.Driver"},
    )
    wrong = access_to(shop, "hunter22")
    right = access_to(shop)
    cases: list[tuple[Access, str, type[BlizzardError]]] = [
        (gone, "SELECT 1 AS one", Unavailable),
        (wrong, "SELECT 1 AS one", AccessDenied),
        (right, "SELECT * FROM missing", SourceError),
        (right, "SELECT nextval('missing')", SourceError),
        (Access("jdbc", "jdbc:nothing://db/x"), "SELECT 1", SourceError),
    ]
    for access, statement, kind in cases:
        with pytest.raises(kind) as caught:
            query(session, access)(statement)
        assert "hunter22" not in repr(caught.value)
        assert caught.value.__context__ is None


def test_dialects_and_places() -> None:
    assert dialect_of("jdbc:mariadb://db/x") == "mysql"
    assert dialect_of("jdbc:h2:mem:x") == ""
    with pytest.raises(ConfigError):
        dialect_of("postgresql://db/x")
    for uri, told in (
        ("jdbc:oracle:thin:u/hunter22@//db:1521/svc", "jdbc:oracle://db:1521/svc"),
        ("jdbc:sqlserver://db:1433;password=hunter22", "jdbc:sqlserver://db:1433"),
        ("jdbc:mysql://u:hunter22@db/x?password=hunter22", "jdbc:mysql://db/x"),
    ):
        place = server_label(Access("jdbc", uri))
        assert place.name == told
        assert "hunter22" not in place.name

"""Errors of PostgreSQL follow the contract and contain no secret."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from blizzard_core.errors import (
    AccessDenied,
    BlizzardError,
    ConfigError,
    SourceError,
    Unavailable,
)
from blizzard_core.extras import is_installed, optional_module
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.postgresql.session import read
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.reading import Access, Window
from tests.support.database_reading import everything, next_window, rows_of
from tests.support.own_process import free_port
from tests.support.postgresql_server import PASSWORD, PostgresqlServer

ORDERS = ReadSelection(table="orders", columns=("id",))


@pytest.fixture
def database(postgresql: PostgresqlServer) -> str:
    name = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT g, repeat('x', 1000) FROM generate_series(1, 50000) g",
        database=name,
    )
    return name


@pytest.fixture
def orders(postgresql: PostgresqlServer, database: str) -> Iterator[PostgresqlConnection]:
    connection = PostgresqlConnection(Access("postgresql", postgresql.uri(database)), ORDERS)
    yield connection
    connection.close()


def failed(call: Callable[[], object], *secrets: str) -> BlizzardError:
    """The error that the call raises; nothing of it, its causes included, holds a secret."""
    with pytest.raises(BlizzardError) as caught:
        call()
    told = "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    for secret in secrets:
        assert secret not in told
        assert secret not in repr(caught.value)
    return caught.value


@pytest.mark.promise("G-166")
def test_a_wrong_password_waits_and_is_not_shown(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri(password="hunter22 @/:#?%41z"))
    connection = PostgresqlConnection(access, ORDERS)
    error = failed(connection.columns, "hunter22", "41z")
    assert isinstance(error, AccessDenied)
    assert "password authentication failed" in str(error)


def test_a_password_among_the_options_comes_before_the_uris(postgresql: PostgresqlServer) -> None:
    uri = f"postgresql://127.0.0.1:{postgresql.port}/postgres"
    options = {"user": "postgres", "password": PASSWORD}
    (batch,) = everything(
        Access("postgresql", uri, options), ReadSelection(query="SELECT 1 AS one")
    )
    assert batch.to_pylist() == [{"one": 1}]
    wrong = Access("postgresql", uri, {**options, "password": "it's\\no"})
    error = failed(lambda: everything(wrong, ReadSelection(query="SELECT 1 AS one")), "it's")
    assert isinstance(error, AccessDenied)


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_unreachable_host_raises_unavailable(host: str) -> None:
    access = Access("postgresql", f"postgresql://u:hunter22@{host}:{free_port()}/shop")
    error = failed(PostgresqlConnection(access, ORDERS).columns, "hunter22")
    assert isinstance(error, Unavailable)
    assert host in str(error)


@pytest.mark.parametrize(
    "uri", ["postgresql://u:hunter22/5@host:54x/shop", "postgresql://u:a@b:hunter22/x", "hunter22"]
)
def test_a_uri_that_is_none_is_refused_without_a_piece_of_it(uri: str) -> None:
    error = failed(lambda: PostgresqlConnection(Access("postgresql", uri), ORDERS), "hunter22")
    assert isinstance(error, ConfigError)


def test_rotated_password_applies_to_the_next_session(
    postgresql: PostgresqlServer, database: str
) -> None:
    role = f"role_{database}"
    postgresql.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'first-one'",
                       f"GRANT SELECT ON orders TO {role}", database=database)  # fmt: skip
    old = PostgresqlConnection(
        Access("postgresql", postgresql.uri(database, role, "first-one")), ORDERS
    )
    assert old.bound("max", 0).value == {"id": 50000}
    postgresql.execute(f"ALTER ROLE {role} PASSWORD 'second-one'")
    assert old.bound("max", 0).value == {"id": 50000}  # a session outlives it
    old.close()
    error = failed(lambda: old.bound("max", 0), "first-one")
    assert isinstance(error, AccessDenied)
    new = PostgresqlConnection(
        Access("postgresql", postgresql.uri(database, role, "second-one")), ORDERS
    )
    assert new.bound("max", 0).value == {"id": 50000}
    postgresql.execute(f"ALTER ROLE {role} PASSWORD 'first-one'")
    assert old.bound("max", 0).value == {"id": 50000}  # and who waited comes in again
    new.close()
    old.close()


def test_planning_goes_on_after_the_server_was_restarted(
    postgresql: PostgresqlServer, orders: PostgresqlConnection
) -> None:
    assert orders.bound("max", 0).value == {"id": 50000}
    postgresql.stop()
    try:
        for _ in range(2):  # the lost session, then none at all
            assert isinstance(failed(lambda: orders.bound("max", 0), PASSWORD), Unavailable)
    finally:
        postgresql.start()
    assert orders.bound("max", 0).value == {"id": 50000}


@pytest.mark.parametrize("held", [False, True])
def test_a_server_restart_during_a_task_is_a_temporary_failure(
    postgresql: PostgresqlServer, database: str, orders: PostgresqlConnection, *, held: bool
) -> None:
    access = Access("postgresql", postgresql.uri(database))
    (task,) = orders.tasks(Window(up_to={"id": 10**6}), WindowSplit())
    hold = orders.hold(access)
    reading = read(hold.__enter__() if held else access, task.spec, ())
    assert len(next(reading))
    postgresql.stop()
    try:
        error = failed(lambda: sum(len(batch) for batch in reading), PASSWORD)
    finally:
        postgresql.start()
    if held:
        hold.__exit__(None, None, None)  # its session is gone; that is no error
    assert isinstance(error, Unavailable)
    with orders.hold(access) as again:
        assert len(rows_of(again, [task])) == 50000


def test_closing_a_reader_stops_its_server_query(
    postgresql: PostgresqlServer, database: str, orders: PostgresqlConnection
) -> None:
    (task,) = orders.tasks(Window(up_to={"id": 10**6}), WindowSplit())
    reading = read(Access("postgresql", postgresql.uri(database)), task.spec, ())
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    open_now = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'blizzard reads'"
    for _ in range(100):
        if not postgresql.rows(open_now):
            break
    assert not postgresql.rows(f"{open_now} AND state = 'active'")


def test_statements_are_ended_when_they_take_too_long(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri(), {"statement_timeout_secs": 0.2})
    slow = ReadSelection(query="SELECT pg_sleep(30)::text AS slept FROM generate_series(1, 9)")
    error = failed(lambda: everything(access, slow))
    assert isinstance(error, Unavailable)
    assert "statement timeout" in str(error)


def test_sessions_are_named_and_read_only(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri())
    query = (
        "SELECT current_setting('application_name') AS name,"
        " current_setting('transaction_read_only') AS locked,"
        " current_setting('statement_timeout') AS ends"
    )
    (batch,) = everything(access, ReadSelection(query=query))
    assert batch.to_pylist() == [{"name": "blizzard reads", "locked": "on", "ends": "6h"}]
    writes = ReadSelection(query="SELECT nextval('numbers') AS n")
    postgresql.execute("CREATE SEQUENCE IF NOT EXISTS numbers")
    error = failed(lambda: everything(access, writes))
    assert isinstance(error, SourceError)
    assert "read-only" in str(error)


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM orders",
        "SELECT 1 AS one; DELETE FROM orders",
        "SELECT 1 AS one) t1; DELETE FROM orders; --",
        "WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone",
        "COPY orders TO PROGRAM 'true'",
        "SELECT id FROM orders FOR UPDATE",
        "SELECT 1 AS one;",
        "SELECT 'open",
        "SELECT 1 /* open",
    ],
)
def test_a_query_that_is_more_than_one_question_is_refused(
    postgresql: PostgresqlServer, database: str, query: str
) -> None:
    access = Access("postgresql", postgresql.uri(database))
    error = failed(lambda: everything(access, ReadSelection(query=query)), PASSWORD)
    assert isinstance(error, SourceError)
    assert postgresql.rows("SELECT count(*) FROM orders", database) == [(50000,)]


def test_a_trailing_comment_in_query_and_filter_is_harmless(
    postgresql: PostgresqlServer, database: str
) -> None:
    access = Access("postgresql", postgresql.uri(database))
    selection = ReadSelection(
        query="SELECT id FROM orders -- all", filter="id < 3 OR id = 5 -- few", columns=("id",)
    )
    connection = PostgresqlConnection(access, selection)
    window = next_window(connection, {"id": 1})
    assert {row["id"] for row in rows_of(access, connection.tasks(window, WindowSplit()))} == {
        1,
        2,
        5,
    }
    connection.close()


def test_a_missing_column_names_those_there_are(
    postgresql: PostgresqlServer, database: str
) -> None:
    access = Access("postgresql", postgresql.uri(database))
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=("changed",)))
    error = failed(lambda: connection.bound("max", 0))
    assert isinstance(error, SourceError)
    assert "no column 'changed'; there are: id, note" in str(error)
    connection.close()


def test_a_column_that_disappears_or_changes_its_type_stops(
    postgresql: PostgresqlServer, database: str, orders: PostgresqlConnection
) -> None:
    window = next_window(orders, {"id": 10})
    assert orders.tasks(window, WindowSplit())
    postgresql.execute("ALTER TABLE orders ALTER id TYPE text", database=database)
    error = failed(lambda: orders.tasks(window, WindowSplit()))
    assert isinstance(error, SourceError)
    assert "column id is text now, and the stored watermark is a number" in str(error)
    assert "checkpoint set" in str(error)
    postgresql.execute("ALTER TABLE orders RENAME id TO number", database=database)
    error = failed(lambda: orders.tasks(window, WindowSplit()))
    assert "no column 'id'; there are: number, note" in str(error)


def test_a_column_without_an_order_is_refused(postgresql: PostgresqlServer, database: str) -> None:
    postgresql.execute("ALTER TABLE orders ADD extra json", database=database)
    access = Access("postgresql", postgresql.uri(database))
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=("extra",)))
    error = failed(lambda: connection.default_bound)
    assert "column extra is json, which has no order to read by; there are: id, note" in str(error)
    connection.close()


def test_no_index_is_a_warning_with_its_cost(
    postgresql: PostgresqlServer, database: str, orders: PostgresqlConnection
) -> None:
    assert orders.warnings() == []
    access = Access("postgresql", postgresql.uri(database))
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=("note",)))
    (warning,) = connection.warnings()
    assert "no index gives the order of note" in warning
    assert "EXPLAIN: " in warning
    connection.close()


def test_a_value_that_does_not_convert_is_not_shown(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri())
    query = "SELECT v::int AS n FROM (VALUES ('1'), ('card 4111')) x(v)"
    error = failed(lambda: everything(access, ReadSelection(query=query)), "4111")
    assert isinstance(error, SourceError)
    assert "invalid input syntax for type integer" in str(error)


def test_denied_table_and_missing_table_raise_different_errors(
    postgresql: PostgresqlServer, database: str
) -> None:
    role = f"role_{database}"
    postgresql.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'first-one'", database=database)
    access = Access("postgresql", postgresql.uri(database, role, "first-one"))
    connection = PostgresqlConnection(access, ORDERS)
    assert isinstance(failed(lambda: connection.bound("max", 0)), AccessDenied)
    missing = PostgresqlConnection(access, ReadSelection(table="public.missing"))
    error = failed(missing.columns)
    assert isinstance(error, SourceError)
    assert 'relation "public.missing" does not exist' in str(error)
    bad = failed(lambda: PostgresqlConnection(access, ReadSelection(table="orders; DROP")))
    assert "not a table's name" in str(bad)
    connection.close()
    missing.close()


def test_a_missing_driver_is_named_with_its_command() -> None:
    error = failed(lambda: optional_module("adbc_driver_nothing.dbapi", "postgresql"))
    assert isinstance(error, ConfigError)
    assert "pip install 'blizzard-penguin[postgresql]'" in str(error)
    assert not is_installed("adbc_driver_nothing")

"""PostgreSQL's windows: their ends, their division, and that every version is read once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blizzard_core.errors import SourceError, Unavailable
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ReadBound, ReadSelection, WindowSplit
from blizzard_py.connections.sql.adbc import AdbcSession
from blizzard_py.reading import Access
from tests.support.database_reading import next_window, rows_of
from tests.support.postgresql_server import PASSWORD, PostgresqlServer, standby_of

ORDERS = ReadSelection(table="orders", columns=("updated_at",))


@pytest.fixture
def access(postgresql: PostgresqlServer) -> Access:
    database = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, updated_at timestamptz DEFAULT now(),"
        " day date, second timestamptz(0), plain timestamp, note text)",
        "CREATE INDEX ON orders (updated_at)",
        "INSERT INTO orders SELECT g, '2024-01-01'::timestamptz + g * interval '1 second',"
        " '2024-01-01', '2024-01-01', '2024-01-01', 'n' || g FROM generate_series(1, 1000) g",
        database=database,
    )
    return Access("postgresql", postgresql.uri(database))


@pytest.fixture
def orders(access: Access) -> Iterator[PostgresqlConnection]:
    connection = PostgresqlConnection(access, ORDERS)
    yield connection
    connection.close()


def run(server: PostgresqlServer, access: Access, *statements: str) -> None:
    server.execute(*statements, database=access.uri.rpartition("/")[2])


def writer(server: PostgresqlServer, access: Access) -> Any:
    return server.connect(access.uri.rpartition("/")[2])


@pytest.mark.promise("G-131")
def test_default_bound_ends_below_oldest_open_transaction(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    assert orders.default_bound == "settled"
    with writer(postgresql, access) as late, late.cursor() as cursor:
        cursor.execute("BEGIN")  # idle: it has done nothing yet, and may still write
        cursor.execute("SELECT now(), pg_backend_pid()")
        began, pid = cursor.fetchone()
        run(postgresql, access, "INSERT INTO orders VALUES (2001)")
        bound = orders.bound("settled", 0)
        assert bound.kind == "settled"
        assert bound.value["updated_at"] == began - timedelta(microseconds=1)
        assert bound.held_by.startswith(f"pid {pid}, transaction since {began:%Y-%m-%dT%H:%M:%S}")
        window = next_window(orders)
        first = rows_of(access, orders.tasks(window, WindowSplit()))
        assert len(first) == 1000
        cursor.execute("INSERT INTO orders VALUES (2000)")
        cursor.execute("COMMIT")
    again = next_window(orders, dict(window.up_to))
    assert {row["id"] for row in rows_of(access, orders.tasks(again, WindowSplit()))} == {
        2000,
        2001,
    }
    assert orders.bound("settled", 0).held_by is None


@pytest.mark.promise("G-131")
def test_a_prepared_transaction_holds_the_bound_from_its_start(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    assert orders.bound("settled", 0).value  # before it begins
    with writer(postgresql, access) as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO orders VALUES (3000)")
        cursor.execute("SELECT now()")
        (began,) = cursor.fetchone()
        run(postgresql, access, "INSERT INTO orders VALUES (3001)")
        cursor.execute("PREPARE TRANSACTION 'two phases'")
    try:
        unknown = PostgresqlConnection(access, ORDERS)
        assert unknown.bound("settled", 0).value == {}  # it may have begun at any time
        unknown.close()
        bound = orders.bound("settled", 0)
        assert "prepared transaction 'two phases'" in bound.held_by
        assert bound.value["updated_at"] < began
        assert orders.bound("settled", 0).value == bound.value
        window = next_window(orders)
        first = rows_of(access, orders.tasks(window, WindowSplit()))
    finally:
        run(postgresql, access, "COMMIT PREPARED 'two phases'")
    again = next_window(orders, dict(window.up_to))
    read = first + rows_of(access, orders.tasks(again, WindowSplit()))
    assert sorted(row["id"] for row in read if row["id"] >= 3000) == [3000, 3001]


@pytest.mark.promise("G-131")
def test_transactions_of_one_message_are_read_once(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    database = access.uri.rpartition("/")[2]
    run(postgresql, access, "TRUNCATE orders")
    message = "".join(f"BEGIN; INSERT INTO orders VALUES ({n}); COMMIT; " for n in range(10_000))
    sent = threading.Thread(target=postgresql.send, args=(message, database))
    sent.start()
    read: list[int] = []
    watermark: dict[str, Any] = {}
    going = True
    while going:
        going = sent.is_alive()
        window = next_window(orders, watermark)
        tasks = orders.tasks(window, WindowSplit()) if window else ()
        if window and tasks:
            read += [row["id"] for row in rows_of(access, tasks)]
            watermark = dict(window.up_to)
    assert sorted(read) == list(range(10_000))


@pytest.mark.promise("G-131")
def test_replicated_transaction_holds_the_bound_until_applied(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    origin, database = postgresql.new_database(), access.uri.rpartition("/")[2]
    slot = f"s_{database}"
    postgresql.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE orders",
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')", database=origin,
    )  # fmt: skip
    secret = PASSWORD.replace("'", "''")
    run(postgresql, access,
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END'",
        "CREATE TRIGGER w BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION waits()",
        "ALTER TABLE orders ENABLE REPLICA TRIGGER w",
        f"CREATE SUBSCRIPTION {slot} CONNECTION 'host=127.0.0.1 port={postgresql.port}"
        f" user=postgres password=''{secret}'' dbname={origin}' PUBLICATION p"
        f" WITH (create_slot = false, slot_name = '{slot}', copy_data = false)")  # fmt: skip
    try:
        assert any("a subscription writes this table" in w for w in orders.warnings())
        with writer(postgresql, access) as holder, holder.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(7)")
            postgresql.execute("INSERT INTO orders VALUES (4000)", database=origin)
            deadline = time.monotonic() + 60
            while not (held := orders.bound("settled", 0)).held_by:
                assert time.monotonic() < deadline
            run(postgresql, access, "INSERT INTO orders VALUES (4001)")
            window = next_window(orders)
            assert window.up_to == held.value
            cursor.execute("SELECT pg_advisory_unlock(7)")
        rows = "SELECT updated_at FROM orders WHERE id = 4000"
        while not (found := postgresql.rows(rows, database)):
            assert time.monotonic() < deadline
        assert found[0][0] > window.up_to["updated_at"]
    finally:
        run(postgresql, access, f"DROP SUBSCRIPTION {slot}")


@pytest.mark.promise("G-131")
def test_bound_falls_back_to_clock_when_tracking_is_off(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    with writer(postgresql, access) as hidden, hidden.cursor() as cursor:
        cursor.execute("SET track_activities = off")
        bound = orders.bound("settled", 60)
    assert (bound.kind, "track_activities" in bound.warnings[0]) == ("clock", True)


@pytest.mark.promise("G-131")
def test_a_foreign_tables_transactions_are_not_seen_here(
    postgresql: PostgresqlServer, access: Access
) -> None:
    run(postgresql, access, "CREATE EXTENSION file_fdw",
        "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw",
        "CREATE FOREIGN TABLE far (id int, updated_at timestamptz) SERVER files"
        " OPTIONS (filename '/dev/null')")  # fmt: skip
    far = PostgresqlConnection(access, ReadSelection(table="far", columns=("updated_at",)))
    bound = far.bound("settled", 60)
    assert (bound.kind, "foreign table" in bound.warnings[0]) == ("clock", True)
    far.close()


def test_other_databases_and_own_sessions_hold_nothing_back(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    with postgresql.connect() as elsewhere, elsewhere.cursor() as cursor:
        cursor.execute("BEGIN")
        with orders.hold(access) as held:
            assert held.session
            assert orders.bound("settled", 0).held_by is None


@pytest.mark.promise("G-131")
def test_bound_falls_back_to_clock_without_stats_privilege(
    postgresql: PostgresqlServer, access: Access
) -> None:
    secret = PASSWORD.replace("'", "''")
    database = access.uri.rpartition("/")[2]
    role = f"role_{database}"
    run(postgresql, access, f"CREATE ROLE {role} LOGIN PASSWORD '{secret}'",
        f"GRANT SELECT ON orders TO {role}")  # fmt: skip
    connection = PostgresqlConnection(Access("postgresql", postgresql.uri(database, role)), ORDERS)
    before = datetime.now(UTC)
    bound = connection.bound("settled", 60)
    assert (bound.kind, bound.held_by) == ("clock", None)
    assert "pg_read_all_stats" in bound.warnings[0]
    assert abs(before - timedelta(seconds=60) - bound.value["updated_at"]) < timedelta(seconds=30)
    run(postgresql, access, f"GRANT pg_read_all_stats TO {role}")
    assert connection.bound("settled", 60).kind == "settled"
    connection.close()


@pytest.mark.parametrize("column", ["updated_at", "plain", "second", "day"])
def test_bounds_of_a_clock_end_with_the_last_full_tick(access: Access, column: str) -> None:
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=(column,)))
    value = connection.bound("clock", 0).value[column]
    connection.close()
    now = datetime.now(UTC)
    if column == "day":
        assert value in {now.date() - timedelta(days=1), now.date() - timedelta(days=2)}
        return
    assert (value.tzinfo is None) == (column == "plain")
    assert now - value.replace(tzinfo=UTC) < timedelta(seconds=30)
    if column == "second":
        assert value.microsecond == 0
        assert now - value >= timedelta(seconds=1)


def test_max_is_the_highest_value_and_nothing_for_an_empty_table(
    postgresql: PostgresqlServer, access: Access
) -> None:
    both = PostgresqlConnection(access, ReadSelection(table="orders", columns=("id", "note")))
    assert both.default_bound == "max"
    assert both.bound("max", 0).value == {"id": 1000, "note": "n999"}
    run(postgresql, access, "TRUNCATE orders")
    assert both.bound("max", 0) == ReadBound("max")
    both.close()


def test_text_that_an_extension_brings_is_a_watermark(
    postgresql: PostgresqlServer, access: Access
) -> None:
    run(postgresql, access, "CREATE EXTENSION citext", "CREATE TABLE named (code citext)",
        "INSERT INTO named VALUES ('a'), ('B')")  # fmt: skip
    connection = PostgresqlConnection(access, ReadSelection(table="named", columns=("code",)))
    assert connection.bound("max", 0).value == {"code": "B"}
    connection.close()


def test_an_infinite_watermark_is_refused(postgresql: PostgresqlServer, access: Access) -> None:
    run(postgresql, access, "INSERT INTO orders VALUES (0, 'infinity')")
    connection = PostgresqlConnection(access, ORDERS)
    with pytest.raises(SourceError, match="holds infinity, above which nothing"):
        connection.bound("max", 0)
    connection.close()


@pytest.mark.promise("G-137")
@pytest.mark.parametrize(
    ("split", "count"),
    [(WindowSplit(), 1), (WindowSplit("", 3), 3), (WindowSplit("id", 4), 4),
     (WindowSplit("updated_at", 5), 5), (WindowSplit("plain", 4), 1)],
)  # fmt: skip
def test_tasks_of_one_snapshot_read_every_row_once(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection, split: WindowSplit,
    count: int,
) -> None:  # fmt: skip
    run(postgresql, access, "INSERT INTO orders (id, updated_at) VALUES (5000, NULL)")
    window = next_window(orders)
    tasks = orders.tasks(window, split)
    assert len(tasks) == count
    assert [task.name for task in tasks] == [str(n) for n in range(count)]
    with orders.hold(access) as held:
        # What changes now is in none of them, wherever the row goes to.
        run(postgresql, access, "UPDATE orders SET note = 'moved', id = id + 10000",
            "DELETE FROM orders WHERE id > 10990")  # fmt: skip
        rows = rows_of(held, tasks)
    assert sorted(row["id"] for row in rows) == [*range(1, 1001), 5000]
    assert "moved" not in {row["note"] for row in rows}


def test_pages_are_cut_for_first_reads_of_plain_tables_only(
    postgresql: PostgresqlServer, access: Access, orders: PostgresqlConnection
) -> None:
    window = next_window(orders)
    assert all("ctid" in task.where for task in orders.tasks(window, WindowSplit("", 3)))
    after = next_window(orders, {"updated_at": datetime(2024, 1, 1, tzinfo=UTC)})
    later = orders.tasks(after, WindowSplit("", 3))
    assert len(later) == 3
    assert not any("ctid" in task.where for task in later)
    run(postgresql, access, "CREATE VIEW seen AS SELECT * FROM orders")
    view = PostgresqlConnection(access, ReadSelection(table="seen", columns=("updated_at",)))
    assert not any("ctid" in task.where for task in view.tasks(window, WindowSplit("", 3)))
    assert any("is a view" in warning for warning in view.warnings())
    view.close()


def test_warnings_cover_materialized_views_and_date_columns(
    postgresql: PostgresqlServer, access: Access
) -> None:
    run(postgresql, access, "CREATE MATERIALIZED VIEW seen AS SELECT day, updated_at FROM orders")
    connection = PostgresqlConnection(access, ReadSelection(table="seen", columns=("day",)))
    told = list(connection.warnings())
    connection.close()
    assert any("a refresh adds rows with earlier times" in warning for warning in told)
    assert any("day is a date, which has no zone" in warning for warning in told)


@pytest.mark.promise("G-137")
def test_a_snapshot_that_died_fails_for_now(access: Access, orders: PostgresqlConnection) -> None:
    window = next_window(orders)
    tasks = orders.tasks(window, WindowSplit())
    with orders.hold(access) as held:
        assert len(rows_of(held, tasks)) == 1000
    with pytest.raises(Unavailable):
        rows_of(held, tasks)


@pytest.mark.promise("G-137")
@pytest.mark.parametrize("table", ["orders", "seen"])
def test_a_table_rewritten_before_the_read_is_not_read_as_empty(
    postgresql: PostgresqlServer, access: Access, table: str
) -> None:
    run(postgresql, access, "CREATE VIEW seen AS SELECT id, updated_at FROM orders",
        "CREATE TABLE other (id int)")  # fmt: skip
    connection = PostgresqlConnection(access, ReadSelection(table=table, columns=("updated_at",)))
    window = next_window(connection)
    tasks = connection.tasks(window, WindowSplit("id", 2))
    with connection.hold(access) as held:
        run(postgresql, access, "ALTER TABLE orders ALTER note TYPE varchar USING note || 'x'",
            "ALTER TABLE orders ALTER second TYPE timestamptz(1)", "TRUNCATE other")  # fmt: skip
        with pytest.raises(Unavailable, match="orders was rewritten during the read"):
            rows_of(held, tasks)
    with connection.hold(access) as held:
        run(postgresql, access, "TRUNCATE other")  # what is not read may change
        assert len(rows_of(held, tasks)) == 1000
    connection.close()


@pytest.mark.promise("G-167")
def test_a_poll_without_rows_costs_two_statements(
    postgresql: PostgresqlServer,
    access: Access,
    orders: PostgresqlConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = next_window(orders)
    orders.tasks(window, WindowSplit())
    asked: list[str] = []
    ask = AdbcSession.ask

    def noted(self: AdbcSession, statement: str) -> Any:
        asked.append(statement)
        return ask(self, statement)

    monkeypatch.setattr(AdbcSession, "ask", noted)
    again = next_window(orders, dict(window.up_to))
    assert orders.tasks(again, WindowSplit()) == ()
    assert len(asked) == 2
    run(postgresql, access, "SELECT 1")


@pytest.mark.promise("G-130")
def test_rows_of_two_columns_are_read_once_nulls_first(
    postgresql: PostgresqlServer, access: Access
) -> None:
    run(postgresql, access, "TRUNCATE orders",
        "INSERT INTO orders (id, updated_at, plain) VALUES (1, '2024-01-01', NULL),"
        " (2, NULL, '2024-01-02'), (3, NULL, NULL), (4, '2024-01-01', '2999-01-01')")  # fmt: skip
    both = PostgresqlConnection(
        access, ReadSelection(table="orders", columns=("updated_at", "plain"))
    )
    window = next_window(both)
    # The fourth is beyond the window in one column: it is read when that comes.
    assert {r["id"] for r in rows_of(access, both.tasks(window, WindowSplit()))} == {1, 2, 3}
    both.close()


def test_nulls_that_must_not_be_stop(postgresql: PostgresqlServer, access: Access) -> None:
    strict = PostgresqlConnection(
        access, ReadSelection(table="orders", columns=("updated_at",), nulls="fail")
    )
    window = next_window(strict)
    assert strict.tasks(window, WindowSplit())
    run(postgresql, access, "INSERT INTO orders (id, updated_at) VALUES (9000, NULL)")
    with pytest.raises(SourceError, match="no value in updated_at"):
        strict.tasks(window, WindowSplit())
    strict.close()


def test_a_column_with_capitals_is_that_column(
    postgresql: PostgresqlServer, access: Access
) -> None:
    run(postgresql, access, 'CREATE TABLE mixed ("updatedAt" timestamptz, "a ""b" int)',
        "INSERT INTO mixed VALUES ('2024-01-01', 1)")  # fmt: skip
    mixed = PostgresqlConnection(access, ReadSelection(table="mixed", columns=("updatedAt",)))
    window = next_window(mixed)
    assert rows_of(access, mixed.tasks(window, WindowSplit()))[0]['a "b'] == 1
    mixed.close()


@pytest.mark.promise("G-133")
def test_a_standby_ends_its_windows_by_clock_and_replay_lag(
    postgresql: PostgresqlServer, access: Access
) -> None:
    database = access.uri.rpartition("/")[2]
    with standby_of(postgresql) as standby:
        replica = Access("postgresql", standby.uri(database))
        connection = PostgresqlConnection(replica, ORDERS)
        deadline = time.monotonic() + 60
        while not (bound := connection.bound("settled", 60)).value:  # nothing has come yet
            assert time.monotonic() < deadline
        assert bound.kind == "clock"
        assert "standby" in bound.warnings[0]
        caught_up = datetime.now(UTC) - bound.value["updated_at"]
        assert timedelta(seconds=60) <= caught_up < timedelta(seconds=90)
        run(postgresql, access, "INSERT INTO orders VALUES (7776)")
        # Until that is replayed: the lag is told from it.
        while not standby.rows("SELECT 1 WHERE pg_last_xact_replay_timestamp() IS NOT NULL"):
            assert time.monotonic() < deadline
        standby.execute("SELECT pg_wal_replay_pause()")
        run(postgresql, access, "INSERT INTO orders VALUES (7777)")
        # Until the row has arrived, which it is not read before.
        while (behind := connection.bound("settled", 60)).held_by is None:
            assert time.monotonic() < deadline
        assert "replay is" in behind.held_by
        with connection.hold(replica) as held:
            assert held.session
        connection.close()

"""PostgreSQL by connectorx, where ADBC's driver is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from blizzard_core.errors import SourceError, Unavailable
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.database_reading import everything, next_window, rows_of, window_above
from tests.support.own_process import free_port
from tests.support.postgresql_server import PostgresqlServer


@pytest.fixture(autouse=True)
def without_adbc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there all the same, for the tests' own statements."""
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name == "adbc_driver_postgresql" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)


@pytest.fixture
def access(postgresql: PostgresqlServer) -> Access:
    database = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id int, at timestamptz, plain timestamp, day date, price"
        " numeric(30,20), tags int[], spent time, zoned timetz, doc jsonb, key uuid, o oid,"
        " big bigint, note text, raw bytea, yes boolean, f float8, span interval)",
        "INSERT INTO orders SELECT g, '2024-01-01 00:00+00'::timestamptz + g * interval '1 s',"
        " 'infinity', '2024-02-29', 1.5, '{{1},{2}}', '24:00', '12:00+02', '{\"a\": 1}',"
        " 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 4294967295, g, 'é', '\\x00', true, 0.1, '1 day'"
        " FROM generate_series(1, 1000) g",
        "INSERT INTO orders (id) VALUES (0)",
        database=database,
    )
    return Access("postgresql", postgresql.uri(database))


def test_windows_are_planned_and_read(access: Access) -> None:
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=("at",)))
    assert connection.default_bound == "settled"
    bound = connection.bound("settled", 0)
    assert (bound.kind, bound.held_by) == ("settled", None)
    window = next_window(connection)
    assert window is not None
    tasks = connection.tasks(window, WindowSplit("", 3))
    assert not any("ctid" in task.where for task in tasks)
    with connection.hold(access) as held:
        assert held.session == ""
        rows = {row["id"]: row for row in rows_of(held, tasks)}
    assert len(rows) == 1001
    assert set(rows[0].values()) == {0, None}
    assert rows[1] == {
        "id": 1, "at": "2024-01-01T00:00:01+00:00", "plain": "infinity", "day": "2024-02-29",
        "price": "1.50000000000000000000", "tags": "[[1],[2]]", "spent": "24:00:00",
        "zoned": "12:00:00+02", "doc": '{"a": 1}', "key": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "o": 4294967295, "big": 1, "note": "é", "raw": b"\0", "yes": True, "f": 0.1,
        "span": "1 day",
    }  # fmt: skip
    assert connection.tasks(window_above(window), WindowSplit()) == ()
    assert connection.bound("max", 0).value["at"].isoformat() == "2024-01-01T00:16:40+00:00"


def test_the_fields_of_a_query_have_to_be_declared(access: Access) -> None:
    fields = (FieldSpec("price", "decimal", nullable=True, precision=30, scale=20),)
    selection = ReadSelection(query="SELECT * FROM orders WHERE id = 1", fields=fields)
    (batch,) = everything(access, selection)
    assert batch.to_pylist() == [{"price": "1.50000000000000000000"}]
    with pytest.raises(SourceError, match="are unknown without ADBC; declare them"):
        everything(access, ReadSelection(query="SELECT * FROM orders"))


def test_a_shared_snapshot_is_refused(access: Access) -> None:
    connection = PostgresqlConnection(access, ReadSelection(table="orders", columns=("at",)))
    window = next_window(connection)
    assert window is not None
    tasks = connection.tasks(window, WindowSplit())
    with pytest.raises(SourceError, match="a shared snapshot needs ADBC"):
        rows_of(Access(access.driver, access.uri, session="00000003-1"), tasks)


def test_errors_have_no_context_and_no_password(access: Access) -> None:
    missing = PostgresqlConnection(access, ReadSelection(table="missing"))
    with pytest.raises(SourceError, match="does not exist") as caught:
        missing.columns()
    assert caught.value.__context__ is None
    gone = Access("postgresql", f"postgresql://u:hunter22@127.0.0.1:{free_port()}/x")
    with pytest.raises(Unavailable) as refused:
        PostgresqlConnection(gone, ReadSelection(table="orders")).columns()
    assert "hunter22" not in str(refused.value)

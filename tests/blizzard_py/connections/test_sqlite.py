"""SQLite: every kind of value arrives as it is stored, and windows of text keep its form."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import BlizzardError, SourceError, Unavailable
from blizzard_py.connections.protocol import ReadBound, ReadSelection, WindowSplit
from blizzard_py.connections.sqlite import SqliteConnection
from blizzard_py.connections.sqlite_session import path_of, same_form, until
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, Window
from tests.support.database_reading import declared, everything, next_window, rows_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a b%20?#é.db"  # all of which a URI has to escape


@pytest.fixture
def file(path: Path) -> Iterator[sqlite3.Connection]:
    session = sqlite3.connect(path, isolation_level=None)
    yield session
    session.close()


@pytest.fixture
def access(path: Path, file: sqlite3.Connection) -> Access:
    del file
    return Access("sqlite", f"sqlite://{path}")


def insert(file: sqlite3.Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    file.execute("BEGIN")  # one transaction, or each row would wait for the disk
    file.executemany(statement, rows)
    file.execute("COMMIT")


def column(file: sqlite3.Connection, access: Access, kind: str, *values: Any) -> pa.RecordBatch:
    file.execute(f"CREATE TABLE t (v {kind})")
    insert(file, "INSERT INTO t VALUES (?)", [(value,) for value in values])
    (batch,) = everything(access, ReadSelection(table="t"))
    return batch


@pytest.mark.parametrize(
    ("kind", "value", "proposed", "read"),
    [
        ("INTEGER", 2**63 - 1, "int64", 2**63 - 1),
        ("BIGINT", -(2**63), "int64", -(2**63)),
        ("REAL", 0.1, "float64", 0.1),
        ("DOUBLE", 1e300, "float64", 1e300),
        ("REAL", 5, "float64", 5.0),
        ("TEXT", "é '\\", "string", "é '\\"),
        ("VARCHAR(9)", "x", "string", "x"),
        ("BLOB", b"\x00\xff", "binary", b"\x00\xff"),
        ("BLOB", "text", "binary", b"text"),
        ("BOOLEAN", 1, "boolean", 1),
        ("NUMERIC", 1.5, "string", "1.5"),
        ("DECIMAL(12,2)", 1.1, "decimal", "1.1"),
        ("DECIMAL(38,2)", "x", "decimal", "x"),
        ("DATE", "2024-02-29", "date", "2024-02-29"),
        ("DATETIME", "2024-02-29 23:59:59.999", "timestamp", "2024-02-29 23:59:59.999"),
        ("", "any", "string", "any"),
    ],
)
def test_each_declared_type_is_read_as_it_is_stored(
    file: sqlite3.Connection, access: Access, kind: str, value: Any, proposed: str, read: Any
) -> None:
    batch = column(file, access, kind, value, None)
    assert batch.column(0).to_pylist() == [read, None]
    connection = SqliteConnection(access, ReadSelection(table="t"))
    assert connection.columns()[0].field.type == proposed
    connection.close()


@pytest.mark.promise("G-141")
@pytest.mark.parametrize(
    ("kind", "good", "misfit", "told"),
    [
        ("INTEGER", 7, "seven", "seven"),
        ("INTEGER", 7, 7.5, "7.5"),
        ("INTEGER", 7, b"\x01", "X'01'"),
        ("REAL", 0.1, "tenth", "tenth"),
        ("TEXT", "a", b"\xff", "X'FF'"),
        ("BLOB", b"a", 1, b"1"),
        ("BOOLEAN", 1, "yes", "yes"),
    ],
)
@pytest.mark.parametrize("place", [0, 5000])
def test_reader_returns_values_of_another_storage_class(
    file: sqlite3.Connection, access: Access, kind: str, good: Any, misfit: Any, told: Any,
    place: int,
) -> None:  # fmt: skip
    values = [good] * 10_000
    values[place] = misfit
    file.execute(f"CREATE TABLE t (v {kind})")
    insert(file, "INSERT INTO t VALUES (?)", [(value,) for value in values])
    found = [
        value
        for batch in everything(access, ReadSelection(table="t"))
        for value in batch.column(0).to_pylist()
    ]
    assert len(found) == 10_000
    # No other row looks different for it: its digest would be another one the next time.
    assert sorted(map(str, found)) == sorted(map(str, [good] * 9_999 + [told]))


def test_reader_replaces_invalid_utf8_in_text(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (v INTEGER)")
    file.execute("INSERT INTO t VALUES (1), (CAST(x'ff41' AS TEXT)), (2)")
    found = [
        value
        for batch in everything(access, ReadSelection(table="t"))
        for value in batch.column(0).to_pylist()
    ]
    assert sorted(map(str, found)) == ["1", "2", "\ufffdA"]


def test_leading_nulls_fix_no_type(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (a INTEGER, b REAL, c TEXT, d BLOB)")
    insert(file, "INSERT INTO t VALUES (?, ?, ?, ?)", [(None,) * 4] * 20_000)
    file.execute("INSERT INTO t VALUES (1, 1.5, 'x', x'00')")
    batches = everything(access, ReadSelection(table="t"))
    kinds = {str(batch.schema) for batch in batches}
    assert len(kinds) == 1
    assert sum(len(batch) for batch in batches) == 20_001
    assert batches[-1].to_pylist()[-1] == {"a": 1, "b": 1.5, "c": "x", "d": b"\x00"}


def test_the_declared_types_reach_parquet(
    file: sqlite3.Connection, access: Access, tmp_path: Path
) -> None:
    file.execute("CREATE TABLE t (a INTEGER, b DECIMAL(12,2), c DATE, d DATETIME, e BOOLEAN)")
    file.execute(
        "INSERT INTO t VALUES (1, '1234567890.10', '2024-02-29', '2024-01-01 10:00:00', 1)"
    )
    fields = (
        FieldSpec("a", "int32", nullable=True),
        FieldSpec("b", "decimal", nullable=True, precision=12, scale=2),
        FieldSpec("c", "date", nullable=True),
        FieldSpec("d", "timestamp", nullable=True),
        FieldSpec("e", "boolean", nullable=True),
    )
    (batch,) = everything(access, ReadSelection(table="t", fields=fields))
    pq.write_table(pa.Table.from_batches([declared(batch, fields)]), tmp_path / "out.parquet")
    (row,) = duckdb.connect().sql(f"SELECT * FROM '{tmp_path}/out.parquet'").fetchall()
    assert row == (1, Decimal("1234567890.1"), date(2024, 2, 29),
                   datetime(2024, 1, 1, 10, tzinfo=UTC), True)  # fmt: skip


def test_text_that_is_no_utf8_becomes_bytes(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (v TEXT)")
    file.execute("INSERT INTO t VALUES ('a'), (CAST(x'ff' AS TEXT))")
    (batch,) = everything(access, ReadSelection(table="t"))
    assert batch.column(0).to_pylist() == [b"a", b"\xff"]


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        ("2024-01-01 00:00:00", "2024-05-04 11:59:58"),
        ("2024-01-01T00:00:00", "2024-05-04T11:59:58"),
        ("2024-01-01T00:00:00Z", "2024-05-04T11:59:58Z"),
        ("2024-01-01 00:00:00.123", "2024-05-04 11:59:59.498"),
        ("2024-01-01T00:00:00.123456+00:00", "2024-05-04T11:59:59.499999+00:00"),
        ("2024-01-01", "2024-05-03"),
    ],
)
def test_a_bound_has_the_form_of_the_rows(like: str, expected: str) -> None:
    assert until(datetime(2024, 5, 4, 11, 59, 59, 500000, tzinfo=UTC), like) == expected


def test_forms_that_do_not_sort_together_are_not_alike() -> None:
    assert same_form("2024-01-01 00:00:00", "2024-01-02 00:00:00")
    assert not same_form("2024-01-01 00:00:00", "2024-01-02T00:00:00")
    assert not same_form("2024-01-01T00:00:00Z", "2024-01-02T00:00:00.5Z")
    assert not same_form("2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00+02:00")
    assert not same_form(1, 2)


def test_times_are_read_up_to_the_clock_numbers_to_the_maximum(
    file: sqlite3.Connection, access: Access
) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME)")
    now = datetime.now(UTC).replace(tzinfo=None)
    times = [now - timedelta(days=1), now - timedelta(seconds=30), now + timedelta(days=1)]
    insert(file, "INSERT INTO t (at) VALUES (?)", [(t.isoformat("T", "seconds"),) for t in times])
    by_time = SqliteConnection(access, ReadSelection(table="t", columns=("at",)))
    assert by_time.default_bound == "clock"
    window = next_window(by_time, settle_secs=60)
    assert [row["id"] for row in rows_of(access, by_time.tasks(window, WindowSplit()))] == [1]
    later = next_window(by_time, dict(window.up_to), settle_secs=0)
    assert [row["id"] for row in rows_of(access, by_time.tasks(later, WindowSplit()))] == [2]
    by_time.close()
    by_id = SqliteConnection(access, ReadSelection(table="t", columns=("id",)))
    assert by_id.default_bound == "max"
    assert by_id.bound("max", 0).value == {"id": 3}
    by_id.close()


def test_bound_warns_when_every_watermark_value_is_null(
    file: sqlite3.Connection, access: Access
) -> None:
    file.execute("CREATE TABLE t (id INTEGER, v INTEGER)")
    connection = SqliteConnection(
        access, ReadSelection(table="t", columns=("v",), filter="id < 10")
    )
    assert connection.bound("max", 0) == ReadBound("max")
    insert(file, "INSERT INTO t VALUES (?, ?)", [(10, 1)])
    assert connection.bound("max", 0) == ReadBound("max")  # the filter takes none of them
    insert(file, "INSERT INTO t VALUES (?, ?)", [(1, None)])
    told = connection.bound("max", 0)
    assert told.value == {}
    assert told.warnings == ("no row of the table has a value in v; nothing is read until one has",)
    insert(file, "INSERT INTO t VALUES (?, ?)", [(2, 5)])
    assert connection.bound("max", 0) == ReadBound("max", {"v": 5})
    connection.close()


def test_mixed_forms_of_time_are_refused(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (at DATETIME)")
    file.execute("INSERT INTO t VALUES ('2024-01-01 10:00:00'), ('2024-01-01T09:00:00')")
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("at",)))
    with pytest.raises(SourceError, match="not all written as"):
        connection.bound("clock", 0)
    connection.close()


def test_ranges_read_every_row_once(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (id INTEGER, n INTEGER)")
    insert(
        file, "INSERT INTO t VALUES (?, ?)", [(i, None if i % 7 == 0 else i) for i in range(999)]
    )
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("id",)))
    window = next_window(connection)
    for by in ("", "id", "n"):
        tasks = connection.tasks(window, WindowSplit(by, 4))
        assert len(tasks) == 4
        assert sorted(row["id"] for row in rows_of(access, tasks)) == list(range(999))
    connection.close()


def failed(connection: SqliteConnection) -> BlizzardError:
    try:
        with pytest.raises(BlizzardError) as caught:
            connection.tasks(Window(), WindowSplit())
    finally:
        connection.close()
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM t", "SELECT 1 AS one; DELETE FROM t", "SELECT 1 AS one) t1; DELETE FROM t; --",
     "PRAGMA user_version = 5", "SELECT 1;"],
)  # fmt: skip
def test_a_query_that_is_more_than_one_question_is_refused(
    file: sqlite3.Connection, access: Access, query: str
) -> None:
    file.execute("CREATE TABLE t AS SELECT 1 AS v")
    assert isinstance(failed(SqliteConnection(access, ReadSelection(query=query))), SourceError)
    assert file.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_a_query_may_have_a_table_called_one_statement(
    file: sqlite3.Connection, access: Access
) -> None:
    file.execute('CREATE TABLE "one statement" AS SELECT 1 AS v')
    connection = SqliteConnection(access, ReadSelection(query='SELECT v FROM "one statement"'))
    assert [column.name for column in connection.columns()] == ["v"]
    connection.close()


def test_error_names_the_missing_table_or_column(
    file: sqlite3.Connection, access: Access, path: Path
) -> None:
    error = failed(SqliteConnection(access, ReadSelection(table="missing")))
    assert isinstance(error, SourceError)
    assert "missing" in str(error)
    file.execute("CREATE TABLE t (a, b)")
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("c",)))
    with pytest.raises(SourceError, match="no column 'c'; there are: a, b"):
        connection.bound("max", 0)
    connection.close()
    gone = SqliteConnection(Access("sqlite", f"{path}.gone"), ReadSelection(table="t"))
    assert isinstance(failed(gone), Unavailable)
    assert not Path(f"{path}.gone").exists()


def test_bound_fails_when_the_column_was_renamed(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (id INTEGER, at TEXT)")
    file.execute("INSERT INTO t VALUES (1, 'a')")
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("at",)))
    assert connection.bound("max", 0).value == {"at": "a"}
    file.execute("ALTER TABLE t RENAME at TO changed")
    with pytest.raises(SourceError):
        connection.bound("max", 0)
    connection.close()


def test_no_index_is_a_warning(file: sqlite3.Connection, access: Access) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT)")
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("id", "at")))
    (warning,) = connection.warnings()
    assert "no index gives the order of at" in warning
    connection.close()


def test_a_table_of_many_columns(file: sqlite3.Connection, access: Access) -> None:
    names = [f"c{n}" for n in range(1990)]
    file.execute(f"CREATE TABLE t ({', '.join(f'{name} INTEGER' for name in names)})")
    file.execute("INSERT INTO t (c0, c1989) VALUES (1, 'x')")
    (batch,) = everything(access, ReadSelection(table="t"))
    assert batch.num_columns == 1990
    assert (batch.column(0).to_pylist(), batch.column(1989).to_pylist()) == ([1], ["x"])


def test_writes_go_on_while_a_task_reads(file: sqlite3.Connection, access: Access) -> None:
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("CREATE TABLE t (id INTEGER)")
    insert(file, "INSERT INTO t VALUES (?)", [(n,) for n in range(50_000)])
    connection = SqliteConnection(access, ReadSelection(table="t"))
    tasks = connection.tasks(Window(), WindowSplit())
    file.execute("DELETE FROM t WHERE id < 10")
    assert len(rows_of(access, tasks)) == 49_990
    connection.close()


def test_bound_query_uses_the_index(
    file: sqlite3.Connection, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME)")
    file.execute("CREATE INDEX by_time ON t (at)")
    file.execute("INSERT INTO t VALUES (1, '2026-05-04 12:00:00')")
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("id", "at")))
    asked: list[str] = []
    ask = SqliteConnection._ask  # noqa: SLF001  # nobody else sees the statement

    def noted(self: SqliteConnection, statement: str) -> Any:
        asked.append(statement)
        return ask(self, statement)

    monkeypatch.setattr(SqliteConnection, "_ask", noted)
    connection.bound("max", 0)
    plan = file.execute(f"EXPLAIN QUERY PLAN {asked[-1]}").fetchall()
    assert not [step for *_, step in plan if step.startswith("SCAN t")]
    connection.close()


@pytest.mark.parametrize("slashes", ["sqlite:///", "sqlite:////", "file:///", "//", "/"])
def test_an_absolute_path_may_be_written_as_other_tools_do(
    file: sqlite3.Connection, access: Access, slashes: str
) -> None:
    file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    file.execute("INSERT INTO t VALUES (1)")
    path = path_of(access)
    spelled = replace(access, uri=slashes + path.removeprefix("/"))
    connection = SqliteConnection(spelled, ReadSelection(table="t", columns=("id",)))
    assert connection.bound("max", 0).value == {"id": 1}
    connection.close()

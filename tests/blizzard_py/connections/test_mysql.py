"""MySQL's protocol, against MariaDB: types, windows, faults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import AccessDenied, BlizzardError, SourceError, Unavailable
from blizzard_py.connections.mysql import MysqlConnection
from blizzard_py.connections.mysql_session import error_translator, read
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.connections.sql.errors import ServerLabel
from blizzard_py.kernels.row_deduplication import RowFilter
from blizzard_py.reading import Access, DedupSpec, RowFingerprint, Window
from tests.support.database_reading import batches, declared, everything, next_window, rows_of
from tests.support.mariadb_server import PASSWORD, MariadbServer
from tests.support.memory_store import MemoryStorage
from tests.support.own_process import free_port

# Type, a value as SQL, what is proposed, what the reader gives.
ROWS: list[tuple[str, str, str, Any]] = [
    ("tinyint", "-128", "int32", -128),
    ("tinyint(1)", "1", "int32", 1),
    ("smallint unsigned", "65535", "int32", 65535),
    ("mediumint", "-8388608", "int32", -8388608),
    ("int unsigned", "4294967295", "int64", 4294967295),
    ("bigint", "-9223372036854775808", "int64", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", "decimal", 18446744073709551615),
    ("float", "1.5", "float32", 1.5),
    ("double", "0.1", "float64", 0.1),
    ("decimal(38,18)", "12345678901234567890.123456789012345678", "decimal",
     "12345678901234567890.123456789012345678"),
    ("decimal(65,30)", "1e-30", "string", "0.000000000000000000000000000001"),
    ("varchar(20)", "'é ''\\\\'", "string", "é '\\"),
    ("char(5)", "'x'", "string", "x"),
    ("longtext", "'x'", "string", "x"),
    ("binary(3)", "x'0001ff'", "binary", b"\x00\x01\xff"),
    ("longblob", "x'00ff'", "binary", b"\x00\xff"),
    ("date", "'2024-02-29'", "date", "2024-02-29"),
    ("datetime(6)", "'2024-02-29 23:59:59.999999'", "timestamp", "2024-02-29 23:59:59.999999"),
    ("datetime", "'9999-12-31 23:59:59'", "timestamp", "9999-12-31 23:59:59"),
    # The writer's session is five hours behind; the reader's is in UTC.
    ("timestamp(6) null", "'2024-02-29 20:00:00.5'", "timestamp", "2024-03-01 01:00:00.500000"),
    ("time(3)", "'-838:59:59'", "string", "-838:59:59.000"),
    ("year", "2024", "int32", 2024),
    ("bit(64)", "x'ffffffffffffffff'", "decimal", 18446744073709551615),
    ("enum('a','b')", "'b'", "string", "b"),
    ("set('a','b')", "'a,b'", "string", "a,b"),
    ("point", "point(1,2)", "string", "POINT(1 2)"),
    ("geometry", "point(1,2)", "string", "POINT(1 2)"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "string",
     "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("inet6", "'::1'", "string", "::1"),
    ("json", "'{\"a\": 1.10}'", "string", '{"a": 1.10}'),
]  # fmt: skip


@pytest.fixture
def database(mariadb: MariadbServer) -> str:
    return mariadb.new_database()


@pytest.fixture
def access(mariadb: MariadbServer, database: str) -> Access:
    return Access("mysql", mariadb.uri(database))


@pytest.mark.promise("G-141")
def test_each_type_is_proposed_and_read_without_loss(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    columns = ", ".join(f"c{n} {row[0]}" for n, row in enumerate(ROWS))
    values = ", ".join(row[1] for row in ROWS)
    mariadb.execute(
        f"CREATE TABLE typed ({columns})", f"INSERT INTO typed VALUES ({values})",
        "INSERT INTO typed (c0) VALUES (NULL)", database=database,
    )  # fmt: skip
    connection = MysqlConnection(access, ReadSelection(table="typed"))
    proposed = {column.name: column.field.type for column in connection.columns()}
    (batch,) = everything(access, ReadSelection(table="typed"))
    read_, nulls = batch.to_pylist()
    assert all(value is None for value in nulls.values())
    for number, (kind, _, expected, value) in enumerate(ROWS):
        assert (kind, proposed[f"c{number}"]) == (kind, expected)
        assert (kind, read_[f"c{number}"]) == (kind, value)


def test_the_declared_types_reach_parquet(
    mariadb: MariadbServer, database: str, access: Access, tmp_path: Path
) -> None:
    mariadb.execute(
        "CREATE TABLE t (a decimal(38,18), b bigint unsigned, c date, d datetime(6), e longblob)",
        "INSERT INTO t VALUES (1.000000000000000001, 18446744073709551615, '2024-02-29',"
        " '2024-01-01 10:00:00', x'00')", database=database,
    )  # fmt: skip
    connection = MysqlConnection(access, ReadSelection(table="t"))
    fields = tuple(column.field for column in connection.columns())
    (batch,) = everything(access, ReadSelection(table="t", fields=fields))
    pq.write_table(pa.Table.from_batches([declared(batch, fields)]), tmp_path / "out.parquet")
    (row,) = duckdb.connect().sql(f"SELECT * FROM '{tmp_path}/out.parquet'").fetchall()
    assert row == (Decimal("1.000000000000000001"), Decimal(18446744073709551615),
                   date(2024, 2, 29), datetime(2024, 1, 1, 10, tzinfo=UTC), b"\x00")  # fmt: skip


def test_zero_dates_are_text_that_no_date_takes(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute(
        "SET sql_mode = ''", "CREATE TABLE t (a date, b datetime, c timestamp NULL)",
        "INSERT INTO t VALUES ('0000-00-00', '2024-00-01', '0000-00-00')", database=database,
    )  # fmt: skip
    (batch,) = everything(access, ReadSelection(table="t"))
    assert batch.to_pylist() == [
        {"a": "0000-00-00", "b": "2024-00-01 00:00:00", "c": "0000-00-00 00:00:00"}
    ]
    with pytest.raises(pa.ArrowInvalid):
        batch.column(0).cast(pa.date32())
    connection = MysqlConnection(access, ReadSelection(table="t", columns=("a",)))
    with pytest.raises(SourceError, match="holds 0000-00-00, above which nothing"):
        connection.bound("max", 0)


def test_windows_of_timestamps_datetimes_and_dates(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute(
        "CREATE TABLE t (id int, at timestamp(6), plain datetime, day date)",
        "SET time_zone = '+00:00'",
        "INSERT INTO t SELECT seq, now(6) - interval seq minute, now() - interval seq minute,"
        # As of the bound's moment: a day begins at some time during a test.
        " date(now() - interval 30 second) - interval seq day FROM seq_0_to_9", database=database,
    )  # fmt: skip
    for column, count in (("at", 9), ("plain", 9), ("day", 9)):
        connection = MysqlConnection(access, ReadSelection(table="t", columns=(column,)))
        assert connection.default_bound == "clock"
        zoneless = any("has no zone" in warning for warning in connection.warnings())
        assert (column, zoneless) == (column, column != "at")
        window = next_window(connection, settle_secs=30)
        rows = rows_of(access, connection.tasks(window, WindowSplit()))
        assert (column, sorted(row["id"] for row in rows)) == (column, list(range(1, count + 1)))
        assert next_window(connection, dict(window.up_to), settle_secs=3600) is None
    by_time = MysqlConnection(access, ReadSelection(table="t", columns=("at",)))
    highest = by_time.bound("max", 0).value["at"]
    assert abs(datetime.now(UTC) - highest) < timedelta(minutes=1)


def test_bound_and_connection_warn_about_a_read_only_server(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute("CREATE TABLE t (at timestamp(6) NULL, KEY (at))", database=database)
    connection = MysqlConnection(access, ReadSelection(table="t", columns=("at",)))
    assert (connection.bound("clock", 60).warnings, connection.warnings()) == ((), [])
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        for told in (connection.bound("clock", 60).warnings, connection.warnings()):
            assert any("settle above its greatest lag" in warning for warning in told)
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")


def test_numbers_text_and_ranges(mariadb: MariadbServer, database: str, access: Access) -> None:
    mariadb.execute(
        "CREATE TABLE t (id int, price decimal(30,10), note text)",
        "INSERT INTO t SELECT seq, seq / 3, concat('n', seq) FROM seq_1_to_1000",
        "INSERT INTO t VALUES (1001, NULL, NULL)", database=database,
    )  # fmt: skip
    connection = MysqlConnection(access, ReadSelection(table="t", columns=("id", "price", "note")))
    bound = connection.bound("max", 0)
    assert bound.value == {"id": 1001, "price": Decimal("333.3333333330"), "note": "n999"}
    window = next_window(connection)
    for by in ("", "price"):
        tasks = connection.tasks(window, WindowSplit(by, 3))
        assert len(tasks) == 3
        assert sorted(row["id"] for row in rows_of(access, tasks)) == list(range(1, 1002))
    assert (
        connection.tasks(Window(up_to={"id": 0, "price": Decimal(0), "note": ""}), WindowSplit())
        == ()
    )
    assert len(connection.warnings()) == 3


def test_numbers_of_64_bits_are_read_to_their_end(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute(
        "CREATE TABLE t (id bigint unsigned, flags bit(64))",
        "INSERT INTO t VALUES (1, b'1'), (18446744073709551615, x'ffffffffffffffff')",
        database=database,
    )
    most = 2**64 - 1
    for column in ("id", "flags"):
        connection = MysqlConnection(access, ReadSelection(table="t", columns=(column,)))
        window = next_window(connection)
        assert window.up_to == {column: most}
        (batch,) = batches(access, connection.tasks(window, WindowSplit()))
        kept = RowFilter(DedupSpec(RowFingerprint(("id",)), "at", window.up_to), MemoryStorage())
        assert kept.fresh(batch).all()
        marks = kept.marks("item", lambda data: f"{len(data)} bytes")
        assert (column, marks.staged) == (column, "16 bytes")


def test_a_query_is_wrapped_and_described(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute(
        "CREATE TABLE t AS SELECT seq AS id, 1.5 AS n FROM seq_1_to_9", database=database
    )
    selection = ReadSelection(
        query="SELECT id, n FROM t # all", filter="n > 1 -- x", columns=("id",)
    )
    connection = MysqlConnection(access, selection)
    assert [column.kind for column in connection.columns()] == ["number", "number"]
    window = next_window(connection, {"id": 7})
    rows = rows_of(access, connection.tasks(window, WindowSplit()))
    assert rows == [{"id": n, "n": "1.5"} for n in (7, 8, 9)]


def test_3000_columns(mariadb: MariadbServer, database: str, access: Access) -> None:
    for table, first in (("one", 0), ("two", 1500)):
        columns = ", ".join(f"c{n} tinyint" for n in range(first, first + 1500))
        mariadb.execute(
            f"CREATE TABLE {table} ({columns}) ENGINE = Aria",
            f"INSERT INTO {table} (c{first}) VALUES (1)",
            database=database,
        )
    selection = ReadSelection(query="SELECT * FROM one JOIN two", columns=("c0",))
    connection = MysqlConnection(access, selection)
    window = next_window(connection)
    (task,) = connection.tasks(window, WindowSplit())
    assert len(task.where) < 500
    (row,) = rows_of(access, [task])
    assert (len(row), row["c0"], row["c1500"], row["c2999"]) == (3000, 1, 1, None)


def failed(call: Callable[[], object]) -> BlizzardError:
    with pytest.raises(BlizzardError) as caught:
        call()
    assert caught.value.__context__ is None
    assert PASSWORD not in f"{caught.value!r}"
    return caught.value


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM t", "SELECT 1 AS one; DELETE FROM t", "SELECT 1 AS one) t1; DELETE FROM t; -- ",
     "SELECT 1 INTO OUTFILE '/tmp/x'", "SELECT 'card 4111111111", "SELECT 1 AS one;"],
)  # fmt: skip
def test_a_query_that_is_more_than_one_question_is_refused(
    mariadb: MariadbServer, database: str, access: Access, query: str
) -> None:
    mariadb.execute("CREATE TABLE t AS SELECT 1 AS id", database=database)
    error = failed(lambda: everything(access, ReadSelection(query=query)))
    assert isinstance(error, SourceError)
    assert "4111111111" not in str(error)
    assert mariadb.execute("SELECT count(*) FROM t", database=database) == "1\n"


def test_error_names_the_missing_table_or_column(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute("CREATE TABLE t (a int, b int)", database=database)
    connection = MysqlConnection(access, ReadSelection(table="t", columns=("c",)))
    error = failed(lambda: connection.bound("max", 0))
    assert "no column 'c'; there are: a, b" in str(error)
    missing = failed(MysqlConnection(access, ReadSelection(table="missing")).columns)
    assert isinstance(missing, SourceError)
    assert "doesn't exist" in str(missing)
    denied = failed(MysqlConnection(access, ReadSelection(table="mysql.user")).columns)
    assert isinstance(denied, AccessDenied)


def test_unreachable_host_raises_unavailable(access: Access) -> None:
    del access
    gone = Access("mysql", f"mysql://u:hunter22@127.0.0.1:{free_port()}/shop")
    error = failed(MysqlConnection(gone, ReadSelection(table="t")).columns)
    assert isinstance(error, Unavailable)
    assert "hunter22" not in str(error)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            "timed out waiting: MySqlError { ERROR 1045 (28000): Access denied for user 'u'@'%' }",
            AccessDenied,
            "Access denied for user",
        ),
        ("MySqlError { ERROR 1205 (HY000): Lock wait timeout exceeded }", Unavailable, "Lock wait"),
        ("MySqlError { ERROR 1969 (70100): Query was interrupted }", Unavailable, "interrupted"),
        (
            "cx writer failed: Source(MySQLError(CodecError { IO error: `bytes remaining` }))",
            Unavailable,
            "bytes remaining",
        ),
        (
            "Could not retrieve `NaiveDate`: Couldn't convert the value `Date('1999')`",
            SourceError,
            "Could not retrieve",
        ),
    ],
)
def test_error_translator_maps_messages_to_error_types(
    text: str, kind: type[BlizzardError], told: str
) -> None:
    error = error_translator(ServerLabel("mysql://db/shop"))(RuntimeError(text))
    assert isinstance(error, kind)
    assert told in str(error)
    assert "1999" not in str(error)


def test_a_lost_server_during_a_task_is_a_temporary_failure(
    mariadb: MariadbServer, database: str, access: Access
) -> None:
    mariadb.execute(
        "CREATE TABLE t AS SELECT seq AS id, repeat('x', 500) AS v FROM seq_1_to_300000",
        database=database,
    )
    connection = MysqlConnection(access, ReadSelection(table="t"))
    (task,) = connection.tasks(Window(), WindowSplit())
    reading = read(access, task.spec, ())
    seen = len(next(reading))
    ids = mariadb.execute(
        "SELECT id FROM information_schema.processlist WHERE user = 'reader' AND command <> 'Sleep'"
    )
    for number in ids.split():
        mariadb.execute(f"KILL {number}")
    error = failed(lambda: sum(len(batch) for batch in reading))
    assert isinstance(error, Unavailable)
    assert seen < 300_000


def test_sessions_are_named_and_read_only(mariadb: MariadbServer, access: Access) -> None:
    del mariadb
    query = (
        "SELECT @@session.tx_read_only AS locked, @@session.time_zone AS zone,"
        " CAST(@@session.max_statement_time AS SIGNED) AS ends, (SELECT info FROM"
        " information_schema.processlist WHERE id = connection_id()) AS told"
    )
    (batch,) = everything(access, ReadSelection(query=query))
    (row,) = batch.to_pylist()
    assert (row["locked"], row["zone"], row["ends"]) == (1, "+00:00", 21600)
    assert "/* blizzard reads */" in row["told"]

"""Statements over JDBC, in dialects without a server for the tests."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from blizzard_py.connections.jdbc import JdbcConnection
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.reading import Access, Window

SCHEMA = pa.schema(
    [("ID", pa.decimal128(38, 0)), ("AT", pa.timestamp("us")), ("D", pa.date32()),
     ("N", pa.string()), ("X", pa.list_(pa.int32()))]
)  # fmt: skip
NOW = datetime(2024, 5, 4, 12)  # noqa: DTZ001  # as Spark gives a time without a zone


class Server:
    """Stands for Spark: keeps what it is asked and answers by what it is about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, statement: str) -> pa.Table:
        self.asked.append(statement)
        if "EXISTS" in statement:
            return pa.table({"FOUND": [1]})
        if "now_" in statement:
            return pa.table({"NOW_": pa.array([NOW], pa.timestamp("us"))})
        return SCHEMA.empty_table()


def test_oracle_statements_use_oracle_syntax() -> None:
    server = Server()
    access = Access("jdbc", "jdbc:oracle:thin:@//db:1521/svc")
    connection = JdbcConnection(access, ReadSelection(table="SHOP.ORDERS", columns=("AT",)), server)
    assert [c.kind for c in connection.columns()] == ["number", "time", "date", "text", "other"]
    bound = connection.bound("clock", 60)
    assert server.asked[-1] == "SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) AS now_ FROM DUAL"
    # A DATE keeps whole seconds, and this one's may still be written to.
    assert bound.value == {"AT": datetime(2024, 5, 4, 11, 58, 58)}  # noqa: DTZ001
    window = Window({}, {"AT": NOW}, {"AT": datetime(2024, 1, 1)})  # noqa: DTZ001
    (task,) = connection.tasks(window, WindowSplit())
    (whether,) = [statement for statement in server.asked if "EXISTS" in statement]
    assert whether.startswith("SELECT CASE WHEN EXISTS (SELECT 1 FROM SHOP.ORDERS t1 WHERE ")
    assert whether.endswith(") THEN 1 ELSE 0 END AS found FROM DUAL")
    assert "\"AT\" > TO_TIMESTAMP('2024-01-01 00:00:00'" in task.where
    assert task.spec["statement"].startswith('SELECT "ID" AS "ID", "AT" AS "AT"')


def test_sql_server_statements_use_sql_server_syntax() -> None:
    server = Server()
    access = Access("jdbc", "jdbc:sqlserver://db:1433;databaseName=shop")
    connection = JdbcConnection(access, ReadSelection(table="dbo.orders", columns=("N",)), server)
    window = Window({}, {"N": "é'"}, {})
    (task,) = connection.tasks(window, WindowSplit())
    assert "[N] <= N'é'''" in task.where
    assert connection.default_bound == "max"
    assert any("JDBC does not show whether" in warning for warning in connection.warnings())
    connection.close()

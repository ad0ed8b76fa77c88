"""Windows as SQL, run by real engines; and the same windows over rows in memory."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import WatermarkError
from blizzard_py.connections.literals import literal
from blizzard_py.connections.sql.conditions import window_where
from blizzard_py.reading import Window

ROWS = [(1, None), (2, 20), (3, 99), (None, 30), (None, None), (5, 50), (9, 9)]


def _read(statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
        return connection.execute(statement).fetchall()


def _where(condition: str) -> list[tuple[Any, ...]]:
    return _read(f"SELECT * FROM t WHERE {condition}")


MOMENT = datetime(2026, 5, 4, 13, 59, 58, 120000, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("dialect", "zoned", "naive", "day", "true"),
    [
        (
            "postgresql",
            "timestamptz '2026-05-04 13:59:58.120000+02:00'",
            "timestamp '2026-05-04 13:59:58.120000'",
            "date '2026-05-04'",
            "TRUE",
        ),
        (
            "MariaDB",
            "TIMESTAMP '2026-05-04 11:59:58.120000'",
            "TIMESTAMP '2026-05-04 13:59:58.120000'",
            "DATE '2026-05-04'",
            "TRUE",
        ),
        (
            "oracle",
            "TO_TIMESTAMP('2026-05-04 11:59:58.120000', 'YYYY-MM-DD HH24:MI:SS.FF6')",
            "TO_TIMESTAMP('2026-05-04 13:59:58.120000', 'YYYY-MM-DD HH24:MI:SS.FF6')",
            "TO_DATE('2026-05-04', 'YYYY-MM-DD')",
            "1",
        ),
        (
            "mssql",
            "CAST('2026-05-04 13:59:58.120000+02:00' AS datetimeoffset(6))",
            "CAST('2026-05-04 13:59:58.120000' AS datetime2(6))",
            "CAST('2026-05-04' AS date)",
            "1",
        ),
        (
            "sqlite",
            "'2026-05-04 13:59:58.120000+02:00'",
            "'2026-05-04 13:59:58.120000'",
            "'2026-05-04'",
            "1",
        ),
        (
            "",
            "'2026-05-04 13:59:58.120000+02:00'",
            "'2026-05-04 13:59:58.120000'",
            "'2026-05-04'",
            "TRUE",
        ),
    ],
)
def test_literals_are_typed_for_each_dialect(
    dialect: str, zoned: str, naive: str, day: str, true: str
) -> None:
    assert literal(MOMENT, dialect) == zoned
    assert literal(MOMENT.replace(tzinfo=None), dialect) == naive
    assert literal(date(2026, 5, 4), dialect) == day
    assert literal(True, dialect) == true
    assert literal(Decimal("1E+3"), dialect) == "1000"
    assert literal(-5, dialect) == "-5"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        Decimal("1E+9999"),
        Decimal("1E-9999"),
        Decimal("NaN"),
        "a\0b",
        b"x",
        [1],
        {"a": 1},
        object(),
    ],
)
def test_window_where_rejects_values_without_a_literal(value: Any) -> None:
    with pytest.raises(WatermarkError):
        window_where(Window(up_to={"a": value}), ["a"])


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0")) | st.text("'\\\"-;/*%$`x")


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@given(_TEXT)
def test_any_text_is_the_same_text_to_real_engines(
    duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    with sqlite3.connect(":memory:") as lite:
        assert lite.execute(f"SELECT {literal(text, 'sqlite')}").fetchone() == (text,)
    assert duck.execute(f"SELECT {literal(text, 'duckdb')}").fetchone() == (text,)
    assert literal(text, "mysql") == literal(text).replace("\\", "\\\\")


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
    | st.dates()
    | st.times()
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.decimals(-(10**9), 10**9, places=6)
)
def test_typed_literals_are_the_same_values_to_a_real_engine(
    duck: duckdb.DuckDBPyConnection, value: Any
) -> None:
    if isinstance(value, time):
        value = value.replace(fold=0)
    assert duck.execute(f"SELECT {literal(value, 'duckdb')}").fetchone() == (value,)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_lose_no_digit(duck: duckdb.DuckDBPyConnection, value: float) -> None:
    read = duck.execute(f"SELECT CAST({literal(value, 'duckdb')} AS DOUBLE)").fetchone()
    assert read == (value,)


def test_zoned_literals_are_instants(duck: duckdb.DuckDBPyConnection) -> None:
    same = f"SELECT {literal(MOMENT, 'duckdb')} = {literal(MOMENT.astimezone(UTC), 'duckdb')}"
    assert duck.execute(same).fetchone() == (True,)


@pytest.mark.promise("G-130")
def test_window_where_selects_ties_and_null_rows() -> None:
    first = Window(up_to={"a": 5, "b": 50}, nulls_first=True)
    assert _where(window_where(first, ["a", "b"])) == [
        (1, None),
        (2, 20),
        (None, 30),
        (None, None),
        (5, 50),
    ]
    ties = Window(after={"a": 5}, low={"a": 5}, up_to={"a": 9}, inclusive=True)
    assert window_where(ties, ["a"]) == "(a >= 5 AND a <= 9)"
    assert _where(window_where(ties, ["a"], filter="b < 10 OR b = 99")) == [(9, 9)]
    assert window_where(Window(), []) == ""


def test_rows_of_a_column_without_a_bound_wait_for_a_window() -> None:
    only_a = Window(up_to={"a": 9}, nulls_first=True)
    assert _where(window_where(only_a, ["a", "b"])) == [(1, None), (None, None)]
    nothing = Window(nulls_first=True)
    assert _where(window_where(nothing, ["a", "b"])) == [(None, None)]
    assert _where(window_where(nothing, ["a"])) == [(None, 30), (None, None)]


def test_a_time_outside_the_calendar_in_utc_is_refused() -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))
    assert literal(last, "postgresql") == "timestamptz '9999-12-31 23:00:00-02:00'"
    with pytest.raises(WatermarkError):
        literal(last, "mysql")

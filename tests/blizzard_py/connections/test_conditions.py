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

from blizzard_py.columns import SourceError, WatermarkError, cap, high, query, rows, where
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


def test_any_column_above_its_bound_makes_a_row_due() -> None:
    assert where({"a": 4, "b": 25}) == "a > 4 OR b > 25"
    assert _where(where({"a": 4, "b": 25})) == [(3, 99), (None, 30), (5, 50), (9, 9)]


def test_both_bounds_of_a_column_hold_together() -> None:
    assert where({"a": 1, "b": 2}, {"a": 5, "b": 30}) == "(a > 1 AND a < 5) OR (b > 2 AND b < 30)"
    inclusive = where({"a": 1}, {"a": 5}, ">=", "<=")
    assert _where(inclusive) == [(1, None), (2, 20), (3, 99), (5, 50)]
    assert where({"a": 1}, {"b": 5}) == "a > 1 OR b < 5"


def test_unknown_operators_mean_the_defaults() -> None:
    assert where({"a": 1}, {"a": 5}, "; DROP", "<>") == where({"a": 1}, {"a": 5})
    assert where({"a": 1}, lower_op="=") == "a > 1"


def test_null_and_missing_bounds_do_not_count() -> None:
    assert where({"a": None}) == ""
    assert where({}, None) == ""
    assert where(None, {"a": 0}) == "a < 0"  # 0 is a value
    assert where({"a": ""}) == "a > ''"


def test_the_filter_is_anded_to_the_whole_in_parentheses() -> None:
    condition = where({"a": 4, "b": 25}, filter="a = 9 OR a = 1")
    assert condition == "(a > 4 OR b > 25) AND (a = 9 OR a = 1)"
    assert _where(condition) == [(9, 9)]
    assert _where(where({}, filter="a = 9 OR a = 1")) == [(1, None), (9, 9)]
    assert _where(where({"a": 4}, filter="a = 9 -- or so")) == [(9, 9)]


def test_the_second_half_keeps_out_what_lies_beyond_in_another_column() -> None:
    upper = {"a": 5, "b": 50}
    assert cap(upper) == "(a <= 5 OR a IS NULL) AND (b <= 50 OR b IS NULL)"
    assert cap({"a": 5}) == cap({"a": 5, "b": None}) == cap(None) == ""
    read = _read(query("t", lower={"a": 1, "b": 1}, upper=upper, upper_op="<=") or "")
    assert read == [(2, 20), (None, 30), (5, 50)]
    later = _read(query("t", lower=upper, upper={"a": 100, "b": 100}, upper_op="<=") or "")
    assert later == [(3, 99), (9, 9)]


def test_a_query_is_wrapped_and_a_whole_table_needs_no_statement() -> None:
    assert query("t") is None
    assert query("t", schema="s", lower={}) is None
    assert query("t", schema="s", filter="x") == "SELECT * FROM s.t WHERE (x)"
    assert query(sql="SELECT * FROM t") == "SELECT * FROM t"
    assert query(sql="SELECT a FROM t;", lower={"a": 1}) == (
        "SELECT * FROM (SELECT a FROM t) t1 WHERE a > 1"
    )
    assert _read(query(sql="SELECT a FROM t -- all", lower={"a": 4}) or "") == [(5,), (9,)]
    with pytest.raises(SourceError):
        query(schema="s", lower={"a": 1})
    for command in ("DELETE FROM t", "SELECT 1; DELETE FROM t"):
        with pytest.raises(sqlite3.Error):
            _read(query(sql=command, lower={"a": 1}) or "")


@pytest.mark.parametrize(
    "name", ["a b", "a;", "a'", '"a"', "1a", "", "a.", ".a", "a..b", "a\n", "a--", None, 5]
)
def test_other_column_names_are_refused(name: Any) -> None:
    for call in (where, query, cap):
        with pytest.raises(SourceError):
            call(**{"upper" if call is cap else "lower": {name: 1, "b": 1}})
    assert where({"s.t.größe_1": 1}) == "s.t.größe_1 > 1"


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
def test_what_has_no_literal_is_refused(value: Any) -> None:
    with pytest.raises(WatermarkError):
        where({"a": value})


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


_BOUND = st.none() | st.integers(0, 9)
_BOUNDS = st.fixed_dictionaries({}, optional={"a": _BOUND, "b": _BOUND})


@given(
    st.lists(st.tuples(_BOUND, _BOUND)),
    _BOUNDS,
    st.sampled_from([">", ">=", "?"]),
    _BOUNDS,
    st.sampled_from(["<", "<=", "?"]),
)
def test_rows_in_memory_are_those_that_sql_reads(
    found: list[tuple[Any, Any]], start: Any, start_op: str, end: Any, end_op: str
) -> None:
    condition = where(start, end, start_op, end_op) or "TRUE"
    with sqlite3.connect(":memory:") as lite:
        lite.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        lite.executemany("INSERT INTO t VALUES (?, ?)", found)
        read = lite.execute(f"SELECT a, b FROM t WHERE {condition}").fetchall()
    held = rows([{"a": a, "b": b} for a, b in found], ["a", "b"], start, start_op, end, end_op)
    assert [(row["a"], row["b"]) for row in held] == read


def test_rows_that_cannot_be_compared_are_an_error() -> None:
    with pytest.raises(WatermarkError, match="column a"):
        rows([{"a": "x"}], ["a"], {"a": 1})
    assert rows([{"b": "x"}], ["a"], {"a": 1}) == []
    assert rows([{"b": "x"}], ["a"], {"b": 1}) == [{"b": "x"}]


def test_the_highest_values_ignore_null_and_refuse_nan() -> None:
    assert high([{"a": 1, "b": None}, {"a": 3}, {"a": 2}], ["a", "b"]) == {"a": 3}
    assert high([], ["a"]) == {}
    with pytest.raises(WatermarkError):
        high([{"a": float("nan")}], ["a"])
    with pytest.raises(WatermarkError):
        high([{"a": 1}, {"a": "2"}], ["a"])


def test_a_whole_window_has_ties_nulls_and_both_halves() -> None:
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


def test_a_column_without_a_bound_holds_its_rows_for_a_later_window() -> None:
    only_a = Window(up_to={"a": 9}, nulls_first=True)
    assert _where(window_where(only_a, ["a", "b"])) == [(1, None), (None, None)]
    nothing = Window(nulls_first=True)
    assert _where(window_where(nothing, ["a", "b"])) == [(None, None)]
    assert _where(window_where(nothing, ["a"])) == [(None, 30), (None, None)]


def test_a_time_at_the_end_of_the_calendar_that_is_none_in_utc_is_refused() -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))
    assert literal(last, "postgresql") == "timestamptz '9999-12-31 23:00:00-02:00'"
    with pytest.raises(WatermarkError):
        literal(last, "mysql")

"""The API of column watermarks, of what the daemon does not call itself."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.columns import (
    ConfigurationError,
    SourceError,
    WatermarkError,
    cap,
    chunks,
    closing_day,
    effective,
    high,
    load,
    look_back,
    params,
    query,
    remaining,
    rows,
    save,
    shift,
    stored,
    where,
)

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


ROWS = [(1, None), (2, 20), (3, 99), (None, 30), (None, None), (5, 50), (9, 9)]


def _read(statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
        return connection.execute(statement).fetchall()


def _where(condition: str) -> list[tuple[Any, ...]]:
    return _read(f"SELECT * FROM t WHERE {condition}")


@pytest.mark.parametrize(
    ("connection", "source", "result"),
    [
        ({"backward": {"days": 2}}, None, {"days": 2}),
        ({"backward_days": 2, "driver": "postgresql"}, None, {"days": 2}),
        ({"backward_days": 2, "backward": {"days": 5, "hours": 1}}, None, {"days": 5, "hours": 1}),
        ({"backward": {"days": 2}}, {"backward": {"hours": 6}}, {"hours": 6}),
        ({"backward": {"days": 2}}, {"backward_hours": 6}, {"hours": 6}),
        ({"backward": {"days": 2}}, {"backward": 0}, None),
        ({"backward": {"days": 2}}, {"backward": {"days": 0}}, None),
        ({"backward": {"days": 2}}, {"backward_days": 0}, None),
        ({"backward": {"days": 2}}, {"backward": {}}, {"days": 2}),
        ({"backward": {"days": 2}}, {"columns": ["a"]}, {"days": 2}),
        ({"backward": {"days": 2}}, {"watermark": {"backward": {"months": 1}}}, {"months": 1}),
        ({"days": 2}, None, {"days": 2}),
        ({}, {}, None),
        (None, None, None),
        ({"backward_closing_day": "10"}, None, {"closing_day": 10}),
    ],
)
def test_look_back_of_a_source_overrides_the_connection(
    connection: Any, source: Any, result: Any
) -> None:
    assert look_back(connection, source) == result


@pytest.mark.parametrize(
    "settings",
    [
        {"backward": {"days": -1}},
        {"backward_days": 1.5},
        {"backward": {"weeks": 1}},
        {"backward_weeks": 1},
        {"backward": 3},
        {"backward": "P3D"},
        {"backward": {"days": True}},
        {"backward": {"days": "three"}},
        {"backward": {"closing_day": 32}},
        {"backward": [1]},
        {"backward": {"hours": float("nan")}},
        {"backward": {"days": 10**12}},
    ],
)
def test_invalid_look_back_raises_an_error(settings: Any) -> None:
    with pytest.raises(ConfigurationError):
        look_back(settings)
    with pytest.raises(ConfigurationError):
        effective({"a": NOW}, settings, NOW)


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


def test_filter_is_added_in_parentheses_with_and() -> None:
    condition = where({"a": 4, "b": 25}, filter="a = 9 OR a = 1")
    assert condition == "(a > 4 OR b > 25) AND (a = 9 OR a = 1)"
    assert _where(condition) == [(9, 9)]
    assert _where(where({}, filter="a = 9 OR a = 1")) == [(1, None), (9, 9)]
    assert _where(where({"a": 4}, filter="a = 9 -- or so")) == [(9, 9)]


def test_upper_bound_excludes_rows_beyond_it_in_any_column() -> None:
    upper = {"a": 5, "b": 50}
    assert cap(upper) == "(a <= 5 OR a IS NULL) AND (b <= 50 OR b IS NULL)"
    assert cap({"a": 5}) == cap({"a": 5, "b": None}) == cap(None) == ""
    read = _read(query("t", lower={"a": 1, "b": 1}, upper=upper, upper_op="<=") or "")
    assert read == [(2, 20), (None, 30), (5, 50)]
    later = _read(query("t", lower=upper, upper={"a": 100, "b": 100}, upper_op="<=") or "")
    assert later == [(3, 99), (9, 9)]


def test_query_is_wrapped_and_plain_table_needs_no_statement() -> None:
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


def test_only_nothing_stored_is_none() -> None:
    assert stored(None) is None
    assert stored("{}") == {}


class _Provider:
    def __init__(self, text: Any = None, error: Exception | None = None) -> None:
        self.text, self.error, self.seen = text, error, {}

    def get_watermark(self, _id: str) -> Any:
        if self.error:
            raise self.error
        return self.text

    def update_watermark(self, key: str, text: str, **ids: Any) -> None:
        if self.error:
            raise self.error
        self.text, self.seen = text, {"key": key, **ids}


def test_saved_watermark_loads_and_ids_reach_the_provider() -> None:
    provider = _Provider()
    assert load(provider, "orders") is None
    wm = {"at": datetime(2026, 5, 4, tzinfo=UTC)}
    save(provider, "orders", wm, job_id="j", dataflow_run_id=None)
    assert provider.seen == {"key": "orders", "job_id": "j", "dataflow_run_id": None}
    assert load(provider, "orders") == wm
    save(provider, "orders", wm, attempt=2)
    nothing = {"job_id": None, "dataflow_run_id": None}
    assert provider.seen == {"key": "orders", **nothing, "attempt": 2}


def test_a_provider_that_requires_its_ids_gets_them() -> None:
    class Strict:
        def get_watermark(self, key: str, /) -> str | None:
            return kept.get(key)

        def update_watermark(
            self, key: str, text: str, /, *, job_id: str | None, dataflow_run_id: str | None
        ) -> None:
            kept[key] = text
            assert (job_id, dataflow_run_id) == (None, None)

    kept: dict[str, str] = {}
    save(Strict(), "orders", {"id": 7})
    assert load(Strict(), "orders") == {"id": 7}


def test_provider_errors_become_watermark_errors_except_its_own() -> None:
    broken = _Provider(error=KeyError("gone"))
    with pytest.raises(WatermarkError, match="Failed to load watermark") as loading:
        load(broken, "orders")
    assert isinstance(loading.value.__cause__, KeyError)
    with pytest.raises(WatermarkError, match="Failed to save watermark"):
        save(broken, "orders", {})
    own = WatermarkError("mine")
    with pytest.raises(WatermarkError) as passed:
        load(_Provider(error=own), "orders")
    assert passed.value is own
    with pytest.raises(WatermarkError) as passed:
        save(_Provider(error=own), "orders", {})
    assert passed.value is own
    for text in ("", "[]", "{", {}, 5):
        with pytest.raises(WatermarkError):
            load(_Provider(text), "orders")


def test_nothing_is_saved_that_cannot_be_read() -> None:
    provider = _Provider()
    with pytest.raises(WatermarkError):
        save(provider, "orders", {"a": float("nan")})
    assert provider.text is None


AWARE = datetime(2024, 1, 15, 14, 0, 0, 123999, tzinfo=timezone(timedelta(hours=2)))


_DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1))


def test_a_missing_value_is_not_sent() -> None:
    wm = {"updated": AWARE, "other": AWARE, "null": None}
    mapping = {"updated": "since", "null": "n", "absent": "a"}
    assert params(mapping, wm, "date") == {"since": "2024-01-15"}
    assert params(mapping, None, "date") == params(mapping, {}) == {}
    with pytest.raises(SourceError):
        params(mapping, wm, "rfc822")


def test_chunks_up_to_the_stored_value_are_finished() -> None:
    months = chunks(date(2025, 1, 1), date(2025, 4, 1), {"months": 1})
    for nothing in (None, {}, {"d": None}):
        assert remaining(months, nothing) == months
    half: list[Any] = [
        date(2025, 2, 1),
        datetime(2025, 2, 1, tzinfo=UTC),
        datetime(2025, 2, 15),
        "2025-02-01",
        {"d": date(2025, 2, 1)},
    ]
    for value in half:
        assert remaining(months, value) == months[1:]
    assert remaining(months, date(2025, 1, 31)) == months
    assert remaining(months, date(2025, 4, 1)) == []
    assert remaining(chunks(0, 20, {"step": 10}), 10) == [(10, 20)]
    assert remaining(chunks(0, 20, {"step": 10}), 0) == [(0, 10), (10, 20)]
    with pytest.raises(WatermarkError):
        remaining(months, 5)
    with pytest.raises(ConfigurationError):
        remaining(months, {"a": 1, "b": 2})


@given(_DAYS, _DAYS, st.integers(1, 12), _DAYS)
def test_remaining_chunks_end_above_the_stored_value(
    start: date, end: date, months: int, done: date
) -> None:
    every = chunks(start, end, {"months": months})
    left = remaining(every, done)
    assert left == [chunk for chunk in every if chunk[1] > done]


def test_settings_of_a_look_back_move_values_as_its_amounts_do() -> None:
    v = datetime(2026, 3, 31, 1, tzinfo=UTC)
    assert shift(v, {"backward_days": 1}) == v - timedelta(days=1)
    assert shift(v, None) == v == shift(v, {})
    assert effective({"at": v}, {"backward": {"days": "1"}}) == {"at": v - timedelta(days=1)}
    assert effective({"at": v}, None) == {"at": v}
    assert effective({"at": v}, {"backward": {"closing_day": 10}}, NOW)["at"] == closing_day(
        NOW, 10
    )
    for wrong in (0, 32, -1, 1.5):
        with pytest.raises(ConfigurationError):
            closing_day(NOW, wrong)  # type: ignore[arg-type]  # what a setting may hold

"""The next window, and the bounds that are refused before a read."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import WatermarkError
from blizzard_py.reading import BoundKind, Nulls, Window
from blizzard_py.slices.windows import last_full_tick, window

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_the_first_window_reads_everything_up_to_the_bound() -> None:
    for nothing in (None, {}, {"at": None}):
        found = window(nothing, {"at": NOW}, {"days": 3}, NOW, "settled")
        assert found == Window(up_to={"at": NOW}, nulls_first=True)


@pytest.mark.parametrize("nulls", ["never", "fail"])
def test_nulls_are_read_only_by_first_window_and_on_request(nulls: Nulls) -> None:
    found = window({}, {"at": NOW}, {}, NOW, "settled", nulls)
    assert not found.nulls_first
    later = window({"at": NOW - HOUR}, {"at": NOW}, {}, NOW, "settled", "first")
    assert not later.nulls_first


def test_a_look_back_moves_the_beginning_only() -> None:
    stored = {"at": NOW - HOUR}
    found = window(stored, {"at": NOW}, {"days": 1}, NOW, "settled")
    low = {"at": NOW - HOUR - timedelta(days=1)}
    assert found == Window(after=stored, up_to={"at": NOW}, low=low)


def test_nothing_is_read_while_the_bound_has_not_risen() -> None:
    stored = {"at": NOW, "id": 5}
    assert window(stored, {"at": NOW, "id": 5}, {"days": 1}, NOW, "settled") is None
    assert window(stored, {}, {}, NOW, "settled") is None
    assert window(stored, {"at": None}, {}, NOW, "max") is None
    assert window(None, {}, {}, NOW, "settled") is None


def test_one_rising_column_opens_a_window_and_others_stay() -> None:
    found = window({"a": 1, "b": 5}, {"a": 2}, {}, NOW, "max")
    assert found.up_to == {"a": 2, "b": 5}
    assert found.inclusive
    fresh = window({"a": 1}, {"a": 1, "b": 5}, {}, NOW, "max")
    assert fresh.up_to == {"a": 1, "b": 5}


@pytest.mark.parametrize(
    ("kind", "inclusive"),
    [("settled", False), ("clock", False), ("version", False), ("max", True), ("rows", True)],
)
def test_ties_are_read_again_where_rows_may_join_the_bound(
    kind: BoundKind, inclusive: bool
) -> None:
    found = window({"id": 5}, {"id": 7}, {}, NOW, kind)
    assert found.inclusive is inclusive
    first = window({}, {"id": 7}, {}, NOW, kind)
    assert not first.inclusive


def test_lower_or_foreign_version_is_passed_to_the_connection() -> None:
    stored = {"version": 5, "table": "m"}
    assert window(stored, stored, {}, NOW, "version") is None
    for bound in ({"version": 4}, {"table": "a"}, {"table": "z"}):
        found = window(stored, stored | bound, {}, NOW, "version")
        assert found.up_to == stored | bound


@pytest.mark.parametrize("kind", ["settled", "clock", "max", "rows"])
def test_a_bound_below_the_stored_value_stops_and_names_both(kind: BoundKind) -> None:
    stored, bound = ({"id": 50}, {"id": 7})
    with pytest.raises(WatermarkError, match=r"7, below .* 50.*checkpoint set"):
        window(stored, bound, {}, NOW, kind)
    with pytest.raises(WatermarkError, match="below"):
        window({"at": NOW}, {"at": NOW - 2 * HOUR}, {}, NOW, kind)


def test_a_clock_that_falls_back_a_little_is_waited_out() -> None:
    for kind in ("settled", "clock"):
        assert window({"at": NOW}, {"at": NOW - HOUR}, {}, NOW, kind) is None  # type: ignore[arg-type]  # a literal
        assert window({"d": date(2026, 5, 4)}, {"d": date(2026, 5, 3)}, {}, NOW, kind) is None  # type: ignore[arg-type]  # as above
    with pytest.raises(WatermarkError):
        window({"at": NOW}, {"at": NOW - HOUR}, {}, NOW, "max")
    with pytest.raises(WatermarkError):
        window({"d": date(2026, 5, 4)}, {"d": date(2026, 5, 2)}, {}, NOW, "clock")


@pytest.mark.parametrize(
    ("stored", "bound"),
    [
        ({"id": 5}, {"id": "7"}),
        ({"id": 5}, {"id": float("nan")}),
        ({}, {"id": float("inf")}),
        ({}, {"id": object()}),
        ({"at": NOW}, {"at": datetime(2026, 6, 1)}),
    ],
)
def test_planning_rejects_values_unfit_for_a_watermark(stored: Any, bound: Any) -> None:
    with pytest.raises(WatermarkError):
        window(stored, bound, {}, NOW, "max")


@pytest.mark.parametrize(
    ("value", "type_", "lowered"),
    [
        (NOW, "date", date(2026, 5, 3)),
        (date(2026, 5, 4), " DATE ", date(2026, 5, 3)),
        (NOW, "timestamp(0) without time zone", NOW - timedelta(seconds=1)),
        (NOW + timedelta(microseconds=1), "datetime", NOW - timedelta(seconds=1)),
        (NOW + timedelta(seconds=1.9995), "datetime(3)", NOW + timedelta(seconds=1.998)),
        (NOW, "timestamp[ms]", NOW - timedelta(milliseconds=1)),
        (NOW + timedelta(seconds=59), "smalldatetime", NOW - timedelta(minutes=1)),
        (NOW, "timestamp with time zone", NOW),
        (NOW, "timestamptz(6)", NOW),
        (NOW, "datetime2(7)", NOW),
        (5, "date", 5),
        ("2026-05-04", "date", "2026-05-04"),
        (5, "bigint", 5),
    ],
)
def test_a_bound_is_lowered_to_the_last_full_tick(value: Any, type_: str, lowered: Any) -> None:
    assert last_full_tick(value, type_) == lowered


@pytest.mark.promise("G-134")
@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1)), st.integers(0, 6))
def test_no_later_row_gets_a_value_at_or_below_lowered_bound(bound: datetime, digits: int) -> None:
    tick = timedelta(microseconds=10 ** (6 - digits))
    lowered = last_full_tick(bound, f"timestamp({digits})")
    later = bound + timedelta(microseconds=1)
    since = later - later.replace(hour=0, minute=0, second=0, microsecond=0)
    kept = later - since % tick  # cut; a column that rounds keeps this or the next
    assert lowered < kept
    assert bound - lowered <= 2 * tick

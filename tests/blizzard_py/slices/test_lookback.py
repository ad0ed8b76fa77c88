"""Look-backs: which settings count, and how far each kind of value moves."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blizzard_py.slices.iso import IsoText
from blizzard_py.slices.lookback import closing_day, effective, shift

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


def test_hours_and_days_shift_before_months_with_clamped_day() -> None:
    v = datetime(2026, 3, 31, 1, tzinfo=UTC)
    assert shift(v, {"months": 1}) == datetime(2026, 2, 28, 1, tzinfo=UTC)
    assert shift(v, {"hours": 2, "months": 1}) == datetime(2026, 2, 28, 23, tzinfo=UTC)
    assert shift(v, {"days": 30, "months": 1}) == datetime(2026, 2, 1, 1, tzinfo=UTC)
    assert shift(datetime(2024, 2, 29), {"years": 1}) == datetime(2023, 2, 28)
    assert shift(datetime(2024, 3, 31), {"years": 1, "months": 1}) == datetime(2023, 2, 28)
    assert shift(v, {}) == v


def test_shift_keeps_date_and_text_form_and_ignores_other_values() -> None:
    assert shift(date(2026, 5, 4), {"hours": 1}) == date(2026, 5, 3)
    assert shift("2026-05-04", {"days": 1}) == "2026-05-03"
    assert shift("2026-05-04 11:59:58.1234567Z", {"days": 1}) == "2026-05-03 11:59:58.1234567Z"
    assert shift("2026-05-04T11:59+0200", {"hours": 12}) == "2026-05-03T23:59+0200"
    for same in ("20260504", 20260504, "x2026-05-04", "2026-13-04", "", None, 1.5, True, [NOW]):
        assert shift(same, {"days": 1}) == same


@pytest.mark.parametrize("b", [{"years": 3000}, {"days": 10**9 - 1}, {"months": 10**6}])
def test_before_the_first_year_there_is_nothing(b: dict[str, int]) -> None:
    assert shift(NOW, b) == datetime(1, 1, 2, tzinfo=UTC)
    assert shift(datetime(2026, 1, 1), b) == datetime(1, 1, 2)
    assert shift(date(2026, 1, 1), b) == date(1, 1, 2)
    assert shift("2026-01-01 00:00:00", b) == "0001-01-02 00:00:00"


def test_until_the_closing_day_last_month_is_open() -> None:
    assert closing_day(NOW, 10, {}) == datetime(2026, 2, 1, tzinfo=UTC)
    assert closing_day(NOW, 8, {}) == datetime(2026, 2, 1, tzinfo=UTC)
    assert closing_day(NOW, 7, {}) == datetime(2026, 3, 1, tzinfo=UTC)
    assert closing_day(NOW, 7, {"months": 3, "years": 1}) == datetime(2024, 12, 1, tzinfo=UTC)
    january = datetime(2026, 1, 5, tzinfo=UTC)
    assert closing_day(january, 10, {}) == datetime(2025, 12, 1, tzinfo=UTC)
    behind = datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert closing_day(behind, 1, {}) == datetime(2026, 2, 1, tzinfo=UTC)  # 28 February in UTC


def test_closing_day_never_lies_above_the_stored_value() -> None:
    wm = {
        "old": datetime(2026, 1, 5, tzinfo=UTC),
        "new": datetime(2026, 3, 7, tzinfo=UTC),
        "naive": datetime(2026, 3, 7),
        "day": date(2026, 3, 7),
        "text": "2026-03-07 10:00:00.500+02:00",
        "text_day": "2026-03-07",
        "number": 5,
        "null": None,
    }
    assert effective(wm, {"closing_day": 10, "days": 400}, NOW) == {
        "old": datetime(2026, 1, 5, tzinfo=UTC),
        "new": datetime(2026, 2, 1, tzinfo=UTC),
        "naive": datetime(2026, 2, 1),
        "day": date(2026, 2, 1),
        "text": "2026-02-01 02:00:00.000+02:00",
        "text_day": "2026-02-01",
        "number": 5,
        "null": None,
    }
    assert effective(None, {"days": 1}) == {}
    assert effective(wm, {}) == wm


_BACK = st.fixed_dictionaries(
    {},
    optional={
        "years": st.integers(0, 3000),
        "months": st.integers(0, 500),
        "days": st.integers(0, 100_000),
        "hours": st.integers(0, 100_000),
        "closing_day": st.integers(0, 31),
    },
)
_FIXED = st.sampled_from([UTC, timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))])
_AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=_FIXED)


@given(_AWARE, _BACK, _AWARE)
def test_effective_is_never_above_the_stored_value(
    value: datetime, back: dict[str, int], now: datetime
) -> None:
    naive, text = value.replace(tzinfo=None), value.isoformat(" ", "seconds")
    wm = {"a": value, "n": naive, "d": value.date(), "t": text, "td": text[:10]}
    low = effective(wm, back, now)
    assert low["a"] <= value
    assert low["n"] <= naive
    assert type(low["d"]) is date
    assert low["d"] <= value.date()
    assert len(low["t"]) == len(text)
    assert low["td"] <= text[:10]
    form, before = IsoText.of(low["t"]), IsoText.of(text)
    assert form.moment() <= before.moment()


@given(_AWARE, st.integers(0, 500))
def test_months_clamp_the_day_and_nothing_else(value: datetime, months: int) -> None:
    back = shift(value, {"months": months})
    assume(value.year * 12 + value.month - months > 24)
    assert (value.year * 12 + value.month) - (back.year * 12 + back.month) == months
    assert back.timetz() == value.timetz()
    assert back.day == value.day or (back + timedelta(days=1)).day == 1

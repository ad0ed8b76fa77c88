"""Chunks, ranges and what of them is sent: half-open, without gap or overlap."""

# ruff: noqa: DTZ001, DTZ901  # times without a zone are a part of what is tested

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import ConfigurationError, SourceError
from blizzard_py.connections.sent_values import param, sent_to
from blizzard_py.slices.cutting import chunks, ranges

AWARE = datetime(2024, 1, 15, 14, 0, 0, 123999, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("format_", "aware", "day"),
    [
        ("iso", "2024-01-15T14:00:00.123999+02:00", "2024-01-15"),
        ("date", "2024-01-15", "2024-01-15"),
        ("datetime", "2024-01-15T12:00:00", "2024-01-15T00:00:00"),
        ("datetime_ms", "2024-01-15T12:00:00.123", "2024-01-15T00:00:00.000"),
        ("timestamp", "1705320000.123999", "1705276800.0"),
        ("timestamp_ms", "1705320000123", "1705276800000"),
    ],
)
def test_times_are_sent_as_the_api_takes_them(format_: str, aware: str, day: str) -> None:
    assert param(AWARE, format_) == aware
    assert param(date(2024, 1, 15), format_) == day
    assert param(AWARE.isoformat(), format_) == aware
    naive = AWARE.astimezone(UTC).replace(tzinfo=None)
    if format_ != "iso":
        assert param(naive, format_) == aware
    late = datetime(2024, 1, 16, 1, tzinfo=timezone(timedelta(hours=2)))
    assert param(late, "date") == "2024-01-15"


@pytest.mark.parametrize("value", [5, 1.5, "20240115", "soon", "", True, time(1), None, [AWARE]])
def test_invalid_time_raises_source_error(value: Any) -> None:
    with pytest.raises(SourceError):
        param(value, "iso")
    with pytest.raises(SourceError):
        sent_to(value, "1ms")
    with pytest.raises(SourceError):
        ranges(value, AWARE, "day")


def test_the_end_that_is_sent_is_lowered_by_the_apis_precision() -> None:
    end = datetime(2024, 1, 15, tzinfo=UTC)
    assert sent_to(end, "1ms") == end - timedelta(milliseconds=1)
    assert sent_to(end, "1s") == end - timedelta(seconds=1)
    assert sent_to(end, "1day") == end - timedelta(days=1)
    assert sent_to(date(2024, 1, 15), "1day") == date(2024, 1, 14)
    assert sent_to(date(2024, 1, 15), "1s") == end - timedelta(seconds=1)
    assert sent_to(end, None) == sent_to(end) == end
    with pytest.raises(SourceError):
        sent_to(end, "1us")


def test_ranges_are_counted_from_their_start() -> None:
    a = datetime(2024, 1, 31, 5)
    assert ranges(a, datetime(2024, 4, 10), "month", 1) == [
        (a, datetime(2024, 2, 29, 5)),
        (datetime(2024, 2, 29, 5), datetime(2024, 3, 31, 5)),
        (datetime(2024, 3, 31, 5), datetime(2024, 4, 10)),
    ]
    assert ranges(date(2024, 1, 1), date(2024, 1, 4), "days", 2) == [
        (date(2024, 1, 1), date(2024, 1, 3)),
        (date(2024, 1, 3), date(2024, 1, 4)),
    ]
    assert ranges(date(2024, 1, 1), date(2024, 1, 2), "hour", 12)[0] == (
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 12, tzinfo=UTC),
    )
    assert ranges("2023-07-01", datetime(2023, 7, 2, 6, tzinfo=UTC), "day") == [
        (datetime(2023, 7, 1, tzinfo=UTC), datetime(2023, 7, 2, tzinfo=UTC)),
        (datetime(2023, 7, 2, tzinfo=UTC), datetime(2023, 7, 2, 6, tzinfo=UTC)),
    ]
    assert ranges(a, a, "day") == ranges(a, a - timedelta(1), "day") == []
    assert ranges(datetime(9999, 12, 31), datetime.max, "year", 5) == [
        (datetime(9999, 12, 31), datetime.max)
    ]


@pytest.mark.parametrize(
    ("unit", "amount"),
    [
        ("fortnight", 1),
        ("", 1),
        (None, 1),
        ("day", 0),
        ("day", -1),
        ("day", 1.5),
        ("day", True),
        ("day", "1"),
    ],
)
def test_other_units_and_amounts_are_refused(unit: Any, amount: Any) -> None:
    with pytest.raises(SourceError):
        ranges(date(2024, 1, 1), date(2024, 2, 1), unit, amount)


def test_mixed_zone_ends_and_endless_lists_are_refused() -> None:
    with pytest.raises(SourceError):
        ranges(datetime(2024, 1, 1), AWARE, "day")
    with pytest.raises(SourceError, match="pieces"):
        ranges(date(1, 1, 1), date(9999, 1, 1), "minute")
    with pytest.raises(ConfigurationError, match="pieces"):
        chunks(0, 10**15, {"step": 1})


@pytest.mark.parametrize(
    ("start", "end", "interval", "cuts"),
    [
        (date(2025, 1, 15), date(2025, 3, 10), {"months": 1}, [date(2025, 2, 1), date(2025, 3, 1)]),
        (
            date(2025, 2, 1),
            date(2025, 12, 1),
            {"months": 3},
            [date(2025, 4, 1), date(2025, 7, 1), date(2025, 10, 1)],
        ),
        (date(2023, 6, 1), date(2028, 1, 1), {"years": 2}, [date(2025, 1, 1), date(2027, 1, 1)]),
        (date(2026, 5, 6), date(2026, 5, 20), {"weeks": 1}, [date(2026, 5, 11), date(2026, 5, 18)]),
        (date(2026, 5, 6), date(2026, 5, 11), {"days": 2}, [date(2026, 5, 8), date(2026, 5, 10)]),
        (
            datetime(2026, 5, 6, 5),
            datetime(2026, 5, 6, 20),
            {"hours": 6},
            [datetime(2026, 5, 6, h) for h in (6, 12, 18)],
        ),
        (
            datetime(2026, 5, 6, 5),
            datetime(2026, 5, 8, 1),
            {"days": 1},
            [datetime(2026, 5, 7), datetime(2026, 5, 8)],
        ),
        (
            datetime(2026, 5, 6, 5, 10),
            datetime(2026, 5, 6, 6),
            {"minutes": 30},
            [datetime(2026, 5, 6, 5, 30)],
        ),
        (5, 35, {"step": 10}, [10, 20, 30]),
        (-15, 0, {"step": 10}, [-10]),
        (0, 20, {"step": 10}, [10]),
        (0, 20, None, []),
        (date(2025, 1, 15), date(2025, 3, 10), None, []),
        (date(2025, 1, 15), date(2025, 3, 10), "months=1", [date(2025, 2, 1), date(2025, 3, 1)]),
        (date(2025, 1, 15), date(2025, 3, 10), "1 month", [date(2025, 2, 1), date(2025, 3, 1)]),
        (date(2025, 1, 15), date(2025, 1, 18), "1d1d", [date(2025, 1, 17)]),
        (date(2025, 1, 15), date(2025, 3, 10), "P1M", [date(2025, 2, 1), date(2025, 3, 1)]),
        ("2025-01-15", "2025-03-10", {"month": 1}, ["2025-02-01", "2025-03-01"]),
        ("2025-01-15T03:00:00Z", "2025-02-02T00:00:00Z", {"months": 1}, ["2025-02-01T00:00:00Z"]),
    ],
)
def test_chunks_are_cut_on_calendar_boundaries(
    start: Any, end: Any, interval: Any, cuts: list[Any]
) -> None:
    assert chunks(start, end, interval) == list(pairwise([start, *cuts, end]))
    assert chunks(end, end, interval) == chunks(end, start, interval) == []


@pytest.mark.parametrize(
    ("start", "end", "interval"),
    [
        (0, 10, {"days": 1}),
        (date(2025, 1, 1), date(2025, 2, 1), {"step": 5}),
        (date(2025, 1, 1), 5, {"days": 1}),
        (0, 10, {"step": 0}),
        (0, 10, {"step": -1}),
        (0, 10, {"step": 1.5}),
        (0, 10, {"step": True}),
        (0, 10, {"fortnights": 1}),
        (0, 10, {"months": 1, "days": 1}),
        (0, 10, "months"),
        (0.5, 10.5, {"step": 1}),
        (False, True, {"step": 1}),
        ("soon", "later", {"days": 1}),
        (datetime(2025, 1, 1), AWARE, {"days": 1}),
        ("2025-01-01", "2025-01-02T12:00:00", {"days": 1}),
        ("2025-01-01", "2025-01-02", {"hours": 1}),
    ],
)
def test_chunks_that_make_no_sense_are_refused(start: Any, end: Any, interval: Any) -> None:
    with pytest.raises(ConfigurationError):
        chunks(start, end, interval)


_DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1))
_UNITS = st.sampled_from(["days", "weeks", "months", "years"])


@given(_DAYS, _DAYS, _UNITS, st.integers(1, 40))
def test_chunks_cover_the_range_exactly(start: date, end: date, unit: str, n: int) -> None:
    found = chunks(start, end, {unit: n})
    assert bool(found) == (start < end)
    if not found:
        return
    assert (found[0][0], found[-1][1]) == (start, end)
    assert all(left[1] == right[0] for left, right in pairwise(found))
    for _, cut in found[:-1]:
        assert unit != "weeks" or cut.weekday() == 0
        assert unit not in {"months", "years"} or cut.day == 1
        assert unit != "years" or (cut.month == 1 and (cut.year - 1) % n == 0)
        assert unit != "months" or ((cut.year - 1) * 12 + cut.month - 1) % n == 0


@given(st.integers(-(10**12), 10**12), st.integers(0, 500), st.integers(1, 50))
def test_integer_chunks_are_cut_on_multiples(start: int, length: int, step: int) -> None:
    found = chunks(start, start + length, {"step": step})
    assert [i for low, high in found for i in range(low, high)] == list(
        range(start, start + length)
    )
    assert all(cut % step == 0 for _, cut in found[:-1])


_MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2010, 1, 1))


@given(_MOMENTS, _MOMENTS, st.sampled_from(["day", "week", "month", "year"]), st.integers(1, 30))
def test_ranges_cover_exactly(a: datetime, b: datetime, unit: str, amount: int) -> None:
    found = ranges(a, b, unit, amount)
    assert bool(found) == (a < b)
    if found:
        assert (found[0][0], found[-1][1]) == (a, b)
        assert all(left[1] == right[0] for left, right in pairwise(found))
        assert all(low < high for low, high in found)

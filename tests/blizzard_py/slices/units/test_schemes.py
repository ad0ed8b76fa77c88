"""Partitions against a clock that is walked through, day by day; parts, gaps and refusals."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import UnitError
from blizzard_py.slices.instants import resolve
from blizzard_py.slices.units.schemes import composite, partitions, scheme

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # skips midnights
    "America/Havana",  # has midnights twice
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # by half an hour
    "Pacific/Apia",  # skips a day in 2011
    "Pacific/Kwajalein",  # skips a day in 1993
]
SOME = datetime(2020, 1, 1, tzinfo=UTC)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]  # year to microsecond


def ends(pairs: list[tuple[datetime, datetime]]) -> list[tuple[str, str]]:
    return [(f"{low:%Y-%m-%d}", f"{high:%Y-%m-%d}") for low, high in pairs]


class _Clock:
    """A zone's wall clock that can only be looked at, walked forwards."""

    def __init__(self, zone: str, at: datetime) -> None:
        self.zone, self.at = ZoneInfo(zone), at

    def until(self, wall: datetime) -> datetime:
        """Return the first moment at which the clock shows ``wall`` or later."""
        for step in (20, 2, 0.5):  # hours; since 1984 these zones jump on half hours
            later = self.at + timedelta(hours=step)
            while later.astimezone(self.zone).replace(tzinfo=None) < wall:
                self.at, later = later, later + timedelta(hours=step)
        if self.at.astimezone(self.zone).replace(tzinfo=None) < wall:
            self.at = later
        return self.at


def _is_boundary(by: str, first: date, day: date) -> bool:
    if by == "weekly":
        return day.weekday() == first.weekday()
    last = calendar.monthrange(day.year, day.month)[1]
    in_month = day.day == min(first.day, last)
    return by == "daily" or (in_month and (by == "monthly" or day.month == first.month))


@pytest.mark.parametrize(
    ("zone", "wall"),
    [(zone, "1984-01-31 00:00:00") for zone in ZONES]
    + [(zone, "1984-02-29 02:30:00") for zone in ("Europe/Berlin", "Australia/Lord_Howe")],
)
def test_forty_years_are_those_of_a_clock_that_is_walked_through(zone: str, wall: str) -> None:
    start = resolve(wall, SOME, zone)
    first = datetime.fromisoformat(wall)
    clock = _Clock(zone, start)
    expected: dict[str, list[datetime]] = {by: [] for by in SCHEMES}
    day = first
    for _ in range(40 * 365):
        day += timedelta(days=1)
        reached = clock.until(day)
        for by, found in expected.items():
            if _is_boundary(by, first.date(), day.date()) and [reached] != found[-1:]:
                found.append(reached)
    end = clock.at
    for by, boundaries in expected.items():
        if boundaries[-1] < end:
            boundaries.append(end)
        assert partitions(start, end, by, zone=zone) == list(pairwise([start, *boundaries]))


SCHEMES = ("daily", "weekly", "monthly", "yearly")


def test_days_have_23_and_25_hours_and_hours_are_absolute() -> None:
    start, end = utc(2021, 3, 26, 23), utc(2021, 3, 29, 22)
    days = partitions(start, end, "daily", zone="Europe/Berlin")
    assert [(high - low).total_seconds() / 3600 for low, high in days] == [24, 23, 24]
    hours = partitions(start, end, "hourly", zone="Europe/Berlin")
    assert {high - low for low, high in hours} == {timedelta(hours=1)}
    autumn = partitions(utc(2021, 10, 29, 22), utc(2021, 11, 1, 23), "daily", zone="Europe/Berlin")
    assert [(high - low).total_seconds() / 3600 for low, high in autumn] == [24, 25, 24]


def test_a_day_that_a_zone_skips_is_no_partition() -> None:
    start = resolve("2011-12-28", SOME, "Pacific/Apia")
    end = resolve("2012-01-02", SOME, "Pacific/Apia")
    days = partitions(start, end, "daily", zone="Pacific/Apia")
    assert [low.astimezone(ZoneInfo("Pacific/Apia")).day for low, _ in days] == [28, 29, 31, 1]


def test_months_from_a_31st_come_back_to_it() -> None:
    found = partitions(utc(2020, 1, 31), utc(2020, 6, 15), "monthly")
    assert [f"{low:%m-%d}" for low, _ in found] == ["01-31", "02-29", "03-31", "04-30", "05-31"]
    leap = partitions(utc(2020, 2, 29), utc(2025, 1, 1), "yearly")
    assert [f"{low:%y-%m-%d}" for low, _ in leap] == [
        "20-02-29", "21-02-28", "22-02-28", "23-02-28", "24-02-29",
    ]  # fmt: skip


def test_the_examples_of_the_specification() -> None:
    months = partitions(utc(2019, 1, 1), utc(2020, 2, 21), "monthly")
    assert len(months) == 14
    assert ends(months)[-1] == ("2020-02-01", "2020-02-21")
    later = partitions(utc(2019, 1, 1), utc(2020, 2, 22), "monthly")
    assert later[:-1] == months[:-1]
    weeks = partitions(utc(2020, 1, 6), utc(2020, 2, 21), "weekly")
    assert ends(weeks)[-1] == ("2020-02-17", "2020-02-21")
    hours_in = partitions(utc(2020, 2, 19, 10), utc(2020, 2, 21, 12), "daily")
    assert [low.hour for low, _ in hours_in] == [10, 10, 10]


def test_incomplete_part_waits_unless_partial_is_set() -> None:
    start, end = utc(2020, 1, 1), utc(2020, 3, 10)
    assert ends(partitions(start, end, "monthly", partial=False))[-1] == (
        "2020-02-01",
        "2020-03-01",
    )
    whole = utc(2020, 3, 1)
    assert partitions(start, whole, "monthly", False) == partitions(start, whole, "monthly")
    assert partitions(start, utc(2020, 1, 9), "monthly", partial=False) == []
    assert partitions(start, end, partial=False) == [(start, end)]


def test_no_partitions_when_end_is_not_after_start() -> None:
    assert partitions(SOME, SOME, "daily") == []
    assert partitions(SOME, SOME - timedelta(days=9)) == []
    assert composite(SOME, SOME, [("daily", SOME, SOME + timedelta(days=1))]) == ([], [])


@given(
    st.datetimes(min_value=datetime(1980, 1, 1), max_value=datetime(2030, 1, 1)),  # noqa: DTZ001  # drawn without
    st.timedeltas(timedelta(minutes=1), timedelta(days=900)),
    st.timedeltas(timedelta(0), timedelta(days=400)),
    st.sampled_from(["hourly", *SCHEMES]),
    st.sampled_from(ZONES),
)
def test_partitions_stay_and_only_the_last_grows(
    wall: datetime, length: timedelta, more: timedelta, by: str, zone: str
) -> None:
    start = resolve(wall, SOME, zone)
    length = min(length, timedelta(days=30)) if by == "hourly" else length
    before = partitions(start, start + length, by, zone=zone)
    after = partitions(start, start + length + min(more, length), by, zone=zone)
    assert before[:-1] == after[: len(before) - 1]
    assert before[-1][0] == after[len(before) - 1][0]
    assert before[0][0] == start
    assert all(low < high for low, high in after)
    assert all(high == low for (_, high), (low, _) in pairwise(after))
    whole = partitions(start, start + length, by, partial=False, zone=zone)
    assert whole in (before, before[:-1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Monthly", "monthly"), (" DAILY ", "daily"), ("", "none"), (None, "none"), ("NONE", "none")],
)
def test_scheme_names_are_normalized_to_lower_case(text: Any, expected: str) -> None:
    assert scheme(text) == expected


@pytest.mark.parametrize("text", ["quarterly", "month", 5, [], "daily,hourly", True])
def test_unknown_schemes_are_refused(text: Any) -> None:
    with pytest.raises(UnitError, match="hourly"):
        scheme(text)
    with pytest.raises(UnitError):
        partitions(SOME, SOME + timedelta(days=1), text)


def test_too_many_partitions_are_refused_with_their_number() -> None:
    with pytest.raises(UnitError, match="1,051,896"):
        partitions(utc(1900, 1, 1), utc(2020, 1, 1), "hourly")
    most = partitions(utc(2000, 1, 1), utc(2000, 1, 1) + timedelta(hours=200_000), "hourly")
    assert len(most) == 200_000
    with pytest.raises(UnitError, match="200,001"):
        partitions(utc(2000, 1, 1), utc(2000, 1, 1) + timedelta(hours=200_001), "hourly")
    start, half = utc(2000, 1, 1), utc(2000, 1, 1) + timedelta(hours=150_000)
    parts = [("hourly", start, half), ("hourly", half, half + timedelta(hours=60_000))]
    with pytest.raises(UnitError, match="210,000"):
        composite(start, utc(2025, 1, 1), parts)


def test_the_calendars_ends_are_no_trap() -> None:
    first, last = utc(1, 1, 1), utc(9999, 12, 31, 23)
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        try:
            found = partitions(first, last, "yearly", zone=zone)
        except UnitError:
            continue  # the first day is none in this zone
        assert found[0][0] == first
        assert found[-1][1] == last


@pytest.mark.parametrize("wrong", ["2020-01-01", None, 5, datetime(2020, 1, 1), date(2020, 1, 1)])  # noqa: DTZ001  # no zone
def test_ends_are_times_with_a_zone(wrong: Any) -> None:
    with pytest.raises(UnitError):
        partitions(wrong, SOME, "daily")
    with pytest.raises(UnitError):
        composite(SOME, wrong, [("daily", SOME, SOME)])


def test_parts_have_schemes_of_their_own_and_are_sorted() -> None:
    parts = [
        ("monthly", utc(2017, 1, 1), utc(2018, 1, 1)),
        ("Yearly", utc(2015, 1, 1), utc(2017, 1, 1)),
    ]
    pairs, gaps = composite(utc(2015, 1, 1), utc(2017, 3, 10), parts)
    assert ends(pairs) == [
        ("2015-01-01", "2016-01-01"),
        ("2016-01-01", "2017-01-01"),
        ("2017-01-01", "2017-02-01"),
        ("2017-02-01", "2017-03-01"),
        ("2017-03-01", "2017-03-10"),
    ]
    assert gaps == []
    mappings = [dict(zip(("by", "from", "to"), part, strict=True)) for part in parts]
    assert composite(utc(2015, 1, 1), utc(2017, 3, 10), mappings) == (pairs, gaps)


def test_gaps_are_what_nothing_will_ever_read() -> None:
    parts = [
        ("yearly", utc(2015, 1, 1), utc(2016, 7, 1)),
        ("monthly", utc(2017, 1, 1), utc(2017, 3, 1)),
    ]
    start, end = utc(2014, 1, 1), utc(2018, 1, 1)
    pairs, gaps = composite(start, end, parts)
    assert len(pairs) == 4
    assert ends(gaps) == [
        ("2014-01-01", "2015-01-01"),
        ("2016-07-01", "2017-01-01"),
        ("2017-03-01", "2018-01-01"),
    ]
    _, inside = composite(start, end, parts, partial=False)
    assert ends(inside)[1] == ("2016-01-01", "2017-01-01")


def test_waiting_part_is_not_reported_as_a_gap() -> None:
    parts = [
        ("yearly", utc(2015, 1, 1), utc(2015, 7, 1)),
        ("monthly", utc(2015, 7, 1), utc(2030, 1, 1)),
    ]
    pairs, gaps = composite(utc(2015, 1, 1), utc(2015, 8, 20), parts, partial=False)
    assert ends(pairs) == [("2015-07-01", "2015-08-01")]
    assert ends(gaps) == [("2015-01-01", "2015-07-01")]
    assert composite(utc(2015, 7, 1), utc(2015, 7, 20), parts, partial=False) == ([], [])


def test_parts_are_cut_to_the_range() -> None:
    parts = [("monthly", utc(2000, 1, 15), utc(2050, 1, 1))]
    pairs, gaps = composite(utc(2020, 1, 1), utc(2020, 2, 10), parts)
    assert ends(pairs) == [("2020-01-01", "2020-02-01"), ("2020-02-01", "2020-02-10")]
    assert gaps == []
    assert composite(utc(1990, 1, 1), utc(1991, 1, 1), parts) == (
        [],
        [(utc(1990, 1, 1), utc(1991, 1, 1))],
    )


@pytest.mark.parametrize(
    "parts",
    [
        [],
        None,
        "daily",
        {"by": "daily"},
        [("daily", utc(2020, 1, 1))],
        [("daily", utc(2020, 1, 1), None)],
        [("daily", None, utc(2020, 1, 1))],
        [{"by": "daily", "from": utc(2020, 1, 1)}],
        [{"by": "daily", "from": utc(2020, 1, 1), "to": utc(2020, 2, 1), "zone": "UTC"}],
        [("never", utc(2020, 1, 1), utc(2020, 2, 1))],
        [("daily", "2020-01-01", "2020-02-01")],
        [("daily", utc(2020, 1, 1), utc(2020, 2, 1)), ("daily", utc(2020, 1, 31), utc(2020, 3, 1))],
        [("daily", utc(2020, 1, 1), utc(2020, 9, 1)), ("daily", utc(2020, 2, 1), utc(2020, 3, 1))],
        [("daily", utc(2020, 1, 1), utc(2020, 2, 1))] * 2,
        ["daily"],
        [7],
    ],
)
def test_parts_that_overlap_or_miss_something_are_refused(parts: Any) -> None:
    with pytest.raises(UnitError):
        composite(utc(2019, 1, 1), utc(2021, 1, 1), parts)

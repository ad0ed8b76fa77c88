"""Configured instants: their meaning, their zone, and invalid values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import ConfigError, UnitError
from blizzard_py.slices.instants import moment, resolve, stamp

NOW = datetime(2021, 7, 5, 18, 20, 33, 999_999, tzinfo=UTC)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]  # year to microsecond


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2021-07-05", "UTC", utc(2021, 7, 5)),
        (" 2021-07-05 ", "UTC", utc(2021, 7, 5)),
        ("2021-07-05", "Europe/Berlin", utc(2021, 7, 4, 22)),
        ("2021-07-05", "+02:00", utc(2021, 7, 4, 22)),
        ("2021-07-05 18:20:00", "UTC", utc(2021, 7, 5, 18, 20)),
        ("2021-07-05T18:20:00", "America/Los_Angeles", utc(2021, 7, 6, 1, 20)),
        ("2021-07-05 18:20:00.1", "UTC", utc(2021, 7, 5, 18, 20, 0, 100_000)),
        ("2021-07-05 18:20:00.999999999", "UTC", utc(2021, 7, 5, 18, 20, 0, 999_000)),
        ("2021-07-05 18:20:00.0009", "UTC", utc(2021, 7, 5, 18, 20)),
        ("2021-07-05T18:20:00Z", "Europe/Berlin", utc(2021, 7, 5, 18, 20)),
        ("2021-07-05T18:20:00.123456Z", "Asia/Tokyo", utc(2021, 7, 5, 18, 20, 0, 123_000)),
        ("2021-07-05 18:20:00+02:00", "UTC", utc(2021, 7, 5, 16, 20)),
        ("2021-07-05 18:20:00+0200", "UTC", utc(2021, 7, 5, 16, 20)),
        ("2021-07-05 18:20:00.5-0330", "UTC", utc(2021, 7, 5, 21, 50, 0, 500_000)),
        ("2021-01-05 18:20:00PST", "UTC", utc(2021, 1, 6, 2, 20)),
        ("2021-07-05 18:20:00 PST", "UTC", utc(2021, 7, 6, 2, 20)),
        ("2021-07-05 18:20:00 PDT", "UTC", utc(2021, 7, 6, 1, 20)),
        ("2021-07-05 18:20:00 Europe/Berlin", "UTC", utc(2021, 7, 5, 16, 20)),
        ("2021-07-05 18:20:00Europe/Berlin", "UTC", utc(2021, 7, 5, 16, 20)),
        ("P0D", "UTC", utc(2021, 7, 5)),
        ("P1D", "UTC", utc(2021, 7, 4)),
        ("P0D", "Asia/Tokyo", utc(2021, 7, 5, 15)),
        ("P400D", "UTC", utc(2020, 5, 31)),
        ("P0DT0H", "UTC", utc(2021, 7, 5, 18)),
        ("P0DT7H", "UTC", utc(2021, 7, 5, 11)),
        ("P2DT23H", "UTC", utc(2021, 7, 2, 19)),
        ("P0DT0H", "Asia/Kolkata", utc(2021, 7, 5, 17, 30)),
        ("P0DT0H0M", "UTC", utc(2021, 7, 5, 18, 20)),
        ("P1DT2H30M", "UTC", utc(2021, 7, 4, 15, 50)),
        ("-", "UTC", utc(2021, 7, 5, 18, 20)),
        ("P0D.Asia/Tokyo", "UTC", utc(2021, 7, 5, 15)),
        ("P0D.PST", "UTC", utc(2021, 7, 5, 8)),
        ("P0DT1H.UTC", "Asia/Tokyo", utc(2021, 7, 5, 17)),
        (date(2021, 7, 5), "Europe/Berlin", utc(2021, 7, 4, 22)),
        (datetime(2021, 7, 5, 1), "Europe/Berlin", utc(2021, 7, 4, 23)),  # noqa: DTZ001  # as YAML has it
        (NOW, "Europe/Berlin", utc(2021, 7, 5, 18, 20, 33, 999_000)),
    ],
)
def test_texts_and_what_they_mean(text: Any, zone: str, expected: datetime) -> None:
    found = resolve(text, NOW, zone)
    assert found == expected
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2021-07-05 18:20",
        "2021-07-05T18",
        "20210705",
        "2021-7-5",
        "2021-02-30",
        "2021-13-01",
        "2021-07-05 24:00:00",
        "2021-07-05 18:20:60",
        "2021-07-05 18:20:00.",
        "2021-07-05 18:20:00,5",
        "2021-07-05  18:20:00",
        "2021-07-05 18:20:00 Mars/Olympus",
        "2021-07-05 18:20:00 XYZ",
        "2021-07-05 18:20:00+2",
        "2021-07-05 18:20:00+02:60",
        "2021-07-05 18:20:00 ../../etc/passwd",
        "2021-07-05 and more",
        "2021-07-05Z",
        "P1M",
        "PT5H",
        "P0D5H",
        "P1Y",
        "P1DT24H",
        "P1DT1H60M",
        "P1DT5M",
        "P-1D",
        "-P1D",
        "P1D.",
        "P1D.Mars",
        "p1d",
        "P1DT",
        "P1.5D",
        "P999999999D",
        "P" + "9" * 5000 + "D",
        "202\u0661-07-05",
        "0000-01-01",
        "0001-01-01 00:00:00+02:00",
        "9999-12-31 23:59:59-02:00",
        "",
        "now",
        "--",
        None,
        20210705,
        True,
        [],
    ],
)
def test_resolve_rejects_invalid_instants(text: Any) -> None:
    with pytest.raises(UnitError):
        resolve(text, NOW)


def test_a_hyphen_is_no_start_and_all_else_is() -> None:
    with pytest.raises(UnitError, match="start"):
        resolve("-", NOW, start=True)
    assert resolve("P0DT0H0M", NOW, start=True) == resolve("-", NOW)


@pytest.mark.parametrize(
    "zone", ["", "Mars", "../UTC", "localtime", None, 2, "+25:00", "right/UTC"]
)
def test_unknown_zones_are_refused(zone: Any) -> None:
    with pytest.raises(UnitError, match="zone"):
        resolve("P0D", NOW, zone)


def test_now_says_its_zone() -> None:
    with pytest.raises(UnitError):
        resolve("P0D", NOW.replace(tzinfo=None))
    with pytest.raises(UnitError):
        resolve("P0D", "2021-07-05")  # type: ignore[arg-type]  # what a caller may try
    here = NOW.astimezone(timezone(timedelta(hours=5)))
    assert resolve("P0D", here) == utc(2021, 7, 5)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        # skipped: the moment of the jump
        ("2021-03-28 02:30:00", "Europe/Berlin", utc(2021, 3, 28, 1)),
        ("2021-03-28 02:00:00", "Europe/Berlin", utc(2021, 3, 28, 1)),
        ("2021-03-28 02:59:59.999", "Europe/Berlin", utc(2021, 3, 28, 1)),
        ("2021-03-28 03:00:00", "Europe/Berlin", utc(2021, 3, 28, 1)),
        ("2018-11-04", "America/Sao_Paulo", utc(2018, 11, 4, 3)),
        ("2011-12-30", "Pacific/Apia", utc(2011, 12, 30, 10)),
        ("2011-12-30 23:59:59", "Pacific/Apia", utc(2011, 12, 30, 10)),
        ("2011-12-31", "Pacific/Apia", utc(2011, 12, 30, 10)),
        ("1993-08-21 12:00:00", "Pacific/Kwajalein", utc(1993, 8, 21, 12)),
        ("2021-10-03 02:15:00", "Australia/Lord_Howe", utc(2021, 10, 2, 15, 30)),
        # twice: the first
        ("2021-10-31 02:30:00", "Europe/Berlin", utc(2021, 10, 31, 0, 30)),
        ("2021-04-04 01:45:00", "Australia/Lord_Howe", utc(2021, 4, 3, 14, 45)),
    ],
)
def test_wall_times_that_are_skipped_or_twice(text: str, zone: str, expected: datetime) -> None:
    assert resolve(text, NOW, zone) == expected


def test_the_hour_that_is_twice_is_floored_to_the_one_that_it_is() -> None:
    second = utc(2021, 10, 31, 1, 30, 20)  # 02:30 in Berlin, for the second time
    assert resolve("P0DT0H0M", second, "Europe/Berlin") == utc(2021, 10, 31, 1, 30)
    assert resolve("P0DT0H", second, "Europe/Berlin") == utc(2021, 10, 31, 1)
    assert resolve("P0DT1H", second, "Europe/Berlin") == utc(2021, 10, 31)
    assert resolve("P0D", second, "Europe/Berlin") == utc(2021, 10, 30, 22)


def test_days_back_are_days_of_the_calendar() -> None:
    after = utc(2021, 3, 29, 10)  # the day before has 23 hours in Berlin
    assert resolve("P1D", after, "Europe/Berlin") == utc(2021, 3, 27, 23)
    assert resolve("P1DT0H", after, "Europe/Berlin") == utc(2021, 3, 28, 10)
    assert resolve("P2DT0H", after, "Europe/Berlin") == utc(2021, 3, 27, 11)


@given(
    st.datetimes(min_value=datetime(1975, 1, 1), max_value=datetime(2030, 1, 1)),  # noqa: DTZ001  # drawn without
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"]),
)
def test_now_is_floored_never_raised_and_not_by_more_than_a_day(now: datetime, zone: str) -> None:
    here = now.replace(tzinfo=UTC)
    minute, hour, day = (resolve(text, here, zone) for text in ("-", "P0DT0H", "P0D"))
    assert day <= hour <= minute <= here
    assert here - minute < timedelta(minutes=1)
    assert here - hour < timedelta(hours=1, minutes=30)
    assert here - day <= timedelta(hours=25)


@given(st.datetimes(timezones=st.just(UTC)))
def test_stamps_are_of_one_width_and_in_the_order_of_time(when: datetime) -> None:
    text = stamp(when)
    assert len(text) == 24
    assert moment(text) == when.replace(microsecond=when.microsecond // 1000 * 1000)
    assert text < "9999-12-31T23:59:59.999Z" or when.year == 9999


def test_errors_are_those_of_a_configuration() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("nonsense\x1b[31m", NOW)
    assert caught.value.problems
    assert "\x1b" not in str(caught.value)
    assert caught.value.exit_code == 2

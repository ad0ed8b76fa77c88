"""Date folders: none is left out that could hold something newer."""

# ruff: noqa: DTZ001  # times without a zone are a part of what is tested

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import ConfigurationError
from blizzard_py.connections.lakes.date_folders import folder_time, folders

DAYS = "{year}/{month}/{day}"


@pytest.mark.parametrize(
    ("pattern", "path", "time"),
    [
        (DAYS, "2026/05/04", datetime(2026, 5, 4, tzinfo=UTC)),
        (DAYS, "2026/5/4/", datetime(2026, 5, 4, tzinfo=UTC)),
        (DAYS, "s3://bucket/orders/2026/05/04/x.parquet", datetime(2026, 5, 4, tzinfo=UTC)),
        ("year={year}/month={month}", "a/year=2026/month=05", datetime(2026, 5, 1, tzinfo=UTC)),
        ("{year}{month}{day}{hour}", "x/2026050413", datetime(2026, 5, 4, 13, tzinfo=UTC)),
        (
            "dt={year}-{month}-{day}/h={hour}",
            "dt=2026-05-04/h=7",
            datetime(2026, 5, 4, 7, tzinfo=UTC),
        ),
        (DAYS, "2026/05", None),
        (DAYS, "2026/13/01", None),
        (DAYS, "2026/02/30", None),
        (DAYS, "0000/01/01", None),
        (DAYS, "26/05/04", None),
        (DAYS, "x2026/05/04", None),
        (DAYS, "", None),
        (DAYS, "٢٠٢٦/05/04", None),
    ],
)
def test_a_path_tells_its_time_or_none(pattern: str, path: str, time: datetime | None) -> None:
    assert folder_time(pattern, path) == time


@pytest.mark.parametrize("pattern", ["", "{month}", "{year}/{day}", "{year}/{year}", "{yr}", "x"])
def test_a_pattern_without_a_time_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError):
        folder_time(pattern, "2026")
    with pytest.raises(ConfigurationError):
        folders(pattern, ["2026"], None)


def test_folder_filter_passes_boundary_and_unknown_folders() -> None:
    names = ["2025", "2026", "2026/04", "2026/05", "2026/05/03", "2026/05/04", "2026/05/05", "tmp"]
    kept = ["2026", "2026/05", "2026/05/04", "2026/05/05", "tmp"]
    starts: list[Any] = [
        datetime(2026, 5, 4, 23, 59, tzinfo=UTC),
        datetime(2026, 5, 4),
        date(2026, 5, 4),
        "2026-05-04 12:00:00",
        "2026-05-05T00:30:00+02:00",
    ]
    for start in starts:
        assert folders(DAYS, names, start) == kept
    assert folders(DAYS, names, None) == folders(DAYS, names) == names
    assert folders(DAYS, ["9999", "9999/12", "9999/12/31"], datetime(9999, 12, 31, 23)) == [
        "9999",
        "9999/12",
        "9999/12/31",
    ]
    with pytest.raises(ConfigurationError):
        folders(DAYS, names, 5)


def test_days_above_years_are_listed_until_the_year_is_known() -> None:
    assert folders("{day}/{month}/{year}", ["04", "04/05", "04/05/2020"], date(2026, 5, 4)) == [
        "04",
        "04/05",
    ]


_PATTERNS = st.sampled_from(
    [DAYS, "{year}", "y={year}/m={month}", "{year}-{month}-{day}/{hour}", "{year}{month}{day}"]
)
_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(_PATTERNS, _TIMES, _TIMES, st.integers(1, 4))
def test_no_folder_is_dropped_that_holds_a_newer_value(
    pattern: str, value: datetime, start: datetime, depth: int
) -> None:
    path = pattern.format(
        year=f"{value.year:04}",
        month=f"{value.month:02}",
        day=f"{value.day:02}",
        hour=f"{value.hour:02}",
    )
    name = "/".join(path.split("/")[:depth])
    found = folder_time(pattern, f"root/{path}/file.csv")
    assert found <= value
    if value >= start:
        assert folders(pattern, [name], start) == [name]

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.kernels.failure import FileFailed
from blizzard_py.kernels.partition import directory_at, null_directory, split_by_time

UTC = dt.UTC
times = st.none() | st.datetimes(
    min_value=dt.datetime(1, 1, 1),  # noqa: DTZ001  # the strategy adds the zone
    max_value=dt.datetime(9999, 12, 31),  # noqa: DTZ001  # the strategy adds the zone
    timezones=st.just(UTC),
)
templates = st.sampled_from(
    [
        "date=%Y-%m-%d",
        "date=%F/hour=%H",
        "y=%Y/m=%m",
        "date=%Y-%m-%d/hour=%H/minute=%M",
        "second=%Y%m%dT%H%M%S",
        "micro=%f",
    ]
)


def table(values: list[dt.datetime | None]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(len(values)), pa.int64()),
            "t": pa.array(values, pa.timestamp("us", tz="UTC")),
        }
    )


@given(st.lists(times, max_size=40), templates)
def test_each_row_goes_where_its_own_time_says(
    values: list[dt.datetime | None], template: str
) -> None:
    placed: dict[int, str] = {}
    for directory, piece in split_by_time(table(values), "t", template):
        numbers = piece.column("n").to_pylist()
        assert numbers == sorted(numbers)
        placed |= dict.fromkeys(numbers, directory)
    assert placed == {
        number: null_directory(template) if value is None else directory_at(template, value)
        for number, value in enumerate(values)
    }


def test_directories_are_strftime_with_four_digit_years() -> None:
    when = dt.datetime(2015, 9, 12, 3, 4, 5, tzinfo=UTC)
    assert directory_at("date=%Y-%m-%d/hour=%H", when) == "date=2015-09-12/hour=03"
    assert directory_at("date=%F/x=100%%", when) == "date=2015-09-12/x=100%"
    assert directory_at("d=%F/y=%Y", when.replace(year=33)) == "d=0033-09-12/y=0033"
    assert null_directory("date=%F/hour=%H") == (
        "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
    )


def test_pieces_of_one_hour_are_one_piece() -> None:
    hour = dt.datetime(2024, 1, 1, 5, tzinfo=UTC)
    values: list[dt.datetime | None] = [hour + dt.timedelta(seconds=7 * i) for i in range(500)]
    assert len(list(split_by_time(table(values), "t", "date=%F/hour=%H"))) == 1


def test_a_time_without_a_calendar_year_fails_the_file() -> None:
    years = pa.table({"t": pa.array([-70_000_000_000_000_000], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(FileFailed, match="years 1 to 9999") as caught:
        list(split_by_time(years, "t", "date=%F"))
    assert caught.value.stage == "partition"

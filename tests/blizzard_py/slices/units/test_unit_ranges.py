"""A range as configured: what it is at a time, what would move its partitions, and its spec."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from blizzard_core.errors import UnitError
from blizzard_py.slices.units.ranges import Part, UnitRange, laid_out, problems, spec_of

NOW = datetime(2020, 2, 22, 9, 30, 30, tzinfo=UTC)


def test_without_anything_it_is_2019_to_now_unpartitioned() -> None:
    found = laid_out(UnitRange(), NOW)
    start, end = datetime(2019, 1, 1, tzinfo=UTC), NOW.replace(second=0)
    assert (found.start, found.end) == (start, end)
    assert found.partitions == [(start, end)]
    assert found.gaps == ()


def test_parts_and_their_gaps() -> None:
    parts = (
        Part("monthly", "2019-03-01", "-"),
        Part("yearly", "2017-01-01", "2019-01-01"),
    )
    found = laid_out(UnitRange("2017-01-01", "-", partition=parts), NOW)
    assert len(found.partitions) == 2 + 12
    assert list(found.gaps) == [
        (datetime(2019, 1, 1, tzinfo=UTC), datetime(2019, 3, 1, tzinfo=UTC))
    ]
    assert found.partitions[-1][1] == NOW.replace(second=0)


def test_what_a_part_has_before_the_range_is_a_gap() -> None:
    parts = (Part("yearly", "2015-01-01", "2019-01-01"), Part("monthly", "2019-01-01", "-"))
    found = laid_out(UnitRange("2018-01-01", "-", partition=parts), NOW)
    begin = datetime(2018, 1, 1, tzinfo=UTC)
    assert found.partitions[0] == (begin, datetime(2019, 1, 1, tzinfo=UTC))
    assert list(found.gaps) == [(datetime(2015, 1, 1, tzinfo=UTC), begin)]


@pytest.mark.parametrize("zone", ["Africa/Cairo", "Asia/Beirut", "America/Santiago"])
def test_moving_start_is_refused_in_zone_that_skips_midnight(zone: str) -> None:
    """On the one day that begins at 1:00 all partitions would be others, and replace nothing."""
    [told] = problems(UnitRange("P7D", "-", zone, "daily"))
    assert "in a zone in which each day has a midnight" in told
    assert problems(UnitRange("2024-01-01", "-", zone, "daily")) == []


@pytest.mark.parametrize(
    ("start", "by"),
    [
        ("P30D", "daily"),
        ("P30D", "hourly"),
        ("P30DT0H", "hourly"),
        ("P0DT7H", "hourly"),
        ("2020-01-01", "monthly"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo"])
def test_a_start_that_moves_keeps_partitions_on_their_grid(start: str, by: str, zone: str) -> None:
    range_ = UnitRange(start, "-", zone, by)
    assert problems(range_) == []
    seen: dict[datetime, datetime] = {}
    now = datetime(2021, 3, 20, 5, 17, tzinfo=UTC)
    for _ in range(30):
        found = laid_out(range_, now).partitions[:-1]
        for low, high in found:
            assert seen.setdefault(low, high) == high
        now += timedelta(hours=11)
    assert all(high <= low for (_, high), (low, _) in pairwise(sorted(seen.items())))


@pytest.mark.parametrize(
    ("start", "by", "zone"),
    [
        ("P30D", "none", "UTC"),
        ("P30D", "weekly", "UTC"),
        ("P30D", "monthly", "UTC"),
        ("P30D", "yearly", "UTC"),
        ("P30DT0H", "daily", "UTC"),
        ("P30DT0H0M", "hourly", "UTC"),
        ("P30D", "hourly", "Australia/Lord_Howe"),
        ("P30D.Asia/Tokyo", "daily", "UTC"),
    ],
)
def test_a_start_that_would_move_partitions_is_refused(start: str, by: str, zone: str) -> None:
    [problem] = problems(UnitRange(start, "-", zone, by))
    assert "moves" in problem
    with pytest.raises(UnitError, match="moves"):
        laid_out(UnitRange(start, "-", zone, by), NOW)


@pytest.mark.parametrize(
    ("range_", "problem"),
    [
        (UnitRange(zone="Mars"), "zone: 'Mars'"),
        (UnitRange(start="-"), "from: `-`"),
        (UnitRange(start="20190101"), "from: '20190101'"),
        (UnitRange(end="PT5H"), "to: 'PT5H'"),
        (UnitRange(start="2020-01-01", end="2019-01-01"), "not behind"),
        (UnitRange(partition="quarterly"), "partition: 'quarterly'"),
        (UnitRange(partition=()), "no scheme"),
        (UnitRange("P30D", partition=(Part("daily", "2019-01-01", "-"),)), "parts need one"),
        (UnitRange(partition=(Part("daily", "P3D", "-"),)), "moves"),
        (UnitRange(partition=(Part("daily", "-", "-"),)), "start"),
        (UnitRange(partition=(Part("never", "2019-01-01", "-"),)), "'never'"),
        (UnitRange(partition=(Part("daily", "2019-01-01", ""),)), "no instant"),
        (UnitRange(partition=(Part("daily", "2019-01-01", "2018-01-01"),)), "not behind"),
    ],
)
def test_problems_describe_each_invalid_range(range_: UnitRange, problem: str) -> None:
    found = problems(range_)
    assert any(problem in one for one in found), found
    with pytest.raises(UnitError):
        laid_out(range_, NOW)


def test_an_hourly_range_since_1900_is_refused_with_its_number() -> None:
    with pytest.raises(UnitError, match=r"1,05\d,\d{3} partitions"):
        laid_out(UnitRange("1900-01-01", partition="hourly"), NOW)


def test_the_spec_is_what_partitions_and_names_depend_on() -> None:
    range_ = UnitRange("2019-01-01", "-", "Europe/Berlin", "Monthly")
    assert spec_of(range_, ["surveyId"]) == {
        "from": "2018-12-31T23:00:00.000Z",
        "zone": "Europe/Berlin",
        "partition": "monthly",
        "name": "surveyId",
    }
    written = UnitRange("2019-01-01 00:00:00", "P1D", "Europe/Berlin", "monthly", partial=False)
    assert spec_of(written, ["surveyId"]) == spec_of(range_, ["surveyId"])
    assert spec_of(UnitRange("P30D", partition="daily"), [])["from"] == "P30D"
    parts = (Part("monthly", "2019-03-01", "-"), Part("yearly", "2017-01-01", "2019-01-01"))
    assert spec_of(UnitRange("2017-01-01", partition=parts), ["a", "b"]) == {
        "from": "2017-01-01T00:00:00.000Z",
        "zone": "UTC",
        "partition": "yearly 2017-01-01T00:00:00.000Z 2019-01-01T00:00:00.000Z,"
        " monthly 2019-03-01T00:00:00.000Z -",
        "name": "a,b",
    }
    for other in (
        UnitRange("2019-01-02", "-", "Europe/Berlin", "monthly"),
        UnitRange("2019-01-01", "-", "UTC", "monthly"),
        UnitRange("2019-01-01", "-", "Europe/Berlin", "weekly"),
    ):
        assert spec_of(other, ["surveyId"]) != spec_of(range_, ["surveyId"])
    assert spec_of(range_, ["other"]) != spec_of(range_, ["surveyId"])

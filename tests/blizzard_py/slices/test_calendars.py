"""Wall times that cut rows never fall, and are never above one that is shown again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from blizzard_py.slices.calendars import lowest_wall

# Clocks are put back by an hour, by half of one, by a day, at midnight, never.
PUT_BACK = [
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/Los_Angeles", datetime(2026, 11, 1, 9, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 4, 4, 15, tzinfo=UTC)),
]


@pytest.mark.parametrize(("name", "at"), PUT_BACK, ids=lambda v: str(v)[:19])
def test_rows_of_wall_times_are_cut_without_gap(name: str, at: datetime) -> None:
    zone, chance = ZoneInfo(name), random.Random(name)
    seconds = sorted(chance.sample(range(-6 * 3600, 6 * 3600), 60))
    cuts = [at - timedelta(days=2), *(at + timedelta(seconds=s) for s in seconds)]
    cuts.append(at + timedelta(days=2))
    walls = [lowest_wall(cut.astimezone(zone), zone) for cut in cuts]
    assert walls == sorted(walls)
    for _ in range(300):
        written = at + timedelta(seconds=chance.randint(-6 * 3600, 6 * 3600))
        label = written.astimezone(zone).replace(tzinfo=None)
        (end,) = [
            to
            for (_, to), (low, high) in zip(pairwise(cuts), pairwise(walls), strict=True)
            if low <= label < high
        ]
        assert end > written  # it was there when its cut was read


def test_wall_times_that_come_once_are_themselves() -> None:
    zone = ZoneInfo("Europe/Berlin")
    for hour in range(24 * 200):
        moment = datetime(2026, 4, 1, tzinfo=UTC) + timedelta(hours=hour)
        assert lowest_wall(moment, zone) == moment.astimezone(zone).replace(tzinfo=None)
    end = datetime.max.replace(tzinfo=UTC) - timedelta(hours=12)
    assert lowest_wall(end, UTC) == end.replace(tzinfo=None)

"""Each line of the planner's table, its limit, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blizzard_core.errors import UnitError
from blizzard_py.slices.units.limits import limit
from blizzard_py.slices.units.planner import move_high, verdict

DAY = timedelta(days=1)


def day(number: float) -> datetime:
    """Return this day of January 2020; 32 is the first of February."""
    return datetime(2020, 1, 1, tzinfo=UTC) + DAY * (number - 1)


def one(
    high: float | None,
    end: float,
    grace: float = 0,
    abstinent: float = 0,
    begin: float = 10,
    **more: float,
) -> tuple[bool, str, float, float]:
    """Plan one unit [begin, end) with a high watermark; ``other`` is that of other units."""
    shift = DAY * (abstinent - grace)
    highs = [reached for reached in (high, more.get("other")) if reached is not None]
    cut_off = move_high(day(max(highs)), shift) if highs else None
    known = None if high is None else day(high)
    execute, low, reason = verdict((day(begin), day(end)), known, cut_off, shift)
    return execute, reason, (low - day(1)) / DAY + 1, end


def test_rule_2_a_unit_without_high_watermark_is_new() -> None:
    assert one(None, 20) == (True, "new", 10, 20)
    assert one(10, 20) == (True, "new", 10, 20)
    assert one(9, 20) == (True, "new", 10, 20)
    assert one(None, 20, grace=3, other=90) == (True, "new", 10, 20)


def test_rules_3_and_4_nothing_is_left_above_low() -> None:
    assert one(15, 17, abstinent=2)[:2] == (False, "abstinent")
    assert one(15, 16, abstinent=2)[:2] == (False, "abstinent")
    assert one(17, 17, abstinent=2)[:2] == (False, "done")
    assert one(17, 17)[:2] == (False, "done")
    assert one(19, 17)[:2] == (False, "done")
    assert one(15, 17.5, abstinent=2) == (True, "incomplete", 17, 17.5)


def test_rule_5_incomplete_unit_is_read_beyond_the_cut_off() -> None:
    assert one(15, 20) == (True, "incomplete", 15, 20)
    assert one(15, 20, grace=3) == (True, "incomplete", 12, 20)
    assert one(12, 20, grace=3) == (True, "incomplete", 10, 20)
    assert one(15, 20, grace=3, other=90) == (True, "incomplete", 12, 20)


def test_rule_6_nothing_is_read_where_the_end_went_back() -> None:
    assert one(20, 18, grace=3)[:2] == (False, "ahead")
    assert one(20, 19.9, grace=3)[:2] == (False, "ahead")


def test_rules_7_and_8_complete_unit_is_read_until_the_cut_off() -> None:
    assert one(20, 20, grace=3) == (True, "grace", 17, 20)
    assert one(20, 20, grace=3, other=22.9) == (True, "grace", 17, 20)
    assert one(20, 20, grace=3, other=23)[:2] == (False, "done")
    assert one(20, 20, grace=30, other=23) == (True, "grace", 10, 20)
    assert one(20, 20, grace=3, abstinent=1) == (True, "grace", 18, 20)


def test_endless_grace_reads_all_and_endless_cooldown_nothing() -> None:
    partition, ever = (day(10), day(20)), timedelta(days=3_700_000)
    cut_off = move_high(day(20), -ever)
    assert verdict(partition, day(20), cut_off, -ever) == (True, day(10), "grace")
    cut_off = move_high(day(20), ever)
    assert verdict((day(10), day(21)), day(20), cut_off, ever) == (False, day(21), "abstinent")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 500),
        (0, 500),
        ("", 500),
        (None, 500),
        ("-1", None),
        (-1, None),
        ("7", 7),
        (5000, 5000),
    ],
)
def test_limits(text: Any, expected: int | None) -> None:
    assert limit(text) == expected


@pytest.mark.parametrize(
    "text", ["5001", 5001, -2, "many", "1.5", 1.5, True, [], "1e3", "9" * 5000]
)
def test_limit_rejects_invalid_values(text: Any) -> None:
    with pytest.raises(UnitError, match="5,000"):
        limit(text)

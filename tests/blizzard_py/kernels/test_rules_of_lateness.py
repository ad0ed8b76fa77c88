"""Late rows, by a definition that is as slow as it is plain."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.settings.event_time import Branch, EventTimeSettings
from blizzard_py.kernels.lateness import Limits, Rule, key_us, rules_of, split, times_of

FAR = 1 << 60
TIMES = st.lists(st.integers(-(10**4), 10**4), min_size=1, max_size=30)


def windows(rule: Rule, time: int) -> list[tuple[int, int]]:
    """Every window that holds a time, found by trying all that could."""
    first = (time - rule.size - rule.offset) // rule.slide - 1
    starts = [
        rule.offset + n * rule.slide for n in range(first, first + rule.size // rule.slide + 5)
    ]
    return [(start, start + rule.size) for start in starts if start <= time < start + rule.size]


@st.composite
def window_rules(draw: st.DrawFn) -> Rule:
    slide = draw(st.integers(1, 500))
    size = draw(st.integers(slide, 5 * slide))
    return Rule("t", "window", size, slide, draw(st.integers(0, slide - 1)))


@given(window_rules(), TIMES, st.integers(-10, 10))
@settings(max_examples=300)
def test_a_row_is_late_when_its_last_window_is_over(
    rule: Rule, times: list[int], watermark_ms: int
) -> None:
    found = split(rule, Limits(watermark_ms, FAR), np.array(times, np.int64))
    ends = [[end for _, end in windows(rule, time)] for time in times]
    bound = watermark_ms * 1000
    assert found.late.tolist() == [max(some) <= bound for some in ends]
    assert found.partly == sum(min(some) <= bound < max(some) for some in ends)
    assert key_us(rule, np.array(times, np.int64)).tolist() == [max(some) for some in ends]


def test_a_session_is_waited_for_until_its_gap_is_over() -> None:
    rule = Rule("t", "session", 5_000)
    found = split(rule, Limits(10, FAR), np.array([4_999, 5_000, 5_001], np.int64))
    assert found.late.tolist() == [True, True, False]


def test_before_anything_was_seen_only_rows_up_to_1970_are_late() -> None:
    found = split(Rule("t"), Limits(0, FAR), np.array([-1, 0, 1], np.int64))
    assert found.late.tolist() == [True, True, False]


def test_state_that_is_never_removed_has_no_late_rows() -> None:
    rule, limits = Rule("t", "never"), Limits(1 << 50, 2_000)
    found = split(rule, limits, np.array([-1, 2_000, 2_001], np.int64))
    assert found.late.tolist() == [False] * 3
    assert found.ahead.tolist() == [False, False, True]


def test_a_row_that_is_late_is_not_ahead_too() -> None:
    found = split(Rule("t"), Limits(100, 50_000), np.array([60_000, 100_001], np.int64))
    assert found.late.tolist() == [True, False]
    assert found.ahead.tolist() == [False, True]
    assert found.on_time.tolist() == [False, False]


@pytest.mark.promise("G-073")
@pytest.mark.parametrize(
    ("block", "rule"),
    [
        ({"window": "5 seconds"}, Rule("t", "window", 5_000_000, 5_000_000)),
        (
            {"window": {"size": "1 hour", "slide": "20 minutes", "offset": "5 minutes"}},
            Rule("t", "window", 3_600_000_000, 1_200_000_000, 300_000_000),
        ),
        ({"window": {"gap": "30 seconds"}}, Rule("t", "session", 30_000_000)),
        ({"window": "5 seconds", "deduplicate": ["id"]}, Rule("t")),
        ({"deduplicate": ["id"]}, Rule("t")),
        (
            {"window": "5 seconds", "mode": "update"},
            Rule("t", "window", 5_000_000, 5_000_000),
        ),
        ({"window": "5 seconds", "mode": "complete"}, Rule("t", "never")),
        (
            {"window": {"gap": "30 seconds"}, "mode": "complete"},
            Rule("t", "session", 30_000_000),
        ),
        (
            {"group_by": ["id"], "aggregates": {"n": "count(*)"}, "mode": "update"},
            Rule("t", "never"),
        ),
        ({"group_by": ["id", "t"], "aggregates": {"n": "count(*)"}, "mode": "update"}, Rule("t")),
        ({"group_by": ["t"], "aggregates": {"n": "count(*)"}}, Rule("t")),
        (
            {"group_by": ["t"], "aggregates": {"n": "count(*)"}, "deduplicate": ["id"]},
            Rule("t"),
        ),
        (
            {"group_by": ["t"], "aggregates": {"n": "count(*)"}, "mode": "complete"},
            Rule("t", "never"),
        ),
        (
            {"group_by": ["t"], "aggregates": {"n": "count(*)"}, "window": "5 seconds"},
            Rule("t", "window", 5_000_000, 5_000_000),
        ),
    ],
)
def test_the_first_operator_decides(block: dict[str, object], rule: Rule) -> None:
    given_ = EventTimeSettings.model_validate({"column": "t", "delay": "1 second", **block})
    assert rules_of(given_, [Branch("web", "t", 0)]) == {"web": rule}
    # By sources whose times stand in different columns no group is of one time.
    several = rules_of(given_, [Branch("app", "seen", 0), Branch("web", "t", 0)])
    assert {name: found.column for name, found in several.items()} == {"app": "seen", "web": "t"}
    endless = "t" in given_.group_by and given_.window is None
    assert several["web"] == (Rule("t", "never") if endless else rule)


def test_times_are_microseconds_whatever_they_are_stored_as() -> None:
    column = pa.array([1, -1], pa.timestamp("ms", tz="UTC"))
    assert times_of(column).tolist() == [1000, -1000]
    with pytest.raises(ValueError, match="no event time"):
        times_of(pa.array([1, None], pa.timestamp("us", tz="UTC")))

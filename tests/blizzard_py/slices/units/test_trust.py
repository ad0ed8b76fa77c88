"""Parts of a state that are not trusted: future times and unknown slices."""

from __future__ import annotations

from datetime import UTC, datetime

from blizzard_py.slices.names import unit_range
from blizzard_py.slices.units.state import OpenUnit, UnitsState
from blizzard_py.slices.units.trust import is_ahead, put_right, read_since

SOURCE = "s"
LONG = "x" * 100 + "/%"


def day(number: int) -> str:
    return f"2020-01-{number:02d}T00:00:00.000Z"


def at(number: int) -> datetime:
    return datetime(2020, 1, number, tzinfo=UTC)


def test_a_reading_that_is_still_to_come_counts_up_to_now() -> None:
    unit = OpenUnit(day(19), (day(1),), day(19))
    state = UnitsState(open={f"{day(1)}/a": unit, f"{day(1)}/b": OpenUnit(day(9), (), day(9))})
    assert is_ahead(state, at(10))
    right = put_right(state, at(10))
    assert not is_ahead(right, at(10))
    assert right.open[f"{day(1)}/a"] == OpenUnit(day(19), (day(1),), day(10))
    assert right.open[f"{day(1)}/b"] == state.open[f"{day(1)}/b"]
    assert put_right(right, at(10)) is right


def test_pause_set_by_a_fast_clock_is_dropped() -> None:
    longest = OpenUnit(failures=9, next_try=day(11))
    later = OpenUnit(failures=1, next_try="2020-01-11T00:00:00.001Z")
    state = UnitsState(open={f"{day(1)}/a": longest, f"{day(1)}/b": later})
    right = put_right(state, at(10))
    assert right.open[f"{day(1)}/a"] == longest
    assert right.open[f"{day(1)}/b"] == OpenUnit(failures=1)


def test_slices_behind_one_that_is_not_known_are_not_believed() -> None:
    unit = OpenUnit(day(15), (day(1), day(8), day(12)), day(15))
    state = UnitsState(open={f"{day(1)}/{LONG}": unit, f"{day(1)}/b": unit})
    found = read_since(state, SOURCE, [unit_range(SOURCE, at(1), LONG, at(n)) for n in (14, 10)])
    lowered = OpenUnit(day(15), (day(1), day(8), day(10)), day(10))
    assert found.open == {f"{day(1)}/{LONG}": lowered, f"{day(1)}/b": unit}
    whole = read_since(state, SOURCE, [unit_range(SOURCE, at(1), LONG, at(1))])
    assert whole.open[f"{day(1)}/{LONG}"] == OpenUnit(day(15), (day(1),), day(1))


def test_read_from_the_high_watermark_changes_nothing() -> None:
    unit = OpenUnit(day(15), (day(1), day(12)), day(15))
    state = UnitsState(open={f"{day(1)}/b": unit})
    assert read_since(state, SOURCE, [unit_range(SOURCE, at(1), "b", at(15))]) == state


def test_a_closed_unit_that_was_read_since_is_read_again() -> None:
    state = UnitsState(closed_to={"a": day(5), LONG: day(5)})
    ranges = [unit_range(SOURCE, at(n), name, at(n)) for n in (4, 5) for name in ("a", LONG, "c")]
    assert read_since(state, SOURCE, ranges).redo == (f"{day(4)}/a", f"{day(4)}/{LONG}")

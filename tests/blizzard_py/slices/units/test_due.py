"""Units due according to the state: pauses, marks, widening, closed units, turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from blizzard_core.errors import UnitError
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.due import Due, Terms, due, reading_of
from blizzard_py.slices.units.outcomes import mark_units, record_failure, record_success
from blizzard_py.slices.units.planner import PlannedUnit
from blizzard_py.slices.units.schemes import Pair, partitions
from blizzard_py.slices.units.state import OpenUnit, UnitsState
from blizzard_py.slices.units.values import unit_list

DAY = timedelta(days=1)
START = datetime(2020, 2, 1, tzinfo=UTC)
GRACE = Terms(grace=3 * DAY)


def at(number: float) -> datetime:
    return START + DAY * (number - 1)


def days(to: float) -> list[Pair]:
    return partitions(START, at(to), "daily")


def ready(found: Due) -> list[tuple[float, str, str]]:
    return [
        ((unit.partition[0] - START) / DAY + 1, unit.name, unit.reason)
        for unit in found.units
        if unit.execute
    ]


def run(
    state: UnitsState,
    ranges: list[Pair],
    terms: Terms,
    now: datetime,
    values: list[dict[str, str]] | None = None,
) -> tuple[UnitsState, list[PlannedUnit]]:
    """One run in which every unit succeeds."""
    units = [unit for unit in due(state, ranges, values, terms, now).units if unit.execute]
    for unit in units:
        state = record_success(state, reading_of(unit, terms, now))
    names = ["{}"] if values is None else [one["id"] for one in values]
    return compact(state, ranges, names, terms.shift), units


def test_a_growing_month_is_read_from_where_a_slice_begins() -> None:
    state, [first] = run(UnitsState(), [(START, at(15))], GRACE, at(15))
    assert (first.start, first.end, first.reason) == (START, at(15), "new")
    assert state.open[f"{stamp(START)}/{{}}"].slices == (stamp(START), stamp(at(12)))
    state, [second] = run(state, [(START, at(16))], GRACE, at(16))
    assert (second.start, second.end, second.reason) == (at(12), at(16), "incomplete")
    wider = replace(GRACE, grace=5 * DAY)
    _, [third] = run(state, [(START, at(17))], wider, at(17))
    assert third.start == START  # day 11 lies in the first slice, which is replaced as a whole
    narrower = replace(GRACE, grace=DAY)
    _, [fourth] = run(state, [(START, at(17))], narrower, at(17))
    assert fourth.start == at(13)


def test_a_unit_waits_until_its_pause_is_over_and_then_is_read() -> None:
    unit = due(UnitsState(), days(2), None, GRACE, at(2)).units[0]
    state = record_failure(UnitsState(), reading_of(unit, GRACE, at(2)), at(2), "no")
    soon, later = at(2) + timedelta(seconds=59), at(2) + timedelta(seconds=60)
    [waits] = due(state, days(2), None, GRACE, soon).units
    assert (waits.execute, waits.reason) == (False, "waiting")
    [goes] = due(state, days(2), None, GRACE, later).units
    assert (goes.execute, goes.reason) == (True, "new")


def test_closed_units_are_counted_and_not_looked_at() -> None:
    state = UnitsState(closed_to={"{}": stamp(at(50))}, open={f"{stamp(at(50))}/{{}}": OpenUnit()})
    found = due(state, days(52), None, Terms(), at(52))
    assert found.closed == 49
    assert [unit.reason for unit in found.units] == ["new", "new"]
    everything = due(state, days(52), None, replace(Terms(), everything=True), at(52))
    assert everything.closed == 0
    assert Counter(unit.reason for unit in everything.units) == {"done": 49, "new": 2}


def test_longer_grace_reopens_closed_units_and_reads_them_fully() -> None:
    state = UnitsState()
    for today in range(2, 12):
        state, _ = run(state, days(today), Terms(), at(today))
    assert state.closed_to == {"{}": stamp(at(10))}
    found = due(state, days(11), None, GRACE, at(11))
    assert ready(found) == [(8, "{}", "grace"), (9, "{}", "grace"), (10, "{}", "grace")]
    assert found.closed == 7
    week = replace(GRACE, grace=2.5 * DAY)
    reopened = due(state, days(11), None, week, at(11))
    assert [unit.start for unit in reopened.units if unit.execute] == [at(8), at(9), at(10)]


def test_marked_units_are_always_read_from_their_start() -> None:
    state = UnitsState(closed_to={"{}": stamp(at(10))})
    keys = [f"{stamp(at(3))}/{{}}", f"{stamp(at(40))}/{{}}", f"{stamp(at(3))}/other"]
    state = mark_units(state, keys)
    found = due(state, days(10), None, Terms(), at(10))
    assert ready(found) == [(3, "{}", "redo")]
    [unit] = [one for one in found.units if one.execute]
    assert (unit.start, unit.end) == (at(3), at(4))
    after = record_success(state, reading_of(unit, Terms(), at(10)))
    assert ready(due(after, days(10), None, Terms(), at(10))) == []
    assert compact(after, days(10), ["{}"], timedelta(0)).open == {}


def test_a_marked_unit_whose_end_went_back_is_not_read() -> None:
    state, _ = run(UnitsState(), [(START, at(20))], GRACE, at(20))
    state = mark_units(state, [f"{stamp(START)}/{{}}"])
    [unit] = due(state, [(START, at(18))], None, GRACE, at(18)).units
    assert (unit.execute, unit.reason) == (False, "ahead")


def test_end_moved_below_closed_units_reads_nothing_beyond_it() -> None:
    state = UnitsState(closed_to={"{}": stamp(at(10))})
    found = due(state, days(8.5), None, GRACE, at(8.5))
    assert ready(found) == [(7, "{}", "grace")]  # which is whole, as far as it is read
    assert found.units[-1].reason == "ahead"


def test_least_recently_read_units_come_first_under_the_limit() -> None:
    values = unit_list("id", "a,b,c")
    limited = replace(GRACE, limit=2)
    state = UnitsState()
    seen: Counter[tuple[float, str]] = Counter()
    for step in range(60):  # 12 units within grace, 2 a run
        now = at(6 + step / 1000)
        state, units = run(state, days(6), limited, now, values)
        assert len(units) == 2
        seen.update(((unit.partition[0] - START) / DAY + 1, unit.name) for unit in units)
    assert len(seen) == 15
    assert min(seen[day, name] for day in (3, 4, 5) for name in "abc") >= 10


def test_unit_that_failed_in_grace_is_read_after_the_cut_off() -> None:
    state = UnitsState()
    for today in range(2, 5):
        state, _ = run(state, days(today), GRACE, at(today))
    for today in range(5, 10):  # the first day fails from now on
        now = at(today)
        for unit in due(state, days(today), None, GRACE, now).units:
            if unit.execute:
                reading = reading_of(unit, GRACE, now)
                first = unit.partition[0] == START
                state = (
                    record_failure(state, reading, now, "no")
                    if first
                    else record_success(state, reading)
                )
        state = compact(state, days(today), ["{}"], GRACE.shift)
    found = due(state, days(10), None, GRACE, at(11))
    assert found.cut_off == at(6)
    # It was read on the 4th, within its grace: up to the 5th late rows may have come.
    assert ready(found)[0] == (1, "{}", "grace")


def test_values_are_counted_and_those_no_longer_there_named() -> None:
    state = UnitsState(closed_to={"old": stamp(at(3))}, open={f"{stamp(at(3))}/gone/x": OpenUnit()})
    values = unit_list("id", "a,b")
    found = due(state, days(3), values, Terms(), at(3))
    assert found.retired == ("old", "gone/x")
    assert len(found.units) == 4
    assert due(state, days(3), [], Terms(), at(3)).units == ()
    for given in (values, [], None):
        with pytest.raises(UnitError, match="min_units"):
            due(state, days(3), given, replace(Terms(), min_units=3), at(3))
    assert due(UnitsState(), [], values, Terms(), at(3)) == Due(None, (), 0, ())


def test_growing_monthly_units_cost_about_two_requests_a_day() -> None:
    """Run daily with 3 days of grace: read this month's tail, and last month's until the 4th."""
    state, now = UnitsState(), datetime(2019, 1, 1, 9, 30, tzinfo=UTC)
    start = datetime(2019, 1, 1, tzinfo=UTC)
    requests = 0
    for _ in range(396):
        now += DAY
        months = partitions(start, now.replace(hour=0, minute=0), "monthly")
        state, units = run(state, months, GRACE, now)
        for unit in units:
            requests += len(reading_of(unit, GRACE, now).slices)
            assert unit.end - unit.start <= 5 * DAY or unit.reason == "new"
        assert len(units) == (2 if now.day in (2, 3, 4) and now > start + 30 * DAY else 1)
    assert len(state.open) == 1
    assert requests < 2.2 * 396

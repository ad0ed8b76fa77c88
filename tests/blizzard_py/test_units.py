"""The API of work units, of what the daemon does not call itself."""

from __future__ import annotations

import inspect
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from blizzard_core.errors import ConfigError
from blizzard_py import units
from blizzard_py.units import UnitError, advance_high, check, partitions, plan, unit_list

SYSTEM = {"name": "system", "type": "datetime", "range": {"from": "2017-01-02", "to": "-"}}
SURVEY = {"name": "surveyId", "type": "unit", "units": "id1,id2,id3"}


@pytest.mark.parametrize(
    "definitions",
    [
        None,
        [],
        [SYSTEM],
        [SURVEY],
        [SYSTEM, SURVEY],
        (SURVEY, SYSTEM),
        [{**SYSTEM, "range": {"from": "P30D", "to": "P1D"}}],
        [{**SYSTEM, "range": {"from": "2020-01-01", "to": "2021-01-01", "zone": "Europe/Berlin"}}],
        [{**SURVEY, "units": ["a", "b"]}],
        [{**SURVEY, "units": [{"id": "a"}]}],
    ],
)
def test_definitions_that_are_fine_have_no_problems(definitions: Any) -> None:
    assert check(definitions) == []


@pytest.mark.parametrize(
    ("definitions", "problem"),
    [
        ([SYSTEM, SYSTEM], "type datetime already"),
        ([SURVEY, SURVEY], "type unit already"),
        ([{**SYSTEM, "type": "date"}], "no type"),
        ([{**SYSTEM, "type": None}], "no type"),
        ([{**SYSTEM, "type": ["datetime"]}], "no type"),
        ([{"name": "x", "type": "datetime"}], "needs range"),
        ([{"name": "x", "type": "unit"}], "needs units"),
        ([{**SYSTEM, "name": " "}], "no name"),
        ([{key: SURVEY[key] for key in ("type", "units")}], "no name"),
        ([{**SURVEY, "range": SYSTEM["range"]}], "has units, not range"),
        ([{**SYSTEM, "units": "a"}], "has range, not units"),
        ([{**SYSTEM, "range": {"from": "2017-01-02"}}], "needs to"),
        ([{**SYSTEM, "range": {"to": "-"}}], "needs from"),
        ([{**SYSTEM, "range": {"from": "-", "to": "-"}}], "start"),
        ([{**SYSTEM, "range": {"from": "20170102", "to": "-"}}], "from: '20170102'"),
        ([{**SYSTEM, "range": {"from": "2017-01-02", "to": "PT5H"}}], "to: 'PT5H'"),
        ([{**SYSTEM, "range": {"from": "2017-01-02", "to": "2017-01-01"}}], "not behind"),
        ([{**SYSTEM, "range": {"from": "P1D", "to": "P3D"}}], "not behind"),
        ([{**SYSTEM, "range": {"from": "2017-01-02", "to": "-", "zone": "Mars"}}], "no time zone"),
        ([{**SYSTEM, "range": "2017-01-02"}], "no range"),
        ([{**SURVEY, "units": ""}], "empty"),
        ([{**SURVEY, "units": []}], "empty"),
        ([{**SURVEY, "units": 5}], "neither"),
        (["surveyId"], "no name and type"),
        (SYSTEM, "no list"),
        ("[]", "no list"),
        (5, "no list"),
    ],
)
def test_check_describes_each_problem(definitions: Any, problem: str) -> None:
    found = check(definitions)
    assert any(problem in one for one in found), found


def test_check_returns_all_problems_at_once() -> None:
    found = check([{**SYSTEM, "name": ""}, {**SURVEY, "units": ""}, 5])
    assert len(found) == 3
    assert [one[:11] for one in found] == ["watermark 1", "watermark 2", "watermark 3"]


def test_the_documented_names_and_arguments() -> None:
    documented = {
        "resolve": ["text", "now", "zone", "start"],
        "scheme": ["text"],
        "partitions": ["start", "end", "by", "partial", "zone"],
        "composite": ["start", "end", "parts", "partial", "zone"],
        "unit_list": ["name", "units"],
        "units_from": ["rows", "fields", "filters"],
        "plan": ["ranges", "units", "state", "grace", "abstinent", "limit", "min_units"],
        "advance_high": ["earlier", "low", "high", "ok"],
        "limit": ["text"],
        "check": ["definitions"],
    }
    for name, arguments in documented.items():
        assert list(inspect.signature(getattr(units, name)).parameters) == arguments
    assert set(units.__all__) == {*documented, "Plan", "PlannedUnit", "UnitError", "unit_name"}


def test_errors_are_those_of_a_configuration_and_travel() -> None:
    error = UnitError("one", "two")
    assert isinstance(error, ConfigError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.problems, str(again)) == (UnitError, error.problems, str(error))


DAY = timedelta(days=1)


def day(number: float) -> datetime:
    """Return this day of January 2020; 32 is the first of February."""
    return datetime(2020, 1, 1, tzinfo=UTC) + DAY * (number - 1)


def test_the_cut_off_is_that_of_the_highest_of_all() -> None:
    ranges = [(day(1), day(5)), (day(5), day(9))]
    assert plan(ranges, None, {}, 3, 0).cut_off is None
    state = {(day(1), "{}"): day(5), (day(5), "{}"): day(8)}
    assert plan(ranges, None, state, 3, 1).cut_off == day(6)
    assert plan(ranges, None, state, 0, 0).cut_off == day(8)
    assert plan(ranges, None, {(day(1), "{}"): None}, 0, 0).cut_off is None


def test_the_example_of_the_specification() -> None:
    first = plan([(day(1), day(15))], None, {}, 3, 0)
    assert [(u.start, u.end) for u in first.units] == [(day(1), day(15))]
    high = advance_high(None, day(1), day(15), ok=True)
    second = plan([(day(1), day(16))], None, {(day(1), "{}"): high}, 3, 0)
    assert [(u.start, u.end, u.execute) for u in second.units] == [(day(12), day(16), True)]


def test_only_units_in_grace_are_read_again_after_months() -> None:
    start = datetime(2019, 1, 1, tzinfo=UTC)
    before = partitions(start, datetime(2020, 2, 21, tzinfo=UTC), "monthly")
    state = {(low, "{}"): high for low, high in before}
    after = partitions(start, datetime(2020, 2, 22, tzinfo=UTC), "monthly")
    found = plan(after, [{}], state, 3, 0)
    assert found.cut_off == datetime(2020, 2, 18, tzinfo=UTC)
    assert [unit.reason for unit in found.units] == ["done"] * 13 + ["incomplete"]
    assert found.units[-1].start == datetime(2020, 2, 18, tzinfo=UTC)


def test_days_are_read_again_for_as_long_as_grace_lasts() -> None:
    days = partitions(day(1), day(20), "daily")
    state = {(low, "{}"): high for low, high in days}
    found = plan(days, None, state, 3, 0)
    assert [unit.partition[0] for unit in found.units if unit.execute] == [
        day(17),
        day(18),
        day(19),
    ]


def test_units_sort_by_partition_then_value_up_to_the_limit() -> None:
    ranges = [(day(5), day(9)), (day(1), day(5))]
    values = unit_list("id", "b,a,c")
    state = {(day(1), "a"): day(5)}
    found = plan(ranges, values, state, 0, 0, limit=3)
    told = [
        (unit.partition[0], unit.values["id"], unit.execute, unit.reason) for unit in found.units
    ]
    assert told == [
        (day(1), "b", True, "new"),
        (day(1), "a", False, "done"),
        (day(1), "c", True, "new"),
        (day(5), "b", True, "new"),
        (day(5), "a", False, "new"),
        (day(5), "c", False, "new"),
    ]
    assert sum(unit.execute for unit in plan(ranges, values, state, 0, 0).units) == 5
    assert sum(unit.execute for unit in plan(ranges, values, state, 0, 0, limit=-1).units) == 5


def test_units_have_high_watermarks_of_their_own() -> None:
    ranges = [(day(1), day(5))]
    found = plan(ranges, [{"id": "a"}, {"id": "b"}], {(day(1), "b"): day(3)}, 0, 0)
    assert [(unit.high, unit.start) for unit in found.units] == [(None, day(1)), (day(3), day(3))]
    several = [{"id": "1", "region": "eu"}]
    [unit] = plan(ranges, several, {(day(1), "1|eu"): day(3)}, 0, 0).units
    assert unit.high == day(3)


def test_the_only_unit_is_written_in_several_ways() -> None:
    ranges = [(day(1), day(5))]
    for values in (None, [], [{}]):
        for name in ("{}", "", None):
            state: Any = {(day(1), name): day(3)}
            [found] = plan(ranges, values, state, 0, 0).units
            assert found.values == {}
            assert found.start == day(3)


def test_times_of_other_zones_are_the_same_instants() -> None:
    there = timezone(timedelta(hours=5))
    ranges = [(day(1).astimezone(there), day(5).astimezone(there))]
    state = {(day(1), "{}"): day(3).astimezone(there)}
    [found] = plan(ranges, None, state, timedelta(days=1), 0).units
    assert (found.start, found.end, found.start.tzinfo) == (day(2), day(5), UTC)


def test_no_state_is_a_first_run() -> None:
    assert plan([(day(1), day(5))], None, None, 0, 0) == plan([(day(1), day(5))], None, {}, 0, 0)


def test_no_ranges_are_no_units() -> None:
    found = plan([], [{"id": "a"}], {}, 3, 0)
    assert (found.cut_off, found.units) == (None, [])


def test_fewer_values_than_there_must_be_are_refused() -> None:
    ranges = [(day(1), day(5))]
    values = unit_list("id", "a,b")
    assert len(plan(ranges, values, {}, 0, 0, min_units=2).units) == 2
    for one, least in ((values, 3), ([], 1), (None, 1), ([{}], 1)):
        with pytest.raises(UnitError, match="min_units"):
            plan(ranges, one, {}, 0, 0, min_units=least)


RANGES = [(day(1), day(5))]


@pytest.mark.parametrize(
    "arguments",
    [
        ([(day(5), day(1))], None, {}, 0, 0),
        ([(day(1), day(1))], None, {}, 0, 0),
        ([(day(1), day(5)), (day(4), day(6))], None, {}, 0, 0),
        ([(day(1), day(5).replace(tzinfo=None))], None, {}, 0, 0),
        ([("2020-01-01", "2020-01-02")], None, {}, 0, 0),
        ([day(1)], None, {}, 0, 0),
        (None, None, {}, 0, 0),
        (RANGES, "a,b", {}, 0, 0),
        (RANGES, ["a"], {}, 0, 0),
        (RANGES, {"id": "a"}, {}, 0, 0),
        (RANGES, [{"id": "a"}, {"id": "a"}], {}, 0, 0),
        (RANGES, [{"id": None}], {}, 0, 0),
        (RANGES, None, [], 0, 0),
        (RANGES, None, {"2020-01-01": day(2)}, 0, 0),
        (RANGES, None, {(day(1), 5): day(2)}, 0, 0),
        (RANGES, None, {(day(1), "{}"): "2020-01-02"}, 0, 0),
        (RANGES, None, {(day(1), "{}"): day(2).replace(tzinfo=None)}, 0, 0),
        (RANGES, None, {}, -1, 0),
        (RANGES, None, {}, 0, -0.5),
        (RANGES, None, {}, "3", 0),
        (RANGES, None, {}, True, 0),
        (RANGES, None, {}, float("nan"), 0),
        (RANGES, None, {}, 0, 0, 5001),
        (RANGES, None, {}, 0, 0, -2),
        (RANGES, None, {}, 0, 0, None, -1),
        (RANGES, None, {}, 0, 0, None, "many"),
    ],
)
def test_invalid_plan_arguments_raise_an_error(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UnitError):
        plan(*arguments)


def test_high_watermark_is_last_success_end_and_never_decreases() -> None:
    assert advance_high(None, day(1), day(5), ok=True) == day(5)
    assert advance_high(day(3), day(2), day(5), ok=True) == day(5)
    assert advance_high(day(7), day(2), day(5), ok=True) == day(7)
    assert advance_high(None, day(1), day(5), ok=False) is None
    assert advance_high(day(3), day(2), day(5), ok=False) == day(3)
    assert advance_high(None, day(1), day(1), ok=True) is None
    for wrong in (day(1).replace(tzinfo=None), "2020-01-01", None):
        with pytest.raises(UnitError):
            advance_high(None, wrong, day(5), ok=True)  # type: ignore[arg-type]  # what a caller may try
    with pytest.raises(UnitError):
        advance_high(None, day(5), day(1), ok=True)

"""Watermarks written as definitions, and their problems; the public surface."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from blizzard_core.errors import ConfigError
from blizzard_py import units
from blizzard_py.units import UnitError, check

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
def test_problems_are_told_in_words(definitions: Any, problem: str) -> None:
    found = check(definitions)
    assert any(problem in one for one in found), found


def test_all_problems_are_told_at_once() -> None:
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
        "settled": ["earlier", "low", "high", "ok"],
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

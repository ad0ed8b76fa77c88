"""The grid of units: each cell as the planner sees it, bounded whatever there is."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blizzard_py.slices.units.closed_units import compact
from blizzard_py.slices.units.due import Terms, due, reading_of
from blizzard_py.slices.units.grid import (
    LETTERS,
    MOST_COLUMNS,
    MOST_NOTES,
    MOST_ROWS,
    GridLayout,
    count_states,
    grid,
)
from blizzard_py.slices.units.outcomes import mark_units, record_failure, record_success
from blizzard_py.slices.units.schemes import Pair, partitions
from blizzard_py.slices.units.state import OpenUnit, UnitsState
from blizzard_py.slices.units.values import unit_list

DAY = timedelta(days=1)
GRACE = Terms(grace=3 * DAY)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def months(to: str, start: str = "2019-11-01") -> list[Pair]:
    return partitions(at(start), at(to), "monthly")


def layout(ranges: Sequence[Pair], *names: str, terms: Terms = GRACE) -> GridLayout:
    return GridLayout(ranges, unit_list("id", list(names)) if names else None, terms)


def read(state: UnitsState, plan: GridLayout, now: datetime, *but: str) -> UnitsState:
    """One run in which every unit succeeds, except those of these names."""
    for unit in due(state, plan.partitions, plan.values, plan.terms, now).units:
        if unit.execute:
            reading = reading_of(unit, plan.terms, now)
            if unit.name in but:
                state = record_failure(state, reading, now, f"{unit.name}: no answer")
            else:
                state = record_success(state, reading)
    names = ["{}"] if plan.values is None else [one["id"] for one in plan.values]
    return compact(state, plan.partitions, names, plan.terms.shift)


def cells(found: dict[str, Any]) -> list[str]:
    return [row["cells"] for row in found["rows"]]


def test_a_cell_shows_what_becomes_of_its_unit() -> None:
    plan = layout(months("2020-02-21"), "one", "two")
    assert cells(grid(UnitsState(), plan, at("2020-02-21"))) == ["nnnn", "nnnn"]
    state = read(UnitsState(), plan, at("2020-02-21"), "two")
    found = grid(state, plan, at("2020-02-21"))
    assert cells(found) == ["dddg", "ffff"]
    assert [column[0] for column in found["columns"]] == [
        "2019-11",
        "2019-12",
        "2020-01",
        "2020-02",
    ]
    assert found["columns"][-1][1:] == ["2020-02-01T00:00:00.000Z", "2020-02-21T00:00:00.000Z"]
    assert found["cut_off"] == "2020-02-18T00:00:00.000Z"
    worst = found["notes"][0]
    assert worst == {
        "row": 1,
        "column": 3,
        "key": "2020-02-01T00:00:00.000Z/two",
        "state": "failing",
        "high": None,
        "low": None,
        "failures": 1,
        "next_try": "2020-02-21T00:01:00.000Z",
        "error": "two: no answer",
        "units": {"failing": 1},
    }
    later = grid(state, replace(plan, partitions=months("2020-02-22")), at("2020-02-22"))
    assert cells(later) == ["dddi", "ffff"]  # also now that their pause is over
    note = next(note for note in later["notes"] if note["state"] == "incomplete")
    assert (note["high"], note["low"]) == ("2020-02-21T00:00:00.000Z", "2020-02-18T00:00:00.000Z")


def test_every_state_has_a_letter_of_its_own() -> None:
    plan = layout(months("2020-02-21"), "one")
    state = read(UnitsState(), plan, at("2020-02-21"))
    back = replace(plan, partitions=months("2020-02-19"))
    assert cells(grid(state, back, at("2020-02-21"))) == ["dddh"]
    again = mark_units(state, ["2019-12-01T00:00:00.000Z/one"])
    assert cells(grid(again, plan, at("2020-02-21"))) == ["drdg"]
    patient = replace(plan, partitions=months("2020-02-22"), terms=Terms(abstinent=3 * DAY))
    assert cells(grid(state, patient, at("2020-02-22"))) == ["ddda"]
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_retired_values_stay_as_rows_of_the_grid() -> None:
    plan = layout(months("2020-02-21"), "one", "two")
    state = read(UnitsState(), plan, at("2020-02-21"))
    older = UnitsState(open={"2019-12-01T00:00:00.000Z/odd": OpenUnit(failures=1)})
    state = replace(state, open={**state.open, **older.open})
    found = grid(state, layout(months("2020-03-05"), "one"), at("2020-03-05"))
    assert [row["name"] for row in found["rows"]] == ["one", "two", "odd"]
    assert cells(found)[1:] == ["xxxx.", ".x..."]
    assert found["retired"] == 2


def test_a_source_without_values_has_one_row() -> None:
    found = grid(UnitsState(), layout(months("2020-02-21")), at("2020-02-21"))
    assert found["rows"] == [{"name": "{}", "cells": "nnnn"}]
    empty = grid(UnitsState(), GridLayout([], [], GRACE), at("2020-02-21"))
    assert (empty["rows"], empty["columns"]) == ([], [])


@pytest.mark.parametrize(
    ("by", "start", "to", "folded", "labels"),
    [
        ("daily", "2020-01-01", "2020-12-31", "partition", ("2020-01-01", "2020-12-30")),
        ("daily", "2020-01-01", "2021-02-01", "month", ("2020-01", "2021-01")),
        ("hourly", "2020-01-01", "2020-03-01", "day", ("2020-01-01", "2020-02-29")),
        (
            "hourly",
            "2020-01-01",
            "2020-01-03",
            "partition",
            ("2020-01-01 00:00", "2020-01-02 23:00"),
        ),
        ("monthly", "1950-01-01", "2020-01-01", "year", ("1950", "2019")),
        ("yearly", "1950-01-01", "2020-01-01", "partition", ("1950", "2019")),
    ],
)
def test_many_partitions_are_folded_by_the_calendar(
    by: str, start: str, to: str, folded: str, labels: tuple[str, str]
) -> None:
    plan = layout(partitions(at(start), at(to), by))
    found = grid(UnitsState(), plan, at(to))
    assert found["by"] == folded
    assert (found["columns"][0][0], found["columns"][-1][0]) == labels
    assert len(found["columns"]) <= MOST_COLUMNS
    assert sum(sum(note["units"].values()) for note in found["notes"]) <= len(plan.partitions)


def test_days_and_months_are_those_of_the_zone() -> None:
    days = partitions(at("2019-12-31 23:00"), at("2021-02-28 23:00"), "daily", zone="Europe/Berlin")
    found = grid(UnitsState(), GridLayout(days, None, GRACE, "Europe/Berlin"), at("2021-03-01"))
    assert found["columns"][0] == [
        "2020-01",
        "2019-12-31T23:00:00.000Z",
        "2020-01-31T23:00:00.000Z",
    ]
    assert len(found["columns"]) == 14


def test_a_folded_cell_shows_the_worst_and_counts_all() -> None:
    plan = layout(partitions(at("2018-01-01"), at("2020-02-21"), "daily"))
    state = read(UnitsState(), plan, at("2020-02-21"))
    odd = {"2020-02-03T00:00:00.000Z/{}": OpenUnit(failures=2, error="no")}
    found = grid(replace(state, open={**state.open, **odd}), plan, at("2020-02-21"))
    assert cells(found) == ["d" * 25 + "f"]
    [note] = found["notes"]
    assert note["units"] == {"failing": 1, "grace": 3, "done": 16}
    assert note["key"] == "2020-02-03T00:00:00.000Z/{}"
    assert found["counts"]["done"] == len(plan.partitions) - 4


def test_grid_shows_the_worst_rows_in_input_order() -> None:
    names = [f"id{number}" for number in range(MOST_ROWS + 40)]
    plan = layout(months("2020-02-21"), *names)
    state = read(UnitsState(), plan, at("2020-02-21"), "id90", "id80")
    found = grid(state, plan, at("2020-02-21"))
    assert [row["name"] for row in found["rows"]][-3:] == ["id57", "id80", "id90"]
    assert (len(found["rows"]), found["more"]) == (MOST_ROWS, 40)


def test_counts_are_of_all_units_and_name_each_state() -> None:
    plan = layout(months("2020-02-21"), "one", "two")
    state = read(UnitsState(), plan, at("2020-02-21"), "two")
    found = due(state, plan.partitions, plan.values, plan.terms, at("2020-02-21"))
    counts = count_states(found, state)
    assert list(counts) == list(LETTERS)
    assert {state: count for state, count in counts.items() if count} == {
        "failing": 4, "grace": 1, "done": 3,
    }  # fmt: skip


def test_a_hundred_thousand_units_make_a_small_grid() -> None:
    hours = partitions(at("2013-01-01"), at("2019-01-01"), "hourly")
    plan = layout(hours, "one" * 4000, "two/%\U0001f427")
    began = time.process_time()
    found = grid(UnitsState(), plan, at("2019-01-01"))
    assert time.process_time() - began < 6
    assert found["counts"]["new"] == 2 * len(hours)
    names = [f"{n}{'x' * 300}" for n in range(MOST_ROWS + 1)]
    days = partitions(at("2019-01-01"), at("2019-12-31"), "daily")
    failed = read(UnitsState(), layout(days[-20:], *names), at("2019-12-31"), *names)
    crowded = grid(failed, layout(days, *names), at("2019-12-31"))
    assert len(crowded["notes"]) == MOST_NOTES
    for one in (found, crowded):
        assert len(json.dumps(one)) < 150_000

"""Units in the checkpoint: JSON, refused states, the guard and lookups."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from blizzard_core.errors import StateError
from blizzard_py.slices.units.state import (
    OpenUnit,
    UnitReading,
    UnitsState,
    check_spec,
    check_units,
    highest,
    key_parts,
    unit_key,
    unit_of,
)
from tests.support.unit_harness import units_from_json

SPEC = {
    "from": "2019-01-01T00:00:00.000Z",
    "zone": "UTC",
    "partition": "monthly",
    "name": "surveyId",
}
JAN, FEB, MAR = (f"2020-0{month}-01T00:00:00.000Z" for month in (1, 2, 3))
DESIGNED = {
    "spec": SPEC,
    "closed_to": {"id1": FEB},
    "open": {
        f"{FEB}/id1": {
            "high": "2020-02-21T00:00:00.000Z",
            "slices": [FEB, "2020-02-18T00:00:00.000Z"],
            "read_at": "2020-02-21T00:10:00.000Z",
            "failures": 0,
            "next_try": None,
            "error": None,
        }
    },
    "redo": [],
    "readings": [],
    "anew": False,
}


def test_the_state_is_json_and_back() -> None:
    state = units_from_json(DESIGNED, "units")
    assert msgspec.json.decode(msgspec.json.encode(state)) == DESIGNED
    assert units_from_json({}, "units") == UnitsState()
    reading = UnitReading(f"{FEB}/id1", FEB, (FEB,), FEB, FEB)
    under_way = UnitsState(readings=(reading,))
    document = msgspec.json.decode(msgspec.json.encode(under_way))
    assert units_from_json(document, "units") == under_way


def _with(**changes: Any) -> dict[str, Any]:
    return {**DESIGNED, "open": {f"{FEB}/id1": {**DESIGNED["open"][f"{FEB}/id1"], **changes}}}  # type: ignore[index]  # a literal


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"newer": 1},
        {"spec": {"from": 1}},
        {"closed_to": {"a": "2020-02-01"}},
        {"closed_to": {"a": "2020-02-31T00:00:00.000Z"}},
        {"closed_to": {"a": None}},
        {"redo": ["id1"]},
        {"redo": ["2020-02-31T00:00:00.000Z/id1"]},
        {"open": {"id1": {}}},
        {"open": {"2020-13-01T00:00:00.000Z/id1": {}}},
        _with(high="2020-02-30T00:00:00.000Z"),
        _with(high=None),
        _with(high=FEB),
        _with(slices=[JAN]),
        _with(slices=[FEB, FEB]),
        _with(slices=["2020-02-18T00:00:00.000Z", FEB]),
        _with(next_try="soon"),
        _with(read_at="2020-02-21T24:61:00.000Z"),
        _with(failures=-1),
        _with(newer=True),
    ],
)
def test_invalid_units_state_is_refused_with_its_path(document: Any) -> None:
    with pytest.raises(StateError, match=r"^units"):
        units_from_json(document, "units")


def test_the_spec_guards_what_all_partitions_depend_on() -> None:
    state = units_from_json(DESIGNED, "units")
    assert check_spec(state, SPEC, "p/s") == state
    assert check_spec(UnitsState(), SPEC, "p/s").spec == SPEC
    other = {**SPEC, "partition": "weekly"}
    with pytest.raises(StateError) as caught:
        check_spec(state, other, "p/s")
    for told in ("p/s", "'monthly'", "'weekly'", "checkpoint reset --units"):
        assert told in str(caught.value)


def test_keys_are_the_partitions_beginning_and_the_name() -> None:
    begin = datetime(2020, 2, 1, tzinfo=UTC)
    for name in ("id1", "a/b", "{}", "1|eu"):
        key = unit_key(begin, name)
        assert key == f"{FEB}/{name}"
        assert key_parts(key) == (begin, name)
    for wrong in ("id1", "", "2020-02-01/id1", f"{FEB}"):
        with pytest.raises(StateError):
            key_parts(wrong)


def test_a_closed_unit_is_complete() -> None:
    state = units_from_json(DESIGNED, "units")
    assert unit_of(state, f"{JAN}/id1", FEB) == OpenUnit(high=FEB)
    assert unit_of(state, f"{FEB}/id1", MAR) == state.open[f"{FEB}/id1"]
    assert unit_of(state, f"{MAR}/id1", MAR) == OpenUnit()
    assert unit_of(state, f"{JAN}/id2", FEB) == OpenUnit()
    assert highest(state) == datetime(2020, 2, 21, tzinfo=UTC)
    assert highest(UnitsState()) is None


def test_closed_partition_keeps_its_end_when_the_range_shrinks() -> None:
    state = UnitsState(closed_to={"id1": MAR})
    middle = "2020-02-10T00:00:00.000Z"
    assert unit_of(state, f"{FEB}/id1", middle, is_last=True).high == MAR
    assert unit_of(state, f"{JAN}/id1", FEB).high == FEB


def test_an_open_entry_goes_before_what_is_closed() -> None:
    state = units_from_json(DESIGNED, "units")
    forgotten = replace(state, open={f"{JAN}/id1": OpenUnit()})
    assert unit_of(check_units(forgotten, "units"), f"{JAN}/id1", FEB) == OpenUnit()


def test_hourly_units_of_years_are_a_line_a_value() -> None:
    closed_to = {f"id{number}": FEB for number in range(200)}
    assert len(msgspec.json.encode(UnitsState(closed_to=closed_to))) < 8192

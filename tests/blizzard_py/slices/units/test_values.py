"""The values of units: lists, text, rows; names; and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import UnitError
from blizzard_py.slices.units.values import (
    check_distinct,
    look_alikes,
    unit_list,
    unit_name,
    units_from,
)

ROWS = [
    {"id": "a", "status": "OK", "n": 1},
    {"id": "b", "status": "NOT OK", "n": 2},
    {"id": "c", "status": "Success", "n": 3},
    {"id": "d", "status": None, "n": 4},
    {"id": "e", "n": 5},
    {"id": "a", "status": "OK", "n": 6},
]


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ("id1,id2,id3", ["id1", "id2", "id3"]),
        (" id1 , id2", ["id1", "id2"]),
        ("id1", ["id1"]),
        ("b,a,b", ["b", "a"]),
        ("null,a", ["null", "a"]),
        (["id2", " id1 ", "id2"], ["id2", "id1"]),
        (("x",), ["x"]),
        ([7, "7", -1], ["7", "-1"]),
        (["a,b"], ["a,b"]),
        (["ä/%😀"], ["ä/%😀"]),
    ],
)
def test_lists_and_text_mean_the_same(units: Any, expected: list[str]) -> None:
    assert unit_list("surveyId", units) == [{"surveyId": value} for value in expected]


def test_objects_name_their_fields() -> None:
    told = [{"id": " 1", "region": "eu"}, {"region": "us", "id": 2}, {"id": "1", "region": "eu"}]
    found = unit_list("ignored", told)
    assert found == [{"id": "1", "region": "eu"}, {"id": "2", "region": "us"}]
    assert [unit_name(one) for one in found] == ["1|eu", "2|us"]
    assert unit_list(None, told) == found


@pytest.mark.parametrize(
    "units",
    [
        "",
        " ",
        ",",
        "a,,b",
        "a,",
        [],
        [""],
        ["a", " "],
        [None],
        None,
        5,
        {"id": "a"},
        b"a,b",
        [True],
        [1.5],
        [["a"]],
        [date(2020, 1, 1)],
        [{"id": "a"}, "b"],
        [{}],
        [{"id": "a"}, {"other": "b"}],
        [{"id": {"deep": 1}}],
        [{"": "a"}],
        [{1: "a"}],
        ["\ud800"],
        [10**5000],
    ],
)
def test_unit_list_rejects_invalid_values(units: Any) -> None:
    with pytest.raises(UnitError):
        unit_list("id", units)


@pytest.mark.parametrize("name", ["", " ", None, 5, ["id"]])
def test_values_need_the_name_of_a_field(name: Any) -> None:
    with pytest.raises(UnitError):
        unit_list(name, "a,b")


def test_filters_match_full_values_and_never_null() -> None:
    assert units_from(ROWS, ["id"], {"status": "OK|Success"}) == [{"id": "a"}, {"id": "c"}]
    assert units_from(ROWS, ["id"], {"status": ".*"}) == [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    assert units_from(ROWS, ["id"], {"status": "OK", "id": "b"}) == []
    assert units_from(ROWS, ["id"], {"n": "[45]"}) == [{"id": "d"}, {"id": "e"}]
    assert units_from(ROWS, ["id"], {"missing": ".*"}) == []


def test_fields_of_rows_become_text_once_each_in_order() -> None:
    assert units_from(ROWS, ["id"]) == [{"id": one} for one in "abcde"]
    assert units_from(ROWS, "id, n", {"id": "b|c"}) == [
        {"id": "b", "n": "2"},
        {"id": "c", "n": "3"},
    ]
    odd = [{"v": True}, {"v": 1.5}, {"v": Decimal("1.10")}, {"v": date(2020, 1, 2)}, {"v": " x "}]
    assert [one["v"] for one in units_from(odd, ["v"])] == [
        "true",
        "1.5",
        "1.10",
        "2020-01-02",
        " x ",
    ]
    when = datetime(2020, 1, 2, 3, tzinfo=UTC)
    assert units_from([{"v": when}], ["v"]) == [{"v": "2020-01-02T03:00:00+00:00"}]
    assert units_from([], ["id"]) == []
    assert units_from(iter(ROWS[:1]), ["id"], {}) == [{"id": "a"}]


@pytest.mark.parametrize(
    ("rows", "fields", "filters"),
    [
        ([{"id": None}], ["id"], None),
        ([{}], ["id"], None),
        ([{"id": ""}], ["id"], None),
        ([{"id": ["a"]}], ["id"], None),
        ([{"id": b"a"}], ["id"], None),
        (ROWS, [], None),
        (ROWS, "", None),
        (ROWS, ["id", "id"], None),
        (ROWS, [None], None),
        (ROWS, {"id"}, None),
        (ROWS, ["id"], {"id": "("}),
        (ROWS, ["id"], {"id": None}),
        (ROWS, ["id"], ["id"]),
        (["a"], ["id"], None),
        ("a", ["id"], None),
        (None, ["id"], None),
        ({"id": "a"}, ["id"], None),
    ],
)
def test_rows_that_make_no_units_are_refused(rows: Any, fields: Any, filters: Any) -> None:
    with pytest.raises(UnitError):
        units_from(rows, fields, filters)


@given(st.lists(st.tuples(st.text("ab|%,7C25", min_size=1), st.text("ab|%,7C25", min_size=1))))
def test_units_of_other_values_have_other_names(pairs: list[tuple[str, str]]) -> None:
    names = {unit_name({"x": one, "y": other}) for one, other in pairs}
    assert len(names) == len(set(pairs))


def test_the_only_unit_is_called_by_its_braces() -> None:
    assert unit_name({}) == "{}"
    assert unit_name({"id": "a|b"}) == "a|b"
    with pytest.raises(UnitError):
        unit_name({"id": None})


def test_values_that_a_collation_takes_for_one_are_found() -> None:
    listed = unit_list("id", ["a", "b", "A", "Ä", "straße", "STRASSE", "ab", "a b"])
    assert look_alikes(listed) == [("a", "A"), ("a", "Ä"), ("straße", "STRASSE")]
    in_rows = units_from([{"x": "a", "y": "b "}, {"x": "a", "y": "b"}], ["x", "y"])
    assert look_alikes(in_rows) == [("a|b ", "a|b")]
    check_distinct(unit_list("id", "a,b,c"))
    with pytest.raises(UnitError, match=r"'a' and 'A' may be the same.*COLLATE"):
        check_distinct(unit_list("id", "a,b,A"))

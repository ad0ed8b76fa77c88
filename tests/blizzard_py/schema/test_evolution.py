"""New columns from unexpected fields: their types, and the fields that are left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blizzard_core.limits import INFERRED_COLUMNS
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.schema.evolution import Evolved, Takes, evolved
from blizzard_py.schema.inference import Rules
from tests.support.ingest_job_harness import specs

COLUMNS = specs(id="int64", Price="float64")


def anything(_: Sequence[FieldSpec]) -> str:
    return ""


def no_column(_name: str) -> None:
    """There is no table."""


ALL = Takes(anything, anything, no_column)


def field(name: str, *values: str) -> UnexpectedField:
    return UnexpectedField(name, "a.ndjson", values)


def evolve(*found: UnexpectedField, rules: Rules | None = None, takes: Takes = ALL) -> Evolved:
    return evolved(COLUMNS, frozenset({"date"}), found, rules or Rules(), takes)


@pytest.mark.parametrize(
    ("values", "kind", "coerce"),
    [
        (("1",), "int64", False),
        (("1", "2.5"), "float64", False),
        (("true",), "boolean", False),
        (('"x"',), "string", False),
        (('"x"', "1"), "string", True),
        (('{"a":1}',), "struct", False),
        (("{}",), "json", False),
        (("[1]",), "list", False),
        (("18446744073709551616",), "decimal", False),
    ],
)
def test_types_are_those_of_inference(values: tuple[str, ...], kind: str, *, coerce: bool) -> None:
    [added] = evolve(field("new", *values)).added
    assert (added.name, added.type, added.coerce, added.nullable) == ("new", kind, coerce, True)


def test_timestamps_are_as_configured() -> None:
    [added] = evolve(field("t", '"2024-01-01T00:00:00Z"'), rules=Rules(timestamps=True)).added
    assert added.type == "timestamp"


def test_column_of_a_field_with_an_odd_name_is_filled_from_it() -> None:
    [added] = evolve(field("US Gross", "1")).added
    assert (added.name, added.source) == ("US_Gross", "US Gross")


def test_null_only_fields_and_existing_columns_are_not_added() -> None:
    assert evolve(field("always_null"), field("id", "1")) == Evolved()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (field("price", "1"), "differs only in case from 'Price'"),
        (field("ID", "1"), "differs only in case from 'id'"),
        (field("Date", "1"), "a partition column, a column of path_columns"),
        (field(" id ", "1"), "its column would be 'id', which another field fills"),
        (field("()", "1"), "a column cannot have this name"),
        (field("n" * 255 + "…", "1"), "a column cannot have this name"),
        (field("a\u202eb", "1"), "a column cannot have this name"),
        (field("", "1"), "a column cannot have this name"),
    ],
)
def test_invalid_column_names_are_left_out_with_a_reason(
    found: UnexpectedField, reason: str
) -> None:
    result = evolve(found, field("fine", "1"))
    assert result.left_out.keys() == {found.name}
    assert reason in result.left_out[found.name]
    assert [spec.name for spec in result.added] == ["fine"]


def test_of_two_that_differ_only_in_case_the_first_is_added() -> None:
    result = evolve(field("New", "1"), field("new", '"x"'))
    assert [(spec.name, spec.type) for spec in result.added] == [("New", "int64")]
    assert "'New'" in result.left_out["new"]


def test_a_conflict_that_may_not_be_coerced_leaves_its_field_out() -> None:
    result = evolve(field("x", "1", '"a"'), field("y", "1"), rules=Rules(coerce_conflicts=False))
    assert "integer (a.ndjson), text (a.ndjson)" in result.left_out["x"]
    assert [spec.name for spec in result.added] == ["y"]


def test_rejected_fields_are_left_out_and_excess_fields_wait() -> None:
    def never(fields: Sequence[FieldSpec]) -> str:
        return "the table has it as long" if "taken" in {f.name for f in fields} else ""

    def now(fields: Sequence[FieldSpec]) -> str:
        return "max_new_columns is 1" if len(fields) > len(COLUMNS) + 1 else ""

    found = (field("taken", "1.5"), field("a", "1"), field("b", "1"))
    result = evolve(*found, takes=Takes(never, now, no_column))
    assert result.left_out == {"taken": "the table has it as long"}
    assert [spec.name for spec in result.added] == ["a"]
    assert result.waiting == ["b"]


def test_nothing_evolves_when_the_table_refuses_existing_columns() -> None:
    takes = Takes(lambda _: "the table requires id", anything, no_column)
    assert evolve(field("a", "1"), takes=takes) == Evolved()


def test_a_table_has_so_many_columns_at_most() -> None:
    columns = tuple(FieldSpec(f"c{n}", "int64", nullable=True) for n in range(INFERRED_COLUMNS - 1))
    found = (field("a", "1"), field("b", "1"))
    result = evolved(columns, frozenset(), found, Rules(), ALL)
    assert [spec.name for spec in result.added] == ["a"]
    assert "there are 1,000 columns" in result.left_out["b"]

"""Conditions of deletes: their form, their rows, and the files that may have some."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.settings.keyed import DeleteCondition, parse_condition
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.keyed.order import Order, are_deletes, check_columns


@pytest.mark.parametrize(
    ("text", "values", "deletes"),
    [
        ("x = 'd'", ["d", "D", None], [True, False, False]),
        ("x = 'it''s'", ["it's", "it", None], [True, False, False]),
        ("x IN ('d', 't')", ["d", "t", "u"], [True, True, False]),
        ("x in (1,-2)", [1, -2, None], [True, True, False]),
        ("x IS NULL", [1, None, 2], [False, True, False]),
        (" x is  not null ", [1, None, 2], [True, False, True]),
        ("x", [True, None, False], [True, False, False]),
    ],
)
def test_condition_selects_rows(text: str, values: list[Any], deletes: list[bool]) -> None:
    table = pa.table({"x": values})
    condition = parse_condition(text)
    check_columns(table.schema, Order((), (), condition))
    assert are_deletes(table, condition).to_pylist() == deletes


def test_a_quoted_name_may_have_any_characters() -> None:
    assert parse_condition("`gone at` IS NOT NULL") == DeleteCondition("gone at", "not_null")


@pytest.mark.parametrize(
    "text", ["", "x > 1", "x = 'a' OR y = 'b'", "x = d", "1 = 1", "x IS", "x IN ()", "x = 'a"]
)
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="condition on one column"):
        parse_condition(text)


def test_text_and_numbers_for_one_column_are_refused() -> None:
    with pytest.raises(ValueError, match="with text and with numbers"):
        parse_condition("x IN (1, 'a')")


@pytest.mark.parametrize(
    ("text", "message"), [("y", "no column"), ("x", "int64"), ("x = 'd'", "'d'")]
)
def test_condition_that_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        check_columns(pa.schema([("x", pa.int64())]), Order((), (), parse_condition(text)))

"""Bounds of files: nothing that is asked for is ever left out."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.settings.keyed import parse_condition
from penguin_py.keyed.pruning import may_exceed, may_have_deletes, may_hold
from tests.chaos.keyed.memory import log_of
from tests.chaos.keyed.model import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_with_a_value_is_left_out(kind: str) -> None:
    chance = random.Random(kind)
    arrow, make = KINDS[kind]
    for _ in range(40):
        numbers = [chance.randrange(30) for _ in range(6)]
        file = pa.table({"k": pa.array([*map(make, numbers), None], arrow)})
        logged = log_of(file, ("k",))
        wanted = pa.array([make(chance.choice(numbers)), None], arrow)
        assert may_hold(logged, "k", wanted).to_pylist() == [True]
        assert may_exceed(logged, "k", wanted).to_pylist() == [True]


@pytest.mark.parametrize("kind", ["int64", "text", "day", "moment"])
def test_files_without_values_are_left_out(kind: str) -> None:
    arrow, make = KINDS[kind]
    files = [pa.table({"k": pa.array([make(n), make(n + 9)], arrow)}) for n in (0, 40, 80)]
    logged = pa.concat_tables([log_of(file, ("k",)) for file in files])
    found = may_hold(logged, "k", pa.array([make(95), make(44), make(20)], arrow))
    assert found.to_pylist() == [False, True, False]
    assert may_hold(logged, "k", pa.array([], arrow)).to_pylist() == [False] * 3
    found = may_exceed(logged, "k", pa.array([make(60), make(99)], arrow))
    assert found.to_pylist() == [False, False, True]


def test_a_name_with_a_dot_leaves_nothing_out() -> None:
    logged = pa.table({"num_records": [1], "min.a.b": [1], "max.a.b": [2], "null_count.a.b": [0]})
    assert may_hold(logged, "a.b", pa.array([7])).to_pylist() == [True]
    assert may_have_deletes(logged, parse_condition("`a.b` IS NULL")).to_pylist() == [True]


@pytest.mark.parametrize(
    ("text", "rows", "nulls", "low", "high", "may"),
    [
        ("x = 'd'", 5, 0, "a", "c", False),
        ("x = 'd'", 5, 0, "a", "u", True),
        ("x = 'd'", 5, 5, None, None, False),
        ("x = 'd'", None, None, None, None, True),
        ("x IS NULL", 5, 0, 1, 2, False),
        ("x IS NULL", 5, None, None, None, True),
        ("x IS NOT NULL", 5, 5, None, None, False),
        ("x IS NOT NULL", 5, 4, 1, 1, True),
        ("x = 'd'", 5, 0, 1, 2, True),
        ("x", 5, 0, None, None, True),
    ],
)
def test_bounds_tell_files_without_deletes(
    text: str, rows: int | None, nulls: int | None, low: Any, high: Any, may: bool
) -> None:
    logged = {"num_records": [rows], "null_count.x": [nulls], "min.x": [low], "max.x": [high]}
    kinds = [pa.int64(), pa.int64()]
    columns = [pa.array(column, kind) for column, kind in zip(logged.values(), kinds, strict=False)]
    columns += [pa.array(logged["min.x"]), pa.array(logged["max.x"])]
    files = pa.table(columns, names=list(logged))
    assert may_have_deletes(files, parse_condition(text)).to_pylist() == [may]

"""The pure core of keyed tables beside a dict, and faults in it that must be noticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.settings.keyed import parse_condition
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.keyed import order
from penguin_py.keyed.matching import Matching
from penguin_py.keyed.order import Order, check_columns
from tests.chaos.keyed.memory import Memory, play
from tests.chaos.keyed.model import KINDS, Changes
from tests.chaos.keyed.mutants import CORE

Patch = pytest.MonkeyPatch
ORDER = Order(("id",), ("seq",))
WITH_DELETES = Order(("id",), ("seq",), parse_condition("op = 'd'"))


def rows(*values: tuple[Any, Any, str, str]) -> pa.Table:
    names = ("id", "seq", "op", "v")
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.string())
    columns = list(zip(*values, strict=True)) or [()] * 4
    arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=names)


def play_many(count: int) -> None:
    for seed in range(count):
        play(seed)


def test_random_histories_equal_a_model() -> None:
    play_many(120)


@pytest.mark.parametrize("kind", KINDS)
def test_each_type_of_key_and_sequence_equals_a_model(kind: str) -> None:
    for keys in ([kind], [kind, "text"], ["int32", kind]):
        world = Memory(Changes(random.Random(kind), False, keys, [kind]))
        for until in range(1, 5):
            world.append(6)
            world.merge(until - 1, until)
            world.check()


@pytest.mark.parametrize("mutant", CORE, ids=lambda mutant: mutant.__name__)
def test_a_fault_in_the_core_is_noticed(
    mutant: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play_many(400)


def test_keys_with_other_parts_differ() -> None:
    table = pa.table({"a": ["x", "x1", "1:x"], "b": ["11", "1", "y"], "seq": [1, 1, 1]})
    found = order.key_values(table, ("a", "b"))
    assert len(set(found.to_pylist())) == 3


def test_outcomes_count_each_change_once() -> None:
    stored = rows((1, 5, "u", "a"), (2, 5, "u", "b"), (3, 5, "u", "c"), (4, 5, "u", "d"))
    changes = rows(
        (1, 6, "u", "newer"),
        (2, 4, "u", "older"),
        (3, 6, "d", ""),
        (4, 5, "u", "tied"),
        (5, 1, "u", "new"),
        (6, 1, "u", "buried"),
        (7, 2, "d", "never there"),
        (8, 1, "u", "beaten"),
        (8, 1, "u", "later"),
        (None, 1, "u", ""),
        (9, None, "u", ""),
    )
    found = Matching(changes, WITH_DELETES)
    leaving = found.meet(stored.select(["id"]), lambda: stored.select(["seq"]))
    assert leaving.mask.to_pylist() == [True, False, True, True]
    found.count_ties(stored.filter(leaving.equal))
    found.bury(rows((6, 2, "d", ""), (5, 0, "d", ""), (1, 9, "d", "")))
    assert [row["v"] for row in found.winners().to_pylist()] == ["newer", "tied", "new", "later"]
    expected = {"new": 2, "changed": 2, "deleted": 1, "older": 2, "tied": 2, "without_key": 2}
    assert found.outcomes() == expected


def test_equal_rows_are_no_ties() -> None:
    found = Matching(rows((1, 1, "u", "a"), (1, 1, "u", "a")), ORDER)
    stored = rows((1, 1, "u", "a"))
    leaving = found.meet(stored, lambda: stored)
    found.count_ties(rows((1, 1, "u", "a")).filter(leaving.equal))
    assert found.outcomes()["tied"] == 0


def test_nested_values_that_python_lacks_are_compared() -> None:
    kind = pa.struct([("t", pa.timestamp("us"))])
    times = pa.array([{"t": n} for n in (10**18, 10**18, 10**18 + 1)])
    changes = rows(*[(1, 1, "u", "a")] * 3).append_column("n", times.cast(kind))
    assert Matching(changes, WITH_DELETES).outcomes()["tied"] == 1


def test_a_stored_null_sequence_gives_way() -> None:
    found = Matching(rows((1, 1, "u", "a")), ORDER)
    stored = rows((1, None, "u", "foreign"), (None, 1, "u", "no key"))
    leaving = found.meet(stored, lambda: stored)
    assert leaving.mask.to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("seq", pa.int64())]), "no column 'id'"),
        (pa.schema([("id", pa.float64()), ("seq", pa.int64())]), "'id' as double"),
        (pa.schema([("id", pa.int64()), ("seq", pa.list_(pa.int64()))]), "'seq' as list"),
    ],
)
def test_unsuitable_columns_are_refused_by_name(schema: pa.Schema, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        check_columns(schema, ORDER)

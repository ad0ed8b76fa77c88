"""Fixed stories of a keyed table with one fault at each request: a death, or a lost answer."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import BlizzardError
from tests.chaos.faults import Faults
from tests.chaos.keyed.delta import KeyedWorld, keyed_table
from tests.support.memory_store import Died

Values = tuple[Any, Any, str, Any]


def table(*values: Values) -> pa.Table:
    """Return changes of these keys, sequences, operations and values."""
    kinds = (pa.int64(), pa.int64(), pa.string(), pa.string())
    columns = zip(*values, strict=True)
    arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=("id", "seq", "op", "v"))


FIRST = table((1, 5, "u", "a"), (2, 5, "u", "b"), (3, 5, "u", "c"), (4, 5, "d", ""))
# Rows that change, go, come late and join with a column.
SECOND = table((1, 6, "u", "A"), (2, 6, "d", ""), (4, 4, "u", "late"), (5, 1, "u", "e"))
SECOND = SECOND.append_column("w", pa.array([1, 2, 3, 4]))


def _merge(world: KeyedWorld) -> None:
    """Merge twice: a new table, then changes with a column of their own."""
    for number, rows in enumerate((FIRST, SECOND)):
        if world.changes.storage.stat(f"_delta_log/{number:020d}.json") is None:
            world.append(rows)
        world.run()


def _rebuild(world: KeyedWorld) -> None:
    """Rebuild by other settings, by which the deletes are rows like others."""
    if "x" not in str(world.keyed.deletes_text):
        _merge(world)
        world.keyed = replace(world.keyed, deletes_text="op = 'x'")
    world.penguin().rebuild()


# What is done again after the fault, and the rows that are right in the end.
STORIES: Mapping[str, tuple[Callable[[KeyedWorld], None], Mapping[int, str]]] = {
    "merges": (_merge, {1: "A", 3: "c", 5: "e"}),
    "a rebuild": (_rebuild, {1: "A", 2: "", 3: "c", 4: "", 5: "e"}),
}


class FaultAt(Faults):
    """Faults at exactly one step: a death before a request, after it, or a lost answer."""

    def __init__(self, at: int) -> None:
        super().__init__(random.Random(0), 0.0)
        self.at = at
        self.steps = 0

    def around(self, action: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        self._step()
        found = action()
        self._step()
        self.steps += 1
        if self.steps - 1 == self.at:
            self.lost += 1
            raise lost()
        return found

    def _step(self) -> None:
        self.steps += 1
        if self.steps - 1 == self.at:
            self.deaths += 1
            raise Died


def interrupted(world: KeyedWorld, tell: Callable[[KeyedWorld], None], at: int) -> FaultAt:
    """Tell a story with a fault at one step."""
    found = world.faults = FaultAt(at)
    try:
        tell(world)
    except Died:
        pass
    except BlizzardError as error:
        if not error.retryable:
            raise
    world.faults = None
    return found


def die_at(
    name: str, uri: str, pool: Executor, at: int, options: Mapping[str, str] | None = None
) -> FaultAt:
    """Tell a story with a fault at one step, and again without. Raises `AssertionError`."""
    tell, expected = STORIES[name]
    more = {"deletes_text": "op = 'd'", "options": dict(options or {})}
    world = KeyedWorld(keyed_table(uri, ("id",), ("seq",), **more), pool)
    found = interrupted(world, tell, at)
    tell(world)
    for _ in range(2):  # the start behind the next commit clears what the death has left
        world.append(table((6, 1, "u", ""), (6, 2, world.keyed.deletes_text[-2], "")))  # type: ignore[index]  # it is given
        world.run()
        world.now += 3600
    rows = world.rows()
    current = {row["id"]: row["v"] for row in rows}
    assert len(current) == len(rows), f"{name}, step {at}: a key is there twice"
    assert current == expected, f"{name}, step {at}"
    assert world.leftovers() == set(), f"{name}, step {at}"
    return found


def die_at_every_request(
    name: str, uri: str, pool: Executor, options: Mapping[str, str] | None = None
) -> Counter[str]:
    """Tell a story once for each step; count the faults. Raises `AssertionError`."""
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)  # no machine dies
        steps = die_at(name, f"{uri}/whole", pool, -1, options).steps
        for at in range(steps):
            found = die_at(name, f"{uri}/{at}", pool, at, options)
            counts[f"{name}: deaths"] += found.deaths
            counts[f"{name}: answers lost"] += found.lost
    return counts

"""Restores, killed rebuilds, rivals and foreign features around a keyed table."""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from blizzard_core.errors import StateError
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.merger import Merger
from tests.chaos.keyed.delta import KeyedWorld, keyed_table
from tests.support.memory_store import Died

Values = tuple[int, int, str]


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> KeyedWorld:
    return KeyedWorld(keyed_table(str(tmp_path), ("id",), ("seq",), deletes_text="op = 'd'"), pool)


def append(world: KeyedWorld, *values: Values) -> None:
    columns = zip(("id", "seq", "op"), zip(*values, strict=True), strict=True)
    world.append(pa.table(dict(columns)))


def current(world: KeyedWorld) -> dict[int, int]:
    rows = world.rows()
    found = {row["id"]: row["seq"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("step", [(Merger, "_commit"), (DeltaLog, "describe"), (Merger, "_land")])
def test_a_killed_rebuild_is_repeated(
    world: KeyedWorld, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    append(world, (1, 1, "u"), (1, 2, "v"), (2, 1, "u"))
    world.run()
    world.keyed = replace(world.keyed, keys=("id", "op"), deletes_text=None, leave_out=("v",))
    real, deaths = getattr(*step), 0

    def dies(*values: Any, **more: Any) -> Any:
        nonlocal deaths
        real(*values, **more)
        deaths += 1
        raise Died

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(*step, dies)
            with pytest.raises(Died):
                world.penguin().rebuild()
        if "keys" not in world.current.delta().metadata().description:
            with pytest.raises(StateError, match="keyed rebuild"):
                world.run()
    assert deaths == 2
    world.penguin().rebuild()
    append(world, (2, 2, "u"))
    world.run()
    expected = {(1, "u"): 1, (1, "v"): 2, (2, "u"): 2}
    assert {(row["id"], row["op"]): row["seq"] for row in world.rows()} == expected


def test_a_restored_change_table_goes_on(world: KeyedWorld) -> None:
    live = world.penguin()
    for values in ((1, 1, "u"), (2, 1, "u"), (1, 2, "d"), (3, 1, "u")):
        append(world, values)
        world.run(live)
    world.changes.delta().restore(0)
    append(world, (4, 1, "u"))
    world.run(live)
    assert current(world) == {2: 1, 3: 1, 4: 1}  # what left is not undone
    world.changes.delta().restore(3)
    world.run(live)
    assert current(world) == {2: 1, 3: 1, 4: 1}
    world.penguin().rebuild()
    assert current(world) == {2: 1, 3: 1}


def test_deletion_vectors_of_changes_are_refused(
    world: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(world, (1, 1, "u"))
    monkeypatch.setattr(DeltaLog, "has_vectors", lambda log: log is not None)
    with pytest.raises(StateError, match=r"changes: has deletion vectors.*REORG TABLE"):
        world.run()


@pytest.mark.unreadable_tables
@pytest.mark.parametrize("which", ["changes", "current"])
def test_column_mapping_is_refused_by_name(world: KeyedWorld, which: str) -> None:
    append(world, (1, 1, "u"))
    world.run()
    append(world, (2, 1, "u"))
    table = getattr(world, which)
    path = f"_delta_log/{0:020d}.json"
    mapped = b'"configuration":{"delta.columnMapping.mode":"name"}'
    table.storage.put_atomic(path, table.storage.read(path).replace(b'"configuration":{}', mapped))
    with pytest.raises(StateError, match="columnMapping"):
        world.run()


def test_two_penguins_and_a_new_start_merge_once(world: KeyedWorld) -> None:
    one, other = world.penguin(), world.penguin()
    for number in range(4):
        append(world, (number, 1, "u"), (9, number, "u"))
        threads = [
            threading.Thread(target=each.cycle, args=(threading.Event(),)) for each in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        world.run()
    assert current(world) == {0: 1, 1: 1, 2: 1, 3: 1, 9: 3}

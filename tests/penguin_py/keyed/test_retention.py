"""Changes that leave their table once they are merged and old enough."""

from __future__ import annotations

import datetime as dt
import re
import threading
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.errors import StateError
from blizzard_core.settings.keyed import parse_condition
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.retention import may_leave
from tests.chaos.keyed.delta import KeyedWorld, keyed_table
from tests.chaos.keyed.memory import log_of

DAY = 86_400.0
# Times before and after all files are a day old.
YOUNG, OLD = 1_700_000_000.0, 4_000_000_000.0
Values = tuple[int, int, str]


def table(*values: Values) -> pa.Table:
    return pa.table(dict(zip(("id", "seq", "op"), zip(*values, strict=True), strict=True)))


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> KeyedWorld:
    settings: dict[str, Any] = {"deletes_text": "op = 'd'", "keep_changes": DAY, "every": 300.0}
    keyed = keyed_table(str(tmp_path), ("id",), ("seq",), **settings)
    return KeyedWorld(keyed, pool, now=YOUNG)


def live(world: KeyedWorld, *values: Values) -> None:
    """Append changes, merge them, and let two days pass and a cycle run."""
    world.append(table(*values))
    world.run()
    world.now = max(OLD, world.now + 2 * DAY)
    penguin = world.penguin(is_patient=True)
    assert not penguin.cycle(threading.Event())


def ids(world: KeyedWorld) -> set[int]:
    return {row["id"] for row in world.rows()}


def present(world: KeyedWorld) -> set[int]:
    return {row["seq"] for row in world.changes.rows()}


@pytest.mark.promise("G-219")
def test_merged_changes_leave_and_rows_stay(world: KeyedWorld) -> None:
    live(world, (1, 1, "u"), (2, 2, "u"))
    assert present(world) == set()
    live(world, (1, 3, "d"), (3, 4, "u"))
    assert ids(world) == {2, 3}
    live(world, (2, 1, "u"))  # older than what is stored
    assert ids(world) == {2, 3}


def test_changes_that_wait_or_are_young_stay(world: KeyedWorld) -> None:
    world.append(table((1, 1, "u")))
    world.run()
    penguin = world.penguin(is_patient=True)
    world.append(table((2, 2, "u")))
    assert not penguin.cycle(threading.Event())  # it waits for its time
    world.now += 300
    world.run(penguin)
    assert present(world) == {1, 2}
    world.now = OLD
    world.run(penguin)
    assert present(world) == set()
    assert ids(world) == {1, 2}


def test_changes_of_a_partitioned_table_leave(tmp_path: Path, pool: Executor) -> None:
    keyed = keyed_table(str(tmp_path), ("id",), ("seq",), keep_changes=DAY)
    world = KeyedWorld(keyed, pool)
    write_deltalake(world.changes.uri, table((1, 1, "u"), (2, 2, "x y")), partition_by=["op"])
    world.run()
    assert present(world) == set()
    assert ids(world) == {1, 2}


@pytest.mark.promise("G-219")
def test_what_is_gone_is_never_needed_in_silence(world: KeyedWorld) -> None:
    live(world, (1, 1, "u"))
    version = world.current.delta().version()
    live(world, (2, 2, "u"))
    with pytest.raises(StateError, match="keep_changes has let changes of"):
        world.penguin().rebuild()
    live(world, (3, 3, "u"))
    assert ids(world) == {1, 2, 3}
    newest = world.current.delta().version()
    world.current.delta().restore(version)
    with pytest.raises(StateError, match="RESTORE it to a newer version"):
        world.run()
    world.current.delta().restore(newest)
    world.append(table((4, 4, "u")))
    world.run()
    assert ids(world) == {1, 2, 3, 4}


def test_a_rival_append_keeps_the_changes(
    world: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(table((1, 1, "u")))
    world.run()
    world.now = OLD
    real = DeltaLog.remove

    def remove(*values: Any) -> None:
        world.append(table((2, 2, "u")))
        real(*values)

    monkeypatch.setattr(DeltaLog, "remove", remove)
    penguin = world.penguin(is_patient=True)
    assert not penguin.cycle(threading.Event())
    monkeypatch.undo()
    assert present(world) == {1, 2}
    world.run(penguin)
    assert ids(world) == {1, 2}


def test_a_table_that_only_grows_keeps_its_changes(world: KeyedWorld) -> None:
    world.append(table((1, 1, "u")))
    world.changes.delta().alter.set_table_properties({"delta.appendOnly": "true"})
    live(world, (2, 2, "u"))
    assert present(world) == {1, 2}
    assert ids(world) == {1, 2}


@pytest.mark.parametrize(
    ("sequences", "old", "leaving"),
    [
        ([(1, 2, "d"), (3, 4, "d")], 1, [True, False]),
        ([(1, 9, "d"), (3, 4, "u")], 1, [False, False]),
        ([(1, 9, "u"), (3, 4, "d")], 1, [True, False]),
        ([(1, 9, "d"), (2, 3, "d"), (12, 14, "u")], 2, [True, True, False]),
        ([(1, 9, "d"), (2, 6, "d"), (7, 9, "u")], 2, [False, False, False]),
    ],
)
def test_deletes_stay_while_older_changes_do(
    sequences: list[Values], old: int, leaving: list[bool]
) -> None:
    files = [table((1, low, op), (2, high, op)) for low, high, op in sequences]
    logged = pa.concat_tables([log_of(file, ("seq", "op")) for file in files])
    is_old = pa.array([place < old for place in range(len(files))])
    condition = parse_condition("op = 'd'")
    assert may_leave(logged, is_old, "seq", condition).to_pylist() == leaving
    without = may_leave(logged, is_old, "seq", None)
    assert without.to_pylist() == is_old.to_pylist()


def test_a_restore_to_a_time_forgets_what_was_merged(world: KeyedWorld) -> None:
    live(world, (1, 1, "u"))
    live(world, (2, 2, "u"))
    moment = world.current.delta().history()[-1]["timestamp"]
    world.current.delta().restore(dt.datetime.fromtimestamp(moment / 1000, dt.UTC))
    with pytest.raises(StateError, match="keep_changes has let changes of"):
        world.run()


def test_a_restore_to_what_the_log_forgot_stops(world: KeyedWorld) -> None:
    live(world, (1, 1, "u"))
    world.current.delta().optimize.compact()
    write_deltalake(world.current.uri, table((9, 9, "u")), mode="append")
    world.current.delta().create_checkpoint()
    version = world.current.delta().version()
    live(world, (2, 2, "u"))
    for each in range(version):
        world.current.storage.delete(f"_delta_log/{each:020d}.json")
    world.current.tampered = True
    world.current.delta().restore(version)
    with pytest.raises(StateError, match="keep_changes has let changes of"):
        world.run()


def test_a_file_that_no_remove_names_keeps_the_changes(world: KeyedWorld) -> None:
    world.append(table((1, 1, "u")))
    storage = world.changes.storage
    entry = f"_delta_log/{0:020d}.json"
    text = storage.read(entry).decode()
    path = re.findall(r'"path":"([^"]+)"', text)[0]
    odd = path.replace("part", "%70art")
    storage.put_atomic(entry, text.replace(path, odd).encode())
    world.run()
    world.now = OLD
    assert not world.penguin(is_patient=True).cycle(threading.Event())
    assert len(world.changes.delta().file_uris()) == 1
    world.changes.tampered = True


@pytest.mark.promise("G-219")
def test_a_late_change_keeps_the_delete_that_it_lost_to(world: KeyedWorld) -> None:
    for number, values in enumerate([((1, 9, "d"), (2, 1, "u")), ((1, 5, "u"),)]):
        world.now = OLD + number * DAY
        world.append(table(*values))
        entry = f"_delta_log/{number:020d}.json"
        aged = re.sub(
            rb'("modificationTime"):\d+',
            rb"\1:%d" % (world.now * 1000),
            world.changes.storage.read(entry),
        )
        world.changes.storage.put_atomic(entry, aged)
        world.run()
    world.now += DAY / 2
    assert not world.penguin(is_patient=True).cycle(threading.Event())  # the first one is old
    assert present(world) == {1, 5, 9}
    world.append(table((3, 20, "u")))
    world.clean_log()  # all that is there is merged again
    world.run()
    assert ids(world) == {2, 3}

"""Merges of real Delta tables: histories, deaths at every request, faults, hard cases."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.errors import BlizzardError, StateError
from blizzard_core.storage.local import LocalStorage
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed import changes as feed
from penguin_py.keyed import merger
from tests.chaos.keyed.delta import KeyedWorld, keyed_table, play_on_delta
from tests.chaos.keyed.every_request import STORIES, FaultAt, die_at, table
from tests.chaos.keyed.mutants import QUICK, commits_rebased, gap_passed, restore_ignored
from tests.support.memory_store import Died
from tests.support.s3_server import S3Server

Patch = pytest.MonkeyPatch


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> KeyedWorld:
    return KeyedWorld(keyed_table(str(tmp_path), ("id",), ("seq",), deletes_text="op = 'd'"), pool)


def merged(world: KeyedWorld, *values: tuple[Any, Any, str, Any]) -> dict[int, str]:
    """Append changes, merge, and return the rows by key."""
    world.append(table(*values))
    world.run()
    return current(world)


def current(world: KeyedWorld) -> dict[int, str]:
    rows = world.rows()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def play_many(folder: Path, pool: Executor, count: int) -> None:
    for seed in range(count):
        play_on_delta(str(folder / str(seed)), pool, seed)


# Arrow closes in destructors what a death leaves open, and nobody can catch what that raises.
UNCLOSED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.promise("G-219")
@UNCLOSED
@pytest.mark.promise("G-219")
def test_random_histories_on_delta_equal_a_model(tmp_path: Path, pool: Executor) -> None:
    play_many(tmp_path, pool, 4)


@UNCLOSED
@pytest.mark.unreadable_tables  # they are wrong by intent
@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.__name__)
@pytest.mark.promise("G-220")
def test_a_fault_of_merges_is_noticed(
    tmp_path: Path, pool: Executor, monkeypatch: Patch, mutant: Callable[[Patch], None]
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, BlizzardError)):
        play_many(tmp_path, pool, 20)


@UNCLOSED
@pytest.mark.unreadable_tables
@pytest.mark.parametrize("name", STORIES)
def test_a_death_at_some_requests_changes_nothing(
    tmp_path: Path, pool: Executor, name: str
) -> None:
    for at in random.Random(5).sample(range(150), 2):
        found = die_at(name, str(tmp_path / str(at)), pool, at)
        assert found.deaths + found.lost == 1


@pytest.mark.parametrize("rival", ["penguin", "compaction", "append"])
@pytest.mark.promise("G-219")
def test_another_commit_between_plan_and_commit(world: KeyedWorld, rival: str) -> None:
    world.append(table((1, 5, "u", "a"), (2, 5, "u", "b")))
    world.run()
    world.append(table((1, 6, "u", "A"), (3, 1, "u", "c")))

    def between() -> None:
        world.between = lambda: None
        if rival == "penguin":
            world.run()
        elif rival == "compaction":
            world.current.delta().optimize.compact()
        else:
            write_deltalake(world.current.uri, table((9, 9, "u", "foreign")), mode="append")

    world.between = between
    world.run()
    expected = {1: "A", 2: "b", 3: "c"} | ({9: "foreign"} if rival == "append" else {})
    assert current(world) == expected


@pytest.mark.unreadable_tables
@pytest.mark.promise("G-220")
def test_a_merge_rebased_over_a_compaction_doubles_rows(
    world: KeyedWorld, monkeypatch: Patch
) -> None:
    commits_rebased(monkeypatch)
    for key in (1, 2):
        world.append(table((key, 1, "u", "a"), (key + 10, 1, "u", "b")))
        world.run()
    world.append(table((1, 2, "u", "c")))

    def between() -> None:
        world.between = lambda: None
        world.current.delta().optimize.compact()

    world.between = between
    world.run()
    world.current.tampered = True  # its log removes what is not active, against the protocol
    assert sorted(row["v"] for row in world.rows()) == ["a", "a", "b", "b", "b", "c"]


@pytest.mark.promise("G-219")
@UNCLOSED
@pytest.mark.parametrize("request_of_another", ["open_output", "sync"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_merge_leaves_no_file_behind_when_another_is_faster(
    world: KeyedWorld, monkeypatch: Patch, request_of_another: str, dies: bool
) -> None:
    world.append(table((1, 1, "u", "a"), (2, 1, "u", "b")))
    world.run()
    world.append(table((1, 2, "u", "c")))
    real: Any = getattr(LocalStorage, request_of_another)

    def behind_another(storage: LocalStorage, path: str) -> object:
        monkeypatch.setattr(LocalStorage, request_of_another, real)
        world.run()
        world.append(table((2, 2, "u", "d")))
        world.run()
        found = real(storage, path)
        if dies:
            raise Died
        return found

    monkeypatch.setattr(LocalStorage, request_of_another, behind_another)
    with contextlib.suppress(Died):
        world.run()
    assert sorted(row["v"] for row in world.rows()) == ["c", "d"]
    if dies:
        world.now += 3600
        world.append(table((1, 3, "u", "e")))
        world.run()
    assert world.leftovers() == set()


@pytest.mark.promise("G-219")
def test_a_restored_table_is_merged_again(world: KeyedWorld) -> None:
    live = world.penguin()
    for values in ((1, 5, "u", "a"), (1, 6, "u", "b"), (1, 7, "u", "c")):
        world.append(table(values))
        world.run(live)
    for version in (1, 0):
        world.current.delta().restore(version)
        assert current(world) != {1: "c"}
        assert world.run(live) == 1
        assert current(world) == {1: "c"}
    assert world.run() == 0


@pytest.mark.promise("G-219")
def test_a_cleaned_log_is_no_loss(world: KeyedWorld) -> None:
    world.append(table((1, 5, "u", "a"), (2, 7, "d", "")))
    world.run()
    world.append(table((1, 6, "u", "b"), (2, 6, "u", "late")))
    world.append(table((3, 1, "u", "c")))
    world.changes.delta().optimize.compact()
    world.clean_log()
    world.run()
    assert current(world) == {1: "b", 3: "c"}


@pytest.mark.unreadable_tables
@pytest.mark.parametrize(
    ("mutant", "notices"),
    [
        (restore_ignored, test_a_restored_table_is_merged_again),
        (gap_passed, test_a_cleaned_log_is_no_loss),
    ],
)
@pytest.mark.promise("G-220")
def test_a_rare_fault_of_merges_is_noticed(
    world: KeyedWorld,
    monkeypatch: Patch,
    mutant: Callable[[Patch], None],
    notices: Callable[[KeyedWorld], None],
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        notices(world)


@pytest.mark.promise("G-219")
def test_a_change_log_that_lost_commits_is_no_loss(world: KeyedWorld) -> None:
    live = world.penguin()
    for values in ((1, 1, "u", "a"), (2, 1, "u", "b"), (3, 1, "u", "c")):
        world.append(table(values))
        world.run(live)
    log = world.changes.storage
    log.delete(f"_delta_log/{2:020d}.json")
    world.append(table((4, 1, "u", "d")))  # version 2 again
    assert world.run() == 1
    for version in (2, 1):
        log.delete(f"_delta_log/{version:020d}.json")
    world.append(table((5, 1, "u", "e")))  # version 1 again
    assert world.run() == 1
    assert current(world) == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert world.run() == 0
    world.current.tampered = True  # the position goes back with the log that it is of


def test_partition_columns_of_changes_are_columns(tmp_path: Path, pool: Executor) -> None:
    keyed = keyed_table(str(tmp_path), ("day", "id"), ("seq",), leave_out=("op",))
    world = KeyedWorld(keyed, pool)
    rows = table((1, 1, "u", "a"), (1, 2, "u", "b"))
    days = pa.array(["2024-01-01", "2024-01-02"]).cast(pa.date32())
    rows = rows.append_column("day", days)
    write_deltalake(world.changes.uri, rows, partition_by=["day"])
    world.run()
    write_deltalake(world.changes.uri, rows.slice(1), mode="append")
    world.changes.delta().optimize.compact()
    world.run()
    assert sorted((str(row["day"]), row["v"]) for row in world.rows()) == [
        ("2024-01-01", "a"),
        ("2024-01-02", "b"),
    ]
    assert "op" not in world.rows()[0]


def test_a_widened_key_goes_on(world: KeyedWorld) -> None:
    narrow = table((1, 1, "u", "a"), (2, 1, "u", "b"))
    world.append(narrow.set_column(0, "id", narrow["id"].cast(pa.int32())))
    world.run()
    wide = table((1, 2, "u", "A"), (2**40, 1, "u", "c"))
    options: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"}
    write_deltalake(world.changes.uri, wide, **options)
    world.run()
    assert current(world) == {1: "A", 2: "b", 2**40: "c"}


def test_a_narrowed_key_goes_on(world: KeyedWorld) -> None:
    merged(world, (1, 1, "u", "a"), (2**40, 1, "u", "b"))
    narrow = table((1, 2, "u", "A"))
    narrow = narrow.set_column(0, "id", narrow["id"].cast(pa.int32()))
    options: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"}
    write_deltalake(world.changes.uri, narrow, **options)
    world.run()
    assert current(world) == {1: "A", 2**40: "b"}


def test_unrelated_types_stop_the_merge_by_name(world: KeyedWorld) -> None:
    merged(world, (1, 1, "u", "a"))
    rows = table((2, 2, "u", "b"))
    texts = rows.set_column(3, "v", pa.array([7]))
    options: dict[str, Any] = {"mode": "overwrite", "schema_mode": "overwrite"}
    write_deltalake(world.changes.uri, texts, **options)
    with pytest.raises(StateError, match="column 'v' is int64"):
        world.run()


def test_other_changes_or_settings_stop_until_a_rebuild(world: KeyedWorld) -> None:
    assert merged(world, (1, 1, "u", "a"), (2, 1, "u", "b")) == {1: "a", 2: "b"}
    for path in Path(world.changes.uri, "_delta_log").iterdir():
        path.unlink()
    world.append(table((3, 1, "u", "c")))
    with pytest.raises(StateError, match="penguin keyed rebuild CONFIG --table current"):
        world.run()
    rebuilt = world.penguin().rebuild()
    assert rebuilt is not None
    assert current(world) == {3: "c"}
    assert merged(world, (4, 1, "u", "d")) == {3: "c", 4: "d"}
    world.keyed = replace(world.keyed, keys=("v",))
    with pytest.raises(StateError, match=r'"keys":\["v"\]'):
        world.run()


def test_no_other_settings_merge_during_a_rebuild(
    world: KeyedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert merged(world, (1, 1, "u", "a"), (2, 1, "u", "a")) == {1: "a", 2: "a"}
    live = world.penguin()
    world.keyed = replace(world.keyed, keys=("v",))
    describe, refused = DeltaLog.describe, []

    def interrupted(log: DeltaLog, description: str) -> None:
        if "keys" in description:  # its rows are there, and how they were made is not
            world.append(table((3, 1, "u", "a")))
            for penguin in (live, world.penguin()):
                with pytest.raises(StateError, match="keyed rebuild"):
                    world.run(penguin)
                refused.append(penguin)
        describe(log, description)

    monkeypatch.setattr(DeltaLog, "describe", interrupted)
    world.penguin().rebuild()
    monkeypatch.undo()
    assert len(refused) == 2
    world.run()
    assert len(current(world)) == 1


def test_other_columns_stop_until_a_rebuild(world: KeyedWorld) -> None:
    world.keyed = replace(world.keyed, leave_out=("v",))
    world.append(table((1, 1, "u", "a")))
    world.run()
    world.keyed = replace(world.keyed, leave_out=())
    world.append(table((2, 1, "u", "b")))
    with pytest.raises(StateError, match=r'"leave_out":\["v"\].*keyed rebuild'):
        world.run()
    world.penguin().rebuild()
    assert current(world) == {1: "a", 2: "b"}


def test_changes_are_merged_behind_a_rebuild(world: KeyedWorld) -> None:
    world.keyed = replace(world.keyed, every=300.0)
    live = world.penguin(is_patient=True)
    assert world.run(live) == 0
    world.append(table((1, 1, "u", "a")))
    assert world.run(live) == 1
    world.now += 300
    assert world.run(live) == 0
    world.penguin().rebuild()
    world.append(table((2, 1, "u", "b")))
    assert world.run(live) == 0  # it waits for its time
    world.now += 300
    assert world.run(live) == 1
    assert current(world) == {1: "a", 2: "b"}


def test_a_version_that_was_replaced_is_read_again(world: KeyedWorld) -> None:
    merged(world, (1, 1, "u", "a"))
    live = world.penguin()
    world.append(table((2, 1, "u", "lost")))
    outlook = live.outlook()
    assert outlook["next"]["rows"] == 1
    world.changes.storage.delete(f"_delta_log/{1:020d}.json")
    world.append(table((3, 1, "u", "b")))
    world.run(live)
    assert current(world) == {1: "a", 3: "b"}


def test_a_table_that_no_merge_made_is_refused(world: KeyedWorld) -> None:
    write_deltalake(world.current.uri, table((1, 1, "u", "a")))
    world.append(table((1, 1, "u", "a")))
    with pytest.raises(StateError, match="no merge has made"):
        world.run()
    with pytest.raises(StateError, match="no merge has made"):
        world.penguin().rebuild()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": ("nothing",)}, "no column 'nothing'"),
        ({"deletes_text": "gone"}, "no column 'gone'"),
        ({"deletes_text": "op"}, "'op' as string"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    world: KeyedWorld, change: dict[str, Any], message: str
) -> None:
    world.keyed = replace(world.keyed, **change)
    world.append(table((1, 1, "u", "a")))
    with pytest.raises(StateError, match=message):
        world.run()
    assert not world.has_current()


@pytest.mark.promise("G-219")
def test_a_delete_in_an_earlier_piece_is_not_forgotten(
    world: KeyedWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(feed, "ROWS_A_COMMIT", 2)
    for values in ((1, 9, "d", ""), (2, 1, "u", "b"), (1, 5, "u", "late")):
        world.append(table(values))
    world.append(table((3, 9, "d", ""), (4, 1, "u", "d"), (5, 1, "u", "e"), (3, 5, "u", "late")))
    world.run()
    expected = {2: "b", 4: "d", 5: "e"}
    assert current(world) == expected
    world.current.delta().restore(0)
    world.run()
    assert current(world) == expected
    world.penguin().rebuild()
    assert current(world) == expected


def test_a_backlog_is_merged_in_parts(world: KeyedWorld, monkeypatch: Patch) -> None:
    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(feed, "ROWS_A_COMMIT", 2)
    for n in range(5):
        world.append(table((n, 1, "u", str(n)), (9, n, "u", str(n))))
    world.keyed = replace(world.keyed, every=300.0)
    assert world.run(world.penguin(is_patient=True)) == 5  # more changes wait for no time
    expected = {**{n: str(n) for n in range(5)}, 9: "4"}
    assert current(world) == expected
    world.current.delta().restore(0)
    assert world.run() == 1  # all at once
    assert current(world) == expected


@pytest.mark.promise("G-219")
def test_merges_on_s3(s3: S3Server, pool: Executor) -> None:
    uri = f"s3://{s3.new_bucket()}/lake"
    settings = {"deletes_text": "op = 'd'", "options": s3.options}
    world = KeyedWorld(keyed_table(uri, ("id",), ("seq",), **settings), pool)
    tell, expected = STORIES["merges"]
    tell(world)
    assert current(world) == expected
    world.current.delta().optimize.compact()
    world.current.delta().restore(0)
    assert world.run() == 1
    assert current(world) == expected


def test_an_idle_poll_costs_two_requests(world: KeyedWorld) -> None:
    world.append(table((1, 1, "u", "a")))
    requests = world.faults = FaultAt(-1)
    penguin = world.penguin()
    assert world.run(penguin) == 1
    before = requests.steps
    assert not penguin.cycle(threading.Event())
    assert requests.steps - before == 2  # each finds no entry of a later version
    assert penguin.activity.pulse.polls == 3


def test_chores_run_between_merges_of_a_steady_flow(tmp_path: Path, pool: Executor) -> None:
    block = {"optimize": {"interval": "1h"}}
    keyed = keyed_table(str(tmp_path), ("id",), ("seq",), every=300.0, block=block)
    world = KeyedWorld(keyed, pool)
    penguin, stop = world.penguin(is_patient=True), threading.Event()
    for number in range(3):
        world.now += 4000
        world.append(table((number, 1, "u", str(number))))
        assert penguin.cycle(stop)
        assert not penguin.cycle(stop)  # not due, so there is time
    assert len(world.current.paths()) == 1
    assert current(world) == {0: "0", 1: "1", 2: "2"}


@pytest.mark.promise("G-219")
@UNCLOSED
def test_a_death_at_some_requests_on_s3_changes_nothing(s3: S3Server, pool: Executor) -> None:
    for at in random.Random(7).sample(range(150), 2):
        die_at("merges", f"s3://{s3.new_bucket()}/lake", pool, at, s3.options)


def test_a_recreated_change_table_stops_an_idle_merge(world: KeyedWorld) -> None:
    live = world.penguin()
    for values in ((1, 1, "u", "a"), (2, 1, "u", "b")):
        world.append(table(values))
        world.run(live)
    for path in Path(world.changes.uri, "_delta_log").iterdir():
        path.unlink()
    world.append(table((3, 1, "u", "c")))
    world.now += 3601
    with pytest.raises(StateError, match="keyed rebuild"):
        world.run(live)


def test_a_key_with_a_dot_is_no_field_of_a_struct(tmp_path: Path, pool: Executor) -> None:
    world = KeyedWorld(keyed_table(str(tmp_path), ("a.b",), ("seq",)), pool)
    for seq, text in enumerate("xyz"):
        keys, inner = pa.array([1, 2 + seq]), pa.array([{"b": 70 + seq}] * 2)
        columns = {"a": inner, "a.b": keys, "seq": pa.array([seq, seq]), "v": pa.array([text] * 2)}
        world.append(pa.table(columns))
        world.run()
    found = {row["a.b"]: (row["a"]["b"], row["v"]) for row in world.rows()}
    assert found == {1: (72, "z"), 2: (70, "x"), 3: (71, "y"), 4: (72, "z")}
    assert len(world.rows()) == 4


def test_a_file_without_statistics_is_read_by_row_groups(
    world: KeyedWorld, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 3)
    world.append(pa.concat_tables([table((n, 1, "u", str(n))) for n in range(8)]))
    world.changes.storage.put_atomic(
        entry := f"_delta_log/{0:020d}.json",
        re.sub(rb',"stats":"(?:[^"\\]|\\.)*"', b"", world.changes.storage.read(entry)),
    )
    sizes, real = [], merger.Matching
    monkeypatch.setattr(
        merger, "Matching", lambda rows, *more: sizes.append(len(rows)) or real(rows, *more)
    )
    world.run()
    assert sizes == [2, 2, 2, 2]
    assert current(world) == {n: str(n) for n in range(8)}


def test_a_newly_left_out_column_leaves_with_a_rebuild(world: KeyedWorld) -> None:
    assert merged(world, (1, 1, "u", "a"), (2, 1, "u", "b")) == {1: "a", 2: "b"}
    world.keyed = replace(world.keyed, leave_out=("op",))
    world.penguin().rebuild()
    assert [*world.rows()[0]] == ["id", "seq", "v"]
    assert merged(world, (1, 2, "u", "A")) == {1: "A", 2: "b"}
    assert [*world.rows()[0]] == ["id", "seq", "v"]


def test_ties_of_nested_values_are_counted_across_types(world: KeyedWorld) -> None:
    wide = pa.struct([("t", pa.timestamp("us")), ("n", pa.int64())])
    values = [{"t": 10**15, "n": 1}, {"t": 10**15 + 1, "n": None}]
    for kind in (wide, pa.struct([*wide][:1])):
        rows = table((1, 1, "u", "a"), (2, 1, "u", "a"))
        world.append(rows.append_column("x", pa.array(values, wide).cast(kind)))
        world.run()
    world.changes.tampered = True  # delta-rs cuts bounds of nested times
    status = world.penguin().status()
    assert status["outcomes"]["tied"] == 1  # one lacks n, of the other it was null

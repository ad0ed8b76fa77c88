"""The commit cycle over real Delta tables, on a local disk and through an S3 API."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.transaction import AddAction

from blizzard_core.errors import (
    AccessDenied,
    BucketMissing,
    CommitError,
    NotFound,
    StateError,
    Unavailable,
)
from blizzard_core.storage.protocol import Storage
from penguin_py.delta.log import LogReader
from penguin_py.delta.table import DeltaLog
from penguin_py.model import CommitConflict
from penguin_py.planning.batch_planner import BatchPlan, BatchPlanner
from tests.support.faulty_log import alone, around
from tests.support.interrupted import Call, Interrupted
from tests.support.memory_store import Died
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness, parquet


@pytest.fixture
def s3_world(s3: S3Server, pool: Executor) -> TableHarness:
    return TableHarness(f"s3://{s3.new_bucket()}/lake/events", pool, s3.options)


@pytest.fixture(params=["local", "s3"])
def any_world(request: pytest.FixtureRequest, tmp_path: Path, pool: Executor) -> TableHarness:
    if request.param == "local":
        return TableHarness(str(tmp_path / "table"), pool)
    return request.getfixturevalue("s3_world")


BY_DATE: dict[str, Any] = {"partition_by": {"prefix_template": "date=%Y-%m-%d"}}


def test_files_become_a_partitioned_table_and_later_ones_join_it(any_world: TableHarness) -> None:
    world = any_world
    world.put("date=2024-01-01/a.parquet", {"id": [1, 2]}, output_id="p/s/1/1/0")
    world.put("date=2024-01-02/b.parquet", {"id": [3]}, output_id="p/s/1/1/1")
    penguin = world.penguin(**BY_DATE)
    assert world.run(penguin) == 1
    assert world.run(penguin) == 0
    world.put("date=2024-01-02/c.parquet", {"id": [4]}, output_id="p/s/2/1/0")
    assert world.run(penguin) == 1

    assert world.delta().version() == 1
    assert [row["id"] for row in world.rows()] == [1, 2, 3, 4]
    assert {row["date"] for row in world.rows()} == {dt.date(2024, 1, 1), dt.date(2024, 1, 2)}
    assert world.delta().transaction_version("penguin-events") == 2
    assert world.run(**BY_DATE) == 0  # a new process finds nothing either


def test_a_new_table_is_one_log_entry_with_adds_and_txn(world: TableHarness) -> None:
    world.put("date=2024-01-01/a.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.run(**BY_DATE)
    kinds = [next(iter(action)) for action in world.actions(0)]
    assert sorted(kinds) == ["add", "commitInfo", "metaData", "protocol", "txn", "txn"]
    info = next(a["commitInfo"] for a in world.actions(0) if "commitInfo" in a)["penguin"]
    assert info["watermark"] == "date=2024-01-01/a.parquet"
    assert info["output_ids"] == ["p/s/1/1/0"]
    assert info["progress"]["partition_watermarks"] == {"date=2024-01-01": "a.parquet"}
    txns = {a["txn"]["appId"]: a["txn"]["version"] for a in world.actions(0) if "txn" in a}
    assert txns == {"penguin-events": 1, "penguin/any": 0}
    assert world.mirror()["commit_id"] == info["commit_id"]


def test_batches_take_the_oldest_first_up_to_the_limit(world: TableHarness) -> None:
    for number in range(5):
        world.put(f"{number}.parquet", {"id": [number]})
    penguin = world.penguin(max_files_per_commit=2)
    stop = threading.Event()
    assert penguin.cycle(stop)
    assert world.paths() == {"0.parquet", "1.parquet"}
    assert world.mirror()["watermark"] == {"state": "Active", "value": "1.parquet"}
    assert world.run(penguin) == 2
    assert world.delta().version() == 2
    assert len(world.rows()) == 5


def test_a_stop_request_is_heard_between_commits(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    stop = threading.Event()
    stop.set()
    assert not world.penguin().cycle(stop)
    assert not world.storage.stat("_delta_log/00000000000000000000.json")


def test_states_go_from_initial_to_active_to_idle(world: TableHarness) -> None:
    penguin = world.penguin()
    assert world.run(penguin) == 0
    assert not Path(world.uri).exists()  # looking makes nothing
    assert penguin.snapshot().memory.progress.state == "Initial"
    world.put("a.parquet", {"id": [1]})
    penguin.cycle(threading.Event())
    assert world.mirror()["watermark"] == {"state": "Active", "value": "a.parquet"}
    world.run(penguin)
    assert world.mirror()["watermark"] == {"state": "Idle", "value": "a.parquet"}
    assert world.penguin().snapshot().memory.progress.state == "Idle"


def test_a_missing_bucket_is_an_error_that_names_it(s3: S3Server, pool: Executor) -> None:
    world = TableHarness("s3://not-there/lake/events", pool, s3.options)
    with pytest.raises(BucketMissing, match=r"s3://not-there/lake/events.*bucket does not exist"):
        world.run()


def test_an_empty_prefix_is_nothing_to_do(s3_world: TableHarness) -> None:
    assert s3_world.run() == 0


def test_bad_files_are_on_record_and_block_nothing(any_world: TableHarness) -> None:
    world = any_world
    good = parquet({"id": list(range(1000))})
    world.put("date=2024-01-01/a-junk.parquet", b"this is no parquet file at all")
    world.put("date=2024-01-01/b-cut.parquet", good[:-20])
    world.put("date=2024-01-01/c-middle-missing.parquet", good[:100] + good[-700:])
    world.put("date=2024-01-01/d-short.parquet", b"PAR1")
    world.put("date=2024-01-01/e-empty.parquet", b"")
    world.put("date=2024-01-01/f-no-rows.parquet", pa.table({"id": pa.array([], pa.int64())}))
    world.put("date=2024-01-01/g-good.parquet", {"id": [1]})
    world.put("date=junk/h.parquet", {"id": [2]})
    world.put("date=2024-02-30/i.parquet", {"id": [2]})
    world.put("date=20240101/j.parquet", {"id": [2]})
    world.put("day=2024-01-01/k.parquet", {"id": [2]})
    world.put("date=2024-01-01/x=1/l.parquet", {"id": [2]})
    world.put("m.parquet", {"id": [2]})
    penguin = world.penguin(**BY_DATE)
    world.run(penguin)

    assert [row["id"] for row in world.rows()] == [1]
    errors = world.quarantined()
    assert len(errors) == 12
    assert "does not end with PAR1" in errors["date=2024-01-01/a-junk.parquet"]
    assert "cut off" in errors["date=2024-01-01/b-cut.parquet"]
    assert "past the end" in errors["date=2024-01-01/c-middle-missing.parquet"]
    assert "too short" in errors["date=2024-01-01/d-short.parquet"]
    assert "no rows" in errors["date=2024-01-01/f-no-rows.parquet"]
    assert "valid date" in errors["date=junk/h.parquet"]
    assert "valid date" in errors["date=2024-02-30/i.parquet"]
    assert "should be date=" in errors["day=2024-01-01/k.parquet"]
    assert "deep" in errors["m.parquet"]
    # Passed for good: neither this process nor the next one looks at them again.
    assert world.run(penguin) == 0
    assert world.run(**BY_DATE) == 0
    assert len(world.quarantined()) == 12


def test_bad_files_alone_move_the_watermark_without_a_commit(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", b"junk that is long enough")
    assert world.run() == 1
    assert world.delta().version() == 0
    assert world.mirror()["watermark"]["value"] == "b.parquet"
    assert world.run() == 0


def test_bad_files_before_there_is_a_table_are_on_record_once(world: TableHarness) -> None:
    world.put("a.parquet", b"junk that is long enough")
    penguin = world.penguin()
    assert world.run(penguin) == 0
    assert world.run(penguin) == 0
    assert set(world.quarantined()) == {"a.parquet"}
    world.put("b.parquet", {"id": [1]})
    assert world.run(penguin) == 1
    assert world.paths() == {"b.parquet"}


def test_the_page_forgets_rejected_files_that_were_mended(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.put("b.parquet", b"junk that is long enough")
    world.put("c.parquet", b"junk that is long enough, too")
    penguin = world.penguin()
    world.run(penguin)
    shown = [each["path"] for each in penguin.activity.to_json()["letters"]]
    assert sorted(shown) == ["b.parquet", "c.parquet"]
    world.now += 10_000
    world.put("b.parquet", {"id": [2]})
    penguin.reconcile(dry_run=False)
    world.run(penguin)
    [left] = penguin.activity.to_json()["letters"]
    assert left["path"] == "c.parquet"


def test_rows_with_one_output_id_are_committed_once(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.put("b.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.run()
    world.put("c.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.run()  # a new process: the id is remembered in storage
    assert len(world.rows()) == 1
    assert {k: "committed already" in v for k, v in world.quarantined().items()} == {
        "b.parquet": True,
        "c.parquet": True,
    }
    world.storage.delete("_penguin/events_checkpoint.json")
    world.put("d.parquet", {"id": [2]}, output_id="p/s/2/1/0")
    world.run()
    world.storage.delete("_penguin/events_checkpoint.json")
    world.put("e.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.run()
    assert [row["id"] for row in world.rows()] == [1, 2]


def test_schema_merge_refuses_unreadable_changes(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1], "f": [1.5]})
    world.run()
    world.put(
        "b-narrow.parquet",
        pa.table({"f": pa.array([2.5], pa.float32()), "id": pa.array([2], pa.int32())}),
    )
    world.put("c-new.parquet", {"id": [3], "tag": ["x"]})
    world.put("d-other.parquet", {"id": ["4"]})
    world.put("e-case.parquet", {"ID": [5]})
    world.put("f-nested.parquet", {"id": [6], "s": [{"a": 1}]})
    world.put("g-nested.parquet", {"id": [7], "s": [{"a": 2, "b": "x"}]})
    world.put("h-unsigned.parquet", pa.table({"id": pa.array([8], pa.uint64())}))
    world.run()
    assert [row["id"] for row in world.rows()] == [1, 2, 3, 6, 7]
    assert [row["s"] for row in world.rows()][-2:] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    errors = world.quarantined()
    assert (
        errors["d-other.parquet"] == "column 'id' is string, not compatible with the table's int64"
    )
    assert "only in case" in errors["e-case.parquet"]
    assert "Delta has no type" in errors["h-unsigned.parquet"]
    world.put("i-known.parquet", {"id": [9], "tag": ["y"]})
    world.put("j-wide.parquet", pa.table({"id": pa.array([10], pa.int64()), "z": [1]}))
    world.run(schema_evolution="strict")
    assert "the table lacks" in world.quarantined()["j-wide.parquet"]
    assert "i-known.parquet" in world.paths()


def test_partition_columns_come_from_paths_when_nobody_says(world: TableHarness) -> None:
    world.put("country=de/kind=a%2Fb/x.parquet", {"id": [1]})
    world.put("country=__HIVE_DEFAULT_PARTITION__/kind=c d/y.parquet", {"id": [2]})
    world.run()
    assert world.delta().metadata().partition_columns == ["country", "kind"]
    assert world.rows() == [
        {"id": 1, "country": "de", "kind": "a/b"},
        {"id": 2, "country": None, "kind": "c d"},
    ]
    assert world.run() == 0


def test_a_configuration_that_contradicts_the_table_stops_it(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    with pytest.raises(StateError, match="partition_by"):
        world.run(**BY_DATE)


def test_a_late_file_within_the_grace_period_is_committed(world: TableHarness) -> None:
    world.now = time.time()
    world.put("b.parquet", {"id": [2]})
    penguin = world.penguin()
    world.run(penguin)
    world.put("a.parquet", {"id": [1]})
    assert world.run(penguin) == 1
    assert world.run() == 0
    assert world.paths() == {"a.parquet", "b.parquet"}


def test_two_tables_do_not_know_of_each_other(tmp_path: Path, pool: Executor) -> None:
    one, two = (TableHarness(str(tmp_path / name), pool) for name in ("one", "two"))
    one.put("a.parquet", {"id": [1]})
    two.put("a.parquet", b"junk that is long enough")
    two.put("b.parquet", {"id": [2]})
    one.run(name="one")
    two.run(name="two")
    assert [row["id"] for row in one.rows()] == [1]
    assert [row["id"] for row in two.rows()] == [2]
    assert two.quarantined("two")
    assert not one.quarantined("one")


def flaky(storage: Storage, error: Exception, bad: set[str]) -> Any:
    """Return a storage whose ranged reads fail for chosen files."""

    def around(call: Call) -> Any:
        if call.name == "read_range" and call.arguments[0] in bad:
            raise error
        return call()

    return Interrupted(storage, around)


@pytest.mark.parametrize("error", [Unavailable("503"), AccessDenied("403")])
def test_an_unreadable_file_waits_and_is_not_quarantined(
    world: TableHarness, error: Exception
) -> None:
    for name in "abc":
        world.put(f"{name}.parquet", {"id": [ord(name)]})
    table, bad = world.table(), {"b.parquet"}
    storage = flaky(world.storage, error, bad)
    penguin = world.penguin_on(table, storage, DeltaLog(table, world.storage, world.pool))
    stop = threading.Event()
    assert penguin.cycle(stop)
    assert world.paths() == {"a.parquet", "c.parquet"}
    assert world.mirror()["watermark"]["value"] == "a.parquet"
    with pytest.raises(type(error)):
        penguin.cycle(stop)
    bad.clear()
    assert world.run(penguin) == 1
    assert world.paths() == {"a.parquet", "b.parquet", "c.parquet"}
    assert not world.quarantined()


def test_a_file_that_vanishes_after_it_was_listed_is_no_error(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.put("b.parquet", {"id": [2]})
    table = world.table()
    storage = flaky(world.storage, NotFound("gone"), {"a.parquet"})
    penguin = world.penguin_on(table, storage, DeltaLog(table, world.storage, world.pool))
    world.run(penguin)
    assert world.paths() == {"b.parquet"}


@pytest.mark.promise("G-022")
@pytest.mark.parametrize("first", [True, False])
def test_a_lost_answer_to_a_commit_that_landed_is_recognised(
    world: TableHarness, first: bool
) -> None:
    if not first:
        world.put("a.parquet", {"id": [1]})
        world.run()
    world.put("b.parquet", {"id": [2]})
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)

    def commit(write: Callable[[], None]) -> None:
        write()
        raise OSError("500 after the PUT was applied")

    around(log, commit)
    penguin = world.penguin_on(table, storage, log)
    assert world.run(penguin) == 1
    assert len(world.rows()) == (1 if first else 2)
    alone(log)
    world.put("c.parquet", {"id": [3]})
    assert world.run(penguin) == 1


def test_a_commit_that_failed_is_retryable_and_computed_again(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", {"id": [2]})
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)
    penguin = world.penguin_on(table, storage, log)

    def commit(_write: Callable[[], None]) -> None:
        raise OSError("connection reset")

    around(log, commit)
    with pytest.raises(CommitError, match="did not land: connection reset") as caught:
        penguin.cycle(threading.Event())
    assert caught.value.retryable
    alone(log)
    assert world.run(penguin) == 1
    assert len(world.rows()) == 2


def test_an_unknown_outcome_says_so(world: TableHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", {"id": [2]})
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)
    penguin = world.penguin_on(table, storage, log)
    with monkeypatch.context() as patch:

        def commit(write: Callable[[], None]) -> None:
            write()
            patch.setattr(LogReader, "exists", unreachable)
            raise OSError("connection reset")

        def unreachable(_storage: Storage) -> bool:
            raise Unavailable("no route")

        around(log, commit)
        with pytest.raises(CommitError, match="unknown"):
            penguin.cycle(threading.Event())
        alone(log)
    assert world.run(penguin) == 0  # it had landed
    assert len(world.rows()) == 2


def test_files_that_a_second_penguin_committed_leave_the_queue(world: TableHarness) -> None:
    for number in range(6):
        world.put(f"{number}.parquet", {"id": [number]})
    one = world.penguin(max_files_per_commit=2)
    assert one.cycle(threading.Event())
    world.run()  # a second one commits what the first has found and not done yet
    world.run(one)
    logged = [
        action["add"]["path"]
        for version in range(world.delta().version() + 1)
        for action in world.actions(version)
        if "add" in action
    ]
    assert sorted(logged) == [f"{number}.parquet" for number in range(6)]


def test_file_of_another_writer_after_table_creation_is_known(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    penguin = world.penguin()
    assert penguin.cycle(threading.Event())
    # By hand and by a name like ours, so that a poll finds it above the watermark.
    world.put("b.parquet", {"id": [2]})
    entry = world.storage.stat("b.parquet")
    assert entry is not None
    delta = world.delta()
    add = AddAction("b.parquet", entry.size, {}, 1, data_change=True, stats="{}")
    delta.create_write_transaction([add], "append", delta.schema(), [])
    assert world.run(penguin) == 0
    assert sorted(world.delta_paths()) == ["a.parquet", "b.parquet"]


def test_a_name_that_is_no_text_is_on_record_and_blocks_nothing(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.put("b\udcff.parquet", {"id": [2]})
    world.put("c.parquet", {"id": [3]})
    penguin = world.penguin()
    world.run(penguin)
    assert world.paths() == {"a.parquet", "c.parquet"}
    assert world.run() == 0
    assert world.mirror()["watermark"]["state"] == "Idle"
    assert [error[:26] for error in world.quarantined().values()] == ["its path is not valid UTF-"]


def two_rounds(world: TableHarness, at: int) -> bool:
    """Two rounds of arriving files with a death at step ``at``; whether it came to that.

    Steps are before and after each write of ours and each Delta commit, in order.
    """
    table = world.table(**BY_DATE, max_files_per_commit=2)
    steps = itertools.count()
    log = DeltaLog(table, world.storage, world.pool)

    def step() -> None:
        if next(steps) == at:
            raise Died

    def dying(write: Callable[[], Any]) -> None:
        step()
        write()
        step()

    around(log, dying)
    storage: Any = Interrupted(
        world.storage, lambda call: dying(call) if call.name == "put_atomic" else call()
    )
    penguin = world.penguin_on(table, storage, log)
    died = False
    for number in (1, 2):
        folder = f"date=2024-01-0{number}"
        world.put(f"{folder}/a.parquet", {"id": [number]}, output_id=f"{number}")
        world.put(f"{folder}/b.parquet", b"junk that is long enough")
        world.put(f"{folder}/c.parquet", {"id": [-number]}, output_id=f"-{number}")
        try:
            world.run(penguin)
        except Died:
            died = True
            penguin = world.penguin(**BY_DATE)
            world.run(penguin)
    return died


@pytest.mark.promise("G-022")
def test_death_at_every_step_loses_and_doubles_nothing(tmp_path: Path, pool: Executor) -> None:
    at, died = 0, True
    while died:
        world = TableHarness(str(tmp_path / str(at)), pool)
        died = two_rounds(world, at)
        assert world.run(**BY_DATE) == 0
        assert sorted(row["id"] for row in world.rows()) == [-2, -1, 1, 2]
        assert len(world.delta_paths()) == 4
        assert len(world.quarantined()) == 2
        at += 1
    assert at > 20


def lose_commit_info(world: TableHarness) -> None:
    """Another writer commits, a checkpoint is made, and the commits before it are cleaned up."""
    world.delta().alter.set_table_properties({"delta.checkpointInterval": "50"})
    delta = world.delta()
    delta.create_checkpoint()
    for version in range(delta.version()):
        world.storage.delete(f"_delta_log/{version:020d}.json")


def lose_state(world: TableHarness) -> None:
    """Forget everything but the table itself."""
    world.storage.delete("_penguin/events_checkpoint.json")
    lose_commit_info(world)


def test_removed_files_are_never_added_again(any_world: TableHarness) -> None:
    world = any_world
    world.now = time.time()  # what a rebuilt memory finds has to be young
    for number in range(6):
        world.put(f"date=2024-01-0{number // 3 + 1}/{number}.parquet", {"id": [number]})
    world.run(**BY_DATE)
    delta = world.delta()
    delta.optimize.compact()
    delta.delete("id = 4")
    assert [row["id"] for row in world.rows()] == [0, 1, 2, 3, 5]
    before = world.paths()

    # The mirror alone lost; then commitInfo as well: only paths are left to tell.
    world.storage.delete("_penguin/events_checkpoint.json")
    assert world.run(**BY_DATE) == 0
    lose_state(world)
    assert world.run(**BY_DATE) == 0
    assert world.paths() == before
    # Even a lower file that the log knows is not taken for a late one.
    world.put("date=2024-01-02/9.parquet", {"id": [9]})
    assert world.run(**BY_DATE) == 1
    assert [row["id"] for row in world.rows()] == [0, 1, 2, 3, 5, 9]


def test_all_three_recoveries_give_the_same_next_plan(world: TableHarness) -> None:
    world.now = time.time()
    for number in range(4):
        world.put(f"date=2024-01-0{number % 2 + 1}/{number}.parquet", {"id": [number]})
    world.run(**BY_DATE)
    world.put("date=2024-01-01/8.parquet", {"id": [8]})
    world.put("date=2024-01-03/0.parquet", {"id": [9]})
    expected = ["date=2024-01-01/8.parquet", "date=2024-01-03/0.parquet"]

    def next_plan() -> list[str]:
        return [entry.path for entry in world.penguin(**BY_DATE).outlook()[1]]

    assert next_plan() == expected
    mirror = world.storage.read("_penguin/events_checkpoint.json")
    world.storage.delete("_penguin/events_checkpoint.json")
    assert next_plan() == expected
    lose_state(world)
    assert next_plan() == expected
    world.storage.put_atomic("_penguin/events_checkpoint.json", mirror)
    assert next_plan() == expected


def test_names_done_within_the_grace_period_are_not_stored_twice(world: TableHarness) -> None:
    """The log has them; in each commitInfo again they would be megabytes."""
    world.now = time.time()
    penguin = world.penguin(**BY_DATE)
    for number in range(3):
        for index in range(20):
            world.put(f"date=2024-01-01/{number}-{index:02d}.parquet", {"id": [index]})
        world.put(f"date=2024-01-01/{number}-junk.parquet", b"junk that is long enough")
        world.run(penguin)
        world.now += 10
    (info,) = (action["commitInfo"] for action in world.actions(2) if "commitInfo" in action)
    junk = {f"{number}-junk.parquet" for number in range(3)}
    assert set(info["penguin"]["progress"]["recent"]["date=2024-01-01"]["done"]) == junk
    assert set(world.mirror()["recent"]["date=2024-01-01"]["done"]) == junk
    # A slower writer's file sorts below them all: it is the only thing to be found.
    world.put("date=2024-01-01/0-05-late.parquet", {"id": [-1]})
    late = ["date=2024-01-01/0-05-late.parquet"]
    assert [entry.path for entry in world.penguin(**BY_DATE).outlook()[1]] == late
    world.storage.delete("_penguin/events_checkpoint.json")
    restarted = world.penguin(**BY_DATE)
    assert [entry.path for entry in restarted.outlook()[1]] == late
    world.run(restarted)
    assert len(world.rows()) == 61
    assert len(world.delta_paths()) == len(set(world.delta_paths()))
    # A grace period later it scans from as high up as one that was never restarted.
    again = world.penguin(**BY_DATE)
    world.run(again)
    world.now += 301
    world.run(again)
    day = again.snapshot().memory.progress.partitions["date=2024-01-01"]
    assert day.before == day.watermark == "2-junk.parquet"
    assert not day.done


def test_a_damaged_mirror_is_an_error_only_without_commit_info(
    world: TableHarness,
) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.storage.put_atomic("_penguin/events_checkpoint.json", b"{ not json")
    assert world.run() == 0
    world.storage.put_atomic("_penguin/events_checkpoint.json", b"{ not json")
    lose_commit_info(world)
    with pytest.raises(StateError, match=r"events_checkpoint\.json"):
        world.run()


def test_an_unreadable_log_stops_the_table(world: TableHarness) -> None:
    world.tampered = True
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", {"id": [2]})
    world.storage.put_atomic("_delta_log/00000000000000000001.json", b"junk{")
    with pytest.raises(StateError, match="_delta_log") as caught:
        world.run()
    assert not caught.value.retryable
    assert "\n" not in str(caught.value)


def test_log_is_read_from_a_checkpoint_when_commits_are_deleted(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    penguin = world.penguin()
    world.run(penguin)
    for number in range(3):
        write_deltalake(world.uri, pa.table({"id": [10 + number]}), mode="append")
    world.delta().create_checkpoint()
    for version in range(3):
        world.storage.delete(f"_delta_log/{version:020d}.json")
    world.put("b.parquet", {"id": [2]})
    assert world.run(penguin) == 1
    assert sorted(row["id"] for row in world.rows()) == [1, 2, 10, 11, 12]


def test_a_hole_in_the_log_stops_the_table(world: TableHarness) -> None:
    world.tampered = True
    for name in "abc":
        world.put(f"{name}.parquet", {"id": [1]})
        world.run()
    storage = world.storage
    storage.delete("_delta_log/00000000000000000001.json")
    with pytest.raises(StateError, match="is missing"):
        list(LogReader(storage, world.pool).known_paths(2))


def test_a_log_that_disappears_while_running_stops_the_table(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    penguin = world.penguin()
    world.run(penguin)
    world.storage.delete_tree("_delta_log")
    world.put("b.parquet", {"id": [2]})
    with pytest.raises((CommitError, StateError)):
        world.run(penguin)
    with pytest.raises(StateError, match="has lost commit 1"):
        world.run(penguin)


def test_new_columns_of_every_type(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    moment = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - timestamp_ntz has no zone
    world.put(
        "b.parquet",
        pa.table(
            {
                "id": [2],
                "ntz": pa.array([moment], pa.timestamp("us")),
                "zoned": pa.array([moment], pa.timestamp("ms", tz="UTC")),
                "day": [moment.date()],
                "dec": pa.array(["1.50"]).cast(pa.decimal128(10, 2)),
                "list": [[1, 2]],
                "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
                "struct": [{"a": {"b": "x"}}],
                "raw": [b"\x00"],
                "flag": [True],
                "a b.c": [1],
            }
        ),
    )
    assert world.run() == 1
    old, new = sorted(world.rows(), key=lambda row: int(row["id"]))
    assert old["ntz"] is None
    assert new["ntz"] == moment
    assert new["struct"] == {"a": {"b": "x"}}
    assert new["map"] == [("k", 1)]
    assert new["a b.c"] == 1


@pytest.mark.promise("G-126")
def test_a_poll_reads_each_footer_once(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = pa.table({f"a_long_column_name_{n}": [n] for n in range(1500)})
    world.put("a.parquet", {"id": [1], "pad": ["x" * 200_000]}, compression="none")
    world.put("b.parquet", big)
    table, storage = world.table(), world.storage
    reads: list[tuple[str, int]] = []
    real = storage.read_range

    def read_range(path: str, start: int, end: int) -> bytes:
        reads.append((path, end - start))
        return real(path, start, end)

    monkeypatch.setattr(storage, "read_range", read_range)
    world.run(world.penguin_on(table, storage, DeltaLog(table, storage, world.pool)))
    assert [count for path, count in reads if path == "a.parquet"] == [65536]
    assert len([1 for path, _ in reads if path == "b.parquet"]) == 2


@pytest.mark.promise("G-186")
def test_mirror_and_commit_info_hold_no_secrets(s3_world: TableHarness) -> None:
    s3_world.put("a.parquet", {"id": [1]})
    s3_world.run()
    assert "test-secret" not in json.dumps([s3_world.mirror(), s3_world.actions(0)])
    assert "test-secret" not in repr(s3_world.table())


def test_a_file_committed_by_another_penguin_is_not_refused(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of all commits are read as they are then, and the log as it was before."""
    world.put("a.parquet", {"id": [1]}, output_id="p/s/1/1/0")
    world.run()
    world.put("b.parquet", {"id": [2]}, output_id="p/s/2/1/0")
    slow = world.penguin()
    verdict = BatchPlanner.decide

    def decide_late(
        judge: BatchPlanner, state: Any, batch: Any, _known: Any, *more: Any
    ) -> BatchPlan:
        monkeypatch.undo()
        assert world.run() == 1
        return verdict(judge, state, batch, {"p/s/2/1/0"}, *more)

    monkeypatch.setattr(BatchPlanner, "decide", decide_late)
    with pytest.raises(CommitConflict, match=r"perhaps of b\.parquet"):
        slow.cycle(threading.Event())
    world.run(slow)
    assert world.quarantined() == {}
    assert [row["id"] for row in world.rows()] == [1, 2]
    world.put("c.parquet", {"id": [2]}, output_id="p/s/2/1/0")
    world.run(slow)
    assert list(world.quarantined()) == ["c.parquet"]

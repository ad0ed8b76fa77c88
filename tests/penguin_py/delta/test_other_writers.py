"""Beside other writers: each row of the table in docs/reference/penguin.md, by its test."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.errors import CommitError
from blizzard_core.observability.runs import Job, RunEvent, RunLog
from penguin_py.delta.table import DeltaLog
from penguin_py.pipeline import TablePipeline
from tests.support.captured_logs import captured_logs
from tests.support.faulty_log import alone, around
from tests.support.penguin_readers import assert_all_read
from tests.support.table_harness import TableHarness, parquet

DOCS = Path(__file__).parents[3] / "docs/reference/penguin.md"
# What another engine on the same directory asks for: nothing is declared ours.
SHARED: dict[str, Any] = {"own_prefixes": []}


def numbers(world: TableHarness) -> list[int]:
    return sorted(row["x"] for row in world.rows())


def write_own_file(world: TableHarness, number: int) -> None:
    world.put(f"0{number}.parquet", {"x": [number]}, output_id=f"p/{number}")


def interrupted(
    world: TableHarness, between: Callable[[DeltaTable], object]
) -> tuple[TablePipeline, Callable[[], None]]:
    """A Penguin that somebody else comes before, after its look and before its commit."""
    table, storage = world.table(**SHARED), world.storage
    log = DeltaLog(table, storage, world.pool)

    def commit(write: Callable[[], None]) -> None:
        between(world.delta())
        write()

    around(log, commit)
    return world.penguin_on(table, storage, log), partial(alone, log)


def test_every_row_of_the_documented_table_has_its_test() -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Beside other writers")[2]
    named = re.findall(r"`(test_\w+)`", section.partition("\n## ")[0])
    assert len(named) >= 8
    missing = [name for name in named if not callable(globals().get(name))]
    assert not missing


# Files that are not ours.


def test_uncommitted_file_of_another_engine_waits_with_a_warning(world: TableHarness) -> None:
    """A rewrite by an engine on Delta Kernel, whose names say nothing, that dies on the way."""
    penguin = world.penguin(**SHARED)
    write_own_file(world, 1)
    write_own_file(world, 2)
    world.run(penguin)
    world.put("601e220d-000.parquet", {"x": [1, 2]})
    write_own_file(world, 3)
    with captured_logs("warning") as lines:
        world.run(**SHARED)
    (told,) = [line for line in lines if line["event"] == "foreign_files_wait"]
    assert (told["level"], told["path"]) == ("warning", "601e220d-000.parquet")
    assert "own_prefixes" in told["remedy"]
    assert "the first run after they are 3600 s old" in told["reason"]
    assert numbers(world) == [1, 2, 3]
    assert not world.quarantined()
    # The file that waits holds nothing back, by polls and by starts alike.
    write_own_file(world, 4)
    world.run(penguin)
    world.run(**SHARED)
    assert numbers(world) == [1, 2, 3, 4]
    # Its writer commits it at last: then it is in the log, and ours to leave alone.
    rewritten = world.delta()
    rewritten.delete("x < 3")
    add = parquet({"x": [1, 2]})
    commit_by_hand(world, "601e220d-000.parquet", len(add))
    world.now += 2 * 3600
    world.run(penguin)
    assert numbers(world) == [1, 2, 3, 4]


def commit_by_hand(world: TableHarness, path: str, size: int) -> None:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - another engine's own

    delta = world.delta()
    add = AddAction(path, size, {}, 1_700_000_000_000, data_change=True, stats='{"numRecords":2}')
    delta.create_write_transaction([add], "append", delta.schema(), [])


def test_foreign_files_are_committed_after_foreign_min_age(world: TableHarness) -> None:
    write_own_file(world, 1)
    world.put("spark.parquet", {"x": [2]})
    penguin = world.penguin(**SHARED, foreign_min_age="10m")
    world.run(penguin)
    assert numbers(world) == [1]
    assert world.mirror()["watermark"]["value"] == "01.parquet"
    world.now += 700
    world.run(penguin)
    assert numbers(world) == [1, 2]


def test_foreign_files_are_quarantined_where_never_accepted(world: TableHarness) -> None:
    write_own_file(world, 1)
    world.put("spark.parquet", {"x": [2]})
    world.now += 30 * 86_400
    world.run(**SHARED, foreign_min_age=None)
    assert numbers(world) == [1]
    assert "own_prefixes" in world.quarantined()["spark.parquet"]


def test_files_below_own_prefixes_are_committed_at_once(world: TableHarness) -> None:
    by: dict[str, Any] = {"partition_by": {"prefix_template": "from=%Y"}}
    world.put("from=duckdb/a.parquet", {"x": [1]})
    world.put("from=spark/b.parquet", {"x": [2]})
    world.run(**by, own_prefixes=["from=duckdb/"])
    assert numbers(world) == [1]


def test_a_file_that_waits_is_looked_into_once(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_file(world, 1)
    world.put("spark.parquet", {"x": [2]})
    table, storage = world.table(**SHARED), world.storage
    penguin = world.penguin_on(table, storage, DeltaLog(table, storage, world.pool))
    world.run(penguin)
    asked: list[str] = []
    real = type(storage).read_range

    def read_range(self: Any, path: str, start: int, end: int) -> bytes:
        asked.append(path)
        return real(self, path, start, end)

    monkeypatch.setattr(type(storage), "read_range", read_range)
    for _ in range(3):
        world.run(penguin)
    assert "spark.parquet" not in asked
    world.put("spark.parquet", {"x": [2, 3]})  # replaced: another file
    world.run(penguin)
    assert "spark.parquet" in asked


# What engines do to the log, before Penguin's look and between that and its commit.


def test_appends_by_delta_rs_are_left_to_it(world: TableHarness) -> None:
    write_own_file(world, 1)
    penguin = world.penguin(**SHARED, file_pattern=r".*\.parquet")
    world.run(penguin)
    for number in (2, 3):
        write_deltalake(world.uri, pa.table({"x": [number]}), mode="append")
        write_own_file(world, 10 + number)
        world.run(penguin)
    raced, _ = interrupted(
        world, lambda _: write_deltalake(world.uri, pa.table({"x": [4]}), mode="append")
    )
    write_own_file(world, 5)
    world.run(raced)
    assert numbers(world) == [1, 2, 3, 4, 5, 12, 13]
    assert_all_read(world)


def test_a_compaction_between_look_and_commit_changes_nothing(world: TableHarness) -> None:
    for number in (1, 2):
        write_own_file(world, number)
        world.run(**SHARED)
    write_own_file(world, 3)
    penguin, alone = interrupted(world, lambda delta: delta.optimize.compact())
    try:
        world.run(penguin)
    except CommitError:
        alone()
        world.run(penguin)
    assert numbers(world) == [1, 2, 3]
    world.now += 2 * 3600
    world.run(**SHARED)
    assert numbers(world) == [1, 2, 3]


def test_a_commit_is_reported_with_its_own_version(world: TableHarness) -> None:
    """Others may commit after the look."""
    write_own_file(world, 1)
    world.run(**SHARED)
    penguin, _ = interrupted(
        world, lambda delta: write_deltalake(delta, pa.table({"x": [9]}), mode="append")
    )
    found: list[RunEvent] = []
    sink = SimpleNamespace(take=found.append, close=lambda: None)
    penguin.activity.runs = RunLog(Job("penguin", "t", None, "/t"), [sink])
    for number in (2, 3):
        write_own_file(world, number)
        world.run(penguin)
    versions = [each.result.version for each in found if each.kind == "complete"]
    assert versions == [2, 4]


def test_a_delete_between_look_and_commit_deletes_what_it_saw(world: TableHarness) -> None:
    for number in (1, 2):
        write_own_file(world, number)
        world.run(**SHARED)
    write_own_file(world, 3)
    penguin, alone = interrupted(world, lambda delta: delta.delete("x = 1"))
    try:
        world.run(penguin)
    except CommitError:
        alone()
        world.run(penguin)
    assert numbers(world) == [2, 3]
    world.now += 2 * 3600
    world.run(**SHARED)
    assert numbers(world) == [2, 3]


@pytest.mark.parametrize("running", [True, False])
def test_files_removed_by_a_restore_are_not_committed_again(
    world: TableHarness, running: bool
) -> None:
    penguin = world.penguin(**SHARED)
    for number in (1, 2, 3):
        write_own_file(world, number)
        world.run(penguin)
    world.delta().restore(1)
    write_own_file(world, 4)
    world.run(penguin if running else world.penguin(**SHARED))
    world.now += 2 * 3600
    world.run(**SHARED)
    assert numbers(world) == [1, 2, 4]


def test_vacuum_leaves_what_waits_for_its_commit(world: TableHarness) -> None:
    write_own_file(world, 1)
    world.run(**SHARED)
    world.delta().delete("x = 1")
    write_own_file(world, 2)
    world.put("spark.parquet", {"x": [3]})
    old = (world.now - 30 * 86_400,) * 2
    for name in ("02.parquet", "spark.parquet"):
        os.utime(Path(world.uri, name), old)
    world.delta().vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert Path(world.uri, "02.parquet").exists()
    assert not Path(world.uri, "01.parquet").exists()
    world.run(**SHARED, foreign_min_age=0)
    assert numbers(world) == [2, 3]


def test_a_schema_change_by_another_engine_is_respected(world: TableHarness) -> None:
    write_own_file(world, 1)
    world.run(**SHARED)
    added = pa.table({"x": pa.array([2], pa.int64()), "y": ["new"]})
    penguin, alone = interrupted(
        world,
        lambda _: write_deltalake(world.uri, added, mode="append", schema_mode="merge"),
    )
    world.put("03.parquet", {"x": [3], "y": [3]}, output_id="p/3")
    world.put("04.parquet", {"x": [4], "y": ["text"]}, output_id="p/4")
    with pytest.raises(CommitError):
        penguin.cycle(threading.Event())
    alone()
    world.run(penguin)
    # The column that came first decides; the file of another type is on record.
    assert numbers(world) == [1, 2, 4]
    assert list(world.quarantined()) == ["03.parquet"]
    assert_all_read(world)


def test_another_penguin_commits_no_file_twice(world: TableHarness) -> None:
    one, two = world.penguin(**SHARED), world.penguin(**SHARED, app_id="backfill")
    write_own_file(world, 1)
    world.run(one)
    write_own_file(world, 2)
    world.run(two)
    for number in (3, 4):
        write_own_file(world, number)
    one.outlook()
    world.run(two)
    world.run(one)
    assert numbers(world) == [1, 2, 3, 4]
    ids = [
        name
        for version in range(world.delta().version() + 1)
        for action in world.actions(version)
        for name in action.get("commitInfo", {}).get("penguin", {}).get("output_ids", [])
    ]
    assert len(ids) == len(set(ids)) == 4
    assert json.dumps(world.mirror("backfill"))


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_penguin_of_another_name_commits_no_file_twice(
    world: TableHarness, rewritten: bool
) -> None:
    write_own_file(world, 1)
    world.run(**SHARED)
    write_own_file(world, 2)
    rival = world.penguin("renamed", **SHARED)

    def first(table: DeltaTable) -> None:
        world.run(rival)
        if rewritten:
            table.update_incremental()
            table.optimize.compact()

    penguin, alone = interrupted(world, first)
    with pytest.raises(CommitError):
        penguin.cycle(threading.Event())
    alone()
    world.run(penguin)
    assert numbers(world) == [1, 2]
    assert_all_read(world)

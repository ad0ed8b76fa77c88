"""Blizzard's files beside others: names of others hide none of Blizzard's from polls."""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penguin_py.intake.naming import MOST_HELD
from tests.support.penguin_readers import assert_all_read
from tests.support.table_harness import TableHarness

GRACE = 300
# Past grace, and before the next sweep.
LATER = 2 * GRACE
SETTINGS: dict[str, Any] = {"grace_period": f"{GRACE}s", "reconcile_interval": "10h"}


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    return TableHarness(str(tmp_path / "table"), pool, now=time.time() + 5)


def put(world: TableHarness, folder: str, number: int) -> str:
    """A file called as Blizzard calls it now."""
    millis = f"{int(world.now * 1000):012x}"
    path = f"{folder}{millis[:8]}-{millis[8:]}-7{number:03x}-8000-000000000000.parquet"
    world.put(path, {"x": [number]}, output_id=f"p/{number}")
    return path


def numbers(world: TableHarness) -> list[int]:
    return sorted(row["x"] for row in world.rows())


@pytest.mark.promise("G-125")
@pytest.mark.parametrize("folder", ["", "date=2024-01-01/"])
@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_name_above_blizzards_hides_none_of_them(
    world: TableHarness, folder: str, bad: bool, restarted: bool
) -> None:
    penguin = world.penguin(**SETTINGS)
    put(world, folder, 1)
    world.run(penguin)
    world.put(f"{folder}zzz.parquet", b"no Parquet" if bad else {"x": [100]})
    world.run(penguin)
    expected = [1] if bad else [1, 100]
    for number in (2, 3):
        for _ in range(2):
            world.now += LATER
            world.run(penguin)
        if restarted:
            penguin = world.penguin(**SETTINGS)
        put(world, folder, number)
        world.run(penguin)
        expected = sorted([*expected, number])
        assert numbers(world) == expected
    assert len(world.quarantined()) == bad
    assert len(world.delta_paths()) == len(set(world.delta_paths()))
    assert_all_read(world)


@pytest.mark.promise("G-125")
def test_where_others_came_first_the_sweep_puts_polls_back(world: TableHarness) -> None:
    penguin = world.penguin(**SETTINGS)
    world.put("mmm.parquet", {"x": [100]})
    world.put("nnn.parquet", b"no Parquet")
    world.put("zzz.parquet", {"x": [101]})
    world.run(penguin)
    for _ in range(2):
        world.now += LATER
        world.run(penguin)
    # What was removed, and lies there still, does not come back either.
    DeltaTable(world.uri).delete("x = 100")
    put(world, "", 1)
    world.run(penguin)
    assert numbers(world) == [101]
    penguin.reconcile(dry_run=False)
    world.run(penguin)
    for number in (2, 3):
        world.now += LATER
        put(world, "", number)
        world.run(penguin)
        assert numbers(world) == [*range(1, number + 1), 101]
    assert list(world.quarantined()) == ["nnn.parquet"]
    assert_all_read(world)


def test_a_partition_that_blizzard_has_left_is_closed_as_ever(world: TableHarness) -> None:
    penguin = world.penguin(**SETTINGS, max_tracked_partitions=1)
    put(world, "date=2024-01-01/", 1)
    world.put("date=2024-01-01/zzz.parquet", {"x": [100]})
    world.run(penguin)
    world.now += 2 * 86_400
    put(world, "date=2024-01-02/", 2)
    for _ in range(3):
        world.run(penguin)
        world.now += LATER
    assert numbers(world) == [1, 2, 100]
    assert set(world.mirror()["partition_watermarks"]) == {"date=2024-01-02"}


def test_many_foreign_names_leave_the_commit_info_small(world: TableHarness) -> None:
    """Recorded files would be in each commit."""
    penguin = world.penguin(**SETTINGS)
    put(world, "", 1)
    for number in range(MOST_HELD + 1):
        world.put(f"zz{number}.parquet", b"no Parquet")
    world.run(penguin)
    for number in (2, 3):
        world.now += LATER
        world.run(penguin)
        put(world, "", number)
    penguin.reconcile(dry_run=False)
    world.run(penguin)
    assert numbers(world) == [1, 2, 3]
    newest = world.actions(world.delta().version())
    [info] = [action["commitInfo"]["penguin"] for action in newest if "commitInfo" in action]
    assert len(json.dumps(info)) < 10_000

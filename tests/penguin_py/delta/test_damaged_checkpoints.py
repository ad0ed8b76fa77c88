"""A log checkpoint of a writer that died: readers go on without it, and so does Penguin."""

from __future__ import annotations

import shutil
from concurrent.futures import Executor
from pathlib import Path

import pytest

from blizzard_core.delta_json import tail_of
from blizzard_core.errors import StateError
from tests.support.table_harness import TableHarness

NEWEST = 4
OLDER = f"{2:020d}.checkpoint.parquet"


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    """Five commits, and a checkpoint of version 2 and of the newest."""
    world = TableHarness(str(tmp_path / "table"), pool)
    world.tampered = True
    for number in range(NEWEST + 1):
        world.put(f"{number}.parquet", {"id": [number]})
        world.run()
        if number in (2, NEWEST):
            world.delta().create_checkpoint()
    shutil.rmtree(Path(world.uri, "_penguin"))
    return world


def checkpoint(world: TableHarness, version: int = NEWEST, part: str = "") -> Path:
    return Path(world.uri, "_delta_log", f"{version:020d}.checkpoint{part}.parquet")


def newest(world: TableHarness) -> tuple[int, list[str]]:
    tail = tail_of(world.storage, NEWEST)
    return tail.version, [part.path for part in tail.checkpoint]


def cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def without_hint(world: TableHarness) -> None:
    """delta-rs opens no table whose hint names a checkpoint that it cannot read."""
    Path(world.uri, "_delta_log", "_last_checkpoint").unlink()


def goes_on(world: TableHarness) -> None:
    world.put("new.parquet", {"id": [100]})
    world.run()
    assert sorted(row["id"] for row in world.rows()) == [0, 1, 2, 3, 4, 100]


@pytest.mark.promise("G-180")
@pytest.mark.parametrize("keep", [0, 3, 11, 500])
def test_an_empty_or_cut_checkpoint_is_passed_over(world: TableHarness, keep: int) -> None:
    cut(checkpoint(world), keep)
    assert newest(world) == (2, [f"_delta_log/{OLDER}"])


@pytest.mark.promise("G-180")
def test_a_table_goes_on_when_the_newest_checkpoint_is_empty(world: TableHarness) -> None:
    cut(checkpoint(world), 0)
    without_hint(world)
    goes_on(world)


def test_log_replays_commits_when_all_checkpoints_are_damaged(world: TableHarness) -> None:
    for version in (2, NEWEST):
        cut(checkpoint(world, version), 0)
    without_hint(world)
    assert newest(world) == (-1, [])
    goes_on(world)


@pytest.mark.promise("G-180")
@pytest.mark.parametrize("keep", [3, 500])
def test_a_checkpoint_that_delta_rs_cannot_read_is_named(world: TableHarness, keep: int) -> None:
    """And what the message says helps."""
    cut(checkpoint(world), keep)
    with pytest.raises(
        StateError, match=r"delete _delta_log/_last_checkpoint and the damaged file"
    ):
        world.run()
    without_hint(world)
    checkpoint(world).unlink()
    goes_on(world)


def test_reader_skips_a_checkpoint_with_a_missing_or_cut_part(world: TableHarness) -> None:
    first, second = (checkpoint(world, part=f".{n:010d}.{2:010d}") for n in (1, 2))
    checkpoint(world).rename(first)
    assert newest(world)[0] == 2
    shutil.copy(first, second)
    assert newest(world)[0] == NEWEST
    cut(second, 200)
    assert newest(world)[0] == 2


def test_a_hint_that_points_to_nothing_is_passed_over(world: TableHarness) -> None:
    checkpoint(world).unlink()
    assert newest(world) == (2, [f"_delta_log/{OLDER}"])
    with pytest.raises(StateError, match="delete _delta_log/_last_checkpoint"):
        world.run()  # delta-rs goes by the hint
    without_hint(world)
    goes_on(world)


def test_a_log_that_nothing_covers_is_refused_with_a_remedy(world: TableHarness) -> None:
    cut(checkpoint(world), 0)
    cut(checkpoint(world, 2), 0)
    for version in range(3):
        Path(world.uri, "_delta_log", f"{version:020d}.json").unlink()
    with pytest.raises(StateError, match=r"(?i)restore"):
        world.run()


def test_a_checkpoint_that_is_garbage_is_refused_with_a_remedy(world: TableHarness) -> None:
    path = checkpoint(world)
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * (len(data) - 8) + data[-4:])
    with pytest.raises(StateError, match=r"(?i)delete it|restore"):
        world.run()

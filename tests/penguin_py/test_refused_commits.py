"""One bad file costs that file: a commit that can never land is blamed on what spoils it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from blizzard_core.errors import CommitError, StateError
from penguin_py.delta.table import DeltaLog
from penguin_py.model import CommitPlan
from penguin_py.pipeline import TablePipeline
from tests.support.faulty_log import Around
from tests.support.table_harness import TableHarness


@pytest.fixture
def world(tmp_path: Path, pool: Executor) -> TableHarness:
    found = TableHarness(str(tmp_path / "table"), pool)
    found.put("0000.parquet", {"id": [0]})
    found.run()
    return found


class Panic(BaseException):
    """The exception of a delta-rs panic; only its name identifies it."""


Panic.__name__ = "PanicException"


def failing(
    world: TableHarness, error: Callable[[], BaseException], spoils: Callable[[CommitPlan], bool]
) -> tuple[TablePipeline, list[int]]:
    """A Penguin whose commits fail where ``spoils``; and how many files each try had."""
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)
    tries = []

    def commit(plan: CommitPlan, write: Callable[[], None]) -> None:
        tries.append(len(plan.adds))
        if spoils(plan):
            raise error()
        write()

    log.writer = Around(log.writer, commit)
    return world.penguin_on(table, storage, log), tries


def named(*paths: str) -> Callable[[CommitPlan], bool]:
    return lambda plan: any(add.entry.path in paths for add in plan.adds)


@pytest.mark.parametrize("error", [lambda: DeltaError("no such thing"), lambda: Panic("gave up")])
def test_the_file_that_spoils_a_commit_is_isolated(
    world: TableHarness, error: Callable[[], BaseException]
) -> None:
    paths = [f"{number:04d}.parquet" for number in range(1, 101)]
    for number, path in enumerate(paths, 1):
        world.put(path, {"id": [number]})
    bad = {paths[17], paths[18], paths[90]}
    penguin, tries = failing(world, error, named(*bad))
    # One poll, told by the cycles that follow without a pause.
    world.run(penguin)
    assert world.paths() == {"0000.parquet", *paths} - bad
    assert set(world.quarantined()) == bad
    assert all("did not land" in reason for reason in world.quarantined().values())
    assert len(tries) < 60
    # On record for good: neither this process nor another one tries them again.
    tries.clear()
    assert world.run(penguin) == 0
    assert world.run() == 0
    assert not tries


def test_a_spoiling_file_is_not_tried_again_by_the_next_batch(world: TableHarness) -> None:
    for number in range(1, 41):
        world.put(f"{number:04d}.parquet", {"id": [number]})
    penguin, tries = failing(world, lambda: DeltaError("no"), named("0001.parquet"))
    world.run(penguin)
    assert set(world.quarantined()) == {"0001.parquet"}
    # Halved down to one, tried twice, probed; and then doubled again.
    assert tries == [40, 20, 10, 5, 2, 1, 1, 0, 2, 4, 8, 16, 9]


def test_a_table_without_commits_stops_the_daemon(world: TableHarness) -> None:
    for number in range(1, 4):
        world.put(f"{number:04d}.parquet", {"id": [number]})
    penguin, tries = failing(world, lambda: DeltaError("never"), lambda _plan: True)
    with pytest.raises(StateError, match=r"takes no commits, also none without files.*never"):
        world.run(penguin)
    assert tries == [3, 1, 1, 0]
    assert not world.quarantined()
    assert world.run() == 1
    assert len(world.rows()) == 4


@pytest.mark.parametrize(
    "error",
    [
        OSError("no answer"),
        CommitFailedError("somebody else came first"),
        DeltaError("Kernel error: Error interacting with object store: Generic S3 error"),
    ],
)
def test_store_errors_and_conflicts_blame_no_file(world: TableHarness, error: Exception) -> None:
    for number in range(1, 4):
        world.put(f"{number:04d}.parquet", {"id": [number]})
    down = [True]
    penguin, tries = failing(world, lambda: error, lambda _plan: down[0])
    for _ in range(3):
        with pytest.raises(CommitError) as found:
            penguin.cycle(threading.Event())
        assert found.value.retryable
    assert tries == [3, 3, 3]
    down[0] = False
    world.run(penguin)
    assert len(world.rows()) == 4
    assert not world.quarantined()


def test_a_path_with_a_repeated_column_starts_no_table(tmp_path: Path, pool: Executor) -> None:
    world = TableHarness(str(tmp_path / "new"), pool)
    world.put("a=1/A=2/x.parquet", {"id": [1]})
    world.put("b=1/x.parquet", {"id": [2]})
    world.run()
    assert "in two cases" in world.quarantined()["a=1/A=2/x.parquet"]
    assert world.rows() == [{"id": 2, "b": "1"}]


def test_a_file_that_spoils_the_first_commit_is_quarantined(tmp_path: Path, pool: Executor) -> None:
    world = TableHarness(str(tmp_path / "new"), pool)
    for number in range(4):
        world.put(f"{number}.parquet", {"id": [number]})
    penguin, _ = failing(world, lambda: DeltaError("no"), named("1.parquet"))
    world.run(penguin)
    assert world.paths() == {"0.parquet", "2.parquet", "3.parquet"}
    assert set(world.quarantined()) == {"1.parquet"}

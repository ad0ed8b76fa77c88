"""The short version of the chaos run; `python -m tests.chaos.penguin` is the long one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import BlizzardError
from penguin_py.pipeline import TablePipeline
from tests.chaos.penguin import run, run_on_s3
from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness, footer_pool


@pytest.mark.promise("G-027")
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_is_there_once_after_chaos(tmp_path: Path, seed: int) -> None:
    found = run(tmp_path, rounds=15, seed=seed, process_rate=0.1)
    assert found["rows"] > 10
    assert found["versions"] > 5


def test_rows_are_committed_once_when_answers_are_lost(s3: S3Server) -> None:
    found = run_on_s3(s3, rounds=5, seed=3, process_rate=0.1)
    assert found["rows"] > 3
    assert found["requests lost on the wire"] > 0


@pytest.mark.promise("G-027")
@pytest.mark.parametrize("backfill", [False, True])
def test_two_simultaneous_starts_commit_each_file_once(tmp_path: Path, backfill: bool) -> None:
    """Real threads: from the creation of the table on, both are after the same files."""
    with footer_pool() as pool:
        for attempt in range(8):
            world = TableHarness(str(tmp_path / str(attempt)), pool)
            for number in range(6):
                world.put(f"{number}.parquet", {"id": [number]})
            barrier = threading.Barrier(2)
            other: dict[str, Any] = {"app_id": "backfill"} if backfill else {}
            penguins = [
                world.penguin(max_files_per_commit=2),
                world.penguin(max_files_per_commit=2, **other),
            ]

            def work(penguin: TablePipeline, gate: threading.Barrier = barrier) -> None:
                gate.wait()
                for _ in range(30):
                    try:
                        if not penguin.cycle(threading.Event()):
                            return
                    except BlizzardError as error:
                        # A commit that the other one was ahead of, or came in between with.
                        if not error.retryable:
                            raise

            threads = [threading.Thread(target=work, args=(penguin,)) for penguin in penguins]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            paths = world.delta_paths()
            assert sorted(paths) == [f"{number}.parquet" for number in range(6)]
            logged = [
                action["add"]["path"]
                for version in range(world.delta().version() + 1)
                for action in world.actions(version)
                if "add" in action
            ]
            assert len(logged) == len(set(logged))

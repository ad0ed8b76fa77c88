"""Compaction, vacuum, and what other readers make of the table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import CommitError
from penguin_py.delta.table import DeltaLog
from tests.support.table_harness import TableHarness, footer_pool

HOUR = 3600.0


OPTIMIZE: dict[str, Any] = {"optimize": {"interval": f"{HOUR}s"}}
VACUUM: dict[str, Any] = {"vacuum": {}}


def operations(world: TableHarness) -> list[str]:
    return [entry["operation"] for entry in reversed(world.delta().history())]


def parquet_files(world: TableHarness) -> list[Path]:
    return sorted(Path(world.uri).rglob("*.parquet"))


@pytest.mark.parametrize("pattern", [None, r".*\.parquet"])
def test_compaction_on_its_interval_never_confuses_discovery(
    world: TableHarness, pattern: str | None
) -> None:
    settings = OPTIMIZE if pattern is None else {**OPTIMIZE, "file_pattern": pattern}
    penguin = world.penguin(**settings)
    total = 0
    for round_ in range(3):
        for number in range(3):
            total += 1
            world.put(f"date=2024-01-0{number + 1}/{round_}.parquet", {"id": [total]})
        assert world.run(penguin) == 1
        assert world.run(penguin) == 0
        world.now += 2 * HOUR
        assert world.run(penguin) == 0
        assert world.run(penguin) == 0
    assert operations(world) == ["CREATE TABLE", "WRITE", "OPTIMIZE", "WRITE", "OPTIMIZE"]
    assert sorted(row["id"] for row in world.rows()) == list(range(1, 10))
    assert len(world.paths()) == 3
    for name in ("events_checkpoint.json", "nothing"):
        world.storage.delete(f"_penguin/{name}")
        world.now += 2 * HOUR
        assert world.run(**settings) == 0
    assert sorted(row["id"] for row in world.rows()) == list(range(1, 10))
    assert not world.quarantined()


def test_compacted_files_have_the_size_that_the_table_names(world: TableHarness) -> None:
    for number in range(6):
        world.put(f"{number}.parquet", {"id": [number]})
    penguin = world.penguin(**OPTIMIZE)
    world.run(penguin)
    each = parquet_files(world)[0].stat().st_size
    world.delta().alter.set_table_properties({"delta.targetFileSize": str(2 * each)})
    world.now += 2 * HOUR
    world.run(penguin)
    assert operations(world)[-1] == "OPTIMIZE"
    assert len(world.paths()) == 3


def test_nothing_is_compacted_or_deleted_unless_configured(world: TableHarness) -> None:
    penguin = world.penguin()
    for number in range(3):
        world.put(f"{number}.parquet", {"id": [number]})
        world.run(penguin)
        world.now += 1000 * HOUR
        world.run(penguin)
    assert operations(world) == ["CREATE TABLE", "WRITE", "WRITE"]


def test_a_compaction_that_fails_stops_nothing(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommitError("no room")

    monkeypatch.setattr(DeltaLog, "optimize", fail)
    penguin = world.penguin(**OPTIMIZE)
    world.put("a.parquet", {"id": [1]})
    world.run(penguin)
    world.now += 2 * HOUR
    assert world.run(penguin) == 0
    world.put("b.parquet", {"id": [2]})
    assert world.run(penguin) == 1


@pytest.mark.promise("G-178")
def test_vacuum_deletes_what_was_let_go_and_nothing_that_waits(world: TableHarness) -> None:
    penguin = world.penguin(**OPTIMIZE, **VACUUM)
    for number in range(3):
        world.put(f"b{number}.parquet", {"id": [number]})
    world.run(penguin)
    world.delta().alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    # Waiting: above the watermark, below it, and set aside.
    world.put("sub/deep/late.parquet", b"junk that is long enough")
    world.put("a-waits.part", {"id": [9]})
    world.now += 2 * HOUR
    world.run(penguin)
    time.sleep(0.01)  # what was let go is kept for more than 0 milliseconds
    world.now += 25 * HOUR
    world.put("waits.tmp", b"x")
    world.run(penguin)
    names = [str(path.relative_to(world.uri)) for path in parquet_files(world)]
    assert len([name for name in names if name.startswith("part-")]) == 1
    assert [name for name in names if name.startswith("b")] == []
    assert "sub/deep/late.parquet" in names
    assert Path(world.uri, "a-waits.part").exists()
    assert Path(world.uri, "waits.tmp").exists()
    assert sorted(row["id"] for row in world.rows()) == [0, 1, 2]


def test_vacuum_leaves_what_is_not_committed_yet(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.delta().alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    world.put("b.parquet", {"id": [2]})
    log = DeltaLog(world.table(), world.storage, world.pool)
    log.refresh()
    assert log.vacuum(None) == 0
    assert world.run() == 1
    # The danger that this guards against: a full vacuum would have taken it.
    world.put("c.parquet", {"id": [3]})
    doomed = world.delta().vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    assert "c.parquet" in doomed


def test_a_retention_below_the_tables_own_is_refused(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    log = DeltaLog(world.table(), world.storage, world.pool)
    log.refresh()
    with pytest.raises(CommitError, match="retention"):
        log.vacuum(0)


def test_chores_need_a_table() -> None:
    with footer_pool() as pool:
        world = TableHarness("/nonexistent/table", pool)
        with pytest.raises(CommitError, match="no table"):
            DeltaLog(world.table(), world.storage, pool).optimize()


@pytest.mark.parametrize("cleanup", [True, False])
def test_expired_log_entries_are_removed_only_as_configured(
    world: TableHarness, cleanup: bool
) -> None:
    settings: dict[str, Any] = {"delta_checkpoint_interval": 2, "delta_log_cleanup": cleanup}
    penguin = world.penguin(**settings)
    world.put("0.parquet", {"id": [0]})
    world.run(penguin)
    world.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    for number in range(1, 6):
        world.put(f"{number}.parquet", {"id": [number]})
        world.run(penguin)
    first = world.storage.stat(f"_delta_log/{0:020d}.json")
    assert (first is None) == cleanup
    world.storage.delete("_penguin/events_checkpoint.json")
    assert world.run(**settings) == 0
    assert [row["id"] for row in world.rows()] == list(range(6))

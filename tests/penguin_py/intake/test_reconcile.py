"""The sweep: stragglers, orphans, replaced files, closed partitions, leftovers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from blizzard_core.errors import CommitError
from blizzard_core.handover.quarantine import QuarantineRecord
from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Entry
from penguin_py import app
from penguin_py.__main__ import main
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.reconcile import Findings, came_since, compare, safe_horizon
from tests.support.faulty_log import alone, around
from tests.support.flat_settings import nested
from tests.support.table_harness import TableHarness, parquet

HOUR = 3600.0
DAY = 24 * HOUR


def age(world: TableHarness, path: str, secs: float) -> None:
    """Make a file as old as that, by the daemon's clock."""
    os.utime(Path(world.uri, path), (world.now - secs, world.now - secs))


def record(path: str, size: int, modified: float | None) -> QuarantineRecord:
    return QuarantineRecord(path, "why", "read", "2024-01-01T00:00:00+00:00", size, modified, 0)


def test_compare_sorts_by_age_and_record() -> None:
    young, old = Entry("young", 1, 100.0), Entry("old", 1, 10.0)
    same, replaced, longer = Entry("same", 5, 90.0), Entry("new", 5, 91.0), Entry("longer", 6, 92.0)
    records = {
        "same": record("same", 5, 90.0),
        "new": record("new", 5, 80.0),
        "longer": record("longer", 5, None),
    }
    lately = Entry("lately", 1, 40.0)
    found = compare([young, old, lately, same, replaced, longer], records, 50.0, 30.0)
    assert found == Findings((young,), (replaced, longer), (lately,), (old,))


def test_a_file_came_since_a_sweep_that_somebody_knows_of() -> None:
    assert came_since({"reconcile": 100_000}, 0.0) == 100_000 - HOUR
    assert came_since({}, 0.0) == came_since({"reconcile": 100_000}, 5.0) == float("inf")


@pytest.mark.parametrize("sweeps", [True, False], ids=["by a sweep", "by the first poll"])
def test_our_files_of_an_outage_are_committed(world: TableHarness, sweeps: bool) -> None:
    settings: dict[str, Any] = {} if sweeps else {"reconcile_interval": "1000000000s"}
    # What was done with `b` in grace, its start forgot.
    for name in ("a0", "b"):
        world.put(f"{name}.parquet", {"id": [1]}, output_id=f"p/{name}")
    world.run(**settings)
    world.now += 0.1 * HOUR if sweeps else 0
    world.run(**settings)
    down = world.now
    world.now += 30 * DAY
    world.put("a1.parquet", {"id": [2]}, output_id="p/a1")
    world.put("a2.parquet", {"id": [3]})
    world.put("a3.parquet", {"id": [4]}, output_id="p/b")
    for name in ("a1", "a2", "a3"):
        os.utime(Path(world.uri, f"{name}.parquet"), (down + 60, down + 60))
    world.run(**settings)
    assert world.paths() == {"a0.parquet", "b.parquet", "a1.parquet"}
    assert {path: found.stage for path, found in world.penguin().quarantined().items()} == {
        "a2.parquet": "horizon",
        "a3.parquet": "output_id",
    }
    world.run(**settings)
    assert world.run(**settings) == 0


def test_the_horizon_stays_within_the_logs_memory_of_removals() -> None:
    assert safe_horizon(2 * DAY, 7 * DAY) == 2 * DAY
    assert safe_horizon(9 * DAY, 7 * DAY) == 7 * DAY - HOUR
    assert safe_horizon(DAY, 0.0) == 0.0


@pytest.mark.promise("G-016")
def test_the_sweep_commits_stragglers_and_not_orphans(world: TableHarness) -> None:
    world.put("b.parquet", {"id": [2]})
    penguin = world.penguin(reconcile_horizon=f"{DAY}s")
    world.run(penguin)
    world.now += 0.9 * HOUR  # past the grace period, before the sweep
    assert world.run(penguin) == 0
    world.put("a-straggler.parquet", {"id": [1]})
    world.put("a-orphan.parquet", {"id": [0]})
    age(world, "a-orphan.parquet", 2 * DAY)
    assert world.run(penguin) == 0
    world.now += 0.2 * HOUR
    assert world.run(penguin) == 1
    assert world.paths() == {"a-straggler.parquet", "b.parquet"}
    assert world.mirror()["watermark"]["value"] == "b.parquet"
    world.now += 2 * HOUR
    assert world.run(penguin) == 0


def test_a_sweep_is_not_repeated_by_every_start(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("b.parquet", {"id": [2]})
    world.run()
    sweeps: list[float] = []
    from penguin_py.table.maintenance import Maintenance  # noqa: PLC0415 - patched here only

    real = Maintenance.sweep

    def sweep(self: Maintenance, *arguments: Any) -> Any:
        sweeps.append(world.now)
        return real(self, *arguments)

    monkeypatch.setattr(Maintenance, "sweep", sweep)
    world.run()
    world.now += 1.1 * HOUR
    world.run()
    world.run()
    assert len(sweeps) == 1
    world.now += 1.1 * HOUR
    world.run(reconcile_interval=0)
    assert len(sweeps) == 1


def lose_state(world: TableHarness) -> None:
    """Mirror gone and the log cleaned up to a checkpoint: only paths are left."""
    world.storage.delete("_penguin/events_checkpoint.json")
    world.delta().alter.set_table_properties({"delta.checkpointInterval": "50"})
    delta = world.delta()
    delta.create_checkpoint()
    for version in range(delta.version()):
        world.storage.delete(f"_delta_log/{version:020d}.json")


@pytest.mark.parametrize("lost", [False, True])
def test_the_sweep_never_adds_what_was_removed(world: TableHarness, lost: bool) -> None:
    for number in range(4):
        world.put(f"{number}.parquet", {"id": [number]})
    world.run()
    delta = world.delta()
    delta.optimize.compact()
    delta.delete("id = 2")
    if lost:
        lose_state(world)
    world.now += 2 * HOUR
    assert world.run(reconcile_horizon="30d") == 0
    assert [row["id"] for row in world.rows()] == [0, 1, 3]


def test_a_forgotten_removal_is_older_than_the_horizon(world: TableHarness) -> None:
    """The log lets a removal go after its retention; its file must not come back then."""
    world.put("0.parquet", {"id": [0]})
    world.put("1.parquet", {"id": [1]})
    world.run()
    world.delta().alter.set_table_properties(
        {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    )
    world.delta().delete("id = 0")
    delta = world.delta()
    time.sleep(0.01)  # the removal is only forgotten by a later millisecond
    delta.create_checkpoint()
    for version in range(delta.version()):
        world.storage.delete(f"_delta_log/{version:020d}.json")
    world.storage.delete("_penguin/events_checkpoint.json")
    world.now += 2 * HOUR
    assert world.run(reconcile_horizon="30d") == 0
    assert [row["id"] for row in world.rows()] == [1]


def test_a_quarantined_file_is_tried_again_when_it_was_replaced(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.put("b.parquet", b"junk that is long enough")
    world.put("c.parquet", b"junk that is long enough")
    world.put("d.parquet", b"junk that is long enough")
    penguin = world.penguin()
    world.run(penguin)
    world.put("b.parquet", {"id": [2]})
    world.put("c.parquet", b"other junk, but no better")
    world.now += 2 * HOUR
    assert world.run(penguin) == 1
    assert world.paths() == {"a.parquet", "b.parquet"}
    assert set(world.quarantined()) == {"c.parquet", "d.parquet"}
    lines = world.storage.read("_penguin/events_quarantine.ndjson").splitlines()
    counts = {r["path"]: r["retry_count"] for r in map(json.loads, lines)}
    assert counts == {"c.parquet": 1, "d.parquet": 0}
    world.now += 2 * HOUR
    assert world.run(penguin) == 0


def test_the_sweep_finds_late_files_of_closed_partitions(world: TableHarness) -> None:
    settings: dict[str, Any] = {"max_tracked_partitions": 2, "grace_period": "1m"}
    for day in range(1, 7):
        world.put(f"date=2024-01-0{day}/a.parquet", {"id": [day]})
    penguin = world.penguin(**settings)
    world.run(penguin)
    world.now += 120
    assert world.run(penguin) == 0
    progress = penguin.snapshot().memory.progress
    assert progress.floor == "date=2024-01-05"
    assert set(progress.partitions) == {"date=2024-01-05", "date=2024-01-06"}
    world.put("date=2024-01-02/b.parquet", {"id": [20]})
    world.put("date=2024-01-06/b.parquet", {"id": [60]})
    assert world.run(penguin) == 1
    assert "date=2024-01-02/b.parquet" not in world.paths()
    world.now += 2 * HOUR
    assert world.run(penguin) == 1
    assert "date=2024-01-02/b.parquet" in world.paths()
    assert set(penguin.snapshot().memory.progress.partitions) == set(progress.partitions)
    assert world.run(**settings) == 0
    lose_state(world)
    assert world.run(**settings) == 0
    assert len(world.paths()) == 8


def test_a_straggler_that_cannot_be_read_holds_nothing_back(world: TableHarness) -> None:
    world.put("b.parquet", {"id": [2]})
    penguin = world.penguin()
    world.run(penguin)
    world.now += 2 * HOUR
    world.put("a.parquet", b"junk that is long enough")
    world.put("c.parquet", {"id": [3]})
    world.run(penguin)
    assert world.paths() == {"b.parquet", "c.parquet"}
    assert world.mirror()["watermark"]["value"] == "c.parquet"
    assert set(world.quarantined()) == {"a.parquet"}


def test_old_staged_files_in_the_log_are_deleted(world: TableHarness) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    staged = "_delta_log/00000000000000000001.json#1"
    young = "_delta_log/00000000000000000002.json#1"
    other = "_delta_log/_commit_0123.json.tmp"
    for path in (staged, young, other):
        world.storage.put_atomic(path, b"{}")
    world.now += 2 * HOUR
    for path in (staged, other):
        age(world, path, 2 * HOUR)
    age(world, young, 60)
    world.run()
    left = sorted(p.name for p in Path(world.uri, "_delta_log").iterdir())
    assert left == ["00000000000000000000.json", "00000000000000000002.json#1"]


def test_a_lookback_bounds_what_is_found_and_swept(world: TableHarness) -> None:
    world.now = 1_706_443_200.0  # 2024-01-28 12:00 UTC
    settings: dict[str, Any] = {
        "partition_filter": {"prefix_template": "date=%Y-%m-%d", "lookback": 2},
        "reconcile_horizon": "1000000000s",
    }
    for day in range(24, 29):
        world.put(f"date=2024-01-{day}/a.parquet", {"id": [day]})
    world.run(**settings)
    assert [row["id"] for row in world.rows()] == [26, 27, 28]
    world.now += DAY
    assert world.run(**settings) == 0
    assert [row["id"] for row in world.rows()] == [26, 27, 28]


def test_a_directory_that_nobody_wrote_for_us_becomes_a_table(world: TableHarness) -> None:
    for country in ("de", "at%2Fx"):
        for year in (2023, 2024):
            folder = f"country={country}/year={year}"
            world.put(f"{folder}/part-0000{year % 10}-legacy.snappy.parquet", {"n": [year]})
            world.put(f"{folder}/data_{year}.parquet", {"n": [year]})
    world.put("_SUCCESS", b"")
    world.put("country=de/year=2024/.part-0.parquet.crc", b"")
    by = {"prefix_template": "country=%Y/year=%m", "types": {"year": "int32"}}
    world.run(partition_by=by, file_pattern=r".*\.parquet", max_files_per_commit=3)
    assert len(world.paths()) == 8
    rows = world.rows()
    assert all(row["n"] == row["year"] for row in rows)
    assert {row["country"] for row in rows} == {"de", "at/x"}


def test_files_of_other_delta_writers_are_theirs_to_commit(world: TableHarness) -> None:
    """Even a pattern that takes their names does not double what OPTIMIZE wrote."""
    everything: dict[str, Any] = {"file_pattern": r".*\.parquet"}
    for number in range(3):
        world.put(f"{number}.parquet", {"id": [number]})
    world.run(**everything)
    write_deltalake(world.uri, pa.table({"id": [10]}), mode="append")
    world.delta().optimize.compact()
    # As if OPTIMIZE had died before its commit: its output lies there, unknown to the log.
    newest = f"_delta_log/{world.delta().version():020d}.json"
    committed = world.storage.read(newest)
    world.storage.delete(newest)
    assert world.run(**everything) == 1
    assert sorted(row["id"] for row in world.rows()) == [0, 1, 2, 10]
    assert [e[:19] for e in world.quarantined().values()] == ["was written by delt"]
    # And as if it was only late.
    lines = committed.splitlines()
    world.storage.put_atomic(newest, b"\n".join(lines))
    assert world.run(**everything) == 0
    world.now += 2 * HOUR
    assert world.run(**everything) == 0
    assert sorted(row["id"] for row in world.rows()) == [0, 1, 2, 10]


def test_a_backfill_instance_commits_no_file_twice(world: TableHarness) -> None:
    backfill: dict[str, Any] = {"app_id": "events-backfill"}
    world.put("a.parquet", {"id": [1]})
    live, other = world.penguin(), world.penguin(**backfill)
    world.run(live)
    world.put("b.parquet", {"id": [2]})
    world.run(other)
    assert world.run(live) == 0
    world.put("c.parquet", {"id": [3]})
    # Both have planned the same file, and a compaction comes in between.
    table, storage = world.table(**backfill), world.storage
    log = DeltaLog(table, storage, world.pool)

    def commit(write: Callable[[], None]) -> None:
        live.cycle(threading.Event())
        world.delta().optimize.compact()
        write()

    around(log, commit)
    raced = world.penguin_on(table, storage, log)
    with pytest.raises(CommitError):
        raced.cycle(threading.Event())
    alone(log)
    assert world.run(raced) == 0
    assert [row["id"] for row in world.rows()] == [1, 2, 3]
    delta = world.delta()
    assert delta.transaction_version("penguin-events") == 2
    assert delta.transaction_version("events-backfill") == 1
    # Each finds its own state again, though the other one's commits carry its txn as well.
    assert world.penguin().snapshot().memory.txn_version == 2
    assert world.penguin(**backfill).snapshot().memory.txn_version == 1
    assert world.run() == 0
    world.storage.delete("_penguin/events_checkpoint.json")
    assert world.run() == 0
    assert world.run(**backfill) == 0
    assert {p.name for p in Path(world.uri, "_penguin").iterdir()} == {
        "events_checkpoint.json",
        "events-backfill_checkpoint.json",
    }


@pytest.mark.parametrize("restarted", [False, True])
def test_an_output_id_counts_once_over_all_instances(world: TableHarness, restarted: bool) -> None:
    backfill: dict[str, Any] = {"app_id": "events-backfill"}
    live, other = world.penguin(), world.penguin(**backfill)
    world.put("a.parquet", {"id": [1]}, output_id="one")
    world.run(live)
    world.run(other)
    world.put("b.parquet", {"id": [2]}, output_id="two")
    world.run(other)
    world.put("c.parquet", {"id": [2]}, output_id="two")
    world.put("d.parquet", {"id": [1]}, output_id="one")
    world.run(world.penguin() if restarted else live)
    world.run(world.penguin(**backfill) if restarted else other)
    assert [row["id"] for row in world.rows()] == [1, 2]
    assert set(world.quarantined()) == {"c.parquet", "d.parquet"}


def test_log_checkpoints_come_as_often_as_configured(world: TableHarness) -> None:
    penguin = world.penguin(delta_checkpoint_interval=3)
    for number in range(7):
        world.put(f"{number}.parquet", {"id": [number]})
        world.run(penguin)
    names = sorted(p.name for p in Path(world.uri, "_delta_log").iterdir())
    assert [n[:20] for n in names if n.endswith(".checkpoint.parquet")] == [
        f"{2:020d}",
        f"{5:020d}",
    ]
    assert world.run() == 0


def test_a_checkpoint_that_fails_does_not_undo_the_commit(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommitError("no room")

    penguin = world.penguin(delta_checkpoint_interval=1)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    world.put("a.parquet", {"id": [1]})
    assert world.run(penguin) == 1
    assert world.run(penguin) == 0


def test_the_command_reports_first_and_commits_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = [0.0]
    monkeypatch.setattr(app, "time", SimpleNamespace(time=lambda: time.time() + ahead[-1]))
    root, config = tmp_path / "events", tmp_path / "c.yaml"
    config.write_text(
        yaml.safe_dump(
            nested(
                Config,
                {
                    "tables": {
                        "events": {
                            "table_uri": str(root),
                            "grace_period": 0,
                            "own_prefixes": [""],
                        }
                    }
                },
            )
        )
    )

    def call(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(
            main, [arguments[0], str(config), *arguments[1:], "--log-level", "error"]
        )
        assert result.exit_code == 0, result.output
        if "--json" not in arguments:
            return {}
        return json.loads(result.stdout)["tables"]["events"]

    root.mkdir()
    kinds = ("stragglers", "retries", "overdue", "orphans", "missing")
    nothing: dict[str, Any] = {kind: [] for kind in kinds}
    told: dict[str, Any] = {"refused": [], "waiting": [], "unreadable": [], "not_looked_into": 0}
    assert call("reconcile", "--dry-run", "--json") == {**nothing, **told, "dry_run": True}
    (root / "b.parquet").write_bytes(parquet({"id": [1]}))
    (root / "c.parquet").write_bytes(b"junk that is long enough")
    call("run", "--once")
    # Once its grace is over, scans start behind what was seen, and the next commit says so.
    ahead.append(2.0)
    (root / "d.parquet").write_bytes(parquet({"id": [5]}))
    call("run", "--once")
    (root / "a.parquet").write_bytes(parquet({"id": [2]}))
    (root / "0.parquet").write_bytes(parquet({"id": [3]}))
    os.utime(root / "0.parquet", (1, 1))
    (root / "c.parquet").write_bytes(parquet({"id": [4]}))
    status = call("status", "--json")
    assert status["quarantine"]["count"] == 1
    assert status["quarantine"]["newest"]["path"] == "c.parquet"
    call("status")
    expected = {
        "stragglers": ["a.parquet"],
        "retries": ["c.parquet"],
        "overdue": [],
        "orphans": ["0.parquet"],
        "missing": [],
    }
    assert call("reconcile", "--dry-run", "--json") == {**expected, **told, "dry_run": True}
    assert call("reconcile", "--json") == {**expected, "dry_run": False}
    assert call("reconcile", "--json") == {**nothing, "orphans": ["0.parquet"], "dry_run": False}
    call("reconcile")
    assert call("status", "--json")["quarantine"] == {"count": 0, "settled": 0, "newest": None}

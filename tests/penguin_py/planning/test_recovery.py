"""State is never ahead of the log: the next plan is right, or the daemon stops and says why."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from blizzard_core.delta_json import relative
from blizzard_core.errors import StateError, Unavailable
from blizzard_core.storage.protocol import Entry
from penguin_py.delta import output_ids
from penguin_py.delta.table import DeltaLog
from penguin_py.intake.reconcile import copied_at
from penguin_py.model import LoggedPath, OwnCommit, PathOrigin, TableState
from tests.support.counting_storage import CountingStorage
from tests.support.faulty_log import around
from tests.support.table_harness import TableHarness, parquet

HOUR, DAY = 3600.0, 86_400.0


def entry(world: TableHarness, version: int) -> Path:
    return Path(world.uri, "_delta_log", f"{version:020d}.json")


def drop(world: TableHarness, number: int) -> None:
    world.put(f"{number:04d}.parquet", {"x": [number]}, output_id=f"p/{number}")


def fill(world: TableHarness, count: int, **settings: Any) -> None:
    penguin = world.penguin(**settings)
    for number in range(count):
        drop(world, number)
        world.run(penguin)


def numbers(world: TableHarness) -> list[int]:
    return sorted(row["x"] for row in world.rows())


def segments(world: TableHarness) -> list[Path]:
    return sorted(Path(world.uri, output_ids.FOLDER).glob("*.digests"))


# A log that lost commits.


@pytest.mark.promise("G-015")
@pytest.mark.parametrize("lost", [1, 2])
def test_files_of_commits_that_the_log_lost_are_committed_again(
    world: TableHarness, lost: int
) -> None:
    """A power loss before the entry was on disk, or a log from a backup."""
    fill(world, 4)
    for version in range(4 - lost, 4):
        entry(world, version).unlink()
    drop(world, 9)
    world.run()
    assert numbers(world) == [0, 1, 2, 3, 9]
    assert not world.quarantined()


def test_a_restored_log_stops_the_daemon_until_a_restart(world: TableHarness) -> None:
    penguin = world.penguin()
    for number in range(4):
        drop(world, number)
        world.run(penguin)
    entry(world, 3).unlink()
    entry(world, 2).unlink()
    drop(world, 9)
    with pytest.raises(StateError, match="has lost commit 4 of penguin-events; restore the log"):
        world.run(penguin)
    world.run()
    assert numbers(world) == [0, 1, 2, 3, 9]


def test_an_entry_that_a_power_loss_left_empty_is_not_built_upon(world: TableHarness) -> None:
    fill(world, 2)
    entry(world, 1).write_bytes(b"")
    drop(world, 9)
    world.run()
    assert numbers(world) == [0, 1, 9]


def test_a_mirror_of_a_replaced_commit_is_ignored(world: TableHarness) -> None:
    """Restored, and then a Penguin without that mirror made a commit of the same number."""
    fill(world, 3)
    mirror = Path(world.uri, "_penguin/events_checkpoint.json")
    saved = mirror.read_bytes()
    entry(world, 2).unlink()
    mirror.unlink()
    hidden = Path(world.uri, "0002.parquet")
    hidden.rename(hidden.with_suffix(".away"))
    drop(world, 8)
    world.run()
    mirror.write_bytes(saved)  # of commit 3 as it was, with the id of 2
    hidden.with_suffix(".away").rename(Path(world.uri, "0009.parquet"))
    world.run()
    assert numbers(world) == [0, 1, 2, 8]
    assert not world.quarantined()


def test_a_mirror_ahead_of_a_cleaned_log_stops_the_daemon(
    world: TableHarness,
) -> None:
    fill(world, 3)
    world.delta().create_checkpoint()
    mirror = Path(world.uri, "_penguin/events_checkpoint.json")
    for version in range(2):
        entry(world, version).unlink()
    document = json.loads(mirror.read_text())
    mirror.write_text(json.dumps({**document, "txn_version": 4}))
    with pytest.raises(StateError, match=r"remembers commit 4, the log has 3 at most.*delete"):
        world.run()
    mirror.unlink()
    drop(world, 9)
    world.run()
    assert numbers(world) == [0, 1, 2, 9]


@pytest.mark.parametrize("commits", [0, 2])
def test_a_twin_that_commits_during_the_read_stops_nobody(
    world: TableHarness, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror is read after the log, and may be of a commit that came in between."""
    fill(world, commits)
    drop(world, 7)
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)
    real = log.refresh

    def refresh() -> TableState | None:
        state = real()
        monkeypatch.setattr(log, "refresh", real)
        world.run()  # a twin commits, and saves its mirror
        for number in range(commits):
            path = entry(world, number)
            if number == 0 and commits:
                world.delta().create_checkpoint()
            path.unlink()
        return state

    monkeypatch.setattr(log, "refresh", refresh)
    penguin = world.penguin_on(table, storage, log)
    with pytest.raises(Unavailable, match="another Penguin committed while"):
        penguin.snapshot()
    drop(world, 8)
    world.run(penguin)
    assert numbers(world) == [*range(commits), 7, 8]


def test_segments_above_the_logs_version_stop_the_daemon(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 3)
    fill(world, 6)
    assert segments(world)
    for version in range(2, 6):
        entry(world, version).unlink()
    with pytest.raises(StateError, match=r"up to version \d, but the log ends at 1.*restore"):
        world.run()


def refill(world: TableHarness, first: int, until: int) -> None:
    """The log is cut back to before ``first``, and another writer makes versions up to ``until``.

    Its rows are minus their version.
    """
    for version in range(first, world.delta().version() + 1):
        entry(world, version).unlink()
    for version in range(first, until + 1):
        write_deltalake(world.uri, pa.table({"x": [-version]}), mode="append")


@pytest.mark.promise("G-015")
@pytest.mark.parametrize("until", [5, 9])
@pytest.mark.parametrize("first", [1, 3, 5])
def test_files_of_lost_commits_come_again_under_reused_versions(
    world: TableHarness, first: int, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 2)
    fill(world, 6)
    newest = segments(world)[-1].name
    assert int(newest[:20]) == 5
    refill(world, first, until)
    theirs = [-version for version in range(until, first - 1, -1)]
    world.run()
    assert numbers(world) == [*theirs, 0, 1, 2, 3, 4, 5]
    # What is committed stays known, by this start and by the next, and the segment is gone.
    assert newest not in {path.name for path in segments(world)}
    for number in range(6):
        world.put(f"again-{number}.parquet", {"x": [number]}, output_id=f"p/{number}")
        world.run()
    assert numbers(world) == [*theirs, 0, 1, 2, 3, 4, 5]
    assert len(world.quarantined()) == 6


def test_lost_segments_are_ignored_again_after_a_crash(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 2)
    fill(world, 6)
    lost = segments(world)[-1]
    content = lost.read_bytes()
    refill(world, 3, 9)
    world.run()
    lost.write_bytes(content)
    drop(world, 7)
    world.run()
    assert [n for n in numbers(world) if n >= 0] == [0, 1, 2, 3, 4, 5, 7]
    assert not lost.exists()


def test_lost_commits_of_a_cleaned_log_stop_the_daemon(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 2)
    fill(world, 6)
    refill(world, 4, 9)
    world.delta().create_checkpoint()
    entry(world, 0).unlink()
    # As each refusal says.
    with pytest.raises(StateError, match=r"events_checkpoint.*remembers commit 6.*not go.*delete"):
        world.run()
    Path(world.uri, "_penguin/events_checkpoint.json").unlink()
    with pytest.raises(StateError, match=r"digests: holds output ids up to.*not go back.*delete"):
        world.run()
    [lost] = segments(world)
    lost.unlink()
    world.run()
    assert [n for n in numbers(world) if n >= 0] == [0, 1, 2, 3, 4, 5]


def test_segments_of_a_log_that_was_cleaned_up_count(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 2)
    fill(world, 6)
    before = segments(world)
    world.delta().create_checkpoint()
    for version in range(5):
        entry(world, version).unlink()
    world.put("again.parquet", {"x": [0]}, output_id="p/0")
    world.run()
    assert numbers(world) == [0, 1, 2, 3, 4, 5]
    assert set(world.quarantined()) == {"again.parquet"}
    assert segments(world) == before


@pytest.mark.promise("G-015")
@pytest.mark.parametrize("until", [2, 3])
def test_a_mirror_forgets_ids_of_another_penguins_lost_commit(
    world: TableHarness, until: int
) -> None:
    """It is of our own last commit, which the log has; the lost one came behind that."""
    fill(world, 2)
    drop(world, 7)
    world.run(app_id="backfill")
    world.now += 7200
    world.run()  # a sweep is noted in the mirror, with what the log has by now
    assert world.mirror()["log"]["version"] == 2
    refill(world, 2, until)
    world.run()
    assert [n for n in numbers(world) if n >= 0] == [0, 1, 7]
    assert not world.quarantined()


def test_a_running_daemon_notices_a_replaced_log(world: TableHarness) -> None:
    """At the same version, with more in it: none of it is committed again."""
    fill(world, 1)
    penguin = world.penguin()
    world.run(penguin)
    drop(world, 7)
    world.run(app_id="backfill")
    world.run(penguin)
    entry(world, 1).unlink()
    Path(world.uri, "_penguin/backfill_checkpoint.json").unlink()
    drop(world, 8)
    world.run(app_id="backfill")
    drop(world, 9)
    world.run(penguin)
    assert numbers(world) == [0, 7, 8, 9]
    actions = [action for v in range(world.delta().version() + 1) for action in world.actions(v)]
    added = [action["add"]["path"] for action in actions if "add" in action]
    assert len(added) == len(set(added))


def test_segments_of_another_table_in_this_place_stop_the_daemon(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 3)
    fill(world, 6)
    world.run()
    assert segments(world)
    shutil.rmtree(Path(world.uri, "_delta_log"))
    for number in range(9):
        write_deltalake(world.uri, pa.table({"x": [100 + number]}), mode="append")
    with pytest.raises(StateError, match=r"of another table that was in this place.*delete"):
        world.run()


@pytest.mark.parametrize("folded", [True, False])
def test_a_missing_log_with_state_stops_the_daemon(
    world: TableHarness, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folded:
        monkeypatch.setattr(output_ids, "VERSIONS_KEPT", 3)
    fill(world, 6)
    world.run()
    shutil.rmtree(Path(world.uri, "_delta_log"))
    for _ in range(2):
        with pytest.raises(StateError, match=r"has no log; restore the log.*delete _penguin/"):
            world.run()
    assert not world.quarantined()
    shutil.rmtree(Path(world.uri, "_penguin"))
    world.run()
    assert numbers(world) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("entries", [1, 3, 5])
@pytest.mark.parametrize("running", [True, False])
def test_a_recreated_table_gets_no_commit_of_the_former_one(
    world: TableHarness, entries: int, running: bool
) -> None:
    """At a lower, the same and a higher version, with another column and no partitions."""
    penguin = world.penguin()
    for number in range(3):
        world.put(f"d=1/{number}.parquet", {"x": [number]}, output_id=f"p/{number}")
        world.run(penguin)
    world.run(penguin)
    shutil.rmtree(Path(world.uri, "_delta_log"))
    shutil.rmtree(Path(world.uri, "d=1"))
    for number in range(entries):
        write_deltalake(world.uri, pa.table({"y": [str(number)]}), mode="append")
    world.put("b.parquet", {"y": ["new"]}, output_id="p/0")
    if running:
        with pytest.raises(StateError, match="has lost commit 3"):
            world.run(penguin)
    world.run()
    assert sorted(row["y"] for row in world.rows()) == [*map(str, range(entries)), "new"]
    assert world.run() == 0


# A log that forgot what was removed.


def forget_a_removal(world: TableHarness, days_old: float = 30) -> None:
    """A day was deleted, and the log has let the removal go; its file was never vacuumed."""
    for day in (1, 2, 3):
        path = f"d=2024-01-0{day}/a.parquet"
        world.put(path, {"x": [day]}, output_id=f"p/{day}")
        os.utime(Path(world.uri, path), (world.now - days_old * DAY,) * 2)
    world.run()
    world.delta().delete("d = '2024-01-03'")
    path = entry(world, 1)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = int((world.now - 8 * DAY) * 1000)
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    world.delta().create_checkpoint()
    entry(world, 0).unlink()
    assert numbers(world) == [1, 2]


def with_another_app_id(world: TableHarness) -> TableHarness:
    world.run(app_id="backfill")
    return world


def renamed(world: TableHarness) -> TableHarness:
    world.run(world.penguin(name="other"))
    return world


def without_its_mirror(world: TableHarness) -> TableHarness:
    world.storage.delete("_penguin/events_checkpoint.json")
    world.run()
    return world


def copied(world: TableHarness) -> TableHarness:
    """As `cp -r` does it: every file is as new as the copy."""
    there = f"{world.uri}-copy"
    shutil.copytree(world.uri, there, copy_function=shutil.copyfile)
    found = TableHarness(there, world.pool, now=world.now)
    found.run()
    return found


def copied_and_renamed(world: TableHarness) -> TableHarness:
    return renamed(copied(world))


@pytest.mark.parametrize("how", [with_another_app_id, without_its_mirror, copied_and_renamed])
def test_rows_that_were_deleted_do_not_return(
    world: TableHarness, how: Callable[[TableHarness], TableHarness]
) -> None:
    forget_a_removal(world)
    world.now += 60
    found = how(world)
    assert numbers(found) == [1, 2]
    for _ in range(2):  # and not by a sweep, nor by the next start
        found.now += 1.1 * HOUR
        found.run()
    assert numbers(found) == [1, 2]


def test_a_new_instance_takes_young_files_and_rejects_old_ones(
    world: TableHarness,
) -> None:
    fill(world, 1)
    world.put("old.parquet", {"x": [7]})
    os.utime(Path(world.uri, "old.parquet"), (world.now - 3 * DAY,) * 2)
    world.put("young.parquet", {"x": [8]})
    world.run(app_id="backfill")
    assert numbers(world) == [0, 8]
    assert list(world.quarantined("backfill")) == ["old.parquet"]
    assert "copy it to a new name" in world.quarantined("backfill")["old.parquet"]
    # It is on record, so it stays out when the next start is no rebuild any more.
    assert world.run(app_id="backfill") == 0


def test_a_copy_is_known_by_the_times_of_most_files() -> None:
    def pair(listed: float, known: float, told: PathOrigin = "data") -> tuple[Entry, LoggedPath]:
        return Entry("x", 1, listed), LoggedPath("x", 0, known, told)

    old, new = 1.6e9, 1.7e9
    now = new + 10
    assert copied_at([pair(new, old), pair(new + 5, old)], now) == new + 5 + HOUR
    assert copied_at([pair(old, old), pair(old + 60, old)], now) == 0
    # One file that somebody wrote over, and times that no writer meant.
    assert copied_at([pair(new, old), pair(old, old), pair(old, old)], now) == 0
    assert copied_at([pair(new, 0.001)], now) == 0
    assert copied_at([], now) == 0
    # The store's clock was ahead when these were written, and is right again.
    assert copied_at([pair(now + 2 * HOUR, old)], now) == 0
    # The clock of whoever compacted was behind: what it says counts where nothing else is left.
    assert copied_at([pair(old, old), *[pair(new, old, "rewrite")] * 9], now) == 0
    assert copied_at([pair(new, old, "rewrite")], now) == new + HOUR
    assert copied_at([pair(new, old, "removal")], now) == 0


def test_a_compaction_with_a_slow_clock_keeps_late_files_safe(
    world: TableHarness,
) -> None:
    """All that the log says of times is its machine's; the files' are the store's."""

    def arrives(number: int) -> None:
        drop(world, number)
        path = Path(world.uri, f"{number:04d}.parquet")
        os.utime(path, (world.now, world.now))

    world.now += 12 * HOUR
    for number in (2, 3, 4):
        arrives(number)
    world.run()
    world.delta().optimize.compact()
    world.delta().create_checkpoint()
    for _ in range(2):
        world.now += 600
        arrives(5)
        world.run()
    world.now += 600
    arrives(1)
    for _ in range(2):
        world.now += 1.1 * HOUR
        world.run()
    assert numbers(world) == [1, 2, 3, 4, 5]


# Others on the same table.


def test_a_straggler_committed_by_a_twin_is_not_repeated(world: TableHarness) -> None:
    """Both sweeps found it; the twin committed it, and OPTIMIZE rewrote it since."""
    world.put("b.parquet", {"x": [1]})
    one, two = (world.penguin(reconcile_interval=0) for _ in range(2))
    world.run(one)
    world.run(two)
    for _ in range(3):
        world.now += 1000
        world.run(one)
        world.run(two)
    world.put("a.parquet", {"x": [2]})
    os.utime(Path(world.uri, "a.parquet"), (world.now, world.now))
    world.now += 400
    found = [penguin.reconcile(dry_run=False) for penguin in (one, two)]
    assert [[e.path for e in each.stragglers] for each in found] == [["a.parquet"]] * 2
    world.run(two)
    world.delta().optimize.compact()
    world.run(one)
    assert numbers(world) == [1, 2]


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("d=1/a.parquet", "/lake/t", "d=1/a.parquet"),
        ("d=a%2520b/a.parquet", "/lake/t", "d=a%20b/a.parquet"),
        ("file:///lake/t/d=1/a.parquet", "/lake/t", "d=1/a.parquet"),
        ("file:/lake/t/a.parquet", "/lake/t", "a.parquet"),
        ("/lake/t/a.parquet", "/lake/t", "a.parquet"),
        ("/lake/table/a.parquet", "/lake/t", None),
        ("s3a://b/lake/t/a%20b.parquet", "s3://b/lake/t", "a b.parquet"),
        ("s3://other/lake/t/a.parquet", "s3://b/lake/t", None),
    ],
)
def test_log_paths_become_relative_as_in_a_listing(
    path: str, root: str, expected: str | None
) -> None:
    assert relative(path, root) == expected


def test_file_with_an_absolute_uri_in_the_log_is_known(world: TableHarness) -> None:
    world.tampered = True
    world.put("a.parquet", {"x": [1]})
    world.run()
    text = entry(world, 0).read_text()
    entry(world, 0).write_text(
        text.replace('"path":"a.parquet"', f'"path":"file://{world.uri}/a.parquet"')
    )
    shutil.rmtree(Path(world.uri, "_penguin"))
    found = DeltaLog(world.table(), world.storage, world.pool)
    assert [known.path for known in found.known_paths(0)] == ["a.parquet"]
    world.put("b.parquet", {"x": [2]})
    world.run()
    added = [a["add"]["path"] for a in world.actions(1) if "add" in a]
    assert added == ["b.parquet"]
    assert world.mirror()["watermark"]["value"] == "b.parquet"


# What a start costs, and the order of what is durable.


def start(world: TableHarness) -> list[str]:
    """Return the requests of one start and of a poll that finds nothing."""
    storage: Any = CountingStorage(world.storage)
    table = world.table(reconcile_interval=0)
    world.run(world.penguin_on(table, storage, DeltaLog(table, storage, world.pool)))
    return storage.asked


def test_1000_foreign_commits_do_not_raise_the_cost_of_a_start(world: TableHarness) -> None:
    fill(world, 2)
    world.delta().create_checkpoint()
    before = start(world)
    for version in range(2, 1002):
        info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}
        entry(world, version).write_text(json.dumps(info) + "\n")
    world.delta().create_checkpoint()
    after = start(world)
    assert len(after) <= len(before) + 5, (before, after)
    # What the store is asked for is right all the same.
    world.put("again.parquet", {"x": [0]}, output_id="p/0")
    drop(world, 9)
    world.run()
    assert numbers(world) == [0, 1, 9]


def test_our_last_commit_is_found_in_a_few_rounds(world: TableHarness) -> None:
    fill(world, 1)
    for version in range(1, 61):
        info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}
        entry(world, version).write_text(json.dumps(info) + "\n")
    storage: Any = CountingStorage(world.storage)
    log = DeltaLog(world.table(), storage, world.pool)
    found = log.own_commit(1, 60)
    assert isinstance(found, OwnCommit)
    assert found.version == 0
    storage.asked.clear()
    assert log.own_commit(1, 60, 0) == found
    assert len(storage.asked) == 1


def test_a_local_commit_is_on_disk_before_the_mirror_is(
    world: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        synced.append(path.removeprefix(f"{world.uri}/"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    for number in range(2):
        (Path(world.uri)).mkdir(exist_ok=True)
        Path(world.uri, f"{number}.parquet").write_bytes(parquet({"x": [number]}))
        synced.clear()
        world.run()
        mirror = next(at for at, path in enumerate(synced) if "events_checkpoint" in path)
        assert f"_delta_log/{number:020d}.json" in synced[:mirror]
        assert "_delta_log" in synced[:mirror]


def test_a_crash_before_the_stragglers_repeats_the_sweep(world: TableHarness) -> None:
    world.put("m.parquet", {"x": [1]})
    world.run()
    world.now += 1.1 * HOUR
    world.run()
    world.put("a.parquet", {"x": [2]})
    os.utime(Path(world.uri, "a.parquet"), (world.now, world.now))
    world.now += 1.1 * HOUR
    table, storage = world.table(), world.storage
    log = DeltaLog(table, storage, world.pool)
    penguin = world.penguin_on(table, storage, log)

    def dies(_write: Callable[[], None]) -> None:
        raise SystemExit

    around(log, dies)
    with pytest.raises(SystemExit):
        world.run(penguin)
    world.now += 60
    world.run()
    assert numbers(world) == [1, 2]
    assert world.mirror()["chores"]["reconcile"] == int(world.now)


def test_a_checkpoint_that_is_not_read_hides_no_older_one(world: TableHarness) -> None:
    """`_last_checkpoint` may name one of version 2, from when the table had that policy."""
    fill(world, 2)
    world.delta().create_checkpoint()
    drop(world, 5)
    world.run()
    world.delta().create_checkpoint()
    log = Path(world.uri, "_delta_log")
    newest = log / f"{world.delta().version():020d}.checkpoint.parquet"
    newest.rename(newest.with_suffix(".80a083e8-7026-4e79-81be-64bd76c43a11.parquet"))
    world.tampered = True
    entry(world, 0).unlink()
    drop(world, 9)
    world.run()
    assert 9 in numbers(world)
    assert len(numbers(world)) == 4

"""Faults of table, settings, clock and stores, none of which may remove a source file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Storage
from blizzard_py.app.cleaning import restore
from tests.support.cleaning_harness import (
    DAY,
    DAY_SECS,
    FIRST,
    CleaningHarness,
    archived,
    with_seen_file,
)
from tests.support.memory_store import Died, MemoryStorage
from tests.support.request_harness import explained

OTHER = "date=2025-06-16/1.ndjson"


@pytest.fixture
def world() -> CleaningHarness:
    return with_seen_file()


def write_commit(world: CleaningHarness, *actions: object) -> None:
    world.version += 1
    text = "\n".join(map(json.dumps, actions))
    world.sink.put_atomic(f"_delta_log/{world.version:020d}.json", text.encode())


def remove_rows(world: CleaningHarness, *actions: object) -> None:
    removed = [{"remove": {"path": path, "dataChange": True}} for path in world.published()]
    write_commit(world, *actions, *removed)


def die_at(world: CleaningHarness, store: MemoryStorage, wanted: str, *, after: bool) -> None:
    """Run until the process dies at the first such change of a store."""

    def dies(operation: str, path: str) -> None:
        if wanted in {operation, path.rpartition(".")[2]}:
            raise Died

    if after:
        store.after_mutation = dies
    else:
        store.before_mutation = dies
    with pytest.raises(Died):
        world.drain()
    store.before_mutation = store.after_mutation = lambda _operation, _path: None


@pytest.mark.parametrize("operation", ["WRITE", "DELETE", "FSCK", None])
def test_files_stay_when_their_rows_are_removed(
    world: CleaningHarness, operation: str | None
) -> None:
    remove_rows(world, *([{"commitInfo": {"operation": operation}}] if operation else []))
    world.wait(9 * DAY_SECS)
    assert world.left() == [FIRST]


def test_rows_removed_before_the_first_look_hold_files() -> None:
    world = CleaningHarness()
    world.put(FIRST, "row")
    world.drain()
    world.commit()
    world.now -= 7200  # the store's clock goes back
    remove_rows(world, {"commitInfo": {"operation": "RESTORE"}})
    world.now += 7200
    world.wait(10 * DAY_SECS)
    assert world.left() == [FIRST]


def test_partitions_without_removed_rows_are_cleaned() -> None:
    world = CleaningHarness()
    world.template = "date=%Y-%m-%d"
    world.ingest(FIRST)
    world.see()
    remove_rows(world)
    world.ingest(OTHER)
    world.see()
    write_commit(world, {"remove": {"path": "date=2020-01-01/old.parquet", "dataChange": True}})
    world.wait(9 * DAY_SECS)
    assert world.left() == [FIRST]


def test_files_stay_when_the_table_is_recreated(world: CleaningHarness) -> None:
    world.commit()
    world.see()
    world.sink.delete_tree("_delta_log")
    world.version = -1
    write_commit(world, {"commitInfo": {"operation": "CREATE TABLE"}})
    world.wait(9 * DAY_SECS)
    assert world.left() == [FIRST]


def test_pause_with_a_restore_ends_the_run() -> None:
    world = CleaningHarness()
    world.settings["checkpoint"] = CheckpointSettings(interval_files=100)
    for number in range(9):
        world.put(f"{DAY}/{number}.ndjson", "row")
    world.drain()
    world.commit()
    world.see()
    world.wait_idle(8 * DAY_SECS)
    removed: list[str] = []

    def pauses(operation: str, path: str) -> None:
        if operation == "delete_if":
            removed.append(path)
            if len(removed) == 1:
                world.now += 3600
                world.commit("RESTORE")

    world.source.before_mutation = pauses
    world.drain()
    world.wait(3 * DAY_SECS)
    assert len(world.left()) == 8


@pytest.mark.parametrize(
    "changed",
    [
        {"after": "90d"},
        {"mode": "delete", "archive_uri": None, "after": "30d"},
        {"archive_uri": "mem://elsewhere"},
    ],
)
def test_cut_off_list_obeys_the_settings_of_now(
    world: CleaningHarness, changed: dict[str, object]
) -> None:
    world.wait_idle(8 * DAY_SECS)
    die_at(world, world.archive, "copy", after=False)
    world.settings["clean"] = world.settings["clean"] | changed
    world.archive = MemoryStorage("mem://elsewhere", lambda: world.now)
    world.drain()
    if changed.get("archive_uri"):
        assert [each.problem for each in restore(world.parts(), FIRST, FIRST)] == [""]
    else:
        assert world.left() == [FIRST]


def test_removed_setting_leaves_the_story_of_a_list(world: CleaningHarness) -> None:
    world.put(OTHER, "row")
    world.wait_idle(8 * DAY_SECS)
    die_at(world, world.source, "delete_if", after=True)
    clean = world.settings.pop("clean")
    world.drain()
    world.settings["clean"] = clean
    world.drain()
    assert (world.left(), archived(world)) == ([OTHER], [FIRST])
    assert "gone, perhaps to mem://archive" in explained(world, FIRST).reason
    assert [each.problem for each in restore(world.parts(), FIRST, FIRST)] == [""]


def test_cut_off_list_of_an_emptied_source_has_a_story(world: CleaningHarness) -> None:
    world.wait_idle(8 * DAY_SECS)
    die_at(world, world.source, "delete_if", after=True)
    world.wait(2 * DAY_SECS)
    assert "gone, perhaps to mem://archive" in explained(world, FIRST).reason
    assert [each.problem for each in restore(world.parts(), FIRST, FIRST)] == [""]
    assert world.left() == [FIRST]


def test_death_before_the_save_leaves_the_story(world: CleaningHarness) -> None:
    world.put(OTHER, "row")
    world.wait_idle(8 * DAY_SECS)
    world.sink.after_mutation = lambda _operation, path: _die_if(path.endswith(".done.json"))
    with pytest.raises(Died):
        world.drain()
    world.sink.after_mutation = lambda _operation, _path: None
    world.drain()
    assert "archived in mem://archive" in explained(world, FIRST).reason
    assert len(list(restore(world.parts(), FIRST, FIRST))) == 1


def _die_if(condition: bool) -> None:  # of the hook
    if condition:
        raise Died


@pytest.mark.parametrize("change", ["moved", "emptied"])
def test_lost_dead_letters_hold_files(change: str) -> None:
    world = CleaningHarness()
    world.ingest(FIRST, "row", "?")
    world.see()
    if change == "moved":
        world.dlq = MemoryStorage("mem://dlq2", lambda: world.now)
    else:
        world.dlq.objects.clear()
    world.wait(9 * DAY_SECS)
    assert world.left() == [FIRST]


def test_clock_that_jumps_makes_no_file_older(world: CleaningHarness) -> None:
    world.now += 365 * DAY_SECS
    world.drain()
    assert world.left() == [FIRST]
    world.wait(7 * DAY_SECS)
    assert world.left() == []


def test_forgotten_name_is_not_restored(world: CleaningHarness) -> None:
    world.wait(8 * DAY_SECS)
    world.now += 366 * DAY_SECS
    [found] = restore(world.parts(), FIRST, FIRST)
    assert "forgotten" in found.problem
    assert world.left() == []


def test_archive_that_is_the_source_takes_nothing(tmp_path: Path) -> None:
    world = CleaningHarness()
    raw = LocalStorage(str(tmp_path / "raw"), versions=True)
    (tmp_path / "alias").symlink_to(tmp_path / "raw")
    _use_raw(world, raw)
    world.archive = LocalStorage(str(tmp_path / "alias"))  # type: ignore[assignment]
    world.ingest(FIRST)
    world.wait(9 * DAY_SECS)
    assert raw.read(FIRST) == b"row"


def test_rewritten_file_stays_whatever_its_time(tmp_path: Path) -> None:
    world = CleaningHarness()
    raw = LocalStorage(str(tmp_path / "raw"), versions=True)
    _use_raw(world, raw)
    world.ingest(FIRST, "row")
    world.see()
    place = tmp_path / "raw" / FIRST
    before = place.stat()
    with place.open("r+b") as stream:
        stream.write(b"new")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    world.wait(9 * DAY_SECS)
    assert place.read_bytes() == b"new"


def _use_raw(world: CleaningHarness, raw: Storage) -> None:
    world.source = world.engine.source = raw  # type: ignore[assignment]  # another Storage


def test_copy_replaces_no_file_that_came_meanwhile(world: CleaningHarness) -> None:
    world.wait_idle(8 * DAY_SECS)
    opens: Callable[[str], object] = world.archive.open_output

    def late(path: str) -> object:
        world.archive.objects[FIRST] = (b"of another", 0.0)
        return opens(path)

    world.archive.open_output = late  # type: ignore[method-assign,assignment]
    world.drain()
    assert (world.left(), world.archive.read(FIRST)) == ([FIRST], b"of another")

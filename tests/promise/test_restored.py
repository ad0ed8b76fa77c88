"""Backup and restore, as in docs/guides/backup.md: parts of a table's folder from a copy.

Three rounds of files are ingested and committed; then parts are put back as they were after the
first one, or are gone. Whatever is mixed, no row is skipped and none comes twice, or the start is
refused and names the way out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.table_drill import ALL, CHECKPOINT, Drill

JOURNAL = "_blizzard/journal"


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    made = Drill(tmp_path, str(tmp_path / "place"))
    made.rounds()
    assert made.ids() == ALL[:9]
    return made


def goes_on(drill: Drill) -> None:
    """One more round comes, and all rows are there, each once; a day later still."""
    drill.arrive(3)
    assert drill.start_once() == 0
    assert drill.start_once() == 0
    assert drill.ids() == ALL


def lose_checkpoint(drill: Drill) -> None:
    (drill.lake / CHECKPOINT).unlink()


def restore_older_checkpoint(drill: Drill) -> None:
    drill.put_back(CHECKPOINT)


@pytest.mark.promise("G-195")
@pytest.mark.parametrize("lost", [lose_checkpoint, restore_older_checkpoint])
def test_lost_or_stale_checkpoint_is_refused_and_rebuilt(
    drill: Drill, lost: Callable[[Drill], None]
) -> None:
    lost(drill)
    drill.arrive(3)
    assert drill.start_once() == (2 if lost is lose_checkpoint else 1)
    assert "blizzard checkpoint rebuild" in drill.told
    assert drill.ids() == ALL[:9]
    assert drill.rebuild() == 0
    goes_on(drill)


def test_reset_of_a_stale_checkpoint_warns_and_then_works(drill: Drill) -> None:
    restore_older_checkpoint(drill)
    assert drill.start_once() == 1
    where = ("--pipeline", "events", "--source", "main", "--yes")
    reset = drill.call("blizzard", "checkpoint", "reset", str(drill.config), *where)
    assert reset.returncode == 0
    assert "would be ingested" in reset.stdout
    for _ in range(2):
        assert drill.start_once() == 0
    assert drill.ids() == sorted(2 * ALL[:9])


@pytest.mark.promise("G-210")
@pytest.mark.parametrize("lost", ["older", "gone", "one object"])
def test_journal_without_some_batches_is_refused(drill: Drill, lost: str) -> None:
    match lost:
        case "older":
            drill.put_back(JOURNAL)
        case "gone":
            shutil.rmtree(drill.lake / JOURNAL)
        case _:
            min((drill.lake / JOURNAL / "events_main").iterdir()).unlink()
    drill.arrive(3)
    assert drill.start_once() == 1
    assert "that the checkpoint counts" in drill.told
    assert drill.ids() == ALL[:9]
    assert drill.rebuild() == 0
    goes_on(drill)


@pytest.mark.promise("G-195")
def test_all_of_the_state_older_than_the_table_is_refused(drill: Drill) -> None:
    drill.put_back("_blizzard")
    drill.arrive(3)
    assert drill.start_once() == 1
    assert "says that batch" in drill.told
    # Guessing is refused; up to where rows are in is for the operator to say.
    assert drill.rebuild() == 1
    assert drill.rebuild("--done-before", "date=2024-01-23") == 0
    # Nothing new comes: what the operator has said is not asked again by the starts after it.
    for _ in range(3):
        assert drill.start_once() == 0
    goes_on(drill)


@pytest.mark.promise("G-195")
def test_restored_log_gets_the_existing_files(drill: Drill) -> None:
    drill.put_back("_delta_log", "_penguin")
    goes_on(drill)


@pytest.mark.promise("G-195")
def test_restored_data_and_log_are_reported_and_replayed(drill: Drill) -> None:
    drill.put_back(*(f"date=2024-01-2{number}" for number in range(3)), "_delta_log", "_penguin")
    drill.arrive(3)
    assert drill.start_once() == 0
    assert drill.ids() == [*ALL[:3], *ALL[9:]]
    status = drill.call("blizzard", "status", str(drill.config))
    assert status.returncode == 5
    assert "deleted before it was committed" in status.stdout
    assert drill.call("blizzard", "replay", str(drill.config), "--refused").returncode == 0
    assert drill.start_once() == 0
    assert drill.ids() == ALL


@pytest.mark.promise("G-195")
def test_restored_folder_ingests_newer_files(drill: Drill) -> None:
    shutil.rmtree(drill.lake)
    shutil.copytree(drill.copy(0), drill.lake)
    goes_on(drill)


def test_lost_folder_ingests_all_files_of_the_source(drill: Drill) -> None:
    shutil.rmtree(drill.lake)
    goes_on(drill)


def test_a_copy_of_the_same_moment_is_no_older_checkpoint(drill: Drill) -> None:
    drill.put_back(CHECKPOINT, number=2)
    goes_on(drill)

"""The preview of the cleaning, copies back from the archive, and what `explain` and notes say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from uuid_utils import uuid7

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import listed
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.cleaning import preview, restore
from blizzard_py.app.wiring import context_of
from blizzard_py.cleaning.eligible import CleanableFile, cleaning_notes
from blizzard_py.cleaning.lists import CleaningList, CleaningLists
from blizzard_py.state.source_state import CleaningState, CommitCheck
from tests.support.cleaning_harness import DAY, DAY_SECS, FIRST, SECOND, CleaningHarness
from tests.support.request_harness import explained


@pytest.fixture
def world() -> CleaningHarness:
    """Return a source with two files whose rows were in the table for long enough."""
    found = CleaningHarness()
    found.ingest(FIRST)
    found.ingest(SECOND)
    found.see()
    return found


def test_preview_shows_the_next_files(world: CleaningHarness) -> None:
    world.now += 8 * DAY_SECS
    before = dict(world.sink.objects)
    assert [file.path for file in preview(world.parts())] == [FIRST, SECOND]
    assert world.sink.objects == before
    world.drain()
    assert preview(world.parts()) == ()


def test_archived_file_comes_back_and_stays_out(world: CleaningHarness) -> None:
    data = world.source.read(FIRST)
    world.wait(8 * DAY_SECS)
    assert world.left() == []
    found = list(restore(world.parts(), FIRST, FIRST))
    assert [(each.path, each.problem) for each in found] == [(FIRST, "")]
    assert world.source.read(FIRST) == data
    world.wait(2 * DAY_SECS)
    assert (world.rows(), world.letters()) == (["row", "row"], [])


def test_another_file_is_not_replaced(world: CleaningHarness) -> None:
    world.wait(8 * DAY_SECS)
    world.put(FIRST, "another")
    world.archive.delete(SECOND)
    problems = [each.problem for each in restore(world.parts(), DAY, DAY)]
    assert problems == [
        "the source has another file of that name",
        "it is not in mem://archive",
    ]
    assert world.source.read(FIRST) == b"another"


def test_deleted_files_cannot_come_back() -> None:
    world = CleaningHarness(mode="delete", archive_uri=None)
    with pytest.raises(ConfigError, match="has no archive"):
        list(restore(world.parts(), "", ""))


def test_explain_says_where_a_cleaned_file_is(world: CleaningHarness) -> None:
    world.wait(8 * DAY_SECS)
    found = explained(world, FIRST)
    assert found.verdict == "ingested"
    assert "archived in mem://archive" in found.reason
    world.sink.delete_tree("_blizzard/journal")
    assert "archived in mem://archive" in explained(world, FIRST).reason
    assert explained(world, f"{DAY}/none.ndjson").verdict == "missing"


def test_notes_count_and_warn() -> None:
    assert "has not begun" in cleaning_notes(None, "b", 0.0, is_dry_run=False)[0]
    state = CleaningState((CommitCheck("b1", 0.0),), cleaned=3)
    assert cleaning_notes(state, "b1", 9 * DAY_SECS, is_dry_run=False) == [
        "cleaning: 3 files cleaned so far"
    ]
    notes = cleaning_notes(state, "b2", 9 * DAY_SECS, is_dry_run=True)
    assert "dry run" in notes[0]
    assert "which outputs it refuses" in notes[1]


def _config(home: Path, clean: Mapping[str, object] | None) -> Path:
    source = {"source_uri": str(home / "raw")} | ({} if clean is None else {"clean": clean})
    document = {
        "pipelines": {
            "events": {
                "sources": {"main": source},
                "sink": {"table_uri": str(home / "lake")},
                "schema": {"fields": [{"name": "a", "type": "string"}]},
            }
        }
    }
    (home / "raw").mkdir(exist_ok=True)
    config = home / "config.yaml"
    config.write_text(yaml.safe_dump(document))
    return config


@pytest.mark.parametrize("clean", [None, {"mode": "delete"}])
def test_only_sources_that_are_cleaned_list_versions(
    tmp_path: Path, clean: Mapping[str, object] | None
) -> None:
    LocalStorage(str(tmp_path / "raw")).put_atomic(FIRST, b"row")
    parts = context_of(load_config(_config(tmp_path, clean)), ("events", "main"))
    [entry] = listed(parts.stores.source, "", None)
    assert bool(entry.version) is (clean is not None)


def _clean(home: Path, *arguments: str) -> Result:
    archive = str(home / "archive")
    clean = {"mode": "archive", "archive_uri": archive}
    return CliRunner().invoke(blizzard, ["clean", str(_config(home, clean)), *arguments])


def test_command_copies_back(tmp_path: Path) -> None:
    LocalStorage(str(tmp_path / "archive")).put_atomic(FIRST, b"row")
    lists = CleaningLists(LocalStorage(str(tmp_path / "lake")), "events_main")
    files = tuple(CleanableFile(path, 3, "v") for path in (FIRST, SECOND))
    made = CleaningList(str(uuid7()), time.time(), str(tmp_path / "archive"), "b", files)
    lists.begin(made)
    lists.end(made, {FIRST: "cleaned", SECOND: "cleaned"})
    result = _clean(tmp_path, "--restore", "--from", DAY)
    assert result.exit_code == 6, result.output
    assert "1 file copied back" in result.output
    assert f"not copied back: {SECOND}" in result.output
    assert (tmp_path / "raw" / FIRST).read_bytes() == b"row"


def test_command_shows_what_is_next(tmp_path: Path) -> None:
    result = _clean(tmp_path, "--dry-run")
    assert (result.exit_code, result.output) == (0, "events/main: 0 files, 0 bytes\n")


@pytest.mark.parametrize("arguments", [(), ("--dry-run", "--restore"), ("--restore",)])
def test_command_needs_one_purpose(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert _clean(tmp_path, *arguments).exit_code == 2

"""Cleaning of source files through the real batch protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.checkpoint.digests import Digests
from blizzard_core.errors import FencedError, Unavailable
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.opening import open_source, open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.cleaning.lists import CleaningLists
from blizzard_py.edits.checkpoint_edit import change, read_checkpoint, with_watermark
from blizzard_py.ingest.source_cleaning import PAUSE_SECS
from blizzard_py.state import ledger, processed_set
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.journal import Journal
from blizzard_py.state.processed_set import Segment
from blizzard_py.state.source_state import CleaningState, CommitCheck, SourceState
from tests.support.cleaning_harness import (
    DAY,
    DAY_SECS,
    FIRST,
    SECOND,
    CleaningHarness,
    archived,
    with_seen_file,
)
from tests.support.memory_store import Dying
from tests.support.request_harness import submit
from tests.support.s3_server import S3Server


@pytest.fixture
def world() -> CleaningHarness:
    return with_seen_file()


def raises(error: Exception) -> Callable[[str, str], None]:
    def fails(_operation: str, _path: str) -> None:
        raise error

    return fails


def test_ingested_file_is_archived_after_its_time(world: CleaningHarness) -> None:
    world.wait(7 * DAY_SECS - 2 * PAUSE_SECS)
    assert world.left() == [FIRST]
    world.wait(3 * PAUSE_SECS)
    assert (world.left(), archived(world)) == ([], [FIRST])
    assert world.cleaning.cleaned == 1
    world.wait(DAY_SECS)
    assert world.rows() == ["row"]


def test_deletion_needs_no_archive() -> None:
    world = with_seen_file(mode="delete", archive_uri=None)
    world.wait(8 * DAY_SECS)
    assert (world.left(), archived(world)) == ([], [])


@pytest.mark.parametrize("store", ["disk", "s3"])
def test_files_of_real_stores_are_archived(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    world = CleaningHarness()
    raw: Storage
    archive: Storage
    if store == "disk":
        raw = open_source(str(tmp_path / "raw"), {}, versions=True)
        archive = LocalStorage(str(tmp_path / "archive"), private=True)
    else:
        s3: S3Server = request.getfixturevalue("s3")
        bucket = s3.new_bucket()
        raw = open_source(f"s3://{bucket}/raw", s3.options, versions=True)
        archive = open_storage(f"s3://{bucket}/archive", s3.options)
    world.source = world.engine.source = raw  # type: ignore[assignment]  # another Storage
    world.archive = archive  # type: ignore[assignment]  # see above
    world.ingest(FIRST)
    world.ingest(SECOND)
    world.see()
    raw.put_atomic(SECOND, b"another")
    world.wait(8 * DAY_SECS)
    assert raw.stat(FIRST) is None
    assert (archive.read(FIRST), raw.read(SECOND)) == (b"row", b"another")
    assert archive.stat(SECOND) is None


def test_dry_run_touches_nothing() -> None:
    world = with_seen_file(dry_run=True)
    world.wait(8 * DAY_SECS)
    assert (world.left(), archived(world)) == ([FIRST], [])
    assert not world.cleaning.done


def test_files_of_before_the_setting_stay(world: CleaningHarness) -> None:
    clean = world.settings.pop("clean")
    world.drain()
    state = read_state(world.sink, "events_main")
    assert state.cleaning is None
    world.settings["clean"] = clean
    world.drain()
    world.ingest(SECOND)
    world.see()
    world.wait(8 * DAY_SECS)
    assert world.left() == [FIRST]


def test_file_without_a_commit_stays() -> None:
    world = CleaningHarness()
    world.commit()
    world.put(FIRST, "row")
    world.drain()
    for _ in range(20):
        world.see()
    assert world.left() == [FIRST]


def test_files_of_before_a_restore_stay(world: CleaningHarness) -> None:
    world.commit("RESTORE")
    world.wait(8 * DAY_SECS)
    assert world.left() == [FIRST]
    world.ingest(SECOND)
    world.see()
    world.wait(8 * DAY_SECS)
    assert world.left() == [FIRST]


def test_sparse_source_survives_the_clean_up_of_the_log(world: CleaningHarness) -> None:
    worker = world.pipeline()
    for _ in range(9):
        world.commit()
        for version in range(world.version - 3):
            world.sink.delete(f"_delta_log/{version:020d}.json")
        world.now += DAY_SECS
        world.drain(worker)
    assert world.left() == []


def test_gap_in_the_log_keeps_files(world: CleaningHarness) -> None:
    worker = world.drain()
    world.commit()
    world.commit()
    for version in range(world.version):
        world.sink.delete(f"_delta_log/{version:020d}.json")
    world.now += 8 * DAY_SECS
    world.drain(worker)
    assert world.left() == [FIRST]


def test_stop_cuts_the_run_off(world: CleaningHarness) -> None:
    world.wait_idle(8 * DAY_SECS)
    stop = threading.Event()
    stop.set()
    worker = world.pipeline()
    worker.cycle(stop)  # as a replica that has to release its source does
    assert world.left() == [FIRST]
    worker.release()
    world.drain()
    assert world.left() == []


def test_file_with_open_letters_stays() -> None:
    world = CleaningHarness()
    world.ingest(FIRST, "row", "?")
    world.ingest(SECOND)
    world.see()
    world.wait(8 * DAY_SECS)
    assert world.left() == [FIRST]


def test_open_request_holds_up_the_cleaning(world: CleaningHarness) -> None:
    submit(world.parts(), {"files": [FIRST]}, config="of another configuration")
    world.wait(8 * DAY_SECS)
    assert world.left() == [FIRST]


def test_bare_source_is_left_alone(world: CleaningHarness) -> None:
    there = dict(world.source.objects)
    world.source.objects.clear()
    world.wait(8 * DAY_SECS)
    world.source.objects.update(there)
    world.wait(2 * PAUSE_SECS)
    assert (world.left(), archived(world)) == ([], [FIRST])


def test_edit_by_hand_keeps_earlier_files(world: CleaningHarness) -> None:
    view = world.pipeline()
    change(view, read_checkpoint(view), lambda s: with_watermark(s, DAY, "1.ndjson"), world.now)
    world.drain()
    world.wait(30 * DAY_SECS)
    assert world.left() == [FIRST]


@pytest.mark.promise("G-226")
def test_replaced_process_removes_nothing(world: CleaningHarness) -> None:
    worker = world.drain()
    world.now += 8 * DAY_SECS
    clean = world.settings.pop("clean")
    world.drain()
    world.settings["clean"] = clean
    with pytest.raises(FencedError):
        worker.cycle(threading.Event())
    assert world.left() == [FIRST]


def test_page_shows_the_progress_and_a_failure(world: CleaningHarness) -> None:
    worker = world.pipeline()
    world.archive.before_mutation = raises(Unavailable("archive away"))
    for _ in range(8):
        world.now += DAY_SECS
        world.drain(worker)
    [notice] = worker.activity.to_json()["notices"]
    assert "not cleaned: archive away" in notice["text"]
    world.archive.before_mutation = lambda _op, _path: None
    world.now += 2 * PAUSE_SECS
    world.drain(worker)
    shown = worker.activity.to_json()
    assert (shown["cleaning"], shown["notices"]) == (["cleaning: 1 file cleaned so far"], [])


def test_failure_does_not_hold_up_the_source(world: CleaningHarness) -> None:
    works, world.archive.before_mutation = (
        world.archive.before_mutation,
        raises(Unavailable("archive away")),
    )
    world.wait(8 * DAY_SECS)
    world.ingest(SECOND)
    assert (world.left(), world.rows()) == ([FIRST, SECOND], ["row", "row"])
    world.archive.before_mutation = works
    world.wait(2 * PAUSE_SECS)
    assert world.left() == [SECOND]


@pytest.mark.promise("G-226")
@pytest.mark.parametrize("clean", [{}, {"mode": "delete", "archive_uri": None}])
def test_death_at_any_change_loses_nothing(clean: dict[str, Any]) -> None:
    for at in range(16):
        world = CleaningHarness(**clean)
        world.ingest(FIRST)
        world.ingest(SECOND)
        world.see()
        world.wait_idle(8 * DAY_SECS)
        if Dying(world.source, world.archive, world.sink).dies(at, world.drain):
            world.drain()
        world.wait(2 * PAUSE_SECS)
        assert (world.left(), archived(world)) == ([], [] if clean else [FIRST, SECOND]), at


def cleaned_source(monkeypatch: pytest.MonkeyPatch) -> CleaningHarness:
    """Return a source with one file, and many that were cleaned; its ledger is small."""
    for module in (ledger, processed_set):
        monkeypatch.setattr(module, "TAIL", 0)
    world = CleaningHarness()
    world.settings["checkpoint"] = CheckpointSettings(interval_files=100)
    for number in range(40):
        world.put(f"{DAY}/{number:03d}.ndjson", "row")
    world.drain()
    world.commit()
    world.put("date=2025-06-16/1.ndjson", "row")
    for _ in range(10):
        world.see()
    assert world.left() == ["date=2025-06-16/1.ndjson"]
    return world


def sweep(world: CleaningHarness) -> None:
    worker = world.pipeline()
    for _ in range(12):  # a name that was missing for seven days is forgotten
        world.now += DAY_SECS
        world.drain(worker)


def test_cleaned_names_do_not_outgrow_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cleaned_source(monkeypatch)
    forget = ledger.Ledger.forget
    forgotten: list[int] = []

    def counting(self: ledger.Ledger, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        forgotten.append(len(listed))
        return forget(self, listed, now)

    monkeypatch.setattr(ledger.Ledger, "forget", counting)
    sweep(world)
    assert not forgotten


@pytest.mark.promise("G-227")
def test_cleaned_name_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cleaned_source(monkeypatch)
    monkeypatch.setattr(ledger.Ledger, "outgrows", lambda _self, _files: True)
    sweep(world)
    world.put(f"{DAY}/007.ndjson", "again")
    world.drain()
    sweep(world)
    assert world.letters() == []
    assert "again" not in world.rows()


def test_lists_tell_what_became_of_a_name(world: CleaningHarness) -> None:
    world.wait(8 * DAY_SECS)
    lists = CleaningLists(world.sink, "events_main")
    found = lists.find(FIRST)
    assert (found[0].archive, found[1]) == ("mem://archive", "cleaned")
    assert lists.find(SECOND) is None
    assert (lists.count(0.0), lists.count(9e9)) == (1, 0)


def test_the_journal_lasts_until_files_are_cleaned() -> None:
    world = CleaningHarness(after="60d")
    world.ingest(FIRST)
    for _ in range(45):
        world.see()
    assert list(Journal(world.sink, "events_main").batches())
    for _ in range(25):
        world.see()
    assert world.left() == []
    assert not list(Journal(world.sink, "events_main").batches())


def test_progress_survives_the_checkpoint() -> None:
    known = CleaningState((CommitCheck("b1", 5.0), CommitCheck("b2", 6.0)), "b0", 7, 8)
    document = state_to_json(SourceState(cleaning=known), 1.0)
    assert state_from_json(json.loads(json.dumps(document)), "here").cleaning == known
    del document["cleaning"]
    assert state_from_json(document, "here").cleaning is None

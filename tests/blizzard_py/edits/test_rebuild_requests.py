"""Files and records of requests, where the journal has lost batches or no longer reaches back."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from dataclasses import replace

import pytest

from blizzard_core.errors import BlizzardError, StateError
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.state.ledger import Ledger
from tests.support.lost_state import (
    CHECKPOINT,
    LEDGER,
    REQUESTS,
    STAGING,
    dies_before_publishing,
    lose,
    lose_last_batch,
    rebuild,
    reset,
)
from tests.support.replace_harness import ReplaceHarness
from tests.support.request_harness import RequestHarness, made

DAY = "date=2024-01-01"
AHEAD = "date=2025-06-20/1.json"
BASE = ["1", "5", "52"]


@pytest.mark.promise("G-013")
@pytest.mark.parametrize("by_request", [True, False])
def test_a_retry_after_a_reset_is_no_requested_file(*, by_request: bool) -> None:
    world = RequestHarness()
    names = ("3", "4") if by_request else ("6", "7")
    first, second = (f"{DAY}/{name}.json" for name in names)
    world.put(first, "a")
    world.put(second, "b")
    if by_request:
        assert world.ingest(first, second) == ["ingested"] * 2
    world.drain()
    world.put(f"{DAY}/8.json", "8")
    world.drain()
    world.now += 100
    reset(world)
    world.now += 100
    world.engine.flaky[second] = 1
    daemon = world.pipeline()
    for name in ("8", "91", "92", "92"):
        world.now += 2
        world.put(f"{DAY}/{name}.json", name)
        with contextlib.suppress(BlizzardError):
            daemon.cycle(threading.Event())
    assert list(world.checkpoint()["retries"]) == [second]
    rebuild(world)
    world.now += 1000
    world.go_on()
    assert world.rows().count("b") == 2
    assert not world.letters()


@pytest.mark.promise("G-045")
def test_a_file_ahead_stays_left_though_its_report_is_gone() -> None:
    world = RequestHarness()
    world.put(AHEAD, "early")
    world.drain()
    assert world.ingest(AHEAD) == ["ingested"]
    lose_last_batch(world)
    lose(world, REQUESTS)
    with pytest.raises(StateError, match="that the checkpoint counts"):
        world.drain()
    rebuild(world)
    assert world.checkpoint()["ahead"] == [AHEAD]
    world.put("date=2025-06-20/2.json", "other")
    world.go_on(6)
    assert world.rows() == sorted([*BASE, "early", "other"])
    assert world.ingest(AHEAD) == ["refused"]


@pytest.mark.promise("G-211")
def test_a_name_that_polls_ignore_is_unknown_without_its_report() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.txt", "3")
    assert world.ingest(f"{DAY}/3.txt") == ["ingested"]
    lose_last_batch(world)
    lose(world, REQUESTS)
    rebuild(world)
    assert world.ingest(f"{DAY}/3.txt") == ["refused"]
    found = world.explained(f"{DAY}/3.txt")
    assert (found.verdict, "--assume-missing" in found.reason) == ("unknown", True)


@pytest.mark.promise("G-211")
def test_files_below_the_origin_are_unknown_without_their_report() -> None:
    world = RequestHarness(partition_filter={"prefix_template": "date=%Y-%m-%d", "lookback": 3})
    old = "date=2023-05-01/1.json"
    world.put("date=2025-06-15/1.json", "new")
    world.put(old, "old")
    world.drain()
    assert world.ingest(old) == ["ingested"]
    assert world.checkpoint()["reached"] == old
    lose_last_batch(world)
    lose(world, REQUESTS)
    rebuild(world)
    assert world.ingest(old) == ["refused"]
    assert world.rows().count("old") == 1


@pytest.mark.promise("G-211")
def test_explain_and_ingest_agree_on_a_file_ahead_in_doubt() -> None:
    world = RequestHarness()
    world.put(AHEAD, "early")
    world.drain()
    assert world.ingest(AHEAD) == ["ingested"]
    lose_last_batch(world)
    rebuild(world)
    found = world.explained(AHEAD)
    assert (found.verdict, "--assume-missing" in found.reason) == ("unknown", True)


@pytest.mark.promise("G-047")
@pytest.mark.parametrize("mode", ["add", "replace"])
def test_a_request_whose_outputs_are_lost_is_done_again(mode: str) -> None:
    world = ReplaceHarness()
    path = f"{DAY}/6.json" if mode == "replace" else f"{DAY}/3.json"
    if mode == "replace":
        world.put(path, "6:a")
        world.drain()
    world.put(path, "6:b")
    request_id = world.ask({"files": [path]}, mode=mode)
    dies_before_publishing(world)
    lose(world, STAGING)
    with pytest.raises(StateError, match="checkpoint rebuild"):
        world.drain()
    rebuild(world)
    world.go_on()
    assert "6:b" in world.table()
    assert "6:a" not in world.table()
    [line] = world.report(request_id)
    assert line.state == ("ingested" if mode == "add" else "replaced")


@pytest.mark.promise("G-211")
@pytest.mark.parametrize("lost", ["replacement", "again", "records"])
def test_no_replacement_follows_a_batch_that_was_lost(lost: str) -> None:
    world = ReplaceHarness(named=False)
    path = f"{DAY}/6.json"
    world.put(path, "6:a", "?6:bad")
    world.drain()
    if lost == "records":
        [letter] = world.open_letters()
        found = {"path": f"mem://raw/{path}", "line": 2, "raw": "6:bad"}
        world.put_records(found, batch=letter.batch)
        assert list(world.replay().values()) == ["ingested"]
    else:
        world.put(path, "6:b")
        world.ask({"files": [path]}, mode=lost.replace("replacement", "replace"))
        world.drain()
    before = world.table()
    lose_last_batch(world)
    rebuild(world)
    world.put(path, "6:c")
    found = world.replace()
    assert (found.request.state, found.files) == ("rejected", [])
    assert "journal no longer holds" in found.request.reason
    assert world.table() == before


@pytest.mark.promise("G-211")
def test_an_old_record_of_a_replaced_file_needs_a_look() -> None:
    world = ReplaceHarness()
    path = f"{DAY}/6.json"
    world.put(path, "6:a", "?6:bad")
    world.drain()
    [letter] = world.open_letters()
    found = {"path": f"mem://raw/{path}", "line": 2, "raw": "6:bad"}
    world.put_records(found, batch=letter.batch)
    world.put(path, "6:a", "6:bad")
    assert world.only("6").states == {"6": "replaced"}
    for day in range(40):  # the journal is folded and pruned meanwhile
        world.now += 86_400
        world.put(f"date=2025-07-01/{day:02}.json", f"{day:02}:x")
        world.drain()
        world.table()
    letter_id = f"{letter.batch}.records"
    assert list(world.replay(letter_id).values()) == ["refused"]
    assert world.table().count("6:bad") == 1
    assert list(world.replay(letter_id, assume_missing=True).values()) == ["ingested"]


@pytest.mark.promise("G-211")
def test_an_old_request_does_not_bring_rows_again() -> None:
    world = RequestHarness()
    at = dt.datetime.fromtimestamp(world.now - 40 * 86_400, dt.UTC).isoformat()
    old = replace(made(world.parts(), {"files": [f"{DAY}/1.json"]}, mode="again"), at=at)
    request_id, _ = world.mailbox.submit(old)
    world.drain()
    request = world.request(request_id)
    assert (request.state, "give the command again" in request.reason) == ("rejected", True)
    assert world.rows() == BASE


@pytest.mark.promise("G-052")
def test_a_rebuild_doubts_when_ledger_and_checkpoint_are_lost() -> None:
    world = RequestHarness()
    for day in range(40):
        world.now += 86_400
        world.put(f"date=2025-07-01/{day:02}.json", f"{day}")
        world.drain()
    assert any(path.startswith(LEDGER) for path in world.sink.objects)
    lose(world, CHECKPOINT, LEDGER)
    # Another job has compacted the old rows, and the table's log tells of no batch.
    for path in [path for path in world.sink.objects if not path.startswith("_")]:
        del world.sink.objects[path]
    with pytest.raises(EditRefused, match="and there is no ledger"):
        rebuild(world)


@pytest.mark.promise("G-032")
def test_a_start_over_folds_batches_of_reports() -> None:
    ledger = Ledger(RequestHarness().sink, "other")
    ledger.load(())
    batch = "01a219a7-f483-7662-a21c-c48605170014"
    ledger.load(ledger.start_over([batch]))
    assert ledger.not_folded([batch]) == []


@pytest.mark.promise("G-211")
def test_bad_records_of_a_batch_that_comes_again_have_one_letter() -> None:
    world = ReplaceHarness()
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    dies_before_publishing(world)
    [first] = world.open_letters()
    assert first.kind == "records"
    lose(world, STAGING)
    rebuild(world)
    world.go_on()
    assert [(each.kind, each.id != first.id) for each in world.open_letters()] == [
        ("records", True)
    ]


@pytest.mark.promise("G-211")
def test_without_requests_an_ignored_name_is_no_unknown_file() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/_SUCCESS", "")
    world.put(f"{DAY}/3.txt", "3")
    lose_last_batch(world)
    assert Rebuild(world.parts()).plan(None).unknown == frozenset()

"""Files of dead letters that come after a fix: once, into their partitions, and put away then."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial

import pytest

from blizzard_core.errors import StateError, Unavailable
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.dead_letters import reader
from blizzard_py.edits import checkpoint_edit
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.state.checkpoint_file import read_state
from tests.support.letter_harness import (
    FIRST,
    INGESTED,
    NEXT_DAY,
    SECOND,
    FailedFilesHarness,
    record_name,
    uri,
)
from tests.support.memory_store import each_death
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import (
    BATCH,
    DAY,
    SOURCE_ID,
    RequestHarness,
    drain_requests,
    made,
)

BASE = ["1", "5", "52", "b"]
MENDED = [*BASE, "c", "d"]


def previewed(world: RequestHarness, *letters: str) -> dict[str, str]:
    """Return the effect of a replay on each file."""
    state = read_state(world.sink, SOURCE_ID)
    assert state is not None
    parts, source = world.parts(), world.pipeline().source
    request = made(parts, {"letters": list(letters)})
    lines = RequestSelector(parts, source).preview(state, request)
    return {line.path: line.state for line in lines}


def marks(world: PipelineHarness) -> tuple[object, ...]:
    document = world.checkpoint()
    return document["watermark"], document["partition_watermarks"]


def test_mended_files_come_once_into_their_own_partitions() -> None:
    world = FailedFilesHarness()
    before = marks(world)
    world.mend()
    assert previewed(world, *world.open_ids()) == {FIRST: "taken", SECOND: "taken"}
    assert world.rows() == BASE
    assert world.replay() == {FIRST: "ingested", SECOND: "ingested"}
    assert world.rows() == MENDED
    placed = {
        row: path.rpartition("/")[0] for path, [*rows] in world.published().items() for row in rows
    }
    assert (placed["c"], placed["d"]) == ("date=2024-01-01", "date=2024-01-02")
    assert marks(world) == before
    assert world.open_letters() == []
    away = list(reader.objects(world.dlq, SOURCE_ID, replayed=True))
    assert [found.replayed for found in away] == [True, True]
    assert world.replay("gone") == {}
    world.go_on()
    assert world.rows() == MENDED


@pytest.mark.promise("G-114")
def test_a_file_that_fails_again_has_a_new_letter() -> None:
    world = FailedFilesHarness()
    world.put(FIRST, "c")
    before = set(world.open_ids())
    assert world.replay() == {FIRST: "ingested", SECOND: "quarantined"}
    assert world.open_uris() == [uri(SECOND)]
    assert before.isdisjoint(world.open_ids())
    world.put(SECOND, "d")
    assert world.replay() == {SECOND: "ingested"}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


def test_the_page_forgets_files_that_were_mended_or_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = FailedFilesHarness()
    activity = SourceActivity("events/main", "mem://raw", lambda: world.now)
    plain = world.parts
    monkeypatch.setattr(world, "parts", lambda: replace(plain(), activity=activity))
    worker = world.pipeline()
    world.put("date=2024-01-02/7.json", "bad")
    world.drain(worker)

    def shown() -> list[str]:
        return [letter["path"] for letter in activity.to_json()["letters"]]

    assert shown() == ["date=2024-01-02/7.json"]
    world.put("date=2024-01-02/7.json", "e")
    world.ask({"letters": world.open_ids()})
    world.drain(worker)
    assert sorted(shown()) == [FIRST, SECOND]  # bad again
    world.ask({"letters": world.open_ids()}, kind="close_letters")
    world.drain(worker)
    assert shown() == []
    assert activity.brief()["notices"] == []


def test_a_letter_stays_open_while_polls_have_its_file_to_do() -> None:
    world = FailedFilesHarness()
    world.now += 100
    world.drain()
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    back = partial(checkpoint_edit.with_watermark, partition="date=2024-01-02", name="1.json")
    checkpoint_edit.change(source, seen, back, world.now)
    first, second = world.open_ids()
    assert previewed(world, first, second) == {FIRST: "taken", SECOND: "left"}
    world.mend()
    assert world.replay() == {FIRST: "ingested", SECOND: "left"}
    assert (world.rows(), len(world.open_letters())) == (MENDED, 1)
    assert world.replay() == {SECOND: "present"}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


@pytest.mark.promise("G-048")
def test_a_stale_checkpoint_replays_nothing() -> None:
    world = RequestHarness()
    copy = world.sink.objects[f"_blizzard/{SOURCE_ID}_checkpoint.json"]
    world.put(f"{DAY}/60.json", "bad")
    world.drain()
    world.sink.objects[f"_blizzard/{SOURCE_ID}_checkpoint.json"] = copy
    world.ask({"letters": [each.id for each in world.open_letters()]})
    with pytest.raises(StateError, match="is stale"):
        world.drain()
    assert len(world.open_letters()) == 1


@pytest.mark.parametrize("mode", ["add", "replace", "again"])
def test_dead_letter_stays_open_while_its_file_is_missing(mode: str) -> None:
    world = FailedFilesHarness()
    ids = world.open_ids()
    world.mend()
    world.source.delete(FIRST)
    assert world.replay(mode=mode) == {FIRST: "missing", SECOND: "ingested"}
    assert (world.open_uris(), world.open_ids()) == ([uri(FIRST)], ids[:1])
    world.mend()
    assert world.replay(mode=mode) == {FIRST: "ingested"}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


@pytest.mark.parametrize("mode", ["add", "replace", "again"])
@pytest.mark.parametrize("kind", ["range", "files", "letters"])
def test_a_request_waits_while_the_source_shows_nothing(kind: str, mode: str) -> None:
    world = FailedFilesHarness()
    ends = {"range": [DAY, NEXT_DAY], "files": [FIRST, SECOND], "letters": world.open_ids()}
    world.mend()
    kept = dict(world.source.objects)
    world.source.objects.clear()  # its disk is not mounted
    request_id = world.ask({kind: ends[kind]}, mode=mode)
    world.drain()
    assert world.request(request_id).state == "running"
    assert len(world.open_letters()) == 2
    with pytest.raises(Unavailable, match="shows nothing at all"):
        drain_requests(world.parts())
    world.source.objects.update(kept)
    world.drain()
    assert world.request(request_id).state == "done"
    assert {"c", "d"} <= set(world.rows())
    assert (len(world.open_letters()) == 0) == (kind == "letters")


def test_a_name_comes_again_once_also_with_letters_on_two_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("blizzard_py.selection.candidates._PAGE_LETTERS", 2)
    world = FailedFilesHarness()
    world.mend()
    world.put_letter("late-1", path=uri(FIRST), stage="late")
    assert set(world.replay(mode="again")) == {FIRST, SECOND}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


def test_letters_stay_open_until_their_files_are_read() -> None:
    world = FailedFilesHarness()
    world.mend()
    world.engine.flaky[FIRST] = 1
    request_id = world.ask({"letters": world.open_ids()})
    with contextlib.suppress(Unavailable):
        world.pipeline().cycle(threading.Event())
    assert world.request(request_id).state == "running"
    assert len(world.open_letters()) == 2
    world.drain()
    assert world.request(request_id).state == "done"
    assert (world.rows(), world.open_letters()) == (MENDED, [])


def test_letters_of_a_batch_in_flight_wait_for_it() -> None:
    # Die after the letter was written and before the batch was saved as done.
    def prepared() -> RequestHarness:
        world = RequestHarness()
        world.put(f"{DAY}/60.json", "bad")
        return world

    for _, world, _ in each_death(prepared, RequestHarness.drain):
        flying = world.checkpoint().get("in_flight")
        if flying and flying[0]["phase"] == "publishing" and world.dlq.objects:
            break
    else:
        pytest.fail("no death fell between the letter and the save")
    world.put(f"{DAY}/60.json", "mended")
    [letter] = [each.id for each in world.open_letters()]
    assert previewed(world, letter) == {f"{DAY}/60.json": "left"}
    # What was committed of it stays so: bad, whatever it is now. Then it is replayed.
    assert world.replay() == {f"{DAY}/60.json": "ingested"}
    assert world.rows() == ["1", "5", "52", "mended"]


@pytest.mark.promise("G-061")
def test_a_mended_file_is_no_late_file_and_comes_by_its_letter() -> None:
    world = FailedFilesHarness(late_files="ingest", late_sweep_interval="1000s")
    world.go_on(2)
    world.mend()
    world.go_on(2)
    assert world.rows() == BASE
    assert world.replay() == {FIRST: "ingested", SECOND: "ingested"}
    world.go_on(2)
    assert world.rows() == MENDED


@pytest.mark.promise("G-061")
def test_a_late_file_with_several_letters_comes_once() -> None:
    world = FailedFilesHarness()
    world.mend()
    world.put_letter("late-1", path=uri(FIRST), stage="late")
    assert world.replay() == {FIRST: "ingested", SECOND: "ingested"}
    world.put_letter("late-2", path=uri(FIRST), stage="late")
    assert world.replay() == {FIRST: "present"}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


@pytest.mark.promise("G-060")
def test_a_letter_that_comes_back_is_put_away_again() -> None:
    # Its writer was paused, and goes on.
    world = FailedFilesHarness()
    world.mend()
    written = {each.path: world.dlq.read(each.path) for each in world.open_letters()}
    world.replay()
    for path, data in written.items():
        world.dlq.put_atomic(path, data)
    assert world.replay() == {FIRST: "present", SECOND: "present"}
    assert (world.rows(), world.open_letters()) == (MENDED, [])


def test_a_letter_that_is_none_is_refused_and_stays() -> None:
    world = FailedFilesHarness()
    world.dlq.put_atomic(f"{SOURCE_ID}/x.ndjson", b'{"path": "p"}\n')
    world.dlq.put_atomic(f"{SOURCE_ID}/y.ndjson", b"\n" + b"x" * (5 << 20))
    world.put_letter("z", path="s3://other/1")
    request_id = world.ask({"letters": ["x", "y", "z"]})
    world.drain()
    found = {line.path: (line.state, line.reason) for line in world.report(request_id)}
    assert {state for state, _ in found.values()} == {"refused"}
    assert "line 1 is not a dead letter" in found["x"][1]
    assert "line 2 is too long" in found["y"][1]
    assert "is not below mem://raw/" in found["z"][1]
    assert {"x", "y", "z"} <= set(world.open_ids())


@pytest.mark.parametrize("kind", ["file", "record"])
def test_a_letter_that_leads_elsewhere_by_its_dots_is_refused(kind: str) -> None:
    world = FailedFilesHarness()
    outside = f"{world.source.uri}/../other/salaries.json"
    if kind == "record":
        world.put_records({"path": outside, "line": 1, "raw": "b"})
    else:
        world.put_letter(BATCH, path=outside)
    letter = BATCH + ".records" * (kind == "record")
    request_id = world.ask({"letters": [letter]})
    world.drain()
    [line] = world.report(request_id)
    assert (line.path, line.state) == (letter, "refused")
    assert "leads elsewhere by its dots" in line.reason
    assert world.rows() == BASE
    assert not [path for path in world.dlq.objects if "salaries" in path]


def test_letters_of_a_source_without_a_watermark_are_replayed() -> None:
    world = FailedFilesHarness(use_watermark=False)
    world.mend()
    assert world.replay() == {FIRST: "ingested", SECOND: "ingested"}
    world.go_on(1)
    assert world.rows() == MENDED


def test_a_replay_is_stopped_by_nothing_that_stops_a_source() -> None:
    world = FailedFilesHarness()
    world.errors = {"on_bad_record": "fail", "max_failures": 1}
    world.put_records({"path": uri(INGESTED), "raw": "bad"})
    found = world.replay()
    assert found == dict.fromkeys([FIRST, SECOND, record_name(INGESTED)], "quarantined")
    settings = {job.settings.source.uri: job.settings for job in world.engine.jobs}
    assert settings["mem://raw"].tolerance.on_bad_record == "quarantine_file"
    records = settings[f"mem://dlq/{SOURCE_ID}~records"].tolerance
    assert (records.on_bad_record, records.max_bad_fraction) == ("quarantine_record", 1)


def test_explain_tells_of_replays() -> None:
    world = FailedFilesHarness()
    assert world.explained(FIRST).verdict == "quarantined"
    world.replay()
    again = world.explained(FIRST)
    assert (again.verdict, "of request " in again.reason) == ("quarantined", True)
    assert again.dead_letter.error == "line 1: bad"
    world.mend()
    request_id = world.ask({"letters": world.open_ids()})
    world.drain()
    found = world.explained(FIRST)
    assert (found.verdict, found.batch and found.batch.request) == ("ingested", request_id)
    assert f"of request {request_id}" in found.reason

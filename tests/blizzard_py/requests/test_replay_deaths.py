"""Replays whose owner dies or is replaced: each row once, whatever is left of the letters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blizzard_core.errors import FencedError
from blizzard_py.dead_letters import reader
from blizzard_py.state.state_paths import StatePaths
from tests.support.letter_harness import FIRST, INGESTED, SECOND, FailedFilesHarness, uri
from tests.support.memory_store import Died, Dying
from tests.support.pipeline_harness import overtaking
from tests.support.request_harness import DAY, RequestHarness

BASE = ["1", "5", "52", "b"]
RECORD_ROWS = ["r1", "r3", "r7"]


def with_records() -> FailedFilesHarness:
    world = FailedFilesHarness()
    world.put_records(
        {"path": uri(INGESTED), "line": 3, "raw": "r3"},
        {"path": uri(INGESTED), "line": 7, "raw": "r7"},
        {"path": uri(f"{DAY}/1.json"), "line": 1, "raw": "r1"},
    )
    return world


def survive(world: RequestHarness) -> None:
    """Replay all letters and have it done, by one owner after the other."""
    while True:
        try:
            ids = [each.id for each in world.open_letters()]
            if ids:
                world.ask({"letters": ids})
            world.drain()
        except Died:
            continue
        return


@pytest.mark.promise("G-059")
def test_a_death_at_every_change_neither_doubles_nor_loses_a_row() -> None:
    expected = sorted([*BASE, *RECORD_ROWS, "d"])
    at, steps = -1, 0
    while at <= steps:
        world = with_records()
        world.put(SECOND, "d")  # the other one fails again
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        dying.count = 0
        survive(world)
        steps = max(steps, dying.count) if at < 0 else steps
        dying.arm(-1)
        assert world.rows() == expected, at
        [left] = world.open_letters()
        assert [letter.uri for letter in reader.read(world.dlq, left)] == [uri(FIRST)], at
        # What was missing is mended at last, and comes once.
        world.put(FIRST, "c")
        survive(world)
        world.go_on(1)
        assert world.rows() == sorted([*expected, "c"]), at
        assert world.open_letters() == [], at
        at += 1
    assert steps > 40


@pytest.mark.promise("G-059")
def test_an_owner_that_was_replaced_replays_nothing_twice() -> None:
    world = with_records()
    world.mend()
    world.ask({"letters": world.open_ids()})
    first = world.pipeline()
    with overtaking(world.engine, world.drain), pytest.raises(FencedError):
        world.drain(first)
    assert world.rows() == sorted([*BASE, *RECORD_ROWS, "c", "d"])
    assert world.open_letters() == []
    world.go_on(1)
    assert world.rows() == sorted([*BASE, *RECORD_ROWS, "c", "d"])


def many(count: int, *, records: bool) -> tuple[RequestHarness, list[str]]:
    """One object with letters of many files, or of one record of each; and the files."""
    world = FailedFilesHarness()
    world.mend()
    world.replay()
    paths = [f"{DAY}/7{number}.json" for number in range(count)]
    for path in paths if records else ():
        world.put(path, path)
    world.drain()
    lines: list[dict[str, Any]] = [
        {"path": uri(path), "line": 3, "raw": f"{path}#3"} for path in paths
    ]
    if records:
        world.put_records(*lines)
        return world, paths
    for path in paths:
        world.put(path, "bad")
    world.drain()
    # As one batch would have written them.
    first, *others = (found.path for found in world.open_letters())
    for path in others:
        world.dlq.put_atomic(first, world.dlq.read(first) + world.dlq.read(path))
        world.dlq.delete(path)
    for path in paths:
        world.put(path, "bad" if path.endswith("/72.json") else path)
    return world, paths


@pytest.mark.parametrize("records", [False, True])
def test_a_large_object_is_one_page_and_comes_in_batches(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 2)
    world, paths = many(7, records=records)
    queued: list[int] = []

    def after(_op: str, path: str) -> None:
        if StatePaths.of_checkpoint(path) is not None:
            queued.append(len(json.loads(world.sink.objects[path][0]).get("queue", [])))

    world.sink.after_mutation = after
    before = len(world.rows())
    states = list(world.replay().values())
    assert max(queued) == 7
    assert states.count("ingested") == (7 if records else 6)
    assert len(world.rows()) - before == (7 if records else 6)
    # What failed again is in a new letter.
    assert world.open_ids() == [] if records else len(world.open_ids()) == 1
    assert len(paths) == 7


@pytest.mark.promise("G-059")
@pytest.mark.parametrize("records", [False, True])
def test_a_death_between_letter_pages_loses_and_doubles_nothing(
    records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 1)
    at, steps = -1, 0
    while at <= steps:
        world, paths = many(3, records=records)
        before = world.rows()
        if not records:
            world.put_letter("late-1", path=uri(paths[0]), stage="late")
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        dying.count = 0
        survive(world)
        steps = max(steps, dying.count) if at < 0 else steps
        dying.arm(-1)
        if not records:
            world.put(paths[2], paths[2])
            survive(world)
        came = [f"{path}#3" for path in paths] if records else paths
        assert world.rows() == sorted([*before, *came]), at
        assert world.open_letters() == [], at
        at += 1
    assert steps > 20

"""Letters that an operator closes: put away with the reason, and replayed by nobody."""

from __future__ import annotations

import pytest

from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reasons import reason_of
from tests.support.letter_harness import FIRST, INGESTED, SECOND, FailedFilesHarness, uri
from tests.support.memory_store import each_death
from tests.support.request_harness import SOURCE_ID

BASE = ["1", "5", "52", "b"]


def close(world: FailedFilesHarness, *ids: str) -> str:
    request_id = world.ask({"letters": list(ids)}, "close_letters")
    world.drain()
    return request_id


@pytest.mark.promise("G-192")
def test_closed_letters_are_put_away_and_replayed_by_nobody() -> None:
    world = FailedFilesHarness()
    world.put_records({"path": uri(INGESTED), "raw": "r"})
    records, first, second = world.open_ids()
    request_id = close(world, first, records)
    assert world.request(request_id).state == "done"
    assert world.request(request_id).counts == {"closed": 2}
    assert world.open_ids() == [second]
    found = reason_of(world.dlq, SOURCE_ID, first)
    assert (found.why, found.by) == ("a test", "ann@ops-3")
    world.mend()
    assert world.replay(first, second, records) == {SECOND: "ingested"}
    assert world.rows() == [*BASE, "d"]


def test_a_restored_closed_letter_is_closed_again() -> None:
    world = FailedFilesHarness()
    first, second = world.open_letters()
    data = world.dlq.read(first.path)
    close(world, first.id, second.id)
    world.dlq.put_atomic(first.path, data)
    world.mend()
    assert world.replay() == {}
    assert (world.open_letters(), world.rows()) == ([], BASE)


def test_letters_that_a_replay_has_before_are_not_closed() -> None:
    world = FailedFilesHarness()
    world.mend()
    ids = world.open_ids()
    world.ask({"letters": ids})
    world.drain()
    request_id = close(world, *ids)
    assert world.outcomes(request_id) == dict.fromkeys(ids, "missing")
    assert world.rows() == [*BASE, "c", "d"]
    assert [reason_of(world.dlq, SOURCE_ID, each) for each in ids] == [None, None]


def test_a_death_at_every_change_closes_what_was_accepted() -> None:
    ids: list[str] = []

    def prepared() -> FailedFilesHarness:
        world = FailedFilesHarness()
        ids[:] = world.open_ids()
        return world

    for at, world, _ in each_death(prepared, lambda world: close(world, *ids)):
        request_id = close(world, *ids)
        assert world.request(request_id).state == "done"
        assert world.open_letters() == [], at
        assert all(reason_of(world.dlq, SOURCE_ID, each) for each in ids), at
        away = reader.objects(world.dlq, SOURCE_ID, replayed=True)
        assert sorted(each.id for each in away) == sorted(ids), at
        world.mend()
        assert world.replay(*ids) == {}
        assert world.rows() == BASE, at
        assert world.explained(FIRST).verdict == "quarantined"
    assert at > 8

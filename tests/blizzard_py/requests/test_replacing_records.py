"""Single records that a replay brought, and the whole file that replaces what it had."""

from __future__ import annotations

import pytest

from tests.support.memory_store import Died, Dying
from tests.support.published_groups import groups_of
from tests.support.replace_harness import with_a_bad_record
from tests.support.request_harness import DAY


@pytest.mark.parametrize("named", [True, False])
def test_records_that_were_replayed_go_with_their_file(named: bool) -> None:
    world = with_a_bad_record(named=named)
    assert set(world.replay().values()) == {"ingested"}
    assert world.table() == ["1", "5", "52", "6:a", "6:bad"]
    world.mend("b", "6")
    [line] = world.only("6").files
    assert (line.state, line.before) == ("replaced", 2)
    [group] = groups_of(world.sink)
    assert len(group.source_files if named else group.outputs) == 2  # the file and its record
    if not named:
        assert world.table() == ["1", "5", "52", "6:b", "6:b+"]


def test_record_letters_bring_nothing_after_a_replacement() -> None:
    world = with_a_bad_record()
    world.mend("b", "6")
    world.only("6")
    assert set(world.replay().values()) == {"present"}
    assert world.open_letters() == []
    assert world.table() == ["1", "5", "52", "6:b", "6:b+"]
    # What failed in the replacement itself is still to come.
    world.put(f"{DAY}/6.json", "6:c", "?6:bad")
    world.only("6")
    [left] = world.open_letters()
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:bad"}
    world.put_records(record, batch=left.batch)
    assert world.table() == ["1", "5", "52", "6:c"]
    assert set(world.replay().values()) == {"ingested"}
    assert world.table() == ["1", "5", "52", "6:bad", "6:c"]


def test_records_prove_no_rows_that_the_journal_lost() -> None:
    world = with_a_bad_record()
    world.go_on()  # folds
    world.cut()
    assert set(world.replay().values()) == {"ingested"}
    world.mend("b", "6")
    refused = world.only("6")
    assert refused.request.state == "rejected"
    assert "journal no longer holds" in refused.request.reason
    assert groups_of(world.sink) == []


def test_replay_of_bad_records_replaces_all_rows_of_their_file() -> None:
    world = with_a_bad_record()
    world.mend("b", "6")
    assert world.replay_all_files().states == {"6": "replaced"}
    assert world.open_letters() == []
    assert world.table() == ["1", "5", "52", "6:b", "6:b+"]


def test_a_file_and_its_records_requested_together_come_once() -> None:
    """In either order, and over a death of the owner at every change."""
    for is_file_first in (True, False):
        at, died = 0, True
        while died:
            world = with_a_bad_record(raw="6:letter")
            world.mend("b", "6")
            letters = [each.id for each in world.open_letters()]
            dying = Dying(world.sink, world.dlq)
            requests = [
                ({"files": [f"{DAY}/6.json"]}, {"mode": "replace"}),
                ({"letters": letters}, {}),
            ]
            if is_file_first:
                world.ask(requests[0][0], **requests[0][1])
                world.pipeline()
            dying.arm(at)
            try:
                for select, options in requests if is_file_first else requests[::-1]:
                    world.ask(select, once_more=False, **options)
                    world.drain()
                died = False
            except Died:
                pass
            dying.arm(-1)
            for select, options in requests if is_file_first else requests[::-1]:
                world.ask(select, once_more=False, **options)
                world.drain()
            gone = [name for group in groups_of(world.sink) for name in group.source_files]
            brought = any("6:letter" in rows for rows in world.published().values())
            assert brought == any("~records" in name for name in gone), at
            assert brought == (not is_file_first), at
            assert {"6:b", "6:b+"} < set(world.table()), at
            at += 1
        assert at > 20

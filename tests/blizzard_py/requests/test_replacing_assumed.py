"""Files of which nobody knows where their rows are: replaced where rows are assumed named."""

from __future__ import annotations

import json

import pytest

from blizzard_py.edits.rename import Rename
from blizzard_py.state.fence_record import fence_path
from blizzard_py.state.source_state import checkpoint_path
from tests.support.published_groups import groups_of
from tests.support.replace_harness import ReplaceHarness, is_rejected, with_a_bad_record
from tests.support.request_harness import DAY


class OldOutputsHarness(ReplaceHarness):
    """Three files were ingested by a release that kept neither journal, ledger nor fence."""

    def __init__(self) -> None:
        super().__init__()
        self.table()
        self.cut()
        state = self.checkpoint()
        for later in ("ledger", "unfolded", "committed"):
            state.pop(later, None)
        state["sweep"] = {**state.get("sweep", {}), "whole": False}
        self.sink.delete(fence_path("events_main"))
        self.sink.put_atomic(checkpoint_path("events_main"), json.dumps(state).encode())

    def output_ids(self) -> dict[str, str]:
        return {path: path for path in self.published()} | super().output_ids()


def failed() -> OldOutputsHarness:
    """One of the files was to be replaced, was bad, and is mended now."""
    world = OldOutputsHarness()
    world.put(f"{DAY}/1.json", "bad")
    assert is_rejected(world.only("1"), "before there was a ledger")
    assert world.only("1", assume_named=True).states == {"1": "kept"}
    assert len(world.open_letters()) == 1
    world.mend("b", "1")
    return world


@pytest.mark.promise("G-043")
def test_a_failed_reading_does_not_prove_missing_rows() -> None:
    world = failed()
    assert is_rejected(world.only("1"), "before there was a ledger")
    assert world.ingest(f"{DAY}/1.json") == ["refused"]
    assert is_rejected(world.replay_all_files(), "before there was a ledger")
    assert world.replay_all_files(assume_named=True).states == {"1": "replaced"}
    assert world.open_letters() == []
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def test_a_replay_of_a_letter_is_refused_with_a_remedy() -> None:
    world = failed()
    request_id = world.ask({"letters": [each.id for each in world.open_letters()]})
    world.drain()
    [line] = world.mailbox.report(request_id)
    assert (line.state, "--replace --assume-named" in line.reason) == ("refused", True)
    assert len(world.open_letters()) == 1
    assert world.table() == ["1", "5", "52"]


def test_records_with_letters_of_long_ago_go_with_their_file() -> None:
    world = with_a_bad_record(raw="6:letter")
    world.table()
    ids = world.output_ids()
    world.go_on()
    world.cut()
    world.mend("b", "6")
    assert world.only("6", assume_named=True).states == {"6": "replaced"}
    assert set(world.replay().values()) == {"present"}
    fresh = {p for p in world.published() if "unit-" not in p} - ids.keys()
    assert not fresh


def test_rows_from_before_the_files_were_moved_go_as_well() -> None:
    world = ReplaceHarness()

    def move(before: str, after: str) -> None:
        world.go_on()
        world.cut()
        world.source.uri = world.settings["source_uri"] = after
        Rename(world.parts(), "events_main", before).run()

    def names() -> set[str]:
        return set(groups_of(world.sink)[-1].source_files)

    move("mem://raw", "mem://moved")
    world.mend("b", "1")
    assert world.only("1", assume_named=True).states == {"1": "replaced"}
    assert names() == {f"mem://{at}/{DAY}/1.json" for at in ("moved", "raw")}
    # Moved once more, all places count that it ever had.
    move("mem://moved", "mem://third")
    world.mend("c", "1")
    world.only("1", assume_named=True)
    assert {f"mem://{at}/{DAY}/1.json" for at in ("third", "moved", "raw")} <= names()

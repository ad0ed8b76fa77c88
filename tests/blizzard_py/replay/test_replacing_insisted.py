"""Files of which nobody knows where their rows are, replaced because somebody insists."""

from __future__ import annotations

import json

import pytest

from blizzard_py.edits.rename import Rename
from blizzard_py.replay import ReplaceRefused
from blizzard_py.replay.replacing import files_of_letters
from blizzard_py.state.fence_record import fence_path
from blizzard_py.state.source_state import checkpoint_path
from tests.blizzard_py.ingest.test_group_publishing import groups_of
from tests.blizzard_py.replay.test_replacing_files import ReplaceWorld, cut, mended
from tests.support.request_world import DAY


class OldWorld(ReplaceWorld):
    """Three files were ingested by a release that kept neither journal, ledger nor fence."""

    def __init__(self) -> None:
        super().__init__()
        self.table()
        cut(self)
        state = self.checkpoint()
        for later in ("ledger", "unfolded", "committed"):
            state.pop(later, None)
        state["sweep"] = {**state.get("sweep", {}), "whole": False}
        self.sink.delete(fence_path("events_main"))
        self.sink.put_atomic(checkpoint_path("events_main"), json.dumps(state).encode())

    def output_ids(self) -> dict[str, str]:
        return {path: path for path in self.published()} | super().output_ids()


def failed() -> OldWorld:
    """One of the files was to be replaced, was bad, and is mended now."""
    world = OldWorld()
    world.put(f"{DAY}/1.json", "bad")
    with pytest.raises(ReplaceRefused, match="before there was a ledger"):
        world.only(f"{DAY}/1.json")
    done = world.only(f"{DAY}/1.json", insist=True)
    assert [file.state for file in done.files] == ["kept"]
    assert len(world.open_letters()) == 1
    mended(world, "b", "1")
    return world


def test_a_reading_that_failed_does_not_say_that_no_rows_came_of_the_file() -> None:
    world = failed()
    with pytest.raises(ReplaceRefused, match="before there was a ledger"):
        world.only(f"{DAY}/1.json")
    assert world.ingest(f"{DAY}/1.json") == ["refused"]
    entries, letters = files_of_letters(world.live(), world.open_letters())
    assert letters.failed == frozenset()
    with pytest.raises(ReplaceRefused, match="before there was a ledger"):
        world.replacing().run(entries, letters)
    again = world.replacing(insist=True).run(entries, letters)
    assert [file.state for file in again.files] == ["replaced"]
    assert world.table() == ["1:b", "1:b+", "5", "52"]


def test_a_replay_of_its_letter_leaves_the_file_and_says_how_it_comes() -> None:
    world = failed()
    [told] = world.run().outcomes
    assert (told.files, told.state) == (0, "replayed")
    assert "--replace --insist" in told.left_to_others[0][1]
    assert world.table() == ["1", "5", "52"]


def test_records_with_letters_of_long_ago_go_with_their_file() -> None:
    world = ReplaceWorld()
    world.put(f"{DAY}/6.json", "6:a", "?6:bad")
    world.drain()
    batch = world.open_letters()[0].batch
    record = {"path": f"mem://raw/{DAY}/6.json", "line": 2, "raw": "6:letter"}
    world.put_records(record, batch=batch)
    world.table()
    ids = world.output_ids()
    world.go_on()
    cut(world)
    mended(world, "b", "6")
    done = world.only(f"{DAY}/6.json", insist=True)
    assert [file.state for file in done.files] == ["replaced"]
    [told] = world.run().outcomes
    assert "replaced" in told.left_to_others[0][1]
    fresh = {p for p in world.published() if "unit-" not in p} - ids.keys()
    assert not fresh


def test_rows_from_before_the_files_were_moved_go_as_well() -> None:
    world = ReplaceWorld()
    world.go_on()
    cut(world)
    world.source.uri = "mem://moved"
    world.settings["source_uri"] = "mem://moved"
    Rename(world.live(), "events_main", "mem://raw").run()
    mended(world, "b", "1")
    done = world.only(f"{DAY}/1.json", insist=True)
    assert [file.state for file in done.files] == ["replaced"]
    [group] = groups_of(world.sink)
    assert set(group.source_files) == {f"mem://{at}/{DAY}/1.json" for at in ("moved", "raw")}
    # Moved once more, all places count that it ever had.
    world.go_on()
    cut(world)
    world.source.uri = "mem://third"
    world.settings["source_uri"] = "mem://third"
    Rename(world.live(), "events_main", "mem://moved").run()
    mended(world, "c", "1")
    world.only(f"{DAY}/1.json", insist=True)
    names = groups_of(world.sink)[-1].source_files
    assert {f"mem://{at}/{DAY}/1.json" for at in ("third", "moved", "raw")} <= set(names)


def test_a_source_that_named_its_files_has_to_go_on_with_it() -> None:
    world = ReplaceWorld()
    world.named = False
    before = dict(world.sink.objects)
    mended(world, "b", "1")
    with pytest.raises(ReplaceRefused, match=r"_source_file among sink\.metadata_columns again"):
        world.only(f"{DAY}/1.json")
    assert world.sink.objects == before
    world.named = True
    assert world.only(f"{DAY}/1.json").files[0].state == "replaced"

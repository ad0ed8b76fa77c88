"""Renames and rebuilds where files are replaced by groups: no row twice, none lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from blizzard_core.errors import BlizzardError
from blizzard_py.app.workers import source_pipeline
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rebuild.decide import Rebuilt
from blizzard_py.edits.rename import Rename
from blizzard_py.edits.renamed_documents import RenameRefused
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import checkpoint_path
from tests.support.memory_store import each_death
from tests.support.offered_files import DAY_SECS, OfferedFilesHarness
from tests.support.published_groups import groups_of
from tests.support.replace_harness import ReplaceHarness
from tests.support.request_harness import DAY

CHECKPOINT = checkpoint_path("events_main")


def committed(world: ReplaceHarness, seq: int) -> None:
    """A committer says how far it is."""
    said = json.dumps({"groups": {"events_main": seq}}).encode()
    world.sink.put_atomic("_penguin/events_checkpoint.json", said)


def under(world: ReplaceHarness, pipeline: str) -> SourceContext:
    return replace(world.parts(), pipeline=pipeline)


@pytest.mark.promise("G-044")
def test_a_name_stays_until_the_table_has_all_its_groups() -> None:
    world = ReplaceHarness()
    world.mend("b", "1")
    world.only("1")
    before = dict(world.sink.objects)
    with pytest.raises(RenameRefused, match=r"up to number 1\b.*up to 0\b.*Run Penguin"):
        Rename(under(world, "clicks"), "events_main").run()
    assert world.sink.objects == before
    committed(world, 1)
    Rename(under(world, "clicks"), "events_main").run()


def test_groups_under_another_name_begin_at_the_first() -> None:
    world = OfferedFilesHarness(days=0)
    world.mend("b", "1")
    world.now += 5
    world.drain()
    committed(world, 1)
    assert world.checkpoint()["group_seq"] == 1
    Rename(under(world, "clicks"), "events_main").run()
    document = json.loads(world.sink.read(checkpoint_path("clicks_main")))
    assert "group_seq" not in document
    world.mend("c", "1")
    world.now += 5
    world.drain(source_pipeline(under(world, "clicks")))
    [group] = groups_of(world.sink, "clicks_main")
    assert (group.seq, group.source_files) == (1, (f"mem://raw/{DAY}/1.json",))


def test_a_request_with_a_group_ends_under_the_old_name() -> None:
    def prepared() -> ReplaceHarness:
        world = ReplaceHarness()
        world.mend("b", "1")
        world.ask({"files": [f"{DAY}/1.json"]}, mode="replace")
        return world

    refused = 0
    for _, world, _ in each_death(prepared, ReplaceHarness.drain):
        flying = world.checkpoint().get("in_flight", [])
        if flying and flying[0]["results"]["group"]:
            refused += 1
            before = dict(world.sink.objects)
            with pytest.raises(RenameRefused, match="a batch is being published"):
                Rename(under(world, "clicks"), "events_main").run()
            assert world.sink.objects == before
    assert refused


def rebuilt(world: ReplaceHarness) -> Rebuilt:
    rebuild = Rebuild(world.parts())
    made = rebuild.plan(None)
    rebuild.write(made)
    return made


def seen(world: ReplaceHarness) -> list[str]:
    """The table; what lies there and no manifest names is in none."""
    found = world.published()
    named = {file.path for group in groups_of(world.sink) for file in group.files}
    loose = [p for p in found if "unit-" in p and p not in named]
    held = {path: world.sink.objects.pop(path) for path in loose}
    table = world.table()
    world.sink.objects.update(held)
    return table


def rebuilds(world: OfferedFilesHarness, *, is_staged: bool) -> bool:
    """Rebuild, unless nothing but the fence record is left of the newest batch: then it refuses."""
    batch = json.loads(world.sink.read("_blizzard_fence/events_main.json"))["batch"]
    is_journaled = world.sink.stat(f"_blizzard/journal/events_main/{batch}.json") is not None
    if is_staged or is_journaled or CHECKPOINT in world.sink.objects:
        rebuilt(world)
        return True
    with pytest.raises(EditRefused, match="the fence record names batch"):
        rebuilt(world)
    return False


AT_SOURCE: dict[str, Callable[[OfferedFilesHarness], None]] = {
    "there": lambda _world: None,
    "gone": lambda world: world.source.delete(f"{DAY}/1.json"),
    "bad": lambda world: world.put(f"{DAY}/1.json", "bad"),
}


@pytest.mark.promise("G-044")
@pytest.mark.parametrize("then", AT_SOURCE)
@pytest.mark.parametrize("lost", ["outputs", "one output", "outputs and checkpoint", "checkpoint"])
def test_rows_stay_when_their_replacement_is_lost(lost: str, then: str) -> None:
    def prepared() -> OfferedFilesHarness:
        world = OfferedFilesHarness(days=1)
        world.put("date=2024-01-02/8.json", "8:a")
        world.drain()
        world.now += 2 * DAY_SECS
        world.mend("b", "1")
        world.put("date=2024-01-02/8.json", "8:b")
        world.now += 1
        world.table()
        return world

    tried = 0
    for at, world, died in each_death(prepared, OfferedFilesHarness.drain):
        staged = sorted(path for path in world.sink.objects if "/staging/" in path)
        if not died or (not staged and lost != "checkpoint"):
            continue
        gone = staged if "outputs" in lost else staged[:1] if "output" in lost else []
        gone += [CHECKPOINT] if "checkpoint" in lost else []
        for path in gone:
            del world.sink.objects[path]
        AT_SOURCE[then](world)
        old = {"1", "5", "52", "8:a"}
        try:
            world.drain()
        except BlizzardError:
            tried += 1
            if not rebuilds(world, is_staged="outputs" not in lost):
                continue
        states = [set(seen(world))]
        for _ in range(6):
            world.drain()
            states.append(set(seen(world)))
            world.now += DAY_SECS
        # Each of the files has its old or its new rows, at any time.
        for state in states:
            assert {"5", "52"} < state
            assert ("1" in state) != ({"1:b", "1:b+"} <= state), (at, states)
            assert ("8:a" in state) != ("8:b" in state), (at, states)
        assert len(states[-1]) == len(seen(world))
        assert "8:b" in states[-1], (at, states)
        assert then != "there" or not old & states[-1] - {"5", "52"}, (at, states)
    assert tried

"""Reading a ledger while its owner merges segments: no processed name looks new."""

from __future__ import annotations

import pytest

from blizzard_core.settings.sources import CheckpointSettings
from blizzard_py.ingest.publish import OutputIdGenerator
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import DAY, at, gated, poll, polls
from tests.support.request_harness import preview_files


def test_reader_of_a_ledger_being_merged_sees_no_loss() -> None:
    world = PipelineHarness(use_watermark=False, checkpoint=CheckpointSettings(interval_files=1))
    for number in range(3):
        at(world, f"d=1/{number}.ndjson", "old")
    polls(world, poll(world), 3)
    calls = 0

    def gate(_call: str) -> None:
        nonlocal calls
        calls += 1
        if calls == wakes:
            for number in range(3, 9):
                at(world, f"d=1/{number}.ndjson", "new")
            poll(world)

    before, raw = dict(world.sink.objects), dict(world.source.objects)
    paths = ("d=1/0.ndjson", "d=1/8.ndjson")
    for wakes in range(1, 60):
        world.sink.objects, world.source.objects = dict(before), dict(raw)
        calls = 0
        worker = gated(world, gate)
        seen = preview_files(worker.parts, *paths)
        assert seen[0] == "present", wakes
        assert seen[1] != "taken", wakes
        worker.discover(worker.load())
        if calls < wakes:
            break
    assert calls < wakes


def test_names_merged_during_a_ledger_read_stay_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A daemon that was down for a month starts while a command asks what was done."""
    world = PipelineHarness()
    names = OutputIdGenerator()
    for place in (
        "blizzard_py.ingest.batch_loop",
        "blizzard_py.sources.files.late_file_outcomes",
    ):
        monkeypatch.setattr(f"{place}.uuid7", lambda: names.fresh(1, world.now)[0])
    at(world, "d=1/a.ndjson", "a")
    at(world, "d=1/b.ndjson", "b")
    polls(world, poll(world), 20)
    at(world, "d=2/a.ndjson", "c")
    polls(world, None, 20)
    world.now += 31 * DAY
    journal = [path for path in world.sink.objects if "/journal/" in path]
    calls = 0

    def gate(_call: str) -> None:
        nonlocal calls
        calls += 1
        if calls == wakes:
            polls(world, None, 3)

    before = dict(world.sink.objects)
    for wakes in range(1, 40):
        world.sink.objects = dict(before)
        calls = 0
        parts = gated(world, gate).parts
        assert preview_files(parts, "d=1/a.ndjson") == ["present"], wakes
        if calls < wakes:
            break
    assert not set(journal) & set(world.sink.objects) or calls < wakes

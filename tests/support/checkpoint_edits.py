"""Edits of a source's checkpoint."""

from __future__ import annotations

from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_edit import Effect
from blizzard_py.edits.checkpoint_store import CheckpointStore
from tests.support.pipeline_harness import PipelineHarness

DAY = "date=2024-01-01"


def ingested() -> PipelineHarness:
    world = PipelineHarness(grace_period="1s")
    for name in ("1", "2", "3"):
        world.put(f"{DAY}/{name}.json", name)
    world.put("date=2024-01-02/1.json", "x")
    world.drain()
    return world


def store(world: PipelineHarness) -> CheckpointStore:
    return CheckpointStore(world.sink, "events_main")


def set_to(world: PipelineHarness, name: str, partition: str = DAY) -> Effect:
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    after = checkpoint_edit.with_watermark(seen.state, partition, name)
    told = checkpoint_edit.effect(source, seen.state, after)
    checkpoint_edit.change(
        source, seen, lambda s: checkpoint_edit.with_watermark(s, partition, name), world.now
    )
    return told

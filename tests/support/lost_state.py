"""Losses of a source's state in memory, and the rebuild of its checkpoint."""

from __future__ import annotations

import pytest

from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.rebuild import Rebuild
from tests.support.memory_store import Died
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import SOURCE_ID

CHECKPOINT = f"_blizzard/{SOURCE_ID}_checkpoint.json"
JOURNAL = f"_blizzard/journal/{SOURCE_ID}/"
LEDGER = f"_blizzard/{SOURCE_ID}_ledger/"
REQUESTS = f"_blizzard/requests/{SOURCE_ID}/"
STAGING = f"_blizzard/staging/{SOURCE_ID}/"


def rebuild(world: PipelineHarness, done_before: str | None = None) -> None:
    """Make the checkpoint again, as `blizzard checkpoint rebuild` does."""
    job = Rebuild(world.parts())
    job.write(job.plan(done_before))


def reset(world: PipelineHarness) -> None:
    """Let the source start over, as `blizzard checkpoint reset` does."""
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )


def lose(world: PipelineHarness, *folders: str) -> None:
    """Delete all objects below the folders."""
    for path in [path for path in world.sink.objects if path.startswith(folders)]:
        del world.sink.objects[path]


def lose_last_batch(world: PipelineHarness) -> str:
    """Lose the newest object of the journal; return the id of its batch."""
    newest = max(path for path in world.sink.objects if path.startswith(JOURNAL))
    del world.sink.objects[newest]
    return newest.removeprefix(JOURNAL).removesuffix(".json")


def dies_before_publishing(world: PipelineHarness) -> None:
    """Let the daemon die before its first output is copied; the journal has the batch then."""

    def dies(operation: str, _path: str) -> None:
        if operation == "copy":
            raise Died

    world.sink.before_mutation = dies
    with pytest.raises(Died):
        world.drain()
    world.sink.before_mutation = lambda _operation, _path: None

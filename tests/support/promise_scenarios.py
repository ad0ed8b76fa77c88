"""Scenarios of one source for the promise tests: polls, sweeps, deaths, lost daemons.

Nothing here looks into the state, so that a scenario can be run against another release.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blizzard_core.errors import FencedError, StorageError, Unavailable
from blizzard_core.storage.local import LocalStorage
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.interrupted import Call, Interrupted
from tests.support.memory_store import Died, Dying
from tests.support.pipeline_harness import PipelineHarness

DAY = 86_400.0
# A save that makes a batch's outputs count.
COMMIT_POINT = b'"publishing"'


def at(world: PipelineHarness, path: str, row: str, age: float = 0.0) -> None:
    """Put an object whose modification time is ``age`` seconds ago; ahead of now if negative."""
    world.source.objects[path] = (row.encode(), world.now - age)


def poll(world: PipelineHarness, pipeline: SourcePipeline | None = None) -> SourcePipeline:
    """Work off what there is; files that cannot be read yet are no matter."""
    worker = world.pipeline() if pipeline is None else pipeline
    with contextlib.suppress(Unavailable):
        world.drain(worker)
    return worker


def polls(
    world: PipelineHarness,
    pipeline: SourcePipeline | None = None,
    times: int = 5,
    secs: float = 60.0,
) -> SourcePipeline:
    """Several polls, ``secs`` apart."""
    worker = world.pipeline() if pipeline is None else pipeline
    for _ in range(times):
        world.now += secs
        poll(world, worker)
    return worker


def sweeps(world: PipelineHarness, pipeline: SourcePipeline | None = None) -> SourcePipeline:
    """Three days with a poll each, hence three late sweeps."""
    return polls(world, pipeline, 3, DAY + 100)


def one_cycle(pipeline: SourcePipeline) -> None:
    pipeline.cycle(threading.Event())


def killed(world: PipelineHarness, when: Callable[[str, str], bool]) -> None:
    """Start a daemon; its process dies right after the first change for which ``when`` is true."""

    def after(op: str, path: str) -> None:
        if when(op, path):
            raise Died

    stores = [s for s in (world.source, world.sink, world.dlq) if hasattr(s, "after_mutation")]
    for store in stores:
        store.after_mutation = after
    with contextlib.suppress(Died):
        one_cycle(world.pipeline())
    Dying(*stores)


def is_running_batch(world: PipelineHarness) -> Callable[[str, str], bool]:
    """For `killed`: a batch is in the checkpoint, and nothing of it is done."""

    def when(_op: str, path: str) -> bool:
        batches = (
            world.checkpoint().get("in_flight", []) if path.endswith("checkpoint.json") else []
        )
        return any(batch["phase"] == "running" for batch in batches)

    return when


def letter_paths(world: PipelineHarness) -> list[str]:
    place = f"{world.source.uri}/"
    return sorted(letter["path"].removeprefix(place) for letter in world.letters())


def disk(world: PipelineHarness, folder: Path) -> Callable[[str, float], None]:
    """Make a folder of the disk the source; return a function that puts files of a given age."""
    (folder / "d=1").mkdir(parents=True)
    storage = LocalStorage(str(folder))
    world.source = storage
    world.engine.source = storage

    def copied(name: str, age: float) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (world.now - age, world.now - age))

    return copied


def gated(world: PipelineHarness, gate: Callable[[str], None]) -> SourcePipeline:
    """Return a daemon that announces its calls to the table's and the letters' storage."""
    sink, dlq = world.sink, world.dlq

    def announced(call: Call) -> Any:
        gate(call.name)
        return call()

    world.sink, world.dlq = Interrupted(sink, announced), Interrupted(dlq, announced)
    try:
        return world.pipeline()
    finally:
        world.sink, world.dlq = sink, dlq


def _three_cycles(pipeline: SourcePipeline, raised: list[Exception]) -> None:
    try:
        for _ in range(3):
            with contextlib.suppress(StorageError):
                one_cycle(pipeline)
    except FencedError:
        return
    except Exception as error:
        raised.append(error)


def take_over_between(world: PipelineHarness, pauses: int, wakes: int) -> bool:
    """Pause a daemon before its call ``pauses``; wake it before call ``wakes`` of its successor.

    The successor takes over meanwhile. It waits until the first daemon has ended, and then runs on.
    Return whether both calls were reached. A fenced daemon stops, and refused writes are retried;
    any other error is raised.
    """
    waiting, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    first_calls, second_calls = itertools.count(), itertools.count()
    raised: list[Exception] = []

    def first_gate(_call: str) -> None:
        if next(first_calls) == pauses:
            waiting.set()
            assert goes_on.wait(30)

    def second_gate(_call: str) -> None:
        if next(second_calls) == wakes:
            goes_on.set()
            assert ended.wait(30)

    first, second = gated(world, first_gate), gated(world, second_gate)

    def run_first() -> None:
        _three_cycles(first, raised)
        ended.set()
        waiting.set()

    thread = threading.Thread(target=run_first)
    thread.start()
    assert waiting.wait(30)
    paused = not ended.is_set()
    _three_cycles(second, raised)
    reached = paused and goes_on.is_set()
    goes_on.set()
    thread.join(30)
    if raised:
        raise raised[0]
    return reached

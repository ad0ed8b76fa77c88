"""The promise as a property: the set of ingested files equals the set of files, each once.

Random trees, arrival orders and page sizes; writers that put files behind the
cursor of a running listing; flaky reads; death before or after any change to
the table's storage; restarts; floors that rise. Files arrive within the grace
period. The model is brute force: a set of paths.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blizzard_core.errors import Unavailable
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.protocol import is_hidden
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.blizzard_world import World
from tests.support.memory_store import Died, Dying

GRACE = 1000.0

FOLDERS = st.sampled_from(
    ["d=1", "d=1-late", "d=10", "d=2", "d=2 ", "ü", "a+b", "%41", "h=9", "_x", ".y", "A"]
)
NAMES = st.sampled_from(["1", "2", "2-", "10", "a b", "é", "z=1", "\U0001f427", "%2F", "_n"])
PATHS = st.builds(
    lambda folders, name: "/".join([*folders, f"{name}.json"]),
    st.lists(FOLDERS, max_size=3),
    NAMES,
)


@dataclass(frozen=True)
class Step:
    """Files that appear before the poll and during its listing, and how the poll ends."""

    arrive: list[str]
    during: list[str]
    die_at: int | None
    flaky: bool
    restart: bool
    pause: float


STEPS = st.builds(
    Step,
    arrive=st.lists(PATHS, max_size=5),
    during=st.lists(PATHS, max_size=2),
    die_at=st.none() | st.integers(0, 40),
    flaky=st.booleans(),
    restart=st.booleans(),
    pause=st.floats(0, 20),
)


@dataclass
class Model:
    """The world, and the paths that are in it."""

    world: World
    dying: Dying
    pipeline: SourcePipeline
    paths: set[str] = field(default_factory=set)

    def arrive(self, path: str) -> None:
        if path not in self.paths:
            self.paths.add(path)
            self.world.put(path, path)

    def poll(self, step: Step) -> None:
        waiting = list(step.during)

        def between() -> None:
            if waiting:
                self.arrive(waiting.pop())

        self.world.source.between_pages = between
        if step.flaky and self.paths:
            self.world.engine.flaky[min(self.paths)] = 1
        if step.restart:
            self.pipeline = self.world.pipeline()
        self.dying.arm(-1 if step.die_at is None else step.die_at)
        try:
            with contextlib.suppress(Unavailable):
                self.pipeline.cycle(threading.Event())
        except Died:
            self.pipeline = self.world.pipeline()
        finally:
            self.dying.arm(-1)
            self.world.source.between_pages = lambda: None
            for path in waiting:
                self.arrive(path)


@settings(
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=8),
    depth=st.integers(1, 3),
    pages=st.integers(1, 4),
    interval=st.integers(1, 4),
    tracked=st.sampled_from([1, 2, 64]),
)
def test_every_file_is_ingested_exactly_once(
    steps: list[Step], depth: int, pages: int, interval: int, tracked: int
) -> None:
    world = World(
        partition_depth=depth,
        grace_period=f"{GRACE}s",
        max_tracked_partitions=tracked,
        checkpoint=CheckpointSettings(interval_files=interval),
    )
    world.errors = {"max_retries": 99}
    world.source.page_keys = pages
    model = Model(world, Dying(world.sink, world.dlq), world.pipeline())
    for step in steps:
        world.now += step.pause
        for path in step.arrive:
            model.arrive(path)
        model.poll(step)
    world.engine.flaky.clear()
    world.drain()
    world.drain()
    assert world.rows() == sorted(path for path in model.paths if not is_hidden(path))
    assert world.letters() == []
    document = world.checkpoint()
    assert "in_flight" not in document
    assert document["totals"]["files"] == len(world.rows())


@settings(max_examples=100, deadline=None)
@given(pauses=st.lists(st.floats(1, 2 * GRACE), min_size=1, max_size=12))
def test_years_of_partitions_leave_a_small_checkpoint(pauses: list[float]) -> None:
    """Partitions that come one after the other: only the newest stay, nothing is read twice."""
    world = World(partition_depth=1, grace_period=f"{GRACE}s", max_tracked_partitions=2)
    pipeline = world.pipeline()
    for number, pause in enumerate(pauses):
        world.put(f"y={1970 + number}/1.json", f"r{number}")
        world.drain(pipeline)
        world.now += pause
    world.now += 2 * GRACE
    world.drain(pipeline)
    world.put("y=2020/1.json", "last")
    world.drain(pipeline)
    assert len(world.checkpoint()["partition_watermarks"]) <= 3
    world.drain()
    assert world.rows() == sorted([*(f"r{n}" for n in range(len(pauses))), "last"])

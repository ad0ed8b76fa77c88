"""A replaced daemon changes nothing: not in staging, in the table or in the dead letters."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest

from blizzard_core.daemon import Loop, run
from blizzard_core.errors import Conflict, FencedError, StateError, Unavailable
from blizzard_py.job import FinishedFile, IngestJob, IngestResult
from tests.support.pipeline_harness import LineEngine, PipelineHarness
from tests.support.promise_scenarios import (
    COMMIT_POINT,
    killed,
    letter_paths,
    one_cycle,
    poll,
    polls,
    sweeps,
    take_over_between,
)

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


def left_publishing() -> PipelineHarness:
    """Return a source whose batch is committed; the process died before it published."""
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    world.put("d=1/2.ndjson", "r2", "?bad")

    def when(_op: str, path: str) -> bool:
        return path == CHECKPOINT and COMMIT_POINT in world.sink.read(path)

    killed(world, when)
    return world


def late_found(late_files: str) -> PipelineHarness:
    """Return a source with a due sweep, a late and a new file; both fail once."""
    world = PipelineHarness(
        late_sweep_interval="1000s",
        max_tracked_partitions=1,
        grace_period="1s",
        late_files=late_files,
    )
    for number in range(1, 4):
        world.put(f"d={number}/1.ndjson", f"r{number}")
    pipeline = poll(world)
    for name in ("2", "3"):
        world.now += 10
        world.put(f"d=3/{name}.ndjson", f"r3-{name}")
        poll(world, pipeline)
    world.put("d=1/0.ndjson", "late")
    world.put("d=3/9.ndjson", "new")
    world.engine.flaky.update(["d=1/0.ndjson", "d=3/9.ndjson"])
    world.now += 1000
    return world


def late_ingested() -> PipelineHarness:
    return late_found("ingest")


def verdict_left_publishing() -> PipelineHarness:
    """Return a source with a committed late outcome whose letter was not written."""
    world = late_found("quarantine")

    def when(_op: str, path: str) -> bool:
        return path == CHECKPOINT and COMMIT_POINT in world.sink.read(path)

    killed(world, when)
    return world


# Of the places where the other one wakes up every so-manieth is tried, and after another number of
# pauses the next ones; those with many requests have few for each.
STEPS = {left_publishing: 6, late_ingested: 60, verdict_left_publishing: 60}


@pytest.mark.parametrize("scene", STEPS, ids=lambda scene: scene.__name__)
def test_paused_start_changes_nothing_of_its_successor(scene: Any) -> None:
    # A pod starts and hangs at any request; its replacement works; at any request of that
    # the first wakes up and goes on until it is told that it was replaced.
    expected = scene()
    sweeps(expected, polls(expected, times=3, secs=400))
    want = (expected.rows(), expected.records(), letter_paths(expected))
    pauses, reached = 0, True
    while reached:
        reached = False
        step = STEPS[scene]
        for wakes in range(pauses % step, 120, step):
            world = scene()
            if not take_over_between(world, pauses, wakes):
                break
            reached = True
            sweeps(world, polls(world, times=3, secs=400))
            found = (world.rows(), world.records(), letter_paths(world))
            assert found == want, (pauses, wakes)
            assert world.checkpoint()["totals"]["rows"] == len(want[0])
        pauses += 1
    assert pauses > 5


@pytest.mark.parametrize("lands", range(12))
def test_late_commit_point_is_refused(lands: int) -> None:
    # The save times out on the client and is applied by the store at any later change, while
    # the same process recovers already.
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    world.put("d=1/2.ndjson", "r2")
    put_if = world.sink.put_if
    late: list[tuple[str, bytes, str | None]] = []

    def delayed(path: str, data: bytes, version: str | None) -> str:
        if COMMIT_POINT in data and not late:
            late.append((path, data, version))
            raise Unavailable("timed out")
        return put_if(path, data, version)

    world.sink.put_if = delayed
    pipeline = world.pipeline()
    with pytest.raises(Unavailable):
        one_cycle(pipeline)
    changes = 0

    def arrives(_op: str, _path: str) -> None:
        nonlocal changes
        changes += 1
        if changes == lands + 1:
            world.sink.after_mutation = lambda *_: None
            with contextlib.suppress(Conflict):
                put_if(*late[0])

    world.sink.after_mutation = arrives
    # What arrives before the recovery has begun was a commit as any other.
    with contextlib.suppress(FencedError):
        one_cycle(pipeline)
    world.sink.after_mutation = lambda *_: None
    polls(world, times=3, secs=400)
    assert world.rows() == ["r1", "r2"]
    assert world.checkpoint()["totals"]["rows"] == 2
    assert letter_paths(world) == []


def test_missing_outputs_are_an_error() -> None:
    # Somebody has emptied the staging folder between the commit point and the recovery.
    world = left_publishing()
    world.sink.delete_tree("_blizzard/staging")
    with pytest.raises(StateError, match="neither staged"):
        one_cycle(world.pipeline())
    assert world.checkpoint()["totals"]["rows"] == 0
    assert [batch["phase"] for batch in world.checkpoint()["in_flight"]] == ["publishing"]


class Verdict(LineEngine):
    """Condemns what an old schema does not take, or takes it."""

    def __init__(self, world: PipelineHarness, *, takes: bool) -> None:
        super().__init__(world.source, world.sink)
        self.takes = takes

    def read(self, path: str) -> tuple[FinishedFile, list[str]]:
        if not self.takes:
            return super().read(path)
        lines = [row.strip("?").replace("bad", "mended") for row in self.lines(path)]
        return FinishedFile(path, "ingested", len(lines), 1), lines

    def lines(self, path: str) -> list[str]:
        return self.source.read(path).decode().splitlines()


def rolled_over(row: str, *, old_takes: bool, new_takes: bool) -> PipelineHarness:
    """Play a rolling update with another schema: the old daemon's job ends after the new one's."""
    world = PipelineHarness()
    world.put("date=2024-01-01/1.json", row, *["y"] * 20)
    world.now += 60
    old_engine, new_engine = Verdict(world, takes=old_takes), Verdict(world, takes=new_takes)
    world.engine = old_engine
    old = world.pipeline()
    ingest = old_engine.ingest

    def outlived(job: IngestJob) -> IngestResult:
        result = ingest(job)
        world.engine = new_engine
        poll(world)
        return result

    old_engine.ingest = outlived
    with pytest.raises(FencedError):
        one_cycle(old)
    return world


def of_interest(world: PipelineHarness) -> list[str]:
    return [row for row in world.rows() if row != "y"]


def test_replaced_daemon_rejects_no_file_of_its_successor() -> None:
    # The old schema would condemn the file; a letter of it would have a replay double it.
    world = rolled_over("bad", old_takes=False, new_takes=True)
    assert of_interest(world) == ["mended"]
    assert letter_paths(world) == []


def test_a_replaced_daemon_removes_no_letter_of_its_successor() -> None:
    # The old schema would ingest the file; the new one's letter is all that tells of it.
    world = rolled_over("bad", old_takes=True, new_takes=False)
    assert of_interest(world) == []
    assert letter_paths(world) == ["date=2024-01-01/1.json"]
    assert world.checkpoint()["totals"]["quarantined"] == 1


def test_replaced_daemon_keeps_letters_of_its_successor() -> None:
    # The same both ways for single records of a file that is ingested otherwise.
    taken = rolled_over("?x", old_takes=False, new_takes=True)
    assert of_interest(taken) == ["x"]
    assert PipelineHarness.records(taken) == []
    kept = rolled_over("?x", old_takes=True, new_takes=False)
    assert of_interest(kept) == []
    assert PipelineHarness.records(kept) == [[("date=2024-01-01/1.json", "?x")]]


def test_daemon_ends_with_3_when_its_source_is_taken_over() -> None:
    # One of two sources is fenced: the process must end, or nothing restarts the source.
    world, other = PipelineHarness(), PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    workers = [world.pipeline(), other.pipeline()]
    workers[0].cycle(threading.Event())
    poll(world)
    world.put("d=1/2.ndjson", "r2")
    stop = threading.Event()
    timer = threading.Timer(20, stop.set)
    timer.start()
    code = run(workers, Loop(once=False, jitter_secs=0, grace_secs=10), stop)
    assert timer.is_alive(), "it went on"
    timer.cancel()
    assert code == 3


def test_stale_daemon_names_takeover_by_a_newer_release() -> None:
    # The file that it finds is of a format that it does not know; the remedy is to stop.
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    pipeline = poll(world)
    world.put("d=1/2.ndjson", "r2")
    world.engine.flaky["d=1/2.ndjson"] = 1
    with pytest.raises(Unavailable):  # it begins again from the file
        one_cycle(pipeline)
    document = world.checkpoint()
    document["schema_version"] = 99
    document["writer"] = {"id": "another", "epoch": document["writer"]["epoch"] + 1}
    world.sink.put_atomic(CHECKPOINT, json.dumps(document).encode())
    with pytest.raises(FencedError, match="another"):
        one_cycle(pipeline)


def test_keys_of_a_newer_release_are_preserved() -> None:
    # A rollback: the older release would save the checkpoint without what it does not know.
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    poll(world)
    document = {**world.checkpoint(), "leases": {"d=1": 7}}
    before = json.dumps(document).encode()
    world.sink.put_atomic(CHECKPOINT, before)
    world.put("d=1/2.ndjson", "r2")
    with pytest.raises(StateError, match="leases"):
        one_cycle(world.pipeline())
    assert world.sink.read(CHECKPOINT) == before

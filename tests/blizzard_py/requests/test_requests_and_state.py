"""Requests of files where the checkpoint is made again, put back or changed by hand meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
from functools import partial

import pytest

from blizzard_core.errors import Unavailable, Unfinished
from blizzard_py.edits import checkpoint_edit, history
from blizzard_py.edits.checkpoint_store import CheckpointStore, Version
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import SourceState, checkpoint_path
from tests.support.memory_store import Died, each_death
from tests.support.request_harness import DAY, SOURCE_ID, RequestHarness

CHECKPOINT = checkpoint_path(SOURCE_ID)
AHEAD = "date=2025-06-20"  # five days ahead of the world's time
DAYS = 86_400.0


def rebuild(world: RequestHarness) -> None:
    job = Rebuild(world.parts())
    job.write(job.plan(None))


def cycle(world: RequestHarness) -> None:
    """One cycle, of which what fails for now may be all."""
    with contextlib.suppress(Unavailable, Unfinished):
        world.pipeline().cycle(threading.Event())


def state_of(world: RequestHarness) -> SourceState:
    state = read_state(world.sink, SOURCE_ID)
    assert state is not None
    return state


@pytest.mark.promise("G-046")
@pytest.mark.parametrize("mode", ["add", "again"])
@pytest.mark.parametrize("path", [f"{AHEAD}/1.json", f"{DAY}/3.json", f"{DAY}/8.json.gz"])
def test_a_checkpoint_lost_during_a_request_doubles_nothing(path: str, mode: str) -> None:

    def prepared() -> RequestHarness:
        world = RequestHarness()
        world.put(path, "requested")
        world.submit(path, mode=mode)
        return world

    for at, world, _ in each_death(prepared, RequestHarness.drain):
        world.now += 100
        world.sink.objects.pop(CHECKPOINT, None)
        rebuild(world)
        world.settings["compression"] = "auto"  # polls look at .gz from now on
        world.drain()
        world.put(f"{DAY}/96.json", "live")
        world.go_on(days=7)
        assert world.rows().count("requested") == 1, at
        assert world.rows().count("live") == 1, at
    assert at > 20


@pytest.mark.promise("G-046")
@pytest.mark.parametrize(
    ("path", "below"),
    [(f"{DAY}/8.json.gz", f"{DAY}/6.json"), (f"{AHEAD}/5.json", f"{AHEAD}/3.json")],
)
def test_a_rebuild_passes_no_file_for_what_a_request_brought(path: str, below: str) -> None:
    world = RequestHarness()
    world.put(path, "requested")
    assert world.ingest(path) == ["ingested"]
    before = world.checkpoint()["watermark"]["value"]
    world.now += 100
    world.sink.delete(CHECKPOINT)
    rebuild(world)
    assert world.checkpoint()["watermark"]["value"] == before
    world.now += 6 * DAYS
    world.drain()
    world.put(below, "in time")
    world.go_on(days=2)
    assert world.letters() == []
    assert world.rows().count("in time") == world.rows().count("requested") == 1


@pytest.mark.promise("G-046")
def test_a_rollback_restores_no_cancelled_replacement() -> None:
    world = RequestHarness()
    world.now += 100
    world.put(f"{DAY}/52.json", "mended")
    request_id = world.submit(f"{DAY}/52.json", mode="replace")
    ingest = world.engine.ingest

    def die(_job: object) -> None:
        raise Died

    world.engine.ingest = die  # type: ignore[assignment,method-assign]  # the owner dies in its job
    with pytest.raises(Died):
        world.drain()
    world.engine.ingest = ingest  # type: ignore[method-assign]
    assert [batch.request for batch in state_of(world).work.in_flight] == [request_id]
    world.mailbox.cancel(request_id, "bob", "2026-11-25T09:13:00+00:00", "a mistake")
    source = world.pipeline()
    move = partial(checkpoint_edit.with_watermark, partition=DAY, name="52.json")
    checkpoint_edit.change(source, checkpoint_edit.read_checkpoint(source), move, world.now)
    world.now += 100
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    store = CheckpointStore(world.sink, SOURCE_ID)
    [version] = [v for v in store.versions() if isinstance(v, Version) and v.until is not None]
    checkpoint_edit.change(
        source, seen, lambda _state: history.roll_back(source, seen, version), world.now
    )
    assert not state_of(world).work.in_flight
    world.drain()
    assert world.rows() == ["1", "5", "52"]


@pytest.mark.promise("G-046")
def test_polls_leave_a_requested_file_to_its_request() -> None:
    world = RequestHarness()
    early, beside = f"{AHEAD}/1.json", f"{AHEAD}/2.json"
    world.put(early, "early")
    assert world.ingest(early) == ["ingested"]
    world.put(early, "mended")
    world.engine.flaky[early] = 1
    request_id = world.submit(early, mode="replace")
    cycle(world)
    world.now += 6 * DAYS  # its time has come while nobody looked
    world.put(beside, "live")
    world.drain()
    assert [line.state for line in world.report(request_id)] == ["replaced"]
    world.go_on(days=1)
    assert world.rows() == ["1", "5", "52", "early", "live", "mended"]  # as they were published
    manifests = [p for p in world.sink.objects if p.startswith("_blizzard/groups/")]
    groups = [json.loads(world.sink.read(path)) for path in manifests]
    [group] = [group for group in groups if group["files"]]  # the other try brought nothing
    assert len(group["outputs"]) == 1


@pytest.mark.promise("G-046")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_polls_pass_a_requested_file_when_its_rows_are_in(
    is_cancelled: bool,
) -> None:
    world = RequestHarness()
    early, beside = f"{AHEAD}/1.json", f"{AHEAD}/2.json"
    world.put(early, "early")
    world.engine.flaky[early] = 2
    request_id = world.submit(early)
    cycle(world)
    world.now += 6 * DAYS
    world.put(beside, "live")
    cycle(world)
    if is_cancelled:
        world.mailbox.cancel(request_id, "bob", "2026-11-25T09:13:00+00:00", "not now")
    world.go_on(days=2)
    assert world.letters() == []
    assert world.rows() == ["1", "5", "52", "early", "live"]


@pytest.mark.promise("G-046")
def test_an_ended_request_stays_ended_in_a_restored_checkpoint() -> None:
    world = RequestHarness()
    late = f"{DAY}/3.json"
    world.put(late, "late")
    world.engine.flaky[late] = 1
    request_id = world.submit(late)
    cycle(world)
    copy = world.sink.objects[CHECKPOINT]
    world.mailbox.cancel(request_id, "bob", "2026-11-25T09:13:00+00:00", "not now")
    world.drain()
    world.sink.objects[CHECKPOINT] = copy
    world.now += 100
    world.drain()
    state = state_of(world)
    assert (state.work.queue, dict(state.work.requests), dict(state.work.retries)) == ((), {}, {})
    assert world.ingest(late) == ["ingested"]
    assert world.rows() == ["1", "5", "52", "late"]

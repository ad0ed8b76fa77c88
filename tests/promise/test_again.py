"""What was taken once, and what an operator or an update makes of it."""

from __future__ import annotations

import json

import pytest

from blizzard_core.storage.clock import StoreClock, elapsed
from blizzard_core.watermark.scan import FLAT_KEYS
from blizzard_py.edits import checkpoint_edit
from blizzard_py.ingest.publish import OutputNames
from blizzard_py.job import FinishedFile
from blizzard_py.state.checkpoint_document import state_to_json
from blizzard_py.state.source_state import Batch, SourceState
from tests.blizzard_py.replay.test_replay import mend, quarantined
from tests.support.blizzard_world import World
from tests.support.memory_store import Died, Dying


def test_a_source_that_starts_over_takes_again_what_replays_had_taken() -> None:
    world = quarantined()
    mend(world)
    world.run()
    before = world.rows()
    for path in [path for path in world.sink.objects if path.endswith(".parquet")]:
        del world.sink.objects[path]
    world.now += 60
    pipeline = world.pipeline()
    checkpoint_edit.change(
        pipeline, checkpoint_edit.stored(pipeline), checkpoint_edit.over, world.now
    )
    world.now += 60
    world.drain()
    assert world.rows() == before


def test_an_attempt_of_an_older_release_leaves_no_letter_that_was_not_committed() -> None:
    world = World()
    world.put("d=1/1.ndjson", "?a", *["x"] * 20)
    dying = Dying(world.sink, world.dlq)
    # Take-over, fence record and beginning are saved, then the batch: death comes after that.
    dying.arm(7)
    with pytest.raises(Died):
        world.drain()
    dying.arm(-1)
    [running] = world.checkpoint()["in_flight"]
    assert running["phase"] == "running"
    # Letters were written before the commit then; with the schema mended none is left.
    stale = json.dumps({"path": "d=1/1.ndjson", "raw": "?a"})
    for name in (f"{running['batch']}.records.ndjson", f"{running['batch']}.ndjson"):
        world.dlq.objects[f"events_main/{name}"] = (stale.encode(), world.now)
    world.put("d=1/1.ndjson", "a", *["x"] * 20)
    world.drain()
    assert len(world.rows()) == 21
    assert not world.dlq.objects


def test_a_batch_that_owes_letters_is_nothing_for_an_older_release() -> None:
    files = (FinishedFile("d=1/1.ndjson", "quarantined", error="bad", stage="parse"),)
    batch = Batch("b", 1, "publishing", 1.0, (), 1.0, finished=files, committed_ts=2.0)
    assert state_to_json(SourceState(in_flight=(batch,)), 3.0)["schema_version"] == 2
    assert state_to_json(SourceState(), 3.0)["schema_version"] == 1


def test_keys_that_are_no_files_settle_no_depth() -> None:
    world = World()
    world.source.page_keys = 1000
    for number in range(FLAT_KEYS + 100):
        world.put(f"manifest-{number:05}.csv", "no file of the source")
    pipeline = world.drain()
    for region in ("a", "b"):
        world.put(f"region={region}/1.ndjson", region)
    world.drain(pipeline)
    assert world.rows() == ["a", "b"]
    assert world.checkpoint()["partition_depth"] == 1


def test_late_verdicts_do_not_count_as_failures_of_the_pipeline() -> None:
    world = World(late_sweep_interval="1000s", grace_period="1s")
    world.errors = {"max_failures": 3}
    world.put("d=1/5.ndjson", "r")
    pipeline = world.drain()
    world.now += 100
    world.drain(pipeline)
    for number in range(4):
        world.put(f"d=1/{number}.ndjson", "late")
    world.now += 1000
    world.drain(pipeline)
    assert len(world.letters()) == 4
    world.put("d=1/6.ndjson", "bad")
    world.put("d=1/7.ndjson", "s")
    world.drain(pipeline)
    assert world.rows() == ["r", "s"]


def test_names_of_outputs_increase_also_within_a_millisecond_and_when_time_stands_still() -> None:
    names = OutputNames()
    given = [name for _ in range(3) for name in names.fresh(3000, 1_750_000_000.0)]
    given += names.fresh(2, 1_749_999_000.0)
    assert given == sorted(set(given))
    assert len(given) == 9002


def test_the_clock_counts_on_from_the_stores_time_and_never_looks_at_the_machines() -> None:
    passed = [10.0]
    clock = StoreClock(lambda: 5.0, lambda: passed[0])
    assert clock() == 5.0
    clock.set(1000.0)
    passed[0] += 60.0
    clock.set(9999.0)
    assert clock() == 1060.0
    assert elapsed() > 0

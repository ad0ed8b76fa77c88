"""Files that were ingested once, after an operator's command or an update."""

from __future__ import annotations

from blizzard_core.storage.clock import StoreClock, elapsed
from blizzard_core.watermark.scan import FLAT_KEYS
from blizzard_py.edits import checkpoint_edit
from blizzard_py.ingest.publish import OutputIdGenerator
from tests.support.letter_harness import FailedFilesHarness
from tests.support.pipeline_harness import PipelineHarness


def test_reset_source_ingests_replayed_files_again() -> None:
    world = FailedFilesHarness()
    world.mend()
    world.replay()
    before = world.rows()
    for path in [path for path in world.sink.objects if path.endswith(".parquet")]:
        del world.sink.objects[path]
    world.now += 60
    pipeline = world.pipeline()
    checkpoint_edit.change(
        pipeline, checkpoint_edit.read_checkpoint(pipeline), checkpoint_edit.reset, world.now
    )
    world.now += 60
    world.drain()
    assert world.rows() == before


def test_keys_without_files_set_no_depth() -> None:
    world = PipelineHarness()
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
    world = PipelineHarness(late_sweep_interval="1000s", grace_period="1s")
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


def test_output_names_increase_within_a_millisecond() -> None:
    names = OutputIdGenerator()
    given = [name for _ in range(3) for name in names.fresh(3000, 1_750_000_000.0)]
    given += names.fresh(2, 1_749_999_000.0)
    assert given == sorted(set(given))
    assert len(given) == 9002


def test_clock_starts_at_store_time_and_ignores_machine_time() -> None:
    passed = [10.0]
    clock = StoreClock(lambda: 5.0, lambda: passed[0])
    assert clock() == 5.0
    clock.set(1000.0)
    passed[0] += 60.0
    clock.set(9999.0)
    assert clock() == 1060.0
    assert elapsed() > 0

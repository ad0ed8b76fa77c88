"""A checkpoint that was brought back from a copy, and made again: whatever ran on or died since."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from blizzard_core.errors import FencedError, StateError, Unavailable
from blizzard_py.dead_letters.reader import objects
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.state import processed_set
from blizzard_py.state.journal import moment_of
from blizzard_py.state.state_paths import StatePaths
from tests.support.memory_store import Died
from tests.support.pipeline_harness import PipelineHarness, overtaking
from tests.support.request_harness import RequestHarness, ingest_files, submit

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
DAY = "date=2024-01-01"


def world_with_one_batch() -> PipelineHarness:
    world = PipelineHarness(grace_period="1s")
    world.put(f"{DAY}/1.json", "1")
    world.drain()
    world.now += 100
    return world


def rebuilt(world: PipelineHarness) -> None:
    job = Rebuild(world.parts())
    job.write(job.plan(None))


def dies_at(world: PipelineHarness, place: str) -> None:
    """A daemon dies at its first change of a place, or with its first copy."""

    def dies(op: str, path: str) -> None:
        if place in f"{op} {path}":
            raise Died

    world.sink.before_mutation = dies
    with pytest.raises(Died):
        world.drain()
    world.sink.before_mutation = lambda _op, _path: None


def publishing(world: PipelineHarness, row: str) -> bytes:
    """A copy of a checkpoint whose newest batch is in the middle of publishing."""
    world.put(f"{DAY}/{row}.json", row)
    dies_at(world, "copy ")
    return world.sink.objects[CHECKPOINT]


@pytest.mark.promise("G-194")
@pytest.mark.parametrize("by", ["a start", "a rebuild"])
def test_outputs_that_were_published_under_later_names_are_known(by: str) -> None:
    world = world_with_one_batch()
    copy = publishing(world, "2")
    world.drain()  # who takes it over gives its output another name
    world.sink.objects[CHECKPOINT] = copy
    if by == "a rebuild":
        rebuilt(world)
    world.drain()
    assert world.rows() == ["1", "2"]


@pytest.mark.promise("G-194")
def test_rebuild_does_not_retry_a_batch_in_the_ledger() -> None:
    world = PipelineHarness(grace_period="1s", late_sweep_interval="10m")
    copy = publishing(world, "1")
    world.drain()
    world.now += 5000
    world.drain()  # a sweep, which folds the journal
    assert world.checkpoint()["ledger"]
    [output] = [path for path in world.sink.objects if path.endswith(".parquet")]
    del world.sink.objects[output]  # rewritten since, and nothing else tells of it
    world.sink.objects[CHECKPOINT] = copy
    rebuilt(world)
    for _ in range(2):
        world.now += 5000
        world.drain()
    assert world.rows() == []
    assert world.letters() == []


@pytest.mark.promise("G-194")
def test_a_superseded_attempt_is_noticed_and_rebuilt() -> None:
    world = world_with_one_batch()
    world.put(f"{DAY}/2.json", "2")
    before = {}
    with overtaking(world.engine, lambda: before.update(world.sink.objects)):
        dies_at(world, "/journal/")  # after it has committed what it staged
    sleeper = dict(world.sink.objects)
    world.sink.objects.clear()
    world.sink.objects.update(before)
    world.drain()  # the batch runs again, and is published
    assert world.rows() == ["1", "2"]
    left = {path: held for path, held in sleeper.items() if "/staging/" in path}
    assert left
    world.sink.objects.update({**left, CHECKPOINT: sleeper[CHECKPOINT]})
    assert [batch["phase"] for batch in world.checkpoint()["in_flight"]] == ["publishing"]
    with pytest.raises(StateError, match="the journal has attempt 2"):
        world.drain()
    rebuilt(world)
    world.drain()
    assert world.rows() == ["1", "2"]


@pytest.mark.parametrize("beside", [(), ("2",)], ids=["alone", "beside one that was read"])
def test_a_retry_ingested_after_the_copy_comes_once(
    beside: tuple[str, ...],
) -> None:
    world = world_with_one_batch()
    world.put(f"{DAY}/3.json", "3")
    for row in beside:
        world.put(f"{DAY}/{row}.json", row)
    world.engine.flaky[f"{DAY}/3.json"] = 1
    copies = []

    def keeps(_op: str, _path: str) -> None:
        batches = world.checkpoint().get("in_flight", [])
        if any(batch["phase"] == "publishing" for batch in batches) and not copies:
            copies.append(world.sink.objects[CHECKPOINT])

    world.sink.before_mutation = keeps
    with pytest.raises(Unavailable) if not beside else nullcontext():
        world.drain()
    world.now += 100
    world.drain()
    world.sink.before_mutation = lambda _op, _path: None
    world.sink.objects[CHECKPOINT] = copies[0]
    rebuilt(world)
    world.drain()
    world.now += 1000
    world.drain()
    assert world.rows() == sorted(["1", "3", *beside])


@pytest.mark.promise("G-194")
@pytest.mark.parametrize("made_by", ["rebuild", "reset"])
def test_a_stale_copy_is_noticed_before_its_first_run(made_by: str) -> None:
    world = world_with_one_batch()
    if made_by == "rebuild":
        rebuilt(world)
    else:
        source = world.pipeline()
        seen = checkpoint_edit.read_checkpoint(source)
        checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)
    copy = world.sink.objects[CHECKPOINT]
    world.put(f"{DAY}/2.json", "2")
    world.drain()
    rows = world.rows()
    world.sink.objects[CHECKPOINT] = copy
    with pytest.raises(StateError, match="is stale"):
        world.drain()
    assert world.rows() == rows


@pytest.mark.parametrize("first", [True, False], ids=["its first batch", "a later one"])
def test_a_copy_from_the_last_batch_is_noticed_and_rebuilt(first: bool) -> None:
    world = PipelineHarness(grace_period="1s") if first else world_with_one_batch()
    world.put(f"{DAY}/2.json", "2")
    copies = []
    with overtaking(world.engine, lambda: copies.append(world.sink.objects[CHECKPOINT])):
        world.drain()
    rows = world.rows()
    [world.sink.objects[CHECKPOINT]] = copies
    with pytest.raises(StateError, match="is stale"):
        world.drain()
    rebuilt(world)
    world.drain()
    assert world.rows() == rows


def test_segments_merged_after_the_copy_are_not_missing() -> None:
    world = world_with_one_batch()
    world.now += 100_000
    world.drain()  # a sweep, which writes the first segment
    copy = world.sink.objects[CHECKPOINT]
    [before] = world.checkpoint()["ledger"]
    world.put(f"{DAY}/2.json", "2")
    world.drain()
    world.now += 100_000
    world.drain()
    [after] = world.checkpoint()["ledger"]
    assert before != after
    world.sink.objects[CHECKPOINT] = copy
    rebuilt(world)
    for _ in range(2):
        world.now += 100_000
        world.drain()
    assert world.rows() == ["1", "2"]
    # Who loses the merged one, too, is not told that all is there.
    world.sink.objects[CHECKPOINT] = copy
    for path in [path for path in world.sink.objects if path.endswith(".digests")]:
        del world.sink.objects[path]
    with pytest.raises(EditRefused, match="is missing"):
        rebuilt(world)


@pytest.mark.promise("G-051")
def test_a_fenced_daemon_removes_no_rebuilt_segment() -> None:
    world = PipelineHarness(grace_period="1s", late_sweep_interval="10m")
    world.put(f"{DAY}/1.json", "1")
    daemon = world.drain()
    copy = world.sink.objects[CHECKPOINT]
    for _ in range(3):  # late sweeps, which fold the journal
        world.now += 5000
        world.drain(daemon)
    assert world.checkpoint()["ledger"]
    world.sink.objects[CHECKPOINT] = copy
    epoch = world.checkpoint()["writer"]["epoch"]
    rebuilt(world)
    # A daemon that began on the copy, and has not heard yet that it is fenced, looks at its names.
    processed_set.sweep(world.sink, StatePaths("events_main").ledger, (), epoch + 1)
    world.drain()
    assert world.rows() == ["1"]


@pytest.mark.promise("G-051")
def test_a_rebuild_keeps_no_segment_that_a_sleeper_replaced() -> None:
    world = world_with_one_batch()
    world.now += 100_000
    world.drain()  # a sweep, which writes the first segment
    copy = world.sink.objects[CHECKPOINT]
    [replaced] = [path for path in world.sink.objects if path.endswith(".digests")]
    segment = world.sink.objects[replaced]
    world.put(f"{DAY}/2.json", "2")
    world.drain()
    world.now += 100_000
    world.drain()
    assert replaced not in world.sink.objects
    # The daemon that has merged it sleeps, and removes it only later.
    world.sink.objects.update({replaced: segment, CHECKPOINT: copy})
    rebuilt(world)
    world.sink.delete(replaced)
    for _ in range(2):
        world.now += 100_000
        world.drain()
    assert world.rows() == ["1", "2"]


def test_nothing_is_made_up_under_another_name() -> None:
    world = world_with_one_batch()
    world.settings["id"] = "events_other"
    with pytest.raises(EditRefused, match="is of the same files"):
        rebuilt(world)
    assert world.rows() == ["1"]


def test_a_checkpoint_of_another_depth_is_not_made_again() -> None:
    world = world_with_one_batch()
    world.settings["partition_depth"] = 2
    with pytest.raises(StateError, match="was kept with a partition depth of 1"):
        rebuilt(world)
    del world.settings["partition_depth"]
    world.drain()
    assert world.rows() == ["1"]


def original(world: PipelineHarness) -> None:
    """One was at work before, and has done the first two files."""
    for name in ("1", "2"):
        world.put(f"{DAY}/{name}.json", f"theirs {name}")
    said = {"state": "Active", "value": f"{DAY}/2.json"}
    document = {"schema_version": 1, "watermark": said, "partition_watermarks": {DAY: "2.json"}}
    world.sink.put_atomic(CHECKPOINT, json.dumps({**document, "last_update_ts": 1}).encode())


@pytest.mark.parametrize("sweeps", [0, 600], ids=["no sweep has noted it", "a sweep has noted it"])
@pytest.mark.parametrize("copied", ["before our start", "since"])
def test_a_restored_original_checkpoint_is_noticed_and_rebuilt(sweeps: int, copied: str) -> None:
    world = PipelineHarness(grace_period="100s", late_sweep_interval=f"{sweeps}s")
    original(world)
    copy = world.sink.objects[CHECKPOINT]
    world.drain()
    copy = copy if copied == "before our start" else world.sink.objects[CHECKPOINT]
    world.put(f"{DAY}/3.json", "3")
    world.drain()
    world.sink.objects[CHECKPOINT] = copy
    with pytest.raises(StateError, match="is stale"):
        world.drain()
    rebuilt(world)
    assert world.rows() == ["3"]
    world.now += 50
    world.put(f"{DAY}/25.json", "in time")
    world.drain()
    world.now += 1000
    world.drain()
    assert world.rows() == ["3", "in time"]
    assert world.letters() == []


def test_next_rebuild_uses_names_that_an_operator_declared_done() -> None:
    world = PipelineHarness(grace_period="1s")
    world.put(f"{DAY}/1.json", "theirs")
    job = Rebuild(world.parts())
    job.write(job.plan(f"{DAY}/2.json"))
    rebuilt(world)
    world.drain()
    assert world.rows() == []


@pytest.mark.promise("G-047")
@pytest.mark.parametrize("moment", ["since it was looked at", "while it is written"])
def test_a_requested_late_file_comes_once_despite_a_rebuild(moment: str) -> None:
    world = RequestHarness(late_sweep_interval=0)
    world.put(f"{DAY}/3.json", "3")  # late, and nobody has noticed
    job = Rebuild(world.parts())
    made = job.plan(None)
    if moment == "since it was looked at":
        assert ingest_files(world.parts(), f"{DAY}/3.json") == ["ingested"]
        with pytest.raises(EditRefused, match="has changed since it was shown"):
            job.write(made)
    else:
        with (
            overtaking(world.engine, lambda: job.write(job.plan(None))),
            pytest.raises(FencedError),
        ):
            ingest_files(world.parts(), f"{DAY}/3.json")
        # The request is accepted anew, and by now polls find the file.
        assert ingest_files(world.parts(), f"{DAY}/3.json") == ["left"]
    rebuilt(world)
    world.drain()
    assert world.rows() == ["1", "3", "5", "52"]


def test_an_old_replay_makes_no_checkpoint_stale() -> None:
    world = PipelineHarness(grace_period="1s")
    world.put(f"{DAY}/1.json", "1")
    world.put(f"{DAY}/2.json", "bad")
    world.drain()
    world.put(f"{DAY}/2.json", "2")
    submit(world.parts(), {"letters": [each.id for each in objects(world.dlq, "events_main")]})
    world.drain()
    assert world.rows() == ["1", "2"]
    entry = max(p for p in world.sink.objects if p.startswith("_blizzard/journal/events_main/"))
    batch = entry.rpartition("/")[2].removesuffix(".json")
    commit = {"commitInfo": {"penguin": {"output_ids": [f"events/main/{batch}/1/0"]}}}
    world.sink.put_atomic(f"_delta_log/{0:020d}.json", json.dumps(commit).encode())
    world.now = moment_of(batch) + 40 * 86_400
    for number in (3, 4):
        world.put(f"{DAY}/{number}.json", str(number))
        world.drain()
        world.now += 86_400
    assert entry not in world.sink.objects
    assert world.rows() == ["1", "2", "3", "4"]

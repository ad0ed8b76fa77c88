"""Changing a checkpoint by hand: the effect is told, the daemon fenced, the old state kept."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import FencedError
from blizzard_core.watermark.progress import Progress
from blizzard_py.app.workers import source_pipeline
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_edit import Effect
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.state.batch import Batch
from blizzard_py.state.checkpoint_document import state_to_json
from blizzard_py.state.source_state import Position, SourceState, checkpoint_path
from tests.support.checkpoint_edits import DAY, ingested, set_to, store
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import letter_paths, polls, sweeps
from tests.support.request_harness import RequestHarness, explained, ingest_files

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


def test_a_moved_watermark_skips_or_repeats_and_reports_it() -> None:
    world = ingested()
    assert set_to(world, "1.json") == Effect((), (f"{DAY}/2.json", f"{DAY}/3.json"))
    assert world.checkpoint()["partition_watermarks"][DAY] == "1.json"
    world.drain()
    assert world.rows() == ["1", "2", "2", "3", "3", "x"]
    world.put(f"{DAY}/4.json", "4")
    world.put(f"{DAY}/6.json", "6")
    assert set_to(world, "5.json") == Effect((f"{DAY}/4.json",), ())
    world.drain()
    assert world.rows() == ["1", "2", "2", "3", "3", "6", "x"]


def test_empty_watermark_ingests_all_of_a_partition_again() -> None:
    world = ingested()
    told = set_to(world, "")
    assert len(told.again) == 3
    assert DAY not in world.checkpoint()["partition_watermarks"]
    assert world.checkpoint()["watermark"]["value"] == "date=2024-01-02/1.json"
    world.drain()
    assert world.rows() == ["1", "1", "2", "2", "3", "3", "x"]


def test_sweep_skips_a_late_file_that_a_poll_ingests_first() -> None:
    world = PipelineHarness(grace_period="1s", late_files="ingest", late_sweep_interval="1000s")
    for name in ("1", "2", "9"):
        world.put(f"{DAY}/{name}.json", name)
    world.drain()
    world.now += 100
    world.put(f"{DAY}/91.json", "91")
    world.drain()
    world.now += 100
    world.put(f"{DAY}/3.json", "late")  # below the scan start: the sweep's
    set_to(world, "2.json")  # but now a poll's
    world.now += 100
    world.drain()
    assert world.rows().count("late") == 1
    world.now += 5000
    world.drain()
    world.now += 5000
    world.drain()
    assert world.rows().count("late") == 1


@pytest.mark.promise("G-217")
def test_an_edit_fences_the_daemon_and_keeps_a_backup() -> None:
    world = ingested()
    daemon = world.drain()
    before = world.sink.read("_blizzard/events_main_checkpoint.json")
    set_to(world, "2.json")
    copies = store(world).copies()
    assert [world.sink.read(copy.entry.path) for copy in copies] == [before]
    world.put(f"{DAY}/4.json", "4")
    with pytest.raises(FencedError):
        daemon.cycle(threading.Event())
    assert "4" not in world.rows()
    set_to(world, "1.json")
    assert len(store(world).copies()) == 2


def test_reset_starts_over_and_keeps_the_counts() -> None:
    world = ingested()
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    told = checkpoint_edit.effect(source, seen.state, checkpoint_edit.reset(seen.state))
    assert (len(told.again), told.skipped) == (4, ())
    backup = checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)
    assert backup is not None
    assert world.checkpoint()["watermark"] == {"state": "Initial"}
    assert world.checkpoint()["writer"]["epoch"] > 1
    world.drain()
    assert len(world.rows()) == 8
    assert world.checkpoint()["totals"]["files"] == 8


def test_reset_without_a_watermark_and_without_a_checkpoint() -> None:
    world = PipelineHarness(use_watermark=False)
    assert (
        checkpoint_edit.change(
            world.pipeline(),
            checkpoint_edit.read_checkpoint(world.pipeline()),
            checkpoint_edit.reset,
            1,
        )
        is None
    )
    world.put("b.json", "b")
    world.drain()
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    with pytest.raises(EditRefused, match="keeps a set of names"):
        checkpoint_edit.with_watermark(seen.state, "", "a.json")
    checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)
    world.drain()
    assert world.rows() == ["b", "b"]


def in_storage(world: PipelineHarness, state: SourceState) -> None:
    """The state as a daemon has left it."""
    file = FencedFile(world.sink, checkpoint_path("events_main"))
    file.take(lambda document, _where: document, dict)
    file.save(state_to_json(state, world.now))


def test_nothing_is_changed_in_the_middle_of_publishing() -> None:
    world = ingested()
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    flying = seen.state.with_work(in_flight=(Batch("b", 1, "publishing", 1.0, (), 1.0),))
    in_storage(world, flying)
    seen = checkpoint_edit.read_checkpoint(source)
    before = world.sink.read("_blizzard/events_main_checkpoint.json")
    with pytest.raises(EditRefused, match="being published"):
        checkpoint_edit.change(world.pipeline(), seen, checkpoint_edit.reset, world.now)
    assert world.sink.read("_blizzard/events_main_checkpoint.json") == before


def test_a_batch_that_runs_is_dropped_and_found_again() -> None:
    world = ingested()
    world.put(f"{DAY}/4.json", "4")
    source = world.pipeline()
    entry = world.source.stat(f"{DAY}/4.json")
    assert entry is not None
    flying = checkpoint_edit.read_checkpoint(source).state.with_work(
        in_flight=(Batch("b", 1, "running", 1.0, (entry,), 1.0),)
    )
    in_storage(world, flying)
    set_to(world, "3.json")
    assert "in_flight" not in world.checkpoint()
    world.drain()
    assert world.rows() == ["1", "2", "3", "4", "x"]


def test_a_checkpoint_that_moved_meanwhile_is_left_alone() -> None:
    world = ingested()
    seen = checkpoint_edit.read_checkpoint(world.pipeline())
    world.put(f"{DAY}/4.json", "4")
    world.drain()
    after = world.sink.read("_blizzard/events_main_checkpoint.json")
    with pytest.raises(EditRefused, match="has changed since it was shown"):
        checkpoint_edit.change(world.pipeline(), seen, checkpoint_edit.reset, world.now)
    assert world.sink.read("_blizzard/events_main_checkpoint.json") == after


@pytest.mark.promise("G-217")
def test_a_concurrent_save_refuses_the_edit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ingested()
    source, daemon = world.pipeline(), world.drain()
    seen = checkpoint_edit.read_checkpoint(source)
    put = FencedFile.replace

    def daemon_saves_first(*arguments: Any) -> None:
        monkeypatch.undo()
        world.put(f"{DAY}/4.json", "4")
        daemon.cycle(threading.Event())
        put(*arguments)

    monkeypatch.setattr(FencedFile, "replace", daemon_saves_first)
    with pytest.raises(EditRefused, match="has changed since it was shown"):
        checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)
    assert store(world).copies() == []
    world.put(f"{DAY}/5.json", "5")
    daemon.cycle(threading.Event())
    assert world.checkpoint()["partition_watermarks"][DAY] == "5.json"


@pytest.mark.promise("G-217")
@pytest.mark.parametrize("lost", ["nothing", "the checkpoint"])
@pytest.mark.parametrize("edit", ["start over", "set"])
def test_a_change_is_one_write_of_the_checkpoint(lost: str, edit: str) -> None:
    world = ingested()
    if lost == "the checkpoint":
        world.sink.delete(CHECKPOINT)
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    versions: list[bytes] = []
    put_if = world.sink.put_if

    def counted(path: str, data: bytes, version: str | None) -> str:
        if path == CHECKPOINT:
            versions.append(data)
        return put_if(path, data, version)

    world.sink.put_if = counted  # type: ignore[method-assign]  # counts the writes
    changed = seen.state.with_summary(totals=replace(seen.state.summary.totals, files=99))
    after = checkpoint_edit.reset if edit == "start over" else lambda _state: changed
    checkpoint_edit.change(source, seen, after, world.now)
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("partition", "name", "message"),
    [
        ("date=2024-01-01/hour=00", "x", "is deeper than"),
        ("date=2023-01-01", "x", "is below the floor"),
        (DAY, f"{DAY}/1.json", "must be relative to the partition"),
        (DAY, "/1.json", "must be relative"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(partition: str, name: str, message: str) -> None:
    state = checkpoint_edit.read_checkpoint(ingested().pipeline()).state
    state = state.with_position(progress=replace(state.position.progress, floor="date=2024-01-01"))
    with pytest.raises(EditRefused, match=message):
        checkpoint_edit.with_watermark(state, partition, name)


def test_a_partition_that_never_had_a_file_is_refused() -> None:
    """Its watermark would be passed on to every partition that sorts before it."""
    world = ingested()
    world.put("date=2024-06-01/1.json", "later")
    source = world.pipeline()
    with pytest.raises(EditRefused, match="'nonsense' is no partition of this source"):
        checkpoint_edit.require_known(source, "nonsense")
    with pytest.raises(EditRefused, match="is no partition"):
        checkpoint_edit.require_known(source, "date=2024-06")
    for known in ("", DAY, "date=2024-06-01"):
        checkpoint_edit.require_known(source, known)
    world.source.delete_tree(DAY)
    checkpoint_edit.require_known(source, DAY)  # its watermark is still kept


def test_a_source_without_any_watermark_left_is_to_be_reset() -> None:
    with pytest.raises(EditRefused, match="nothing was ingested yet"):
        checkpoint_edit.with_watermark(SourceState(), "", "x")
    world = PipelineHarness()
    world.put("1.json", "1")
    world.drain()
    with pytest.raises(EditRefused, match="reset it instead"):
        checkpoint_edit.with_watermark(
            checkpoint_edit.read_checkpoint(world.pipeline()).state, "", ""
        )
    assert (
        checkpoint_edit.with_watermark(
            SourceState(position=Position(Progress("Idle", "9", depth=0))), "", "1"
        ).position.progress.value
        == "1"
    )
    assert isinstance(world.pipeline(), SourcePipeline)


@pytest.mark.parametrize("name", ["", "1.json"])
def test_names_in_grace_are_ingested_again_after_their_own_scan(name: str) -> None:
    """Their batch is named for the journal's sake, which must not bring them back."""
    world = PipelineHarness(grace_period="5m")
    world.put("date=2024-01-02/1.json", "x")
    world.drain()
    world.now += 30
    for row in ("1", "2"):
        world.put(f"{DAY}/{row}.json", row)
    world.drain()
    told = set_to(world, name)
    world.drain()
    assert world.rows() == sorted(["1", "2", "x", *(p[-6] for p in told.again)])
    assert told.again


def started_over() -> PipelineHarness:
    """The table and the source were emptied, the source is told to start over."""
    world = PipelineHarness(grace_period="1s")
    for name in ("1", "3", "5", "9"):
        world.put(f"{DAY}/{name}.json", name)
    world.put(f"{DAY}/_hidden.json", "hidden")
    world.drain()
    assert ingest_files(world.parts(), f"{DAY}/_hidden.json") == ["ingested"]
    world.now += 100
    for path in world.published():
        del world.sink.objects[path]
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    world.now += 10
    return world


@pytest.mark.promise("G-013")
def test_a_late_file_after_a_reset_can_be_replayed() -> None:
    world = started_over()
    late = world.source.objects.pop(f"{DAY}/3.json")
    daemon = polls(world)
    assert world.rows() == ["1", "5", "9"]
    world.source.objects[f"{DAY}/3.json"] = late
    assert explained(world, f"{DAY}/_hidden.json").verdict == "ignored"
    sweeps(world, daemon)
    assert letter_paths(world) == [f"{DAY}/3.json"]
    assert explained(world, f"{DAY}/3.json").verdict == "quarantined"
    paths = [f"{DAY}/3.json", f"{DAY}/_hidden.json"]
    assert ingest_files(world.parts(), *paths) == ["ingested", "ingested"]
    assert ingest_files(world.parts(), f"{DAY}/_hidden.json") == ["present"]
    daemon = polls(world)
    sweeps(world, daemon)
    assert world.rows() == ["1", "3", "5", "9", "hidden"]


@pytest.mark.promise("G-013")
@pytest.mark.parametrize("done", [[], ["1.json"], ["1.json", "5.json"]])
def test_a_rebuild_after_a_reset_counts_what_was_done_since(done: list[str]) -> None:
    world = started_over()
    held = {
        path: world.source.objects.pop(path)
        for path in list(world.source.objects)
        if path.rpartition("/")[2] not in done
    }
    if done:
        polls(world)
    world.source.objects.update(held)
    job = Rebuild(world.parts())
    made = job.plan(None)
    assert len(made.new) == 4 - len(done)
    job.write(made)
    sweeps(world)
    assert world.rows() == ["1", "3", "5", "9"]


def test_a_rebuild_after_a_reset_without_a_watermark() -> None:
    world = PipelineHarness(use_watermark=False)
    for name in ("a", "b"):
        world.put(f"{name}.json", name)
    world.drain()
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    job = Rebuild(world.parts())
    job.write(job.plan(None))
    world.drain()
    assert world.rows() == ["a", "a", "b", "b"]


@pytest.mark.promise("G-054")
def test_names_in_grace_survive_a_clock_repair_after_a_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of more names in grace than this the checkpoint leaves to the journal what it has.
    monkeypatch.setattr("blizzard_py.state.checkpoint_document.INLINE_NAMES", 3)
    world = PipelineHarness(grace_period="1h")
    for number in range(4):
        world.put(f"{DAY}/{number}.json", str(number))
    polls(world)
    world.put("date=2024-01-02/1.json", "skipped")
    set_to(world, "1.json", "date=2024-01-02")
    world.put(f"{DAY}/7.json", "7")
    polls(world)
    world.now -= 7200
    daemon = polls(world)
    world.put(f"{DAY}/8.json", "8")
    polls(world, daemon)
    polls(world)
    assert world.rows() == ["0", "1", "2", "3", "7", "8"]


@pytest.mark.promise("G-013")
def test_files_ingested_after_a_reset_come_once_on_any_clock() -> None:
    world = PipelineHarness(grace_period="1s")
    world.put(f"{DAY}/1.json", "1")
    polls(world)
    month = 30 * 86_400.0
    world.now += month  # the store's clock is wrong
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    polls(world)
    world.now -= month
    polls(world)
    ahead = f"{dt.datetime.fromtimestamp(world.now + month, dt.UTC):date=%Y-%m-%d}/1.json"
    paths = [f"{DAY}/_hidden.json", ahead]
    for path in paths:
        world.put(path, path)
    for state in ("ingested", "present"):
        assert ingest_files(world.parts(), *paths) == [state, state]
    world.now += month
    polls(world)
    assert world.rows() == sorted(["1", "1", *paths])


@pytest.mark.parametrize("how", ["reset", "fresh"])
@pytest.mark.parametrize("back", [0.9, 86_400.0], ids=["whole seconds", "a clock put right"])
def test_requested_files_come_again_after_a_reset(how: str, back: float) -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "3")  # late
    world.now += 0.9
    # Its journal is not folded yet.
    assert ingest_files(world.parts(), f"{DAY}/3.json") == ["ingested"]
    world.now -= back  # what the store says of the time in the same second, or from now on
    if how == "reset":
        source = world.pipeline()
        seen = checkpoint_edit.read_checkpoint(source)
        checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)
        polls(world)
    else:
        world.sink.delete(checkpoint_path("events_main"))
        world.drain(source_pipeline(world.parts(), fresh=True))
    assert world.rows() == sorted(["1", "3", "5", "52"] * 2)

"""A checkpoint made again where the journal lacks a batch: nothing comes twice, nothing is late."""

from __future__ import annotations

import contextlib

import pytest

from blizzard_core.errors import StateError, Unfinished
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.watermark.progress import PartitionProgress, Progress
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.edits.rebuild.names import window_of
from blizzard_py.state import checkpoint_document
from blizzard_py.state.journal import Record, RecordFile
from tests.support.lost_state import JOURNAL, dies_before_publishing, rebuild
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import RequestHarness

DAY = "date=2024-01-01"


def lost_journal(*, fails: bool = False) -> PipelineHarness:
    """A source whose names are in grace; ``fails`` leaves a file below them for another try."""
    world = PipelineHarness(grace_period="5m")
    for name in ("1", "2", "3"):
        world.put(f"{DAY}/{name}.json", name)
    if fails:
        world.engine.flaky[f"{DAY}/1.json"] = 1
    world.drain()
    for path in [p for p in world.sink.objects if p.startswith(JOURNAL)]:
        del world.sink.objects[path]
    return world


def sweeps(world: PipelineHarness) -> None:
    for secs in (10, 500, 90_000, 90_000):
        world.now += secs
        with contextlib.suppress(Unfinished):
            world.drain()


@pytest.mark.promise("G-211")
@pytest.mark.parametrize("fails", [False, True], ids=["alone", "above a file that failed"])
def test_names_in_grace_without_a_journal_stay_done(*, fails: bool) -> None:
    world = lost_journal(fails=fails)
    with pytest.raises(StateError, match="that the checkpoint counts"):
        world.drain()
    rebuild(world)
    sweeps(world)
    assert world.rows() == ["1", "2", "3"]
    assert not world.letters()


@pytest.mark.promise("G-211")
def test_late_file_after_a_rebuild_gets_a_dead_letter() -> None:
    world = lost_journal()
    rebuild(world)
    world.now += 1000
    world.drain()
    world.put(f"{DAY}/0.json", "0")
    sweeps(world)
    assert [letter["stage"] for letter in world.letters()] == ["late"]


@pytest.mark.promise("G-211")
def test_a_batch_taken_over_is_read_where_one_object_is_lost() -> None:
    world = PipelineHarness(grace_period="1s")
    world.put(f"{DAY}/1.json", "1")
    dies_before_publishing(world)
    world.drain()
    batches = [p for p in world.sink.objects if p.startswith(JOURNAL)]
    assert len(batches) == 2
    del world.sink.objects[min(batches)]
    sweeps(world)
    assert world.rows() == ["1"]
    assert not world.letters()


@pytest.mark.promise("G-211")
def test_names_that_only_the_journal_had_are_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_document, "INLINE_NAMES", 1)
    world = lost_journal()
    with pytest.raises(StateError, match="of the journal is missing"):
        world.drain()
    with pytest.raises(EditRefused, match="which the checkpoint needs, is missing"):
        rebuild(world)


@pytest.mark.promise("G-211")
def test_names_in_grace_that_the_journal_lacks_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PipelineHarness(grace_period="5m", checkpoint=CheckpointSettings(interval_files=1))
    for name in ("1", "2", "3"):
        world.put(f"{DAY}/{name}.json", name)
    world.drain()  # one scan, of which each batch has a name
    lost, *kept = sorted(path for path in world.sink.objects if path.startswith(JOURNAL))
    assert len(kept) == 2
    del world.sink.objects[lost]
    monkeypatch.setattr(checkpoint_document, "INLINE_NAMES", 1)
    rebuild(world)
    sweeps(world)
    assert world.rows() == ["1", "2", "3"]
    assert not world.letters()


def test_a_report_of_an_unfinished_batch_does_not_count() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "3")
    world.submit(f"{DAY}/3.json")
    dies_before_publishing(world)
    [batch] = world.checkpoint()["in_flight"]
    [staged] = [output["staged"] for output in batch["results"]["outputs"]]
    for path in (staged, f"{JOURNAL}{batch['batch']}.json"):
        world.sink.delete(path)
    rebuild(world)
    world.go_on()
    assert world.rows() == ["1", "3", "5", "52"]


def test_a_window_names_no_batch_of_a_request() -> None:
    first, second = (RecordFile(f"date={p}.json", "ingested", 1, 4.0) for p in ("1/a", "2/b"))
    by_poll = Record("b1", 5.0, 6.0, (first,), 5.0)
    by_request = Record("b2", 5.0, 6.0, (second,), 5.0, request="0a1b2c3d.1")
    evidence = Evidence(PipelineHarness().parts(), None)
    evidence.records = [by_poll, by_request]
    progress = Progress(
        "Active", "date=1/a.json", {"date=1": PartitionProgress("a.json", "", {"a.json": 5.0})}, 1
    )
    assert window_of(progress, evidence, ()) == (("b1", 5.0),)

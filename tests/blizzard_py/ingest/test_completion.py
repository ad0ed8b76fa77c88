"""Completions through the real batch protocol, with deaths at every change."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from blizzard_core.errors import FencedError, NotFound, Unfinished
from blizzard_core.handover.complete import (
    Completion,
    Completions,
    marker_path,
    parser,
)
from blizzard_core.settings.sources import SourceSettings
from blizzard_py.edits.checkpoint_edit import change, read_checkpoint, with_watermark
from blizzard_py.ingest.completion_mirror import CompletionMirror
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.completeness import Completeness, CountedPartition
from tests.support.memory_store import Died, Dying, MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import drain_requests, submit

DAY = "date=2025-06-14"  # the day before `PipelineHarness.begins`
MIRROR = "_blizzard/complete/events_main.json"
DAY_SECS = 86_400.0


class CompletionHarness(PipelineHarness):
    """A source with completions. It objects to an output of a partition that is complete."""

    def __init__(self, **source: Any) -> None:
        super().__init__(complete_after="1h", late_files="ingest", **source)
        self.sink.before_mutation = self.object

    def object(self, _op: str, path: str) -> None:
        if path.endswith(".parquet") and path.startswith("date="):
            partition = path.rpartition("/")[0]
            assert not self.completion(partition).complete_ts

    def completions(self) -> Completions:
        return parser(Completions)(json.loads(self.sink.read(MIRROR)), MIRROR)

    def completion(self, partition: str = DAY) -> Completion:
        try:
            return self.completions().partitions.get(partition, Completion())
        except NotFound:
            return Completion()

    def rest(self) -> None:
        """Let the grace period pass, and poll."""
        self.drain()
        self.now += 1000
        self.drain()

    def come_late(self, name: str = "0.ndjson", *rows: str) -> None:
        self.put(f"{DAY}/{name}", *(rows or ("late",)))
        self.now += 2 * DAY_SECS


@pytest.fixture
def world() -> CompletionHarness:
    found = CompletionHarness()
    found.template = "date=%Y-%m-%d"
    found.put(f"{DAY}/5.ndjson", "r1", "r2")
    found.rest()
    return found


def counts(world: CompletionHarness) -> tuple[int, int, int, int]:
    found = world.completion().contents
    return found.files, found.rows, found.bad_rows, found.quarantined


def test_partition_at_rest_is_completed(world: CompletionHarness) -> None:
    assert world.completion().complete_ts
    assert counts(world) == (1, 2, 0, 0)
    state = read_state(world.sink, "events_main")
    assert state.complete.partitions[DAY].completion == world.completion()


def test_partition_of_today_is_not_completed() -> None:
    world = CompletionHarness()
    world.put("date=2025-06-15/1.ndjson", "r")
    world.rest()
    assert not world.completion("date=2025-06-15").complete_ts
    world.now += DAY_SECS
    world.drain()
    assert world.completion("date=2025-06-15").complete_ts


def test_late_file_revokes_and_is_complete_again(world: CompletionHarness) -> None:
    world.come_late()
    world.drain()
    assert (world.completion().seq, counts(world)) == (2, (2, 3, 0, 0))


def test_reported_late_file_is_in_the_counts() -> None:
    world = CompletionHarness()
    world.settings["late_files"] = "report"
    world.put(f"{DAY}/5.ndjson", "r")
    world.rest()
    world.come_late()
    world.rest()
    assert (world.completion().seq, counts(world)) == (2, (2, 1, 0, 1))


def test_waiting_file_keeps_a_partition_open() -> None:
    world = CompletionHarness()
    world.engine.flaky[f"{DAY}/6.ndjson"] = 1
    world.put(f"{DAY}/5.ndjson", "r1")
    world.put(f"{DAY}/6.ndjson", "?", "r2")
    world.pipeline().cycle(threading.Event())
    world.now += 700
    with contextlib.suppress(Unfinished):
        world.pipeline().cycle(threading.Event())
    assert not world.completion().complete_ts
    world.rest()
    assert counts(world) == (2, 2, 1, 0)


def test_request_revokes_and_is_complete_again(world: CompletionHarness) -> None:
    submit(world.parts(), {"files": [f"{DAY}/5.ndjson"]}, mode="again")
    drain_requests(world.parts())
    assert world.completion().revoked_by == f"{DAY}/5.ndjson"
    world.rest()
    found = world.completion().contents
    assert (world.completion().seq, found.files, found.requested, found.rows) == (2, 1, 1, 4)


@pytest.mark.promise("G-225")
def test_every_death_keeps_late_rows_from_a_completion() -> None:
    for at in range(200):
        world = CompletionHarness()
        world.template = "date=%Y-%m-%d"
        world.put(f"{DAY}/5.ndjson", "r1")
        world.rest()
        world.come_late()
        dying = Dying(world.sink, world.source)
        world.sink.before_mutation = _both(dying, world)
        dying.arm(at)
        try:
            world.drain()
        except Died:
            dying.arm(-1)
        else:
            break
        world.rest()
        assert (world.completion().seq, counts(world)) == (2, (2, 2, 0, 0)), at
    assert at > 20


def test_changed_checkpoint_begins_a_new_era(world: CompletionHarness) -> None:
    era = world.completions().era
    view = world.pipeline()
    change(view, read_checkpoint(view), lambda s: with_watermark(s, DAY, "4.ndjson"), world.now)
    world.rest()
    assert world.completions().era != era
    assert not world.completion().complete_ts


@pytest.mark.promise("G-225")
def test_replaced_daemon_brings_no_revoked_completion_back(world: CompletionHarness) -> None:
    replaced = world.pipeline()
    fence = replaced._fence  # noqa: SLF001  # between two requests of a take-over
    takes = fence.take

    def paused(*arguments: Any) -> None:
        takes(*arguments)
        world.come_late()
        world.drain(world.pipeline())

    fence.take = paused  # type: ignore[method-assign]  # the pause
    with pytest.raises(FencedError):
        replaced.cycle(threading.Event())
    assert (world.completion().seq, counts(world)) == (2, (2, 3, 0, 0))


def test_deleted_state_begins_a_new_era(world: CompletionHarness) -> None:
    # Epochs begin anew, too: a marker of before is not to be taken for one of now.
    era = world.completions().era
    for folder in ("_blizzard", "_blizzard_fence"):
        world.sink.delete_tree(folder)
    world.now += 10
    world.rest()
    assert world.completions().era != era
    assert world.completion().seq == 1


def test_without_the_setting_completions_and_markers_go(world: CompletionHarness) -> None:
    marker = marker_path("events_main", DAY)
    world.sink.put_atomic(marker, b"{}")
    del world.settings["complete_after"]
    world.put(f"{DAY}/6.ndjson", "r3")
    world.drain()
    assert not {MIRROR, marker} & world.sink.objects.keys()
    assert "complete" not in world.checkpoint()
    world.settings["complete_after"] = "1h"
    world.rest()
    assert world.completions().partitions == {}


def test_partitions_from_before_the_setting_are_not_completed() -> None:
    world = CompletionHarness()
    del world.settings["complete_after"]
    world.put(f"{DAY}/5.ndjson", "r")
    world.rest()
    world.settings["complete_after"] = "1h"
    world.put(f"{DAY}/6.ndjson", "r")
    world.rest()
    assert not world.completion().complete_ts


def _both(dying: Dying, world: CompletionHarness) -> Callable[[str, str], None]:
    step = dying.storages[0].before_mutation

    def before(op: str, path: str) -> None:
        world.object(op, path)
        step(op, path)

    return before


def _owner() -> None:
    """Accept: the checkpoint is ours."""


def _replaced() -> None:
    raise FencedError("taken over")


def _revoked() -> CountedPartition:
    return CountedPartition(Completion(revoked_by="p/x"))


class TestMirror:
    # An older checkpoint that came back gives an epoch again, or a lower one.
    @pytest.mark.parametrize("epoch", [1, 2, 3])
    def test_late_write_of_a_replaced_daemon_is_refused(self, epoch: int) -> None:
        sink = MemoryStorage("mem://lake", lambda: 0.0)
        old, new = CompletionMirror(sink, "a", _replaced), CompletionMirror(sink, "a", _owner)
        old.take(Completeness("1"), epoch)
        new.look()
        new.take(Completeness("1"), 2)
        with pytest.raises(FencedError, match="taken over"):
            old.write(Completeness("1", 5, {"p": _revoked()}), epoch)
        assert b"revoked_by" not in sink.read("_blizzard/complete/a.json")

    def test_lost_answer_is_written_again(self) -> None:
        sink = MemoryStorage("mem://lake", lambda: 0.0)
        mirror = CompletionMirror(sink, "a", _owner)
        mirror.take(Completeness("1"), 1)
        sink.put_atomic("_blizzard/complete/a.json", sink.read("_blizzard/complete/a.json"))
        mirror.write(Completeness("1", 5, {"p": _revoked()}), 1)
        assert b"revoked_by" in sink.read("_blizzard/complete/a.json")


def test_setting_needs_a_watermark() -> None:
    with pytest.raises(ValueError, match="complete_after needs use_watermark: true"):
        SourceSettings(
            source_uri="mem://raw",
            use_watermark=False,
            complete_after="1h",  # type: ignore[arg-type]  # pydantic converts
        )

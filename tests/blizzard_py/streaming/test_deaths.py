"""Deaths at the protocol's points: no row is lost, none comes twice, none is late twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.errors import BlizzardError, Cancelled, EngineError, FencedError, StorageError
from blizzard_core.storage.local import LocalStorage
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.streaming.query import StreamQuery
from blizzard_py.streaming.state_archive import StateArchive, WorkingCopy
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of
from tests.support.stream_deaths import POINTS, drain_and_die


@pytest.fixture
def world(tmp_path: Path, spark_engine: SparkEngine) -> EventTimeHarness:
    return EventTimeHarness(tmp_path, spark_engine)


# The others differ from these by what every pipeline's tests look at, leave the same behind, or
# are those of other tests; each costs a restart. `make chaos-event-time` takes them all.
OURS = [
    point
    for point in POINTS
    if point
    not in {
        "1-planned",
        "2-before-the-job",
        "2-accepted",  # a working copy that is not there yet is restored anew as well
        "3-judged",
        "3-rows-written",
        "3-settled",  # of the test of an advanced watermark, and of `test_event_time_run`
        "4-packed",  # right before the save of 5-before-the-commit
        "6-letters-kept",
        "6-published",
        "7-pruned",
    }
]


@pytest.mark.promise("G-063")
@pytest.mark.timeout(900)  # a loaded machine takes ten times as long
def test_a_stream_survives_a_death_at_every_point(world: EventTimeHarness) -> None:
    oracle = Oracle(TUMBLING)
    world.put([row(100)])
    oracle.add_batch({"0001.ndjson": [row(100)]})
    world.drain()
    for number, point in enumerate(OURS):
        now = 112 + 7 * number
        # Each batch closes a window, has a row that is late, and one that is not.
        rows = [row(now), row(now - 9, "b", number), row(now - 25)]
        oracle.add_batch({world.put(rows): rows})
        assert drain_and_die(world, point), point
    world.drain()
    stream = world.stream()
    assert windows_of(world.table()) == oracle.emitted
    assert world.late() == oracle.late
    assert [one.watermark_ms for one in stream.history] == oracle.watermarks
    assert stream.unaccounted_rows == 0
    assert len(set(world.output_ids())) == len(world.output_ids())
    assert world.packs() == stream.objects


def check(world: EventTimeHarness, oracle: Oracle) -> None:
    """Check that the rows equal brute force, and that no unnamed object is left."""
    assert windows_of(world.table()) == oracle.emitted
    assert world.late() == oracle.late
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert world.packs() == world.stream().objects


@pytest.mark.promise("G-070")
def test_a_watermark_that_is_advanced_survives_deaths(world: EventTimeHarness) -> None:
    oracle = Oracle(TUMBLING)
    world.put([row(101), row(106, "b")])
    oracle.add_batch({"0001.ndjson": [row(101), row(106, "b")]})
    world.drain()
    oracle.add_batch({}, world.advance(140))
    assert drain_and_die(world, "3-settled")
    assert drain_and_die(world, "5-committed")
    world.drain()
    assert not world.stream().is_to_advance
    rows = [row(103), row(160)]
    oracle.add_batch({world.put(rows): rows})
    world.drain()
    check(world, oracle)


def test_a_process_continues_from_the_commit_after_an_error(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(TUMBLING)
    worker = world.pipeline()
    settle = StreamQuery.run_batch
    failing = [True]

    def flaky(query: StreamQuery, *args: object) -> object:
        found = settle(query, *args)  # type: ignore[arg-type]  # handed on
        if failing and failing.pop():
            raise BlizzardError("the answer was lost")
        return found

    for rows in ([row(101)], [row(120), row(121)]):
        oracle.add_batch({world.put(rows): rows})
    monkeypatch.setattr(StreamQuery, "run_batch", flaky)
    with pytest.raises(BlizzardError, match="was lost"):
        world.drain(worker)
    world.drain(worker)
    worker.close()
    assert windows_of(world.table()) == oracle.emitted
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks


@pytest.mark.promise("G-064")
def test_fenced_writer_commits_and_deletes_nothing(world: EventTimeHarness) -> None:
    world.put([row(101)])
    old = world.pipeline()
    world.drain(old)
    world.put([row(120)])
    world.drain()  # another process takes over, and settles
    world.put([row(140)])
    with pytest.raises(FencedError):
        world.drain(old)
    old.close()
    world.drain()
    assert [one["n"] for one in world.table()] == [1, 1]
    assert world.packs() >= world.stream().objects


@pytest.mark.promise("G-064")
def test_a_writer_replaced_while_archiving_commits_nothing(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(TUMBLING)
    for rows in ([row(101)], [row(120), row(104, "b")], [row(103), row(140)]):
        oracle.add_batch({world.put(rows): rows})
    pack = StateArchive.pack
    paused = [False]

    def pack_with_takeover(packs: StateArchive, *args: object) -> object:
        if not paused[0]:
            paused[0] = True
            world.drain()  # another process takes over meanwhile, and settles all there is
        return pack(packs, *args)  # type: ignore[arg-type]  # handed on

    old = world.pipeline()
    monkeypatch.setattr(StateArchive, "pack", pack_with_takeover)
    with pytest.raises(FencedError):
        world.drain(old)
    old.close()
    stream = world.stream()
    assert stream.batch == 3
    assert world.packs() > stream.objects  # what was packed for nothing
    rows = [row(160)]
    oracle.add_batch({world.put(rows): rows})
    world.drain()
    check(world, oracle)


@pytest.mark.promise("G-065")
def test_a_full_disk_or_removed_copy_costs_one_attempt(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle(TUMBLING)
    for rows in ([row(101)], [row(120), row(104, "b")], [row(103), row(140)]):
        oracle.add_batch({world.put(rows): rows})
    open_output = LocalStorage.open_output
    written = [0]

    def filling(storage: LocalStorage, path: str) -> object:
        if "_blizzard/state/" in path:
            written[0] += 1
            if written[0] == 2:  # of the second batch
                return Path("/dev/full").open("wb", buffering=0)  # closed by `_write`
        return open_output(storage, path)

    monkeypatch.setattr(LocalStorage, "open_output", filling)
    worker = world.pipeline()
    with pytest.raises(StorageError, match=r"_blizzard/state/pages_web/.*No space left"):
        world.drain(worker)
    pack = StateArchive.pack
    removing = [True]

    def removed(packs: StateArchive, copy: WorkingCopy, *args: object) -> object:
        if removing and removing.pop():  # by one that was replaced, which begins with the mark
            (copy.root.parent / "begun").unlink()
        return pack(packs, copy, *args)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(StateArchive, "pack", removed)
    with pytest.raises(EngineError, match="was removed while it was in use"):
        world.drain(worker)
    world.drain(worker)
    worker.close()
    check(world, oracle)


def test_a_batch_that_is_cancelled_runs_again(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put([row(101)])
    worker = world.pipeline()
    settle = StreamQuery.run_batch

    def stopped(query: StreamQuery, *args: object) -> object:
        worker.cancel()
        return settle(query, *args)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(StreamQuery, "run_batch", stopped)
    with pytest.raises(Cancelled):
        world.drain(worker)
    monkeypatch.undo()
    world.drain(worker)
    worker.close()
    assert world.stream().batch == 1


def test_a_save_that_fails_leaves_nothing_behind(
    world: EventTimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = FencedFile.save
    failing = [True]

    def lost(file: FencedFile, document: object) -> None:
        publishing = [b["phase"] for b in document.get("in_flight", [])] == ["publishing"]  # type: ignore[attr-defined]  # a document
        if publishing and failing and failing.pop():
            raise OSError("no space left on device")
        save(file, document)  # type: ignore[arg-type]  # handed on

    world.put([row(101)])
    monkeypatch.setattr(FencedFile, "save", lost)
    with pytest.raises(OSError, match="no space"):
        world.drain()
    world.drain()
    assert world.stream().batch == 1
    assert world.packs() == world.stream().objects

"""Ranges of names that operators request: what is in stays out of them, or comes again once."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from blizzard_core.errors import FencedError, StateError, Unavailable
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.protocol import ListingPage
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.requests.progress import open_of
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import Journal
from tests.support.memory_store import each_death
from tests.support.promise_scenarios import gated
from tests.support.request_harness import DAY, SOURCE_ID, RequestHarness

BASE = ["1", "5", "52"]
LATE = f"{DAY}/3.json"
RANGE = {"range": [DAY, DAY]}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 2)


def delete_rows(world: RequestHarness, *but: str) -> None:
    """Delete rows from the table, as one does before a range comes again."""
    for path, rows in world.published().items():
        if not set(but).issuperset(rows):
            world.sink.delete(path)


def marks(world: RequestHarness) -> dict[str, object]:
    """The fields of the checkpoint that decide what polls find."""
    names = ("state", "watermark", "partition_watermarks", "scan_starts", "recent", "floor")
    document = world.checkpoint()
    return {name: document.get(name) for name in names}


def check_nothing_is_left(world: RequestHarness) -> None:
    work = world.work
    assert not [*work.queue, *work.in_flight, *open_of(work.requests)]


@pytest.fixture
def history() -> RequestHarness:
    """A source that began at a day, and files of the days before it."""
    days = {"prefix_template": "date=%Y-%m-%d", "lookback": 2}
    world = RequestHarness(partition_filter=days, grace_period="1s")
    world.source.objects.clear()
    for path in [*world.sink.objects]:
        world.sink.delete(path)
    for day in ("08", "09", "10", "14", "15"):
        world.put(f"date=2025-06-{day}/1.json", day)
    world.drain()
    world.now += 100
    world.put("date=2025-06-15/2.json", "15b")
    world.drain()
    assert world.rows() == ["14", "15", "15b"]
    return world


def test_history_below_the_begin_is_filled_in_once(history: RequestHarness) -> None:
    before = marks(history)
    ends = ["date=2025-06-09", "date=2025-06-14"]
    assert history.bring({"range": ends}) == {
        "date=2025-06-09/1.json": "ingested",
        "date=2025-06-10/1.json": "ingested",
        "date=2025-06-14/1.json": "present",
    }
    assert marks(history) == before
    assert set(history.bring({"range": ends}).values()) == {"present"}
    assert history.bring({"range": ["date=2025-06-01", "date=2025-06-08"]}) == {
        "date=2025-06-08/1.json": "ingested"
    }
    history.put("date=2025-06-15/3.json", "new")
    history.go_on()
    assert history.rows() == ["08", "09", "10", "14", "15", "15b", "new"]
    assert history.letters() == []


def test_whatever_never_came_is_added_and_what_polls_do_is_left() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/60.json", "bad")
    world.drain()
    world.put(f"{DAY}/60.json", "mended")
    for name in ("3.json", "_hidden.json", "other.json.gz", "61.json"):
        world.put(f"{DAY}/{name}", name[:2])
    found = world.bring(RANGE)
    assert found == {
        f"{DAY}/1.json": "present",
        LATE: "ingested",
        f"{DAY}/5.json": "present",
        f"{DAY}/52.json": "present",
        f"{DAY}/60.json": "ingested",
        f"{DAY}/61.json": "present",  # live files come first, so it was in by then
    }
    world.go_on()
    assert world.rows() == sorted([*BASE, "3.", "61", "mended"])


@pytest.mark.promise("G-031")
@pytest.mark.parametrize("mode", ["add", "again"])
def test_new_files_are_left_to_polls_also_where_these_wait(mode: str) -> None:
    world = RequestHarness()
    new = f"{DAY}/6.json"
    soon = "date=2025-06-16/1.json"  # its time comes within the hour
    ahead = "date=2025-06-20/1.json"  # kept apart for days, so nobody else takes it now
    world.now = 1_750_030_200.0
    for path in (new, soon, ahead):
        world.put(path, path)
    assert world.bring({"range": [new, "date=2025-06-30"]}, mode=mode) == {
        new: "left",
        soon: "left",
        ahead: "ingested",
    }
    world.put("date=2025-06-20/2.json", "later")
    world.go_on(6)
    assert world.rows() == sorted([*BASE, new, soon, ahead, "later"])


@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_file_that_waits_for_another_try_is_left_to_polls(mode: str) -> None:
    world = RequestHarness()
    path = f"{DAY}/6.json"
    world.put(path, "6")
    world.engine.flaky[path] = 1
    with contextlib.suppress(Unavailable):
        world.pipeline().cycle(threading.Event())
    assert world.bring({"range": [path, path]}, mode=mode) == {path: "left"}
    assert world.rows() == [*BASE, "6"]


@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_file_in_its_grace_is_left_to_polls(mode: str) -> None:
    world = RequestHarness(grace_period="1h")
    world.put(LATE, "in grace")
    assert world.bring({"range": [LATE, LATE]}, mode=mode) == {LATE: "left"}
    world.go_on()
    assert world.rows() == sorted([*BASE, "in grace"])


@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_closed_partition_can_be_in_a_range(mode: str) -> None:
    world = RequestHarness(max_tracked_partitions=1)
    for day in ("02", "03"):
        for _ in range(2):
            world.now += 100
            world.put(f"date=2024-01-{day}/{world.now:.0f}.json", day)
            world.drain()
    assert world.checkpoint()["floor"] > DAY
    closed = "date=2023-01-01/1.json"
    world.put(closed, "closed")
    delete_rows(world, "02", "03")
    found = world.bring({"range": ["date=2023-01-01", DAY]}, mode=mode)
    assert found[closed] == "ingested"
    world.go_on()
    again = BASE if mode == "again" else []
    assert world.rows() == sorted(["02", "02", "03", "03", *again, "closed"])


def test_ends_that_are_files_are_in_the_range() -> None:
    world = RequestHarness()
    for name in ("2", "3", "4"):
        world.put(f"{DAY}/{name}.json", name)
    first, last = f"{DAY}/2.json", f"{DAY}/4.json"
    assert world.bring({"range": [first, LATE]}) == {first: "ingested", LATE: "ingested"}
    assert list(world.bring({"range": [first, last]}).values()) == ["present"] * 2 + ["ingested"]
    assert world.bring({"range": [f"{DAY}/2", f"{DAY}/3"]}, mode="again") == {
        first: "ingested",
        LATE: "ingested",
    }
    assert world.rows() == sorted([*BASE, "2", "2", "3", "3", "4"])


def test_without_a_watermark_a_range_comes_again_as_well() -> None:
    world = RequestHarness(use_watermark=False)
    world.put(LATE, "new")
    world.drain()
    delete_rows(world)
    world.put(f"{DAY}/4.json", "4")
    assert world.bring(RANGE, mode="again")[f"{DAY}/4.json"] == "present"  # by polls, meanwhile
    assert world.rows() == sorted([*BASE, "4", "new"])


def test_requested_file_is_ingested_again_and_recorded() -> None:
    world = RequestHarness()
    world.put(LATE, "three")
    assert world.ingest(LATE) == ["ingested"]
    for _ in range(3):
        delete_rows(world)
        assert set(world.bring(RANGE, mode="again").values()) == {"ingested"}
        assert world.rows() == [*BASE, "three"]
    state = read_state(world.sink, SOURCE_ID)
    assert state.names.unfolded.agrees_with(Journal(world.sink, SOURCE_ID).batches())
    assert not read_ledger(world.sink, SOURCE_ID).unprocessed([LATE])
    assert set(world.bring(RANGE).values()) == {"present"}


@pytest.mark.promise("G-036")
def test_a_range_comes_again_once_and_once_more_on_demand() -> None:
    world = RequestHarness()
    first = world.ask(RANGE, mode="again", once_more=False)
    world.drain()
    assert world.rows() == sorted(BASE * 2)
    assert world.ask(RANGE, mode="again", once_more=False) == first
    world.drain()
    assert world.rows() == sorted(BASE * 2)
    assert world.ask(RANGE, mode="again") != first
    world.drain()
    assert world.rows() == sorted(BASE * 3)


@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_listing_that_fails_is_tried_again(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = RequestHarness()
    world.put(LATE, "late")
    list_range, asked = world.source.list_range, itertools.count()

    def fails(after: str, until: str | None) -> Iterator[ListingPage]:
        if until is not None and until.startswith(DAY) and not next(asked):
            raise Unavailable("not now")
        return list_range(after, until)

    monkeypatch.setattr(world.source, "list_range", fails)
    request_id = world.ask(RANGE, mode=mode)
    worker = world.pipeline()
    worker.cycle(threading.Event())
    assert world.request(request_id).state == "running"
    world.drain(worker)
    assert world.request(request_id).state == "done"
    assert world.rows() == sorted([*BASE, "late", *(BASE if mode == "again" else ())])


@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_death_at_every_change_neither_doubles_nor_loses_a_row(mode: str) -> None:

    def prepared() -> RequestHarness:
        world = RequestHarness()
        world.put(LATE, "late")
        for path in ("date=2023-01-01/1.json", f"{DAY}/4.json"):
            world.put(path, "bad" if path.endswith("4.json") else "old")
        world.put(f"{DAY}/6.json", "6")
        if mode == "again":
            delete_rows(world)
        world.ask({"range": ["date=2023-01-01", DAY]}, mode=mode)
        return world

    for at, world, _ in each_death(prepared, RequestHarness.drain):
        world.drain()
        assert world.rows() == sorted([*BASE, "6", "late", "old"]), at
        assert world.ended() == ["done"]
        assert {letter["path"] for letter in world.letters()} == {f"mem://raw/{DAY}/4.json"}, at
        check_nothing_is_left(world)
    assert at > 40


def falling_into(
    world: RequestHarness, at: int, deed: Callable[[], None]
) -> tuple[SourcePipeline, Callable[[], bool]]:
    """A daemon before whose call ``at`` something is done, and whether it came to that."""
    calls, done = itertools.count(), list[int]()

    def gate(_call: str) -> None:
        if next(calls) == at:
            done.append(at)
            deed()

    return gated(world, gate), lambda: bool(done)


def appear_late(world: RequestHarness) -> None:
    world.put(f"{DAY}/53.json", "late")
    world.now += 86_401.0  # a sweep is due
    world.submit(f"{DAY}/53.json")


@pytest.mark.promise("G-035")
@pytest.mark.parametrize("mode", ["add", "again"])
@pytest.mark.parametrize("late_files", ["ingest", "quarantine", "report"])
def test_late_file_is_ingested_once_when_it_appears_in_a_request(
    late_files: str, mode: str
) -> None:
    """A file appears, and is found by a sweep, requested by its name or by the range: by one."""
    at, reached = 0, True
    while reached:
        world = RequestHarness(late_files=late_files)
        world.put(f"{DAY}/6.json", "6")
        world.go_on(1)
        if mode == "again":
            delete_rows(world)
        world.ask(RANGE, mode=mode)
        worker, reached_of = falling_into(world, at, partial(appear_late, world))
        for _ in range(4):
            world.drain(worker)
        reached = reached_of()
        world.go_on(2)
        late = ["late"] * reached
        assert world.rows() == sorted([*BASE, "6", *late]), at
        check_nothing_is_left(world)
        at += 1
    assert at > 30


def rebuild(world: RequestHarness, *, is_lost: bool = False) -> None:
    """The checkpoint is made again from what is there, if nobody saves meanwhile."""
    if is_lost:
        world.sink.delete(f"_blizzard/{SOURCE_ID}_checkpoint.json")
    job = Rebuild(world.parts())
    with contextlib.suppress(EditRefused):
        job.write(job.plan(None))


@pytest.mark.promise("G-035")
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("mode", ["add", "again"])
def test_a_rebuild_within_a_range_brings_nothing_twice(mode: str, is_lost: bool) -> None:
    at, reached = 0, True
    while reached:
        world = RequestHarness(
            late_sweep_interval=0, checkpoint=CheckpointSettings(interval_files=1)
        )
        world.put(LATE, "late")  # nobody has noticed, and a rebuild takes it for new
        if mode == "again":
            delete_rows(world)
        world.ask(RANGE, mode=mode)
        worker, reached_of = falling_into(world, at, partial(rebuild, world, is_lost=is_lost))
        with contextlib.suppress(FencedError, StateError):
            world.drain(worker)
        reached = reached_of()
        if is_lost:
            rebuild(world)  # what it wrote down meanwhile nobody knew then
        world.drain()
        assert world.rows() == [*BASE, "late"], at
        check_nothing_is_left(world)
        at += 1
    assert at > 30


def test_new_file_is_ingested_once_during_a_range_request() -> None:
    world = RequestHarness(checkpoint=CheckpointSettings(interval_files=1))
    delete_rows(world)
    new = f"{DAY}/6.json"
    world.put(new, "6")
    ends = {"range": [DAY, new]}
    world.ask(ends, mode="again")
    world.drain()
    world.go_on(1)
    assert world.rows() == [*BASE, "6"]

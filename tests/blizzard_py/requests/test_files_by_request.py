"""Files that operators name: the daemon brings each once, whatever its name."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from blizzard_core.errors import EngineError, FencedError, Unavailable
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_py.app.request_selector import RequestSelector
from blizzard_py.edits import checkpoint_edit
from blizzard_py.ingest.publish import OutputIdGenerator
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.requests.progress import open_of
from blizzard_py.state.checkpoint_file import read_state
from tests.support.memory_store import each_death
from tests.support.pipeline_harness import overtaking
from tests.support.request_harness import DAY, SOURCE_ID, RequestHarness, made

BASE = ["1", "5", "52"]
ODD = [
    f"{DAY}/3.json",  # late: below the watermark, and passed
    f"{DAY}/_hidden.json",
    f"{DAY}/other.txt",
    f"{DAY}/zz%2Fodd ü.json.bak",
    "date=9999-12-31/1.json",  # kept apart
]


def marks(world: RequestHarness) -> dict[str, object]:
    """The fields of the checkpoint that decide what polls find."""
    names = ("state", "watermark", "partition_watermarks", "scan_starts", "recent", "floor")
    document = world.checkpoint()
    return {name: document.get(name) for name in names}


@pytest.mark.promise("G-045")
@pytest.mark.parametrize("path", ODD)
def test_whatever_the_name_it_comes_once_and_never_again(path: str) -> None:
    world = RequestHarness()
    world.drain()
    world.put(path, "given")
    assert world.previewed(path) == ["taken"]
    assert world.rows() == BASE
    before = marks(world)
    assert world.ingest(path) == ["ingested"]
    assert marks(world) == before
    world.put(f"{DAY}/6.json", "6")
    world.go_on()
    assert world.rows() == [*BASE, "6", "given"]
    assert world.letters() == []
    assert world.previewed(path) == ["present"]
    assert world.ingest(path) == ["present"]
    assert world.rows() == [*BASE, "6", "given"]


def test_a_request_that_is_over_says_how_it_went() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "a", "b")
    world.put(f"{DAY}/4.json", "bad")
    paths = [f"{DAY}/3.json", f"{DAY}/4.json", f"{DAY}/1.json", f"{DAY}/9.json"]
    request_id = world.submit(*paths)
    world.drain()
    found = world.request(request_id)
    assert found.state == "done"
    assert found.counts == {
        "taken": 2,
        "present": 1,
        "missing": 1,
        "ingested": 1,
        "failed": 1,
        "rows": 2,
    }
    end = world.mailbox.end_record(request_id)
    assert (end.state, end.counts) == ("done", found.counts)
    assert list(world.outcomes(request_id).values()) == [
        "ingested",
        "quarantined",
        "present",
        "missing",
    ]


def test_a_closed_partition_is_no_obstacle() -> None:
    world = RequestHarness(max_tracked_partitions=1)
    for day in ("02", "03"):
        for _ in range(2):
            world.now += 100
            world.put(f"date=2024-01-{day}/{world.now:.0f}.json", day)
            world.drain()
    assert world.checkpoint()["floor"] > DAY
    world.put("date=2023-01-01/1.json", "closed")
    assert world.ingest("date=2023-01-01/1.json") == ["ingested"]
    world.go_on()
    assert world.rows() == ["02", "02", "03", "03", *BASE, "closed"]


@pytest.mark.promise("G-045")
def test_a_future_partitions_file_is_passed_when_due() -> None:
    world = RequestHarness()
    for name in ("1", "3"):
        world.put(f"date=2025-06-20/{name}.json", f"early{name}")  # five days ahead of the clock
    world.drain()
    assert world.ingest("date=2025-06-20/1.json", "date=2025-06-20/3.json") == ["ingested"] * 2
    assert world.checkpoint()["ahead"] == ["date=2025-06-20/3.json"]
    world.put("date=2025-06-20/2.json", "other")
    world.put("date=2025-06-20/4.json", "above")
    world.put(f"{DAY}/6.json", "6")
    world.go_on(days=6)
    assert world.rows() == [*BASE, "6", "above", "early1", "early3", "other"]
    assert world.checkpoint()["partition_watermarks"]["date=2025-06-20"] == "4.json"
    assert "ahead" not in world.checkpoint()
    assert world.letters() == []


@pytest.mark.parametrize("behind", [0.0, 2 * 3600.0, -2 * 3600.0])
def test_no_machine_clock_decides_who_reads_a_due_partition(
    behind: float,
) -> None:
    world = RequestHarness(max_ahead=0, checkpoint=CheckpointSettings(interval_files=1))
    world.template = ""
    day = datetime.fromtimestamp(world.now, UTC).strftime("date=%Y-%m-%d-%H")
    paths = [f"{day}/{number}.json" for number in range(3)]
    for path in paths:
        world.put(path, path[-6:])
    submitted: list[str] = []
    ingest = world.engine.ingest

    def ingest_and_submit(job: IngestJob) -> IngestResult:
        if not submitted:
            submitted.append(world.submit(paths[-1]))
        return ingest(job)

    world.engine.ingest = ingest_and_submit  # type: ignore[method-assign]  # the daemon's only
    world.now -= behind
    world.drain()
    world.now += 2 * behind
    world.go_on(1)
    assert world.rows() == ["0.json", "1", "1.json", "2.json", "5", "52"]


@pytest.mark.parametrize("name", ["6.json", "7.json"])
def test_request_leaves_pending_files_to_the_daemon(name: str) -> None:
    world = RequestHarness()
    world.put(f"{DAY}/{name}", "new")
    world.engine.flaky[f"{DAY}/7.json"] = 1
    if name == "7.json":
        with contextlib.suppress(Unavailable):
            world.pipeline().cycle(threading.Event())  # waits for another try now
    assert world.ingest(f"{DAY}/{name}") == ["left"]
    assert world.rows() == [*BASE, "new"]


def test_request_leaves_late_files_to_an_ingesting_sweep() -> None:
    world = RequestHarness(late_files="ingest")
    world.put(f"{DAY}/3.json", "late")
    assert world.ingest(f"{DAY}/3.json") == ["left"]
    world.go_on()
    assert world.rows() == [*BASE, "late"]
    # Without sweeps nobody else takes it.
    other = RequestHarness(late_files="ingest", late_sweep_interval=0)
    other.put(f"{DAY}/3.json", "late")
    assert other.ingest(f"{DAY}/3.json") == ["ingested"]


@pytest.mark.parametrize("late_files", ["report", "quarantine"])
def test_request_ingests_a_late_file_that_the_sweep_reported(late_files: str) -> None:
    world = RequestHarness(late_files=late_files)
    world.put(f"{DAY}/3.json", "late")
    world.go_on()
    assert world.rows() == BASE
    assert len(world.letters()) == (late_files == "quarantine")
    assert world.ingest(f"{DAY}/3.json") == ["ingested"]
    world.go_on()
    assert world.rows() == [*BASE, "late"]


def test_request_ingests_a_failed_file_after_it_is_mended() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    assert world.ingest(f"{DAY}/6.json") == ["quarantined"]
    world.go_on()
    world.put(f"{DAY}/6.json", "mended")
    assert world.ingest(f"{DAY}/6.json") == ["ingested"]
    assert world.rows() == [*BASE, "mended"]


def test_of_what_nobody_knows_somebody_has_to_insist() -> None:
    world = RequestHarness()
    # As a source is left whose ledger and journal are gone.
    document = world.checkpoint()
    del document["sweep"], document["unfolded"]
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        world.sink.delete(path)
    world.sink.put_atomic(f"_blizzard/{SOURCE_ID}_checkpoint.json", json.dumps(document).encode())
    world.put(f"{DAY}/3.json", "late?")
    assert world.ingest(f"{DAY}/1.json", f"{DAY}/3.json") == ["refused", "refused"]
    world.go_on()  # notes them
    assert world.ingest(f"{DAY}/3.json") == ["refused"]
    assert world.ingest(f"{DAY}/3.json", assume_missing=True) == ["ingested"]
    assert world.ingest(f"{DAY}/3.json", assume_missing=True) == ["present"]


def test_without_a_watermark_the_set_says_what_is_the_daemons() -> None:
    world = RequestHarness(use_watermark=False)
    world.drain()
    shown = world.checkpoint()["watermark"]
    world.put(f"{DAY}/3.json", "new")
    world.put(f"{DAY}/x.txt", "text")
    paths = [f"{DAY}/3.json", f"{DAY}/x.txt", f"{DAY}/1.json"]
    assert world.ingest(*paths) == ["left", "ingested", "present"]
    assert world.checkpoint()["watermark"] == shown
    world.settings["compression"] = "auto"
    world.drain()
    assert world.rows() == [*BASE, "new", "text"]


@pytest.mark.promise("G-045")
@pytest.mark.parametrize("name", ["0.json.gz", "3.json.gz", "8.json.gz"])
def test_an_ending_accepted_later_repeats_no_file(name: str) -> None:
    world = RequestHarness()
    world.put(f"{DAY}/{name}", "zipped")
    assert world.ingest(f"{DAY}/{name}") == ["ingested"]
    world.settings["compression"] = "auto"
    world.put(f"{DAY}/9.json", "9")
    world.go_on()
    assert world.rows() == [*BASE, "9", "zipped"]
    assert "ahead" not in world.checkpoint()


def test_without_a_watermark_a_new_ending_repeats_no_file() -> None:
    world = RequestHarness(use_watermark=False)
    world.put(f"{DAY}/8.json.gz", "zipped")
    assert world.ingest(f"{DAY}/8.json.gz") == ["ingested"]
    world.settings["compression"] = "auto"
    world.drain()
    assert world.rows() == [*BASE, "zipped"]


@pytest.mark.promise("G-045")
@pytest.mark.parametrize("use_watermark", [True, False])
def test_a_death_at_every_change_neither_doubles_nor_loses_a_row(use_watermark: bool) -> None:
    paths = [f"{DAY}/3.txt", f"{DAY}/x.txt", f"{DAY}/4.txt"]

    def prepared() -> RequestHarness:
        world = RequestHarness(use_watermark=use_watermark)
        for number, path in enumerate(paths):
            world.put(path, f"g{number}" if number < 2 else "bad")
        return world

    def requested(world: RequestHarness) -> None:
        world.submit(*paths)
        world.drain()

    for at, world, _ in each_death(prepared, requested):
        world.put(f"{DAY}/6.json", "6")
        request_id = world.submit(*paths)
        world.drain()
        assert world.rows() == sorted([*BASE, "6", "g0", "g1"]), at
        assert world.request(request_id).state == "done"
        assert {letter["path"] for letter in world.letters()} == {f"mem://raw/{paths[2]}"}, at
        work = world.work
        assert not [*work.queue, *work.in_flight, *open_of(work.requests)]
        world.go_on()
        assert world.rows() == sorted([*BASE, "6", "g0", "g1"]), at
    assert at > 43


@pytest.mark.promise("G-045")
def test_an_owner_that_was_replaced_brings_nothing_twice() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "late")
    request_id = world.submit(f"{DAY}/3.json")
    first = world.pipeline()
    with overtaking(world.engine, world.drain), pytest.raises(FencedError):
        world.drain(first)
    assert world.rows() == [*BASE, "late"]
    assert world.request(request_id).state == "done"


def test_pages_of_a_large_request_come_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 2)
    world = RequestHarness()
    paths = [f"{DAY}/{name}.txt" for name in "abcde"]
    for path in paths[:4]:
        world.put(path, path[-5])
    queued: list[int] = []

    def count(job: IngestJob) -> IngestResult:
        queued.append(len(world.work.queue))
        return ingest(job)

    ingest = world.engine.ingest
    world.engine.ingest = count  # type: ignore[method-assign]  # to look into the checkpoint
    assert world.ingest(*paths) == ["ingested"] * 4 + ["missing"]
    assert queued == [2, 2]
    assert world.rows() == [*BASE, *"abcd"]


def test_name_listed_twice_is_ingested_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 2)
    world = RequestHarness()
    first, second, third = (f"{DAY}/{name}.txt" for name in "abc")
    for path in (first, second, third):
        world.put(path, path[-5])
    world.ingest(first, second, first, third, mode="again")
    assert world.rows() == [*BASE, *"abc"]


@pytest.mark.promise("G-047")
def test_a_cancelled_request_goes_on_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.app.request_selector.PAGE_FILES", 2)
    world = RequestHarness()
    paths = [f"{DAY}/{name}.txt" for name in "abcd"]
    for path in paths:
        world.put(path, path[-5])
    request_id = world.submit(*paths)

    def cancel(job: IngestJob) -> IngestResult:
        world.engine.ingest = ingest  # type: ignore[method-assign]  # once
        world.mailbox.cancel(request_id, "bob@ops-1", "2026-11-25T09:13:00+00:00", "wrong day")
        return ingest(job)

    ingest = world.engine.ingest
    world.engine.ingest = cancel  # type: ignore[method-assign]  # in the middle
    world.drain()
    found = world.request(request_id)
    assert (found.state, found.counts["ingested"]) == ("cancelled", 2)
    assert world.rows() == [*BASE, "a", "b"]
    # Given again it is a new one, which leaves out what is in.
    assert world.ingest(*paths) == ["present", "present", "ingested", "ingested"]


def test_live_files_come_first_and_three_batches_of_them_between() -> None:
    world = RequestHarness(checkpoint=CheckpointSettings(interval_files=1))
    for name in "abc":
        world.put(f"{DAY}/{name}.txt", name)
    for number in range(60, 68):
        world.put(f"{DAY}/{number}.json", str(number))
    before = len(world.engine.jobs)
    world.ingest(*(f"{DAY}/{name}.txt" for name in "abc"))
    order = [job.files[0].path.rpartition("/")[2][0] for job in world.engine.jobs[before:]]
    assert "".join(order) == "666a666b66c"


@pytest.mark.promise("G-047")
def test_new_files_wait_for_one_batch_of_a_request_at_most() -> None:
    world = RequestHarness(checkpoint=CheckpointSettings(interval_files=1), poll_interval="30s")
    for name in "abcd":
        world.put(f"{DAY}/{name}.txt", name)
    before = len(world.engine.jobs)
    ingest = world.engine.ingest

    def slow(job: IngestJob) -> IngestResult:
        if job.files[0].path == f"{DAY}/a.txt":
            world.put(f"{DAY}/60.json", "60")
        world.now += 20
        return ingest(job)

    world.engine.ingest = slow  # type: ignore[method-assign]  # time passes
    world.ingest(*(f"{DAY}/{name}.txt" for name in "abcd"))
    order = [job.files[0].path.rpartition("/")[2][0] for job in world.engine.jobs[before:]]
    assert "".join(order) == "ab6cd"


@pytest.mark.promise("G-047")
def test_a_request_with_an_endless_batch_fails_alone() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/a.txt", "poison")
    request_id = world.submit(f"{DAY}/a.txt")
    ingest = world.engine.ingest

    def breaks(job: IngestJob) -> IngestResult:
        if job.files[0].path == f"{DAY}/a.txt":
            raise EngineError("the executor died")
        return ingest(job)

    world.engine.ingest = breaks  # type: ignore[method-assign]  # what no retry mends
    tries = 0
    while True:
        world.put(f"{DAY}/6{tries}.json", f"6{tries}")
        try:
            world.drain()
            break
        except EngineError:
            tries += 1
    assert tries == 3
    assert world.rows() == [*BASE, "60", "61", "62", "63"]
    found = world.request(request_id)
    assert (found.state, "a.txt" in found.reason) == ("failed", True)
    end = world.mailbox.end_record(request_id)
    assert end.state == "failed"


def test_an_outage_of_the_store_is_not_held_against_a_request() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/a.txt", "a")
    request_id = world.submit(f"{DAY}/a.txt")
    worker = world.pipeline()
    ingest = world.engine.ingest
    left = [5]

    def away(job: IngestJob) -> IngestResult:
        if left[0]:
            left[0] -= 1
            raise Unavailable("the store is down")
        return ingest(job)

    world.engine.ingest = away  # type: ignore[method-assign]  # for a while
    for _ in range(5):
        with pytest.raises(Unavailable):
            worker.cycle(threading.Event())
    world.drain(worker)
    assert world.request(request_id).state == "done"
    assert world.rows() == [*BASE, "a"]


@pytest.mark.promise("G-047")
def test_requested_retries_block_no_live_work() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/0.txt", "later")
    world.engine.flaky[f"{DAY}/0.txt"] = 2
    request_id = world.submit(f"{DAY}/0.txt")
    with contextlib.suppress(Unavailable):
        world.pipeline().cycle(threading.Event())
    assert world.request(request_id).state == "running"
    world.put(f"{DAY}/60.json", "60")
    with contextlib.suppress(Unavailable):
        world.pipeline().cycle(threading.Event())
    assert world.checkpoint()["watermark"]["value"] == f"{DAY}/60.json"
    world.drain()
    assert world.request(request_id).state == "done"
    assert world.rows() == [*BASE, "60", "later"]


def test_bad_records_stop_no_source_that_would_stop_at_its_own() -> None:
    world = RequestHarness()
    world.errors = {"on_bad_record": "fail", "max_failures": 1}
    world.put(f"{DAY}/3.json", "bad")
    assert world.ingest(f"{DAY}/3.json") == ["quarantined"]
    assert len(world.letters()) == 1


def test_a_request_of_another_configuration_waits() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "3")
    world.put(f"{DAY}/4.json", "4")
    other = world.submit(f"{DAY}/3.json", config="sha256:else")
    assert world.ingest(f"{DAY}/4.json") == ["ingested"]
    found = world.request(other)
    assert (found.state, "another configuration" in found.reason) == ("waiting", True)
    assert world.rows() == sorted([*BASE, "4"])


def test_requests_come_in_the_order_of_their_acceptance() -> None:
    world = RequestHarness()
    for name in "ab":
        world.put(f"{DAY}/{name}.txt", name)
    both = [world.submit(f"{DAY}/a.txt"), world.submit(f"{DAY}/a.txt", f"{DAY}/b.txt")]
    world.drain()
    first, second = sorted(both, key=lambda each: world.request(each).seq)
    assert world.outcomes(first)[f"{DAY}/a.txt"] == "ingested"
    assert world.outcomes(second)[f"{DAY}/a.txt"] == "present"
    assert world.rows() == [*BASE, "a", "b"]


@pytest.mark.promise("G-032")
def test_requested_files_are_known_without_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, names = RequestHarness(), OutputIdGenerator()
    for place in (
        "blizzard_py.ingest.batch_loop",
        "blizzard_py.sources.files.late_file_outcomes",
    ):
        monkeypatch.setattr(f"{place}.uuid7", lambda: names.fresh(1, world.now)[0])
    taken = [f"{DAY}/2.json", f"{DAY}/_hidden.json", "date=2060-12-31/1.json"]
    for path in taken:
        world.put(path, path)
        assert world.ingest(path) == ["ingested"]
    for number in range(3):
        world.now += 20 * 86_400.0
        world.put(f"{DAY}/3{number}.json", f"3{number}")
        assert world.ingest(f"{DAY}/3{number}.json") == ["ingested"]
    assert world.ingest(*taken) == ["present"] * 3
    verdicts = [world.explained(path).verdict for path in taken]
    assert verdicts == ["done", "done", "ingested"]
    # The time of a partition that was ahead has come: the daemon passes what is in.
    world.settings["max_ahead"] = "36500d"
    world.put("date=2060-12-31/2.json", "other")
    world.go_on(2)
    assert world.rows() == sorted([*BASE, "30", "31", "32", "other", *taken])


@pytest.mark.promise("G-032")
def test_reset_ingests_earlier_requested_files_again() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/2.json", "before")
    assert world.ingest(f"{DAY}/2.json") == ["ingested"]
    world.now += 100
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    world.now += 100
    world.drain()
    after = "date=2025-06-20/1.json"
    world.put(after, "after")
    assert world.ingest(after) == ["ingested"]
    world.put("date=2025-06-20/2.json", "other")
    world.go_on(6)
    counts = Counter(world.rows())
    assert (counts["before"], counts["after"], counts["1"], counts["other"]) == (2, 1, 2, 1)


def test_an_edit_is_refused_while_a_request_is_under_way() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/a.txt", "a")
    world.engine.flaky[f"{DAY}/a.txt"] = 1
    request_id = world.submit(f"{DAY}/a.txt")
    with contextlib.suppress(Unavailable):
        world.pipeline().cycle(threading.Event())
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    with pytest.raises(checkpoint_edit.EditRefused, match=f"{request_id} is running"):
        checkpoint_edit.change(source, seen, checkpoint_edit.reset, world.now)


@pytest.mark.promise("G-045")
def test_future_files_come_once_in_any_order_of_requests() -> None:
    world = RequestHarness()
    for name in ("1", "3"):
        world.put(f"date=2025-06-20/{name}.json", f"early{name}")
    world.drain()
    for name in ("3", "1"):
        assert world.ingest(f"date=2025-06-20/{name}.json") == ["ingested"]
    assert world.checkpoint()["ahead"] == ["date=2025-06-20/3.json"]
    world.go_on(days=6)
    assert world.rows() == [*BASE, "early1", "early3"]
    assert "ahead" not in world.checkpoint()


@pytest.mark.promise("G-045")
def test_a_file_that_is_named_twice_comes_once() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "late")
    assert world.ingest(f"{DAY}/3.json", f"{DAY}/3.json") == ["ingested"] * 2
    assert world.rows() == [*BASE, "late"]


@pytest.mark.parametrize("name", ["_hidden.json", "3.json"])
def test_explain_knows_a_requested_file_with_an_ignored_name(name: str) -> None:
    world = RequestHarness()
    world.put(f"{DAY}/{name}", "given")
    world.engine.flaky[f"{DAY}/{name}"] = 1
    world.submit(f"{DAY}/{name}")
    worker = world.pipeline()
    worker.cycle(threading.Event())  # waits for another try now
    found = world.explained(f"{DAY}/{name}")
    assert (found.verdict, found.pending is not None) == ("pending", True)
    world.now += 3600
    world.drain(worker)
    found = world.explained(f"{DAY}/{name}")
    assert (found.verdict, "request" in found.reason) == ("ingested", True)
    assert world.explained(f"{DAY}/_other.json").verdict == "ignored"


def test_explain_names_the_request_that_has_a_file() -> None:
    world = RequestHarness(checkpoint=CheckpointSettings(interval_files=1))
    told = []
    for name in "ab":
        world.put(f"{DAY}/{name}.txt", name)
    ingest = world.engine.ingest

    def look(job: IngestJob) -> IngestResult:
        told.append(world.explained(f"{DAY}/b.txt").pending)
        return ingest(job)

    world.engine.ingest = look  # type: ignore[method-assign]  # to look meanwhile
    request_id = world.submit(f"{DAY}/a.txt", f"{DAY}/b.txt")
    world.drain()
    assert told[0] is not None
    assert (told[0].behind, request_id in told[0].reason) == ("requested", True)


def test_a_preview_is_right_with_a_slow_clock() -> None:
    world = RequestHarness()
    path = f"{datetime.fromtimestamp(world.now, UTC):date=%Y-%m-%d}/1.json"
    world.put(path, "now")
    behind = replace(world.parts(), clock=lambda: world.now - 30 * 86_400)
    state = read_state(world.sink, SOURCE_ID)
    assert state is not None
    selector = RequestSelector(behind, world.pipeline().source)
    found = selector.preview(state, made(behind, {"files": [path]}))
    assert [line.state for line in found] == ["left"]
    assert world.ingest(path) == ["left"]


def test_a_failed_late_file_can_be_requested_after_a_sweep() -> None:
    world = RequestHarness(late_files="ingest", late_sweep_interval=0)
    world.put(f"{DAY}/3.json", "bad")
    assert world.ingest(f"{DAY}/3.json") == ["quarantined"]
    world.settings["late_sweep_interval"] = "1000s"
    world.go_on()
    world.put(f"{DAY}/3.json", "mended")
    assert world.ingest(f"{DAY}/3.json") == ["ingested"]
    world.go_on()
    assert world.rows() == [*BASE, "mended"]

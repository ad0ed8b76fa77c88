"""Sources with notifications: what a hint leads to, and when its message is deleted."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from blizzard_core.errors import FencedError, Unfinished
from blizzard_core.limits import HINTED_FILES
from blizzard_core.notifications.receiver import Receiver
from blizzard_core.notifications.webhook import WebhookQueue
from blizzard_py.app.notifications import with_inbox
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.activity import SourceActivity
from tests.fuzz.targets.notifications import s3
from tests.support.memory_queue import MemoryQueue, receiver_of
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import disk

OLD, NEWEST = "date=2025-06-14", "date=2025-06-15"
STOP = threading.Event()


class HintedHarness(PipelineHarness):
    """A source with a queue, whose clock moves by hand."""

    def __init__(self, **source: Any) -> None:
        queue = {"uri": "webhook:", "token": "sesame-sesame-sesame", "advanced": {"pause": "10s"}}
        settings = {"notifications": queue, "partition_depth": 1, **source}
        if not settings.get("use_watermark", True):
            del settings["partition_depth"]
        super().__init__(**settings)
        self.queue = MemoryQueue(lambda: self.now)
        self.lists = 0
        self.activity = SourceActivity("events/main", "mem://raw", lambda: self.now)
        listed = self.source.list_range

        def list_range(after: str, until: str | None) -> Any:
            self.lists += 1
            return listed(after, until)

        self.source.list_range = list_range  # type: ignore[method-assign]  # to count

    def hinted(self) -> SourcePipeline:
        """Return a fresh worker with its receiver, as a start does."""
        parts = with_inbox(replace(self.parts(), activity=self.activity))
        assert parts.hints is not None
        self.inbox = parts.hints
        self.receiver = receiver_of(self.queue, parts.hints)
        return source_pipeline(parts)

    def started(self, *names: str) -> SourcePipeline:
        """Return a worker after its first scan, some seconds later."""
        for name in names or (f"{OLD}/1.ndjson", f"{NEWEST}/1.ndjson"):
            self.put(name, name)
        worker = self.hinted()
        self.poll(worker)
        self.now += 20
        self.poll(worker)
        self.lists = 0
        return worker

    def turn(self) -> None:
        """Receive, and delete what is acknowledged."""
        self.receiver.turn(STOP)

    def poll(self, worker: SourcePipeline) -> None:
        with contextlib.suppress(Unfinished):
            while worker.cycle(STOP):
                pass

    def arrive(self, name: str, *, told: bool = True) -> None:
        """Store a file, and its notification."""
        self.put(name, name)
        if told:
            self.queue.send_paths(f"s3://raw/{name}")

    def counted(self, kind: str) -> float:
        from blizzard_py import metrics  # noqa: PLC0415  # by this helper alone

        return metrics.HINTS.labels("events/main", kind)._value.get()  # type: ignore[attr-defined]  # noqa: SLF001  # no other way to read it


def test_hinted_file_costs_one_list() -> None:
    world = HintedHarness()
    worker = world.started()
    world.arrive(f"{OLD}/2.ndjson")
    world.turn()
    world.poll(worker)
    assert f"{OLD}/2.ndjson" in world.rows()
    assert world.lists == 1
    assert worker.poll_interval_secs <= 10
    world.turn()
    assert not world.queue.bodies
    world.now += 10
    world.poll(worker)
    assert world.lists == 1  # there is nothing more to be done


def test_file_without_hint_waits_for_the_complete_scan() -> None:
    world = HintedHarness()
    worker = world.started()
    world.arrive(f"{NEWEST}/2.ndjson", told=False)
    world.now += 100
    world.poll(worker)
    assert f"{NEWEST}/2.ndjson" not in world.rows()
    world.now += 3600
    world.poll(worker)
    assert f"{NEWEST}/2.ndjson" in world.rows()


def test_a_scan_begins_a_pause_after_the_last() -> None:
    world = HintedHarness()
    worker = world.started()
    for number in range(2, 5):
        world.arrive(f"{NEWEST}/{number}.ndjson")
        world.turn()
        world.poll(worker)
        world.now += 3
    assert world.lists == 1
    assert worker.poll_interval_secs == pytest.approx(1)
    world.now += 1
    world.poll(worker)
    assert world.lists == 2
    assert len(world.rows()) == 5


def test_new_partition_is_found_by_its_hint() -> None:
    world = HintedHarness()
    worker = world.started()
    world.arrive("date=2025-06-16/1.ndjson")
    world.turn()
    world.poll(worker)
    assert "date=2025-06-16/1.ndjson" in world.rows()
    assert world.lists == 1


@pytest.mark.parametrize("told", [True, False])
def test_hint_of_a_late_file_brings_the_sweep_forward(*, told: bool) -> None:
    world = HintedHarness(grace_period="1s", late_files="ingest", late_sweep_interval="1d")
    worker = world.started(f"{OLD}/5.ndjson", f"{NEWEST}/1.ndjson")
    for _ in range(2):
        world.now += 3600
        world.poll(worker)
    world.arrive(f"{OLD}/1.ndjson", told=told)
    world.turn()
    world.now += 3600
    world.poll(worker)
    assert f"{OLD}/1.ndjson" not in world.rows()
    world.now += 4 * 3600
    world.poll(worker)
    world.now += 20
    world.poll(worker)
    assert (f"{OLD}/1.ndjson" in world.rows()) == told


@pytest.mark.promise("G-222")
def test_hint_never_makes_a_file_new() -> None:
    world = HintedHarness()
    worker = world.started()
    before = world.rows()
    # Done, never written, hidden, of another format, of another bucket.
    names = (f"{NEWEST}/1.ndjson", f"{NEWEST}/9.ndjson", f"{NEWEST}/_x.ndjson", f"{NEWEST}/a.txt")
    world.queue.send_paths(*(f"s3://raw/{name}" for name in names))
    world.turn()
    world.poll(worker)
    world.turn()
    assert world.rows() == before
    assert not world.queue.bodies
    assert world.lists == 1


def test_clock_of_the_queue_decides_nothing() -> None:
    world = HintedHarness()
    worker = world.started()
    world.put(f"{OLD}/2.ndjson", "o2")
    world.queue.send_paths(f"s3://raw/{OLD}/2.ndjson", sent=world.now - 30 * 86_400)
    world.turn()
    world.poll(worker)
    assert world.rows().count("o2") == 1


def test_message_of_an_empty_scan_is_deleted() -> None:
    world = HintedHarness()
    worker = world.started()
    world.queue.send_paths(f"s3://raw/{OLD}/never.ndjson")
    world.turn()
    assert world.queue.bodies
    world.poll(worker)
    world.turn()
    assert not world.queue.bodies


def test_message_stays_until_a_save_lands() -> None:
    world = HintedHarness(min_age="30s")
    world.put(f"{OLD}/1.ndjson", "o1")
    worker = world.hinted()
    world.now += 40
    world.poll(worker)
    world.arrive(f"{OLD}/2.ndjson")
    world.turn()
    world.poll(worker)
    world.turn()
    assert world.queue.bodies  # it is too young for a batch
    world.now += 30
    world.poll(worker)
    world.turn()
    assert f"{OLD}/2.ndjson" in world.rows()
    assert not world.queue.bodies


def test_file_dated_ahead_of_now_waits_for_its_age_only() -> None:
    world = HintedHarness(min_age="30s")
    world.put(f"{OLD}/1.ndjson", "o1")
    worker = world.hinted()
    world.now += 40
    world.poll(worker)
    now = world.now
    world.now += 1_000_000
    world.arrive(f"{OLD}/2.ndjson")
    world.now = now
    for _ in range(4):
        world.turn()
        world.poll(worker)
        world.now += 20
    assert f"{OLD}/2.ndjson" in world.rows()


@pytest.mark.promise("G-222")
def test_replaced_daemon_deletes_nothing() -> None:
    world = HintedHarness()
    worker = world.started()
    world.arrive(f"{OLD}/2.ndjson")
    world.turn()
    receiver = world.receiver
    successor = world.hinted()
    successor.cycle(STOP)
    world.put(f"{OLD}/3.ndjson", "o3")
    with pytest.raises(FencedError):
        world.poll(worker)
    receiver.turn(STOP)
    assert world.queue.bodies
    world.now += 301
    world.turn()
    world.poll(successor)
    world.turn()
    assert not world.queue.bodies


def test_young_and_retried_files_are_scanned_again() -> None:
    world = HintedHarness()
    worker = world.started()
    world.engine.flaky[f"{OLD}/2.ndjson"] = 1
    world.arrive(f"{OLD}/2.ndjson")
    world.arrive(f"{OLD}/3.ndjson")
    world.turn()
    world.poll(worker)
    assert f"{OLD}/3.ndjson" in world.rows()
    for _ in range(20):
        world.now += max(1.0, min(60.0, worker.poll_interval_secs))
        world.poll(worker)
    assert f"{OLD}/2.ndjson" in world.rows()


def test_start_scans_everything_and_covers_older_messages() -> None:
    world = HintedHarness()
    world.arrive(f"{OLD}/1.ndjson")
    world.now += 100
    worker = world.hinted()
    world.poll(worker)
    assert world.rows() == [f"{OLD}/1.ndjson"]
    world.now += 10
    world.turn()
    lists = world.lists
    world.poll(worker)
    world.turn()
    assert not world.queue.bodies
    assert world.lists == lists


def test_error_is_followed_by_a_complete_scan() -> None:
    world = HintedHarness()
    worker = world.started()
    world.put(f"{OLD}/2.ndjson", "o2")
    world.arrive(f"{NEWEST}/2.ndjson")
    world.engine.flaky[f"{NEWEST}/2.ndjson"] = 1
    world.turn()
    with pytest.raises(Exception, match="cannot be read"):
        world.poll(worker)
    world.poll(worker)
    assert "o2" in world.rows()


def test_failing_queue_leaves_polls_as_they_are() -> None:
    world = HintedHarness()
    worker = world.started()
    world.inbox.report("queue: gone")
    for number in range(2, 5):
        world.put(f"{OLD}/{number}.ndjson", str(number))
        world.now += 60
        world.poll(worker)
        assert str(number) in world.rows()
        assert worker.poll_interval_secs <= 60
    assert world.activity.notifications.to_json() == {
        "up": False,
        "problem": "queue: gone",
        "lag_secs": 0.0,
        "messages": None,
    }
    (notice,) = world.activity.to_json()["notices"]
    assert notice["text"] == "Notifications fail, so polls go on"


def test_silence_with_files_lets_the_source_poll() -> None:
    world = HintedHarness()
    worker = world.started()
    world.put(f"{OLD}/2.ndjson", "lost")
    world.now += 400
    world.poll(worker)
    assert "lost" in world.rows()
    assert not world.activity.notifications.is_up
    world.put(f"{OLD}/3.ndjson", "next")
    world.now += 60
    world.poll(worker)
    assert "next" in world.rows()
    world.arrive(f"{OLD}/4.ndjson")
    world.turn()
    world.poll(worker)
    assert world.activity.notifications.is_up


def test_silence_without_files_costs_one_scan() -> None:
    world = HintedHarness()
    worker = world.started()
    for _ in range(50):
        world.now += 60
        world.poll(worker)
    assert world.activity.notifications.is_up
    # One because of the silence; they share a page.
    assert world.lists <= 3


def test_flat_source_is_scanned_at_its_hints() -> None:
    world = HintedHarness(partition_depth=0)
    worker = world.started("1.ndjson")
    world.arrive("2.ndjson")
    world.turn()
    world.poll(worker)
    assert "2.ndjson" in world.rows()


def test_once_reads_no_queue() -> None:
    world = HintedHarness()
    parts = with_inbox(replace(world.parts(), once=True))
    assert parts.hints is None
    world.put(f"{OLD}/1.ndjson", "o1")
    worker = source_pipeline(parts)
    world.poll(worker)
    world.put(f"{OLD}/2.ndjson", "o2")
    world.poll(worker)
    assert world.rows() == ["o1", "o2"]
    assert not worker.is_paced


def test_cut_scan_goes_on_with_its_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.sources.files.watermark_files.SCAN_FILES", 2)
    world = HintedHarness()
    world.source.page_keys = 1
    worker = world.started()
    for number in range(2, 9):
        world.arrive(f"{OLD}/{number}.ndjson")
        world.arrive(f"{NEWEST}/{number}.ndjson")
    for _ in range(4):
        world.turn()
    world.poll(worker)
    assert len(world.rows()) == 16
    world.turn()
    world.turn()
    assert not world.queue.bodies


# --- without a watermark ----------------------------------------------------------------


def test_files_without_a_watermark_are_found_by_name() -> None:
    world = HintedHarness(use_watermark=False)
    worker = world.started("z.ndjson")
    world.arrive("a.ndjson")
    world.queue.send_paths("s3://raw/z.ndjson", "s3://raw/never.ndjson")
    world.turn()
    world.poll(worker)
    world.turn()
    assert world.rows() == ["a.ndjson", "z.ndjson"]
    assert world.lists == 0
    assert not world.queue.bodies


def test_many_hinted_files_are_divided() -> None:
    world = HintedHarness(use_watermark=False)
    worker = world.started("z.ndjson")
    names = [f"s3://raw/{number:05d}.ndjson" for number in range(HINTED_FILES + 5)]
    for first in range(0, len(names), 900):
        world.queue.send_paths(*names[first : first + 900])
    world.turn()
    asked: list[str] = []
    stat = world.source.stat

    def counted(path: str) -> Any:
        asked.append(path)
        return stat(path)

    world.source.stat = counted  # type: ignore[method-assign]  # to count
    world.poll(worker)
    assert len(asked) == HINTED_FILES
    world.now += 10
    world.poll(worker)
    assert len(asked) == len(names)
    world.turn()
    assert not world.queue.bodies


def test_complete_scan_without_a_watermark_comes_once_a_day() -> None:
    world = HintedHarness(use_watermark=False)
    worker = world.started("z.ndjson")
    world.now += 400
    world.poll(worker)  # because of the silence
    world.lists = 0
    world.arrive("a.ndjson", told=False)
    world.now += 40_000
    world.poll(worker)
    assert world.lists == 0
    world.now += 86_400
    world.poll(worker)
    assert "a.ndjson" in world.rows()


@pytest.mark.promise("G-222")
def test_hint_that_spells_a_name_otherwise_doubles_nothing(tmp_path: Path) -> None:
    world = HintedHarness(use_watermark=False)
    copied = disk(world, tmp_path)
    copied("d=1/a.ndjson", 10.0)
    worker = world.hinted()
    world.poll(worker)
    for name in ("d=1//a.ndjson", "/d=1/a.ndjson", "d=1///a.ndjson"):
        world.queue.send(json.dumps(s3(quote(name))).encode())
    world.turn()
    world.now += 20
    worker.cycle(STOP)  # it fails nothing either
    world.turn()
    assert world.rows() == ["d=1/a.ndjson"]
    assert not world.queue.bodies


def test_hint_of_an_odd_name_finds_the_file() -> None:
    world = HintedHarness(use_watermark=False)
    worker = world.started("z.ndjson")
    odd = ("d//a.ndjson", "d/ä.ndjson", "/a.ndjson", "d./a.ndjson")
    for name in odd:
        world.arrive(name, told=False)
        world.queue.send(json.dumps(s3(quote(name))).encode())
    world.turn()
    world.poll(worker)
    world.turn()
    assert world.rows() == sorted(["z.ndjson", *odd])
    assert world.lists == len(odd)
    assert not world.queue.bodies


def test_posted_message_counts_whatever_clocks_say() -> None:
    world = HintedHarness()
    worker = world.started()
    posted = WebhookQueue("sesame-sesame-sesame")
    receiver = Receiver(
        "webhook:",
        lambda: posted,
        [world.inbox],
        owns_queue=True,
        monotonic=lambda: world.now,
        wait_secs=0,
    )
    world.arrive(f"{OLD}/2.ndjson", told=False)
    posted.post(json.dumps({"paths": [f"s3://raw/{OLD}/2.ndjson"]}).encode())
    receiver.turn(STOP)
    world.poll(worker)
    assert f"{OLD}/2.ndjson" in world.rows()


def test_hints_that_need_no_scan_wake_a_source_once_a_second() -> None:
    world = HintedHarness()
    worker = world.started()
    world.now += 30
    cycles = 0
    for _ in range(200):
        world.queue.send_paths(f"s3://raw/{NEWEST}/1.ndjson")
        world.turn()
        if world.inbox.wait(0.0, STOP):
            cycles += 1
            world.poll(worker)
        world.now += 0.01
    assert cycles <= 3
    world.now += 1
    assert world.inbox.wait(0.0, STOP)
    assert world.lists == 0

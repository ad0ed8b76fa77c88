"""The contract of hints between a queue and its sources."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from blizzard_core.limits import FOREIGN_MESSAGES, OLD_MESSAGES, OPEN_HINTS
from blizzard_core.log import configure
from blizzard_core.notifications import receiver as receivers
from blizzard_core.notifications.inbox import HintInbox
from blizzard_core.notifications.messages import ObjectReference
from blizzard_core.notifications.protocol import QueueError
from blizzard_core.notifications.receiver import Receiver
from blizzard_core.notifications.webhook import WebhookQueue
from blizzard_core.redact import learn_values
from tests.support.memory_queue import MemoryQueue, receiver_of

STOP = threading.Event()


class QueueHarness:
    """A queue, its receiver and the inboxes of two sources."""

    def __init__(self, *, owns_queue: bool = False) -> None:
        self.now = 1000.0
        self.counts: dict[str, int] = {}
        self.queue = MemoryQueue(lambda: self.now)
        self.a, self.b = (
            HintInbox(f"s3://raw/{name}", lambda: self.now, self.count) for name in "ab"
        )
        self.receiver = receiver_of(self.queue, self.a, self.b, owns_queue=owns_queue)

    def count(self, kind: str, number: int) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + number

    def turn(self) -> None:
        self.receiver.turn(STOP)


@pytest.mark.promise("G-222")
def test_message_is_deleted_after_a_save_that_began_later() -> None:
    desk = QueueHarness()
    mark = desk.a.mark()
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.turn()
    desk.a.saved(mark)  # it began before the message came
    desk.turn()
    assert desk.queue.bodies
    desk.a.saved(desk.a.mark())
    desk.turn()
    assert not desk.queue.bodies


def test_message_waits_for_every_source_that_it_names() -> None:
    desk = QueueHarness()
    desk.queue.send_paths("s3://raw/a/1.gz", "s3://raw/b/1.gz")
    desk.turn()
    hints = desk.a.take()
    assert [hint.path for hint in hints] == ["1.gz"]
    desk.a.acknowledge(hints)
    desk.a.acknowledge(hints)  # once more counts once
    desk.turn()
    assert desk.queue.bodies
    desk.b.acknowledge(desk.b.take())
    desk.turn()
    assert not desk.queue.bodies


def test_paused_source_does_not_stop_the_others() -> None:
    desk = QueueHarness(owns_queue=True)
    desk.b.pause()
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.queue.send_paths("s3://raw/b/1.gz")
    desk.turn()
    desk.a.acknowledge(desk.a.take())
    desk.turn()
    assert len(desk.queue.bodies) == 1
    assert not desk.b.take()


def test_message_that_nobody_settles_comes_again() -> None:
    desk = QueueHarness()
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.turn()
    desk.turn()
    assert len(desk.a.take()) == 1
    desk.now += 301
    desk.turn()
    assert len(desk.a.take()) == 1


@pytest.mark.parametrize("owns_queue", [False, True])
def test_foreign_messages_stay_unless_the_queue_is_of_source(owns_queue: bool) -> None:
    desk = QueueHarness(owns_queue=owns_queue)
    desk.queue.send_paths("s3://raw/c/1.gz")
    desk.queue.send(b"poison")
    desk.turn()
    assert desk.counts == {"foreign": 2, "unreadable": 2}  # for both sources
    assert len(desk.queue.bodies) == (0 if owns_queue else 2)


def test_message_about_two_owners_is_followed_and_stays() -> None:
    desk = QueueHarness()
    desk.queue.send_paths("s3://raw/a/1.gz", "s3://other/1.gz")
    desk.turn()
    desk.a.acknowledge(desk.a.take())
    desk.turn()
    assert desk.queue.bodies


def test_other_events_of_a_source_are_deleted() -> None:
    desk = QueueHarness()
    desk.queue.send(b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"raw"}')
    desk.turn()
    assert not desk.queue.bodies
    assert not desk.a.take()


def test_flood_of_foreign_messages_lets_sources_poll() -> None:
    desk = QueueHarness()
    for _ in range(FOREIGN_MESSAGES + 50):
        desk.queue.send_paths("s3://other/1.gz")
    while desk.a.problem is None:
        desk.turn()
    assert "prefix filter" in (desk.a.problem or "")
    desk.now += 3601
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.turn()
    assert desk.a.problem is not None  # the hour that ended was one of them
    desk.now += 3601
    desk.queue.purge()
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.turn()
    assert desk.a.problem is None


def test_sources_poll_while_old_messages_are_read() -> None:
    desk = QueueHarness()
    old = desk.now - 3600
    for number in range(OLD_MESSAGES + 50):
        desk.queue.send_paths(f"s3://raw/a/{number}.gz", sent=old)

    def turn() -> None:
        desk.turn()
        desk.a.saved(desk.a.mark())

    turns = 0
    while desk.a.problem is None:
        turn()
        turns += 1
    assert turns == OLD_MESSAGES // 10 + 1
    assert "Purge it" in desk.a.problem
    assert desk.b.problem == desk.a.problem
    # They are drained, and the newest tells of new files again.
    desk.queue.send_paths("s3://raw/a/new.gz")
    while desk.a.problem is not None:
        turn()
        turns += 1
    assert turns <= OLD_MESSAGES // 10 + 7
    assert not desk.queue.bodies[1:]
    desk.turn()
    assert not desk.queue.bodies


def test_few_old_messages_that_come_again_are_no_problem() -> None:
    desk = QueueHarness()
    for number in range(20):  # of another reader, which does not read
        desk.queue.send_paths(f"s3://other/{number}.gz", sent=desk.now - 3600)
    for _ in range(200):
        desk.now += 301
        for _ in range(3):
            desk.turn()
        assert desk.a.problem is None


def test_full_inbox_stops_receiving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_core.notifications.inbox.OPEN_HINTS", 5)
    monkeypatch.setattr(receivers, "_FULL_SECS", 0)
    desk = QueueHarness()
    assert OPEN_HINTS > 5
    for number in range(25):
        desk.queue.send_paths(f"s3://raw/a/{number}.gz", f"s3://raw/b/{number}.gz")
    for _ in range(5):
        desk.turn()
    assert len(desk.a.take()) == 10
    desk.a.saved(desk.a.mark())
    desk.b.saved(desk.b.mark())
    desk.turn()
    assert len(desk.a.take()) == 10


def test_long_queue_of_ours_is_emptied_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "PURGED_MESSAGES", 3)
    desk = QueueHarness(owns_queue=True)
    for number in range(5):
        desk.queue.send_paths(f"s3://raw/a/{number}.gz")
    desk.turn()
    assert desk.queue.purged == 1
    assert not desk.a.take_wanted()
    desk.now += 61
    desk.turn()
    # A purge may take what is sent shortly after it.
    assert desk.a.take_wanted()


def test_failing_queue_is_reported_once_without_secrets() -> None:
    text = io.StringIO()
    configure("INFO", text)
    desk = QueueHarness()
    stop, turns = threading.Event(), 0

    class Impatient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal turns
            turns += 1
            assert timeout is not None
            if turns == 4:
                desk.queue.error = ""
            if turns > 3:
                stop.set()
            return stop.is_set()

        def is_set(self) -> bool:
            return stop.is_set()

    desk.queue.error = "AccessDenied: https://x.queue.example/q?sig=c2VjcmV0c2VjcmV0 says no"
    desk.receiver.run(Impatient())
    assert "AccessDenied" in (desk.a.problem or "")
    assert "c2VjcmV0" not in (desk.a.problem or "") + text.getvalue()
    told = [json.loads(line) for line in text.getvalue().splitlines()]
    assert [line["event"] for line in told] == ["notifications_failing"]


def test_recovered_queue_is_up_again() -> None:
    desk = QueueHarness()
    desk.queue.error = "gone"
    stop = threading.Event()

    class Once(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  # never waits
            desk.queue.error = ""
            return False

        def is_set(self) -> bool:
            return stop.is_set()

    original = desk.queue.receive

    def receive(wait_secs: float) -> Any:
        stop.set()
        return original(wait_secs)

    desk.queue.receive = receive  # type: ignore[method-assign]  # to end the loop
    desk.receiver.run(Once())
    assert desk.a.problem is None


def test_crash_of_a_driver_is_a_problem_like_any_other() -> None:
    inbox = HintInbox("s3://raw/a", lambda: 0.0)
    stop = threading.Event()

    def opens() -> Any:
        stop.set()
        raise RuntimeError("no such driver")

    Receiver("q", opens, [inbox], owns_queue=False).run(stop)
    assert inbox.problem == "q: no such driver"


def test_hint_wakes_a_source_when_the_pause_is_over() -> None:
    now = [0.0]
    inbox = HintInbox("s3://raw/a", lambda: now[0])
    desk = MemoryQueue(lambda: now[0])
    receiver = receiver_of(desk, inbox)
    assert not inbox.wait(0.0, STOP)
    desk.send_paths("s3://raw/a/1.gz")
    receiver.turn(STOP)
    assert inbox.wait(60.0, STOP)
    inbox.take()
    inbox.report("gone")
    assert not inbox.wait(0.0, STOP)  # it was gone when the wait began
    stopped = threading.Event()
    stopped.set()
    assert inbox.wait(60.0, stopped)


def test_source_that_does_nothing_leaves_the_queue_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("blizzard_core.notifications.inbox.OPEN_HINTS", 5)
    monkeypatch.setattr(receivers, "_FULL_SECS", 0)
    desk = QueueHarness()
    for number in range(15):
        desk.queue.send_paths(f"s3://raw/a/{number}.gz")
    desk.queue.send_paths("s3://raw/a/x.gz", "s3://raw/b/x.gz")
    desk.queue.send_paths("s3://raw/b/1.gz")
    for _ in range(2):
        desk.turn()
    assert [hint.path for hint in desk.b.take()] == ["x.gz", "1.gz"]
    desk.b.saved(desk.b.mark())
    desk.turn()
    assert len(desk.queue.bodies) == 16  # those of the source that does nothing stay
    desk.a.saved(desk.a.mark())
    desk.now += 301
    for _ in range(3):
        desk.turn()
        desk.a.saved(desk.a.mark())
        desk.b.saved(desk.b.mark())
    desk.turn()
    assert not desk.queue.bodies


def test_posted_message_for_a_full_inbox_wants_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_core.notifications.inbox.OPEN_HINTS", 1)
    monkeypatch.setattr(receivers, "_FULL_SECS", 0)
    a, b = (HintInbox(f"s3://raw/{name}", lambda: 0.0) for name in "ab")
    queue = WebhookQueue("sesame-sesame-sesame")
    receiver = Receiver("w", lambda: queue, [a, b], owns_queue=True, wait_secs=0)
    for number in range(2):
        queue.post(json.dumps({"paths": [f"s3://raw/a/{number}.gz"]}).encode())
        receiver.turn(STOP)
    assert len(a.take()) == 1
    assert a.take_wanted()
    assert not b.take_wanted()


def test_refused_deletion_does_not_stop_a_queue() -> None:
    desk = QueueHarness()
    desk.queue.send_paths("s3://raw/a/1.gz")
    desk.turn()
    desk.a.saved(desk.a.mark())
    delete = desk.queue.delete

    def refuse(handles: Sequence[str]) -> None:
        raise QueueError(f"400 INVALID_ARGUMENT: {len(handles)} ids have expired")

    desk.queue.delete = refuse  # type: ignore[method-assign]  # an id that is never taken
    with pytest.raises(QueueError):
        desk.turn()
    desk.queue.send_paths("s3://raw/a/2.gz")
    desk.turn()
    assert [hint.path for hint in desk.a.take()] == ["1.gz", "2.gz"]
    desk.queue.delete = delete  # type: ignore[method-assign]
    desk.now += 301
    desk.turn()
    desk.a.saved(desk.a.mark())
    desk.turn()
    assert not desk.queue.bodies


def test_shown_message_has_no_part_of_a_secret() -> None:
    text = io.StringIO()
    configure("INFO", text)
    secret = "sesame-sesame-sesame-sesame"
    learn_values([secret])
    desk = QueueHarness()
    desk.queue.send(b"x" * 185 + b" " + secret.encode())
    desk.turn()
    assert "message_ignored" in text.getvalue()
    assert "sesame" not in text.getvalue()


@pytest.mark.parametrize(
    ("uri", "key", "is_possible"),
    [
        ("s3://raw", "k" * 1024, True),
        ("s3://raw", "k" * 1025, False),
        ("gs://raw", "ä" * 513, False),
        ("az://raw", "ä" * 1024, True),
        ("az://raw", "ä" * 1025, False),
        ("/data", f"/data/{'k' * 2000}", True),
    ],
)
def test_name_that_no_store_has_is_no_hint(uri: str, key: str, is_possible: bool) -> None:
    found = ObjectReference("" if uri.startswith("/") else "raw", key)
    assert (HintInbox(uri, lambda: 0.0).path_of(found) is not None) is is_possible


def test_purge_without_an_answer_wants_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "PURGED_MESSAGES", 0)
    desk = QueueHarness(owns_queue=True)
    desk.queue.send_paths("s3://raw/a/1.gz")
    purge = desk.queue.purge

    def purge_without_answer() -> None:
        purge()
        raise QueueError("no answer")

    desk.queue.purge = purge_without_answer  # type: ignore[method-assign]  # to lose it
    with pytest.raises(QueueError):
        desk.turn()
    desk.now += 61
    desk.turn()
    assert desk.a.take_wanted()

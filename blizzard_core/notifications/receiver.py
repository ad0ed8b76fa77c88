"""The thread that reads one queue for all its sources.

A queue that fails, or that is full of other people's messages, never fails a source: the source
polls as it would without notifications. The reason is logged once, and the queue is tried again
with backoff.

The driver of a queue is imported when one is opened.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from blizzard_core.daemon import StopEvent, backoff
from blizzard_core.limits import FOREIGN_MESSAGES, OLD_MESSAGES
from blizzard_core.log import get_logger
from blizzard_core.notifications.inbox import Delivery, HintInbox, HintKind
from blizzard_core.notifications.messages import ObjectReference, UnreadableMessage, objects_of
from blizzard_core.notifications.protocol import Message, Queue, QueueError
from blizzard_core.redact import clean_text, error_text, redacted
from blizzard_core.settings.store_use import kind_of, subscription_of
from blizzard_core.storage.environment import completed
from blizzard_core.storage.opening import scheme_of
from blizzard_core.storage.protocol import StorageOptions

WAIT_SECS = 20.0
# How often the number of a queue's messages is read.
_COUNT_SECS = 60.0
# A queue of its own with more than this is emptied at the start, where a scan of everything is due.
PURGED_MESSAGES = 100_000
# A purge may still take messages that are sent so much later.
_PURGE_SECS = 60.0
# Foreign and unreadable messages are counted and logged by the hour.
_WINDOW_SECS = 3600.0
_FOREIGN_SHARE = 0.9
# A message is old if it was sent so long ago; clocks of queues may differ.
_OLD_SECS = 600.0
_SHOWN_CHARACTERS = 200
_FULL_SECS = 0.5


@dataclass(slots=True)
class _Window:
    """The messages of an hour."""

    began: float
    messages: int = 0
    foreign: int = 0
    told: set[str] = field(default_factory=set)


class Receiver:
    """Reads a queue, hands hints to sources, deletes messages that are acknowledged."""

    def __init__(
        self,
        name: str,
        open_queue: Callable[[], Queue],
        inboxes: Sequence[HintInbox],
        *,
        owns_queue: bool,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
        wait_secs: float = WAIT_SECS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``name`` is shown for the queue. ``owns_queue``: also delete what is no hint."""
        self.name = redacted(name)
        self._open = open_queue
        self._inboxes = tuple(inboxes)
        self._owns = owns_queue
        self._monotonic = monotonic
        self._clock = clock
        self._wait_secs = wait_secs
        self._chance = chance
        self._queue: Queue | None = None
        self._acknowledged: list[str] = []
        self._lock = threading.Lock()
        self._window = _Window(monotonic())
        self._is_flooded = False
        # Old messages, less ten for each that is not, and many for each empty answer.
        self._old = 0
        self._problem: str | None = None
        self._counted_at: float | None = None
        self._purged_at: float | None = None
        self._log = get_logger(queue=self.name)

    def run(self, stop: StopEvent) -> None:
        """Read until ``stop`` is set. Never raises."""
        failures = 0
        while not stop.is_set():
            try:
                self.turn(stop)
            except Exception as error:
                failures += 1
                self._failed(error)
                stop.wait(backoff(failures, 0.0, self._chance()))
                continue
            failures = 0
        if self._queue is not None:
            self._drop_queue()

    def turn(self, stop: StopEvent) -> None:
        """Delete what is acknowledged, and receive once. Raises `QueueError`."""
        if self._queue is None:
            self._queue = self._open()
        self._delete(self._queue)
        paused = [inbox for inbox in self._inboxes if inbox.is_paused]
        if len(paused) == len(self._inboxes):
            stop.wait(_FULL_SECS)
            return
        if not paused:  # it may empty the queue, which others read as well then
            self._observe(self._queue)
        # A source that does nothing must not stop the others; its messages come again.
        full = frozenset(inbox for inbox in self._inboxes if inbox.is_full).union(paused)
        if full:
            stop.wait(_FULL_SECS)
        if len(full) == len(self._inboxes):
            self._report()
            return
        messages = self._queue.receive(self._wait_secs)
        self._age(messages)
        for message in messages:
            self._deliver(message, full)
        self._report()
        self._delete(self._queue)

    def _delete(self, queue: Queue) -> None:
        with self._lock:
            handles, self._acknowledged = self._acknowledged, []
        if handles:
            # Those of a request that fails come again, as doubles. To keep them would stop the
            # queue for good where it refuses one of them.
            queue.delete(handles)

    def _observe(self, queue: Queue) -> None:
        """Ask for the queue's length now and then; empty a long one of ours at the start."""
        now = self._monotonic()
        if self._purged_at is not None and now - self._purged_at >= _PURGE_SECS:
            self._purged_at = None
            for inbox in self._inboxes:
                inbox.want_scan()
        if self._counted_at is not None and now - self._counted_at < _COUNT_SECS:
            return
        is_first, self._counted_at = self._counted_at is None, now
        count = queue.count()
        for inbox in self._inboxes:
            inbox.messages = count
        if is_first and self._owns and count is not None and count > PURGED_MESSAGES:
            self._log.warning("queue_emptied", messages=count)
            self._purged_at = now  # also if its answer is lost
            queue.purge()

    def _deliver(self, message: Message, full: Collection[HintInbox]) -> None:
        """Give hints to sources whose inbox is not full."""
        self._turn_window()
        self._window.messages += 1
        try:
            found = objects_of(message.body)
        except UnreadableMessage as error:
            self._strange("unreadable", message, str(error))
            return
        hints = [
            (inbox, path)
            for each in found
            if each.is_new
            for inbox in self._inboxes
            if (path := inbox.path_of(each)) is not None
        ]
        others = [each for each in found if not self._is_of_source(each)]
        if others:
            self._strange("foreign", message, "names objects of no source", keep=bool(hints))
        elif not hints:  # of a test, a removal, or an object that is not whole
            self._count("ignored")
        is_left = any(inbox in full for inbox, _ in hints)
        is_kept = is_left or (bool(others) and not self._owns)
        delivery = Delivery(lambda: None if is_kept else self._delete_later(message.handle))
        for inbox, path in hints:
            if inbox not in full:
                inbox.put(path, message.sent, delivery)
            elif not message.handle:
                inbox.want_scan()
        delivery.acknowledge()

    def _age(self, messages: Sequence[Message]) -> None:
        """Count the messages that are old, so that nine of ten must be."""
        oldest = self._clock() - _OLD_SECS
        for each in messages:
            is_old = each.sent is not None and each.sent < oldest
            self._old = min(self._old + 1, 2 * OLD_MESSAGES) if is_old else max(0, self._old - 10)
        if not messages:  # Pub/Sub may return none though it has some
            self._old = max(0, self._old - OLD_MESSAGES // 5)

    def _is_of_source(self, found: ObjectReference) -> bool:
        if not found.key:
            return any(inbox.has_bucket(found) for inbox in self._inboxes)
        return any(inbox.path_of(found) is not None for inbox in self._inboxes)

    def _strange(
        self, kind: HintKind, message: Message, reason: str, *, keep: bool = False
    ) -> None:
        """Count a message that is no hint; say so once an hour; delete it if the queue is ours."""
        self._count(kind)
        self._window.foreign += not keep
        if kind not in self._window.told:
            self._window.told.add(kind)
            # Cut after the redaction: a part of a secret would not be known as one.
            shown = clean_text(message.body.decode("utf-8", "backslashreplace"))
            shown = shown[:_SHOWN_CHARACTERS]
            self._log.warning("message_ignored", kind=kind, reason=reason, message=shown)
        if self._owns and not keep and kind == "unreadable":
            self._delete_later(message.handle)

    def _count(self, kind: HintKind) -> None:
        for inbox in self._inboxes:
            inbox.count(kind, 1)

    def _delete_later(self, handle: str) -> None:
        with self._lock:
            self._acknowledged.append(handle)

    def _turn_window(self) -> None:
        now = self._monotonic()
        if now - self._window.began >= _WINDOW_SECS:
            self._is_flooded = self._floods(self._window)
            self._window = _Window(now)
        self._is_flooded = self._is_flooded or self._floods(self._window)

    def _floods(self, window: _Window) -> bool:
        share = window.foreign / max(1, window.messages)
        return not self._owns and window.foreign > FOREIGN_MESSAGES and share >= _FOREIGN_SHARE

    def _report(self) -> None:
        problem = None
        if self._is_flooded:
            problem = (
                f"{self.name}: 9 of 10 messages name objects of no source. Give the bucket's"
                " notifications a prefix filter, use a queue of its own, or set"
                " advanced.foreign: delete if nobody else reads this queue"
            )
        elif self._old > OLD_MESSAGES:
            problem = (
                f"{self.name}: holds messages from long ago, which are read before newer ones."
                " Purge it to be done with them at once"
            )
        self._report_to_all(problem)

    def _failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, QueueError) else error_text(error)
        problem = clean_text(f"{self.name}: {redacted(reason)}")
        self._report_to_all(problem)
        self._drop_queue()

    def _report_to_all(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            self._log.warning("notifications_failing", reason=problem, then="polls go on")
        elif problem is None and self._problem is not None:
            self._log.info("notifications_recovered")
        self._problem = problem
        for inbox in self._inboxes:
            inbox.report(problem)

    def _drop_queue(self) -> None:
        """Close the queue's connections; the next turn opens it again."""
        queue, self._queue = self._queue, None
        if queue is None:
            return
        with suppress(Exception):  # it is broken, and was reported
            queue.close()


def open_queue(uri: str, source_uri: str, options: StorageOptions) -> Queue:
    """Return the queue of a source, by the ``options`` of its store. Sends no request.

    Raises `QueueError` without usable credentials.
    """
    given = completed(scheme_of(source_uri), options, os.environ)
    kind = kind_of(uri, source_uri)
    if kind == "azure":
        from blizzard_core.notifications.azure_queue import AzureQueue  # noqa: PLC0415  # as above

        return AzureQueue(uri, given)
    if kind == "pubsub":
        from blizzard_core.notifications.pubsub import PubSubQueue  # noqa: PLC0415  # as above

        return PubSubQueue(subscription_of(uri), given, os.environ)
    from blizzard_core.notifications.sqs import SqsQueue  # noqa: PLC0415  # see the docstring

    return SqsQueue(uri, given)

"""A queue in memory that keeps the contract of queues, by a clock of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence

from blizzard_core.notifications.inbox import HintInbox
from blizzard_core.notifications.protocol import HIDDEN_SECS, Message, QueueError
from blizzard_core.notifications.receiver import Receiver


class MemoryQueue:
    """Messages come again after ``hidden_secs`` unless they are deleted. A `Queue`."""

    def __init__(self, clock: Callable[[], float], hidden_secs: float = HIDDEN_SECS) -> None:
        self.clock = clock
        self._hidden_secs = hidden_secs
        self.error = ""
        self.purged = 0
        self._messages: dict[str, Message] = {}
        self._hidden: dict[str, float] = {}
        self._numbers = itertools.count()

    def send(self, body: bytes, sent: float | None = None) -> None:
        """Send a message, by default now."""
        handle = str(next(self._numbers))
        at = self.clock() if sent is None else sent
        self._messages[handle] = Message(body, handle, at)

    def send_paths(self, *uris: str, sent: float | None = None) -> None:
        """Send a message that names these files."""
        self.send(json.dumps({"paths": uris}).encode(), sent)

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies of messages that were not deleted."""
        return [message.body for message in self._messages.values()]

    def receive(self, wait_secs: float) -> Sequence[Message]:  # noqa: ARG002  # never waits
        self._fail()
        now = self.clock()
        found = [m for m in self._messages.values() if self._hidden.get(m.handle, now) <= now]
        for message in found[:10]:
            self._hidden[message.handle] = now + self._hidden_secs
        return found[:10]

    def delete(self, handles: Sequence[str]) -> None:
        self._fail()
        for handle in handles:
            self._messages.pop(handle, None)

    def count(self) -> int | None:
        self._fail()
        return len(self._messages)

    def purge(self) -> None:
        self.purged += 1
        self._messages.clear()

    def close(self) -> None:
        """Nothing is open."""

    def _fail(self) -> None:
        if self.error:
            raise QueueError(self.error)


def receiver_of(queue: MemoryQueue, *inboxes: HintInbox, owns_queue: bool = False) -> Receiver:
    """Return a receiver of the queue, by its clock."""
    return Receiver(
        "memory",
        lambda: queue,
        inboxes,
        owns_queue=owns_queue,
        monotonic=queue.clock,
        clock=queue.clock,
        wait_secs=0,
    )

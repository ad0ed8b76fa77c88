"""Notifications by ``POST /notify`` on the address of the status page.

A request is answered before its message is handled. What a restart loses costs nothing, since each
start scans everything.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence

from blizzard_core.limits import WEBHOOK_MESSAGES
from blizzard_core.notifications.protocol import Message


class WebhookQueue:
    """Messages that were posted with a token. Thread-safe. A `Queue`, and a `Recipient`."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._waiting: queue.Queue[Message] = queue.Queue(WEBHOOK_MESSAGES)

    def post(self, body: bytes) -> bool:
        """Add a message; return whether there is room for it."""
        try:
            self._waiting.put_nowait(Message(body, "", None))
        except queue.Full:
            return False
        return True

    def receive(self, wait_secs: float) -> Sequence[Message]:
        try:
            found = [self._waiting.get(timeout=wait_secs)]
        except queue.Empty:
            return ()
        while not self._waiting.empty():
            found.append(self._waiting.get_nowait())
        return found

    def delete(self, handles: Sequence[str]) -> None:
        """Do nothing: a message is gone when it was received."""

    def count(self) -> int | None:
        return self._waiting.qsize()

    def purge(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()

    def close(self) -> None:
        """Do nothing: the status server listens."""

"""Notifications by ``POST /notify`` on the address of the status page.

A request is answered before its message is handled. What a restart loses costs nothing, since each
start scans everything.
"""

from __future__ import annotations

import hmac
import queue
from collections.abc import Sequence

from blizzard_core.limits import WEBHOOK_MESSAGES
from blizzard_core.notifications.protocol import Message

_BEARER = "Bearer "


def has_token(authorization: str, token: str) -> bool:
    """Return whether a header has a token; takes the same time whatever it has."""
    given = authorization.removeprefix(_BEARER).encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, token.encode()) and authorization.startswith(_BEARER)


class WebhookQueue:
    """Messages that were posted with a token. Thread-safe. A `Queue`."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._waiting: queue.Queue[Message] = queue.Queue(WEBHOOK_MESSAGES)

    def admits(self, authorization: str) -> bool:
        """Return whether a header has the token."""
        return has_token(authorization, self._token)

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


class Webhooks:
    """All webhooks of a daemon, behind one path."""

    def __init__(self, queues: Sequence[WebhookQueue]) -> None:
        self._queues = tuple(queues)

    def admits(self, authorization: str) -> bool:
        """Return whether any queue has the token of a header."""
        # Each is compared: how long it takes must not tell which one has the token.
        return True in [each.admits(authorization) for each in self._queues]

    def post(self, authorization: str, body: bytes) -> bool:
        """Add a message to each queue with the header's token; return whether all have room."""
        return False not in [q.post(body) for q in self._queues if q.admits(authorization)]

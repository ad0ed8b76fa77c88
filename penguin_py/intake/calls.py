"""Calls by ``POST /notify``: a table has new files, so its next poll need not wait.

A call only ends a pause. What is new, the poll finds; a forged or doubled call costs a poll, and a
lost one the rest of the pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from blizzard_core.daemon import StopEvent
from blizzard_core.redact import redacted
from blizzard_core.storage.opening import normalize_uri
from blizzard_core.text import json_object

# Calls begin polls at least so far apart: batches of many sources share a commit.
LEAST_SECS = 5.0
# How often a waiting table checks whether the daemon stops.
_CHECK_SECS = 1.0


class TableCalls:
    """The calls of one table. Thread-safe; one thread waits. A `Recipient`."""

    def __init__(
        self, uri: str, token: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri = redacted(normalize_uri(uri))
        self.token = token
        self._monotonic = monotonic
        self._called = threading.Event()
        self._not_before = 0.0

    def post(self, body: bytes) -> bool:
        """End the pause by a message that names this table, or none; there is always room."""
        self.call((json_object(body) or {}).get("table"))
        return True

    def call(self, uri: Any) -> None:
        """End the pause if the call is for this table, or names none."""
        if not isinstance(uri, str) or uri == self._uri:
            self._called.set()

    def wait(self, secs: float, stop: StopEvent) -> bool:
        """Wait; return whether a call came or the daemon stops before."""
        due = self._monotonic() + secs
        while not stop.is_set():
            left = max(0.0, due - self._monotonic())
            if self._called.wait(min(left, _CHECK_SECS)):
                early = self._not_before - self._monotonic()
                if early > 0:
                    stop.wait(early)
                # Before the poll: a call during it is for the next one.
                self._called.clear()
                self._not_before = self._monotonic() + LEAST_SECS
                return True
            if not left:
                return False
        return True

"""Calls by ``POST /notify``: a table has new files, so its next poll need not wait.

A call only ends a pause. What is new, the poll finds; a forged or doubled call costs a poll, and a
lost one the rest of the pause.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from blizzard_core.daemon import StopEvent
from blizzard_core.notifications.webhook import has_token
from blizzard_core.redact import redacted
from blizzard_core.storage.opening import normalize_uri

# Calls begin polls at least so far apart: batches of many sources share a commit.
LEAST_SECS = 5.0
# How often a waiting table checks whether the daemon stops.
_CHECK_SECS = 1.0


class TableCalls:
    """The calls of one table. Thread-safe; one thread waits."""

    def __init__(
        self, uri: str, token: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._uri = redacted(normalize_uri(uri))
        self._token = token
        self._monotonic = monotonic
        self._called = threading.Event()
        self._not_before = 0.0

    def admits(self, authorization: str) -> bool:
        """Return whether a header has the table's token."""
        return has_token(authorization, self._token)

    def call(self, uri: str | None) -> None:
        """End the pause if the call is for this table; None: for every one."""
        if uri is None or uri == self._uri:
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


class CallsOfTables:
    """All calls of a daemon. A `Posts`."""

    def __init__(self, tables: Sequence[TableCalls]) -> None:
        self._tables = tuple(tables)

    def admits(self, authorization: str) -> bool:
        """Return whether any table has the token of a header."""
        # Each is compared: how long it takes must not tell which one has the token.
        return True in [each.admits(authorization) for each in self._tables]

    def post(self, authorization: str, body: bytes) -> bool:
        """Call the table that a message names, or all with its token; there is always room."""
        uri = _table_of(body)
        for each in self._tables:
            if each.admits(authorization):
                each.call(uri)
        return True


def posts_of(tables: Iterable[TableCalls | None]) -> CallsOfTables | None:
    """Return the calls of a daemon; None if no table has any."""
    found = [each for each in tables if each is not None]
    return CallsOfTables(found) if found else None


def _table_of(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    uri = found.get("table") if isinstance(found, dict) else None
    return uri if isinstance(uri, str) else None

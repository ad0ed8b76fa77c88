"""Calls of Penguin: a table has new files, so its next poll need not wait.

A call is best effort, and nothing depends on it: Penguin polls anyway. While one is sent, further
ones for the same table become one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from blizzard_core.log import get_logger
from blizzard_core.observability.runs import RunEvent
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.tables import CallSettings
from blizzard_core.storage.opening import normalize_uri

_SECS = 5.0
_SUCCESS = 2
CLOSE_SECS = 2.0


class CommitCalls:
    """The sink that calls Penguin after each batch, in a thread of its own. A `RunSink`.

    Failures are logged once until a call is accepted.
    """

    def __init__(
        self, tables: Mapping[str, CallSettings], send: Callable[[CallSettings, str], None]
    ) -> None:
        """``tables`` are the URIs of tables as jobs name them. ``send`` raises `OSError`."""
        self._tables = tables
        self._send = send
        self._changed = threading.Condition()
        self._waiting: dict[str, CallSettings] = {}
        self._is_closed = self._is_failing = False
        self._thread = threading.Thread(target=self._send_all, name="calls", daemon=True)
        self._thread.start()

    def take(self, event: RunEvent) -> None:
        """Call Penguin if a batch is published."""
        table = normalize_uri(event.job.table)
        if event.kind == "complete" and table in self._tables:
            with self._changed:
                self._waiting[table] = self._tables[table]
                self._changed.notify()

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECS` at most."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CLOSE_SECS)

    def _send_all(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closed:
                        return
                    self._changed.wait()
                table, call = self._waiting.popitem()
            try:
                self._send(call, table)
                self._is_failing = False
            except (OSError, HTTPException) as error:
                if not self._is_failing:
                    self._is_failing = True
                    get_logger().warning("penguin_not_called", table=table, error=str(error))


def calls_of(config: Config) -> Mapping[str, CallSettings]:
    """Return the calls of tables that have one, by their URIs without secrets."""
    return {
        redacted(normalize_uri(table.table_uri)): table.notify
        for table in config.tables.values()
        if table.notify is not None
    }


def post_call(call: CallSettings, table: str) -> None:
    """Post a call, and follow no redirect: it could lead the token elsewhere.

    Raises `OSError` and `HTTPException`, which never hold the token.
    """
    parts = urlsplit(call.uri)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_SECS)
    headers = {"Authorization": f"Bearer {call.token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", parts.path or "/", json.dumps({"table": table}), headers)
        answer = connection.getresponse()
        if answer.status // 100 != _SUCCESS:
            raise OSError(f"{answer.status} {answer.reason}")
    finally:
        connection.close()

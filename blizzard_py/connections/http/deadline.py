"""A deadline for answers that arrive too slowly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any


class Deadline:
    """Ends an exchange when its time is up, however slowly bytes still arrive.

    The client's own time-outs count from one byte to the next. A server that sends one byte a
    second would hold a task for ever. Closing the socket wakes the thread that waits for it.
    """

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self.rang = False

    def see(self, event: str, info: Mapping[str, Any]) -> None:
        """Take the socket of a connection that the client opens; called for every step."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.rang:
                self._ring()

    def __enter__(self) -> None:
        self.rang = False
        self._timer = threading.Timer(self._secs, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

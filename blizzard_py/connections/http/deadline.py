"""An end to answers that come too slowly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import Any


class Deadline:
    """Ends what is under way when its time is up, however slowly bytes still come.

    The client's own time-outs count from one byte to the next; who sends one a second holds a task
    for ever. Shutting the socket wakes whoever waits for it.
    """

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self.rang = False

    def see(self, event: str, info: Mapping[str, Any]) -> None:
        """The client tells every step; those that open a connection give its socket."""
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

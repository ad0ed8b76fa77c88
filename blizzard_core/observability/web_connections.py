"""The web server's connections: a limited number, and no software versions in headers.

A client that opens many silent connections would use up file descriptors that the pipelines need.
So beyond `CONNECTIONS` the one that has been silent longest is closed. A health check sends its
request at once, so it is answered: the server accepts at most `TAKEN_AT_ONCE` connections at a
time, and can read them before they become the oldest.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from blizzard_core.limits import CONNECTIONS

# Instead of the library's, which names its version and Python's.
SERVER = "blizzard-penguin"

# A connection is read from some turns of the loop after it was taken, and answered some more
# later: eight times that are fewer than there may be.
TAKEN_AT_ONCE = CONNECTIONS // 8


class WebConnection(web.RequestHandler):
    """One of the open connections ``open_``, ordered from the longest silent one."""

    __slots__ = ("_open", "_wire")

    def __init__(
        self,
        server: web.Server,
        open_: dict[WebConnection, None],
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        """``options`` are aiohttp's of a request handler."""
        super().__init__(server, loop=loop, **options)
        self._open = open_
        self._wire: asyncio.BaseTransport | None = None

    def cut_off(self) -> None:
        """Close the connection at once, even during a transfer."""
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the new connection."""
        self._wire = transport
        super().connection_made(transport)
        self._heard()

    def data_received(self, data: bytes) -> None:
        """Record that the client sent data."""
        self._heard()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._open.pop(self, None)
        super().connection_lost(exc)

    def _heard(self) -> None:
        self._open.pop(self, None)
        self._open[self] = None
        if len(self._open) > CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cut_off()

    def handle_error(self, *arguments: Any, **named: Any) -> web.StreamResponse:
        """Answer a malformed request."""
        answer = super().handle_error(*arguments, **named)
        answer.headers["Server"] = SERVER
        return answer

    def log_exception(self, *arguments: Any, **named: Any) -> None:
        """Log no malformed requests and bodies: thousands may arrive per second."""
        if not isinstance(named.get("exc_info"), HttpProcessingError | web.RequestPayloadError):
            super().log_exception(*arguments, **named)

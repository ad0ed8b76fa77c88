"""The web server's connections: so many at most, and nothing of the server told to strangers.

Whoever opens many connections and says nothing on them would use up the process's file
descriptors, which the pipelines need. So beyond `CONNECTIONS` the one that was heard of
least lately is cut off: a health check that asks now is always newer than all who wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from blizzard_core.bounds import CONNECTIONS

# Instead of the library's, which names its version and Python's.
SERVER = "blizzard-penguin"


@dataclass
class Crowd:
    """The open connections, whom was heard of longest ago first."""

    most: int = CONNECTIONS
    _heard: dict[Connection, None] = field(default_factory=dict)

    def hear(self, connection: Connection) -> None:
        """Something came from there; cut off whoever is too many."""
        self._heard.pop(connection, None)
        self._heard[connection] = None
        if len(self._heard) > self.most:
            oldest = next(iter(self._heard))
            del self._heard[oldest]
            oldest.cut_off()

    def leave(self, connection: Connection) -> None:
        """It is closed."""
        self._heard.pop(connection, None)


class Connection(web.RequestHandler):
    """One connection, of which the `Crowd` knows when it was heard of last."""

    __slots__ = ("_crowd", "_wire")

    def __init__(
        self, server: web.Server, crowd: Crowd, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        """``options`` are aiohttp's of a request handler."""
        super().__init__(server, loop=loop, **options)
        self._crowd = crowd
        self._wire: asyncio.BaseTransport | None = None

    def cut_off(self) -> None:
        """Close it at once, whatever is on its way."""
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._wire = transport
        super().connection_made(transport)
        self._crowd.hear(self)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._crowd.hear(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        self._crowd.leave(self)
        super().connection_lost(exc)

    def handle_error(self, *arguments: Any, **named: Any) -> web.StreamResponse:
        """The answer to what is no request."""
        answer = super().handle_error(*arguments, **named)
        answer.headers["Server"] = SERVER
        return answer

    def log_exception(self, *arguments: Any, **named: Any) -> None:
        """What is no request is answered as such, and no event of ours: thousands come a second."""
        if not isinstance(named.get("exc_info"), HttpProcessingError):
            super().log_exception(*arguments, **named)

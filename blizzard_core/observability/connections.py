"""The web server's connections: so many at most, and nothing of the server told to strangers.

Whoever opens many connections and says nothing on them would use up the process's file
descriptors, which the pipelines need. So beyond `CONNECTIONS` one is cut off: of whoever has most,
the one that was heard of least lately. A health check, which has one and asks at once, is answered
beside a flood from elsewhere; and beside one from its own address, since no more connections are
taken at a time than can be read from before they are the oldest (`TAKEN_AT_ONCE`).
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

# A connection is read from some turns of the loop after it was taken, and answered some more
# later: eight times that are fewer than there may be.
TAKEN_AT_ONCE = CONNECTIONS // 8


@dataclass
class Crowd:
    """The open connections by who has them, for each whom was heard of longest ago first."""

    most: int = CONNECTIONS
    _heard: dict[str, dict[Connection, None]] = field(default_factory=dict)
    _count: int = 0

    def hear(self, connection: Connection) -> None:
        """Something came from there; cut off whoever is too many."""
        self.leave(connection)
        self._heard.setdefault(connection.peer, {})[connection] = None
        self._count += 1
        if self._count > self.most:
            fullest = max(self._heard.values(), key=len)
            oldest = next(iter(fullest))
            self.leave(oldest)
            oldest.cut_off()

    def leave(self, connection: Connection) -> None:
        """It is closed."""
        theirs = self._heard.get(connection.peer, {})
        if connection in theirs:
            del theirs[connection]
            self._count -= 1
            if not theirs:
                del self._heard[connection.peer]


class Connection(web.RequestHandler):
    """One connection, of which the `Crowd` knows when it was heard of last."""

    __slots__ = ("_crowd", "_wire", "peer")

    def __init__(
        self, server: web.Server, crowd: Crowd, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        """``options`` are aiohttp's of a request handler."""
        super().__init__(server, loop=loop, **options)
        self._crowd = crowd
        self._wire: asyncio.BaseTransport | None = None
        self.peer = ""

    def cut_off(self) -> None:
        """Close it at once, whatever is on its way."""
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._wire = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
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

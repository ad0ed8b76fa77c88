"""The web server on ``metrics.address``: aiohttp in a thread of its own.

A slow client holds one connection and nothing else. `blizzard_core.observability.web_connections`
limits their number. The pipelines never wait for the server.

The address is bound before the thread starts, so an address in use is reported at once. aiohttp
is imported in the thread, so the first poll does not wait for the import.
`blizzard_core.observability.status_page` lists the paths.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Self

from blizzard_core.errors import ConfigError
from blizzard_core.observability.address import WebAddress
from blizzard_core.observability.status import Panel

# Prometheus scrapes about every 15 seconds; slower clients open a new connection.
KEEPALIVE_SECS = 20.0
STOP_SECS = 10.0
# Connections that the system queues until they are accepted. Beyond that a client waits some
# seconds until its system tries again; a longer queue would take longer to work through.
QUEUE = 256


@contextmanager
def served(address: str, panel: Panel) -> Iterator[None]:
    """Serve while the block runs. Raises `ConfigError` if the address is taken."""
    with panel.providers.open(), Server(address, panel):
        yield


class Server:
    """The server, from entering to leaving. ``port`` is the one it got."""

    def __init__(self, address: str, panel: Panel) -> None:
        self._panel = panel
        where = WebAddress.parse(address)
        self._hosts = frozenset({"localhost", where.host.lower()})
        try:
            self._socket = where.listen(QUEUE)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None) or 0
            reason = os.strerror(number) if number > 0 else str(error)  # names are not resolved
            raise ConfigError(
                "metrics", [f"cannot listen on {address}: {reason}; give another address"]
            ) from error
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECS)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        from aiohttp import web  # noqa: PLC0415  # see the module's docstring

        from blizzard_core.observability.status_page import application  # noqa: PLC0415  # the same
        from blizzard_core.observability.web_connections import (  # noqa: PLC0415  # it imports aiohttp, too
            TAKEN_AT_ONCE,
            WebConnection,
        )

        own = ip_address(self._socket.getsockname()[0]).is_loopback
        runner = web.AppRunner(
            application(self._panel, hosts=self._hosts if own else None), shutdown_timeout=1.0
        )
        await runner.setup()
        connections: dict[WebConnection, None] = {}

        def connected() -> WebConnection:
            assert runner.server is not None  # noqa: S101  # it is set up
            options = {"access_log": None, "keepalive_timeout": KEEPALIVE_SECS}
            return WebConnection(runner.server, connections, self._loop, **options)

        try:
            listener = await self._loop.create_server(
                connected, sock=self._socket, backlog=TAKEN_AT_ONCE
            )
            self._socket.listen(QUEUE)  # asyncio takes as many at once as may wait
            if hasattr(
                socket, "TCP_DEFER_ACCEPT"
            ):  # on Linux the kernel holds silent connections back
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
            async with listener:
                await self._stop.wait()
                # asyncio drops a connection unclosed that it took just before it closes the server.
                self._loop.remove_reader(self._socket)
                await _turns()
        finally:
            await runner.cleanup()
            self._socket.close()
            await _turns()


async def _turns() -> None:
    """Let the loop end what it has begun.

    A connection is there four turns after it was taken, and closed in the turn after it is cut off.
    """
    for _ in range(5):
        await asyncio.sleep(0)

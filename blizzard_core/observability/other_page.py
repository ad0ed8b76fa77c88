"""Penguin's answers at the address of Blizzard's page, for `blizzard up`. Imports aiohttp.

Only the fixed paths of a status page are passed on, to one fixed address. A slow or large answer is
cut off, so it costs a connection for seconds and nothing else.
"""

from __future__ import annotations

import re

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, web
from yarl import URL

from blizzard_core.limits import OTHER_PAGE_BYTES
from blizzard_core.observability.address import WebAddress

PREFIX = "/penguin/"
# Tells the page that the other daemon's page is one level up.
SERVED_BY = "X-Served-By"
_PATHS = re.compile(
    r"(?:overview|status)\.json|targets/[^?#]+/(?:status|past)\.json|metrics|health|ready"
)
_TIMEOUT = ClientTimeout(total=9.0)


class OtherPage:
    """The other daemon's page, by its address."""

    def __init__(self, address: str) -> None:
        self._origin = f"http://{WebAddress.parse(address).local}"
        self._session: ClientSession | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return the other daemon's answer to a request below `PREFIX`."""
        path = request.rel_url.raw_path.removeprefix(PREFIX)
        if _PATHS.fullmatch(path) is None:
            return web.json_response({"error": "there is nothing here of that name"}, status=404)
        if self._session is None:
            self._session = ClientSession(timeout=_TIMEOUT, auto_decompress=False)
        accept = {"Accept": request.headers.get("Accept", "*/*")}
        try:
            url = URL(f"{self._origin}/{path}", encoded=True)
            async with self._session.get(url, headers=accept, allow_redirects=False) as found:
                kind = found.headers.get("Content-Type", "text/plain")
                return web.Response(
                    body=await _body_of(found),
                    status=found.status,
                    headers={"Content-Type": kind, SERVED_BY: "blizzard"},
                )
        except (ClientError, TimeoutError) as error:
            why = f"Penguin does not answer ({type(error).__name__}); its log says why"
            return web.json_response({"error": why}, status=502)

    async def close(self, _app: web.Application) -> None:
        """Close the connections to the other daemon."""
        if self._session is not None:
            await self._session.close()


async def _body_of(found: ClientResponse) -> bytes:
    body = bytearray()
    async for piece in found.content.iter_chunked(1 << 16):
        body += piece
        if len(body) > OTHER_PAGE_BYTES:
            raise ClientError("its answer is too large")
    return bytes(body)

"""HTTP handlers: metrics, health, readiness, the status page. Importing it imports aiohttp.

==============================  ========================================================
``/``                           the status page, which asks for the JSON below
``/status.json``                everything that the daemon knows
``/overview.json``              less of each target, for a page with many
``/targets/NAME/status.json``   one target, with commands that help it
``/targets/NAME/past.json``     its history, read from the store
``/story.json?uri=URI``         what became of a file
``/metrics``                    Prometheus' text format; OpenMetrics if the client accepts it
``/health``                     503 with reasons only if a restart would help; otherwise 200
``/ready``                      200 while every loop does its work, 503 with reasons otherwise
``/penguin/…``                  with `blizzard up`: the same of Penguin, but no stories
``POST /notify``                with a webhook: a message that names new files, for its token
==============================  ========================================================

Otherwise read-only: GET and HEAD of these paths, no cookies, no state. No request waits for a
store. Threads of `blizzard_core.observability.background_cache` read history and stories; a request
gets the latest result. Documents about all targets are built at most once a second.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from blizzard_core.limits import MESSAGE_BYTES, STORY_CHARACTERS
from blizzard_core.observability.background_cache import Busy
from blizzard_core.observability.health import HealthReport
from blizzard_core.observability.other_page import PREFIX, OtherPage
from blizzard_core.observability.page_file import page
from blizzard_core.observability.status import Panel
from blizzard_core.observability.web_connections import SERVER

_POLICY = "Content-Security-Policy"
_PORT = re.compile(r":\d*$")

HEADERS = {
    "Cache-Control": "no-store",
    _POLICY: "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

PREPARED_SECS = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageHandlers:
    """Answers to requests for the paths above."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._prepared = ResponseCache(time.monotonic)
        self._page, self._policy = page()
        self.paths: dict[str, Handler] = {
            "/": self.page,
            "/status.json": self.status,
            "/overview.json": self.overview,
            "/targets/{name:.+}/status.json": self.target,
            "/targets/{name:.+}/past.json": self.past,
            "/story.json": self.story,
            "/metrics": self.metrics,
            "/health": self.health,
            "/ready": self.ready,
        }

    async def page(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=self._page,
            content_type="text/html",
            charset="utf-8",
            headers={_POLICY: self._policy},
        )

    async def status(self, _request: web.Request) -> web.StreamResponse:
        return _response(self._prepared.get("status", lambda: _json(self._panel.to_json())))

    async def overview(self, _request: web.Request) -> web.StreamResponse:
        return _response(self._prepared.get("overview", lambda: _json(self._panel.overview())))

    async def target(self, request: web.Request) -> web.StreamResponse:
        return _json_or_404(self._panel.target(request.match_info["name"]))

    async def past(self, request: web.Request) -> web.StreamResponse:
        return _json_or_404(self._panel.past(request.match_info["name"]))

    async def story(self, request: web.Request) -> web.StreamResponse:
        uri = request.query.get("uri", "")
        if not 0 < len(uri) <= STORY_CHARACTERS:
            return _error_response(400, f"give ?uri= with 1 to {STORY_CHARACTERS:,} characters")
        if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return _error_response(403, "a page of another site asks nothing here")
        try:
            return _json_or_404(self._panel.story(uri))
        except Busy as error:
            return _error_response(429, str(error))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        encode, content_type = _format(request.headers.get("Accept", ""))
        body = self._prepared.get(content_type, lambda: encode(REGISTRY))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def health(self, _request: web.Request) -> web.StreamResponse:
        return _health_response(self._panel.alive())

    async def notify(self, request: web.Request) -> web.StreamResponse:
        """Take a message; 202, whatever is in it."""
        posts = self._panel.posts
        authorization = request.headers.get("Authorization", "")
        if posts is None or not posts.admits(authorization):
            return _error_response(401, "the token of notifications is required")
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > MESSAGE_BYTES:
                    return _error_response(413, f"a message has at most {MESSAGE_BYTES:,} bytes")
        except web.RequestPayloadError:
            return _error_response(400, "the body is not compressed as its header says")
        if not posts.post(authorization, bytes(body)):
            return _error_response(503, "too many messages wait; send it again")
        return web.Response(status=202)

    async def ready(self, _request: web.Request) -> web.StreamResponse:
        return _health_response(self._panel.ready())


def application(panel: Panel, hosts: frozenset[str] | None = None) -> web.Application:
    """Return the web application for the paths above, with strict headers.

    With ``hosts`` only requests for one of these names or for an address are answered. Otherwise a
    foreign page could map its own name to this machine and read the answers.
    """

    @web.middleware
    async def for_us(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hosts is None or _named(request.headers.get("Host", ""), hosts):
            return await handler(request)
        return web.Response(status=421, text="this server has another name; ask for its address")

    found = web.Application(client_max_size=1024, middlewares=[for_us])
    found.on_response_prepare.append(_harden)
    handlers = PageHandlers(panel)
    for path, handler in handlers.paths.items():
        found.router.add_get(path, handler)
    if panel.posts is not None:
        found.router.add_post("/notify", handlers.notify)
    if panel.penguin_page is not None:
        other = OtherPage(panel.penguin_page)
        found.router.add_get(PREFIX, handlers.page)
        found.router.add_get(PREFIX + "{path:.+}", other.answer)
        found.on_cleanup.append(other.close)
    return found


async def _harden(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = SERVER


def _named(host: str, hosts: frozenset[str]) -> bool:
    """Return whether a request's ``Host`` is one of these names, or an address."""
    name = _PORT.sub("", host).lower()
    if name in hosts:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _format(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the writer and the content type of metrics for an ``Accept`` header.

    There are only two formats, since each result is cached for a second.
    """
    if "application/openmetrics-text" in accept:
        return openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


def _health_response(verdict: HealthReport) -> web.Response:
    return _response(_json(verdict.to_json()), 200 if verdict.ok else 503)


def _json_or_404(document: Any) -> web.Response:
    if document is None:
        return _error_response(404, "there is nothing here of that name")
    return _response(_json(document))


def _error_response(status: int, why: str) -> web.Response:
    return _response(_json({"error": why}), status)


def _response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")


def _json(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    # Undecodable bytes of a name are escaped as in JSON.
    return text.encode(errors="backslashreplace")


class ResponseCache:
    """Responses that are built at most once a second, however many clients ask."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._made: dict[str, tuple[float, bytes]] = {}

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the response, at most a second old."""
        now = self._elapsed()
        at, body = self._made.get(key, (-math.inf, b""))
        if now - at >= PREPARED_SECS:
            body = make()
            self._made[key] = (self._elapsed(), body)
        return body

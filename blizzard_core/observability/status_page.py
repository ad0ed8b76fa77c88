"""What is served: metrics, health, readiness, the status page. Importing it costs aiohttp.

====================  ==================================================================
``/``                 the status page; it needs nothing but ``/status.json``
``/status.json``      everything on the page as data
``/metrics``          Prometheus' text format, or OpenMetrics for who asks for it
``/health``           200 while a restart would not help, 503 with reasons otherwise
``/ready``            200 while every loop does its work, 503 with reasons otherwise
====================  ==================================================================

Read-only: GET and HEAD of these paths, no query, no cookie, no state. The page is one
file without outside assets; its policy names its script and style by their hashes, so
markup that found its way into it would be text without effect.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from ipaddress import ip_address
from typing import Any

from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from blizzard_core.errors import BlizzardError
from blizzard_core.observability.connections import SERVER
from blizzard_core.observability.health import Verdict
from blizzard_core.observability.status import Panel

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

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(panel: Panel, hosts: frozenset[str] | None = None) -> web.Application:
    """The five paths, each answer with strict headers.

    With ``hosts`` only who asks for one of these names or for an address is answered: a page
    somewhere may have its own name lead to this machine, and would read what is shown here.
    """
    body, policy = page()

    async def show_page(_request: web.Request) -> web.StreamResponse:
        headers = {_POLICY: policy}
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)

    async def show_status(_request: web.Request) -> web.StreamResponse:
        return _json(panel.to_json())

    async def show_metrics(request: web.Request) -> web.StreamResponse:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})

    async def show_health(_request: web.Request) -> web.StreamResponse:
        return _judged(panel.alive())

    async def show_ready(_request: web.Request) -> web.StreamResponse:
        return _judged(panel.ready())

    @web.middleware
    async def for_us(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hosts is None or _named(request.headers.get("Host", ""), hosts):
            return await handler(request)
        return web.Response(status=421, text="this server has another name; ask for its address")

    found = web.Application(client_max_size=1024, middlewares=[for_us])
    found.on_response_prepare.append(_harden)
    handlers: dict[str, Handler] = {
        "/": show_page,
        "/status.json": show_status,
        "/metrics": show_metrics,
        "/health": show_health,
        "/ready": show_ready,
    }
    for path, handler in handlers.items():
        found.router.add_get(path, handler)
    return found


async def _harden(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = SERVER


def _named(host: str, hosts: frozenset[str]) -> bool:
    """Whether a request's ``Host`` is one of these names, or an address."""
    name = _PORT.sub("", host).lower()
    if name in hosts:
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _judged(verdict: Verdict) -> web.Response:
    return _json(verdict.to_json(), 200 if verdict.ok else 503)


def _json(document: Any, status: int = 200) -> web.Response:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return web.Response(text=text, status=status, content_type="application/json")


def page() -> tuple[bytes, str]:
    """The status page, and the policy that allows its own script and style and nothing else."""
    text = (files("blizzard_core.observability") / "page.html").read_text("utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_of('script', text)}",
            f"style-src {_hash_of('style', text)}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return text.encode(), policy


def _hash_of(element: str, text: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    if len(found) != 1:
        raise BlizzardError(f"the status page has {len(found)} <{element}> elements, not one")
    digest = hashlib.sha256(found[0].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

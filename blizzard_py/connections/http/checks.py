"""Contradictions in an API's configuration that the settings of its blocks do not see. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from blizzard_core.settings.connections import HttpConnectionSettings
from blizzard_py.connections.http.model import HttpSource, tick
from blizzard_py.connections.sent_values import INCLUSIVE_TICKS


def problems(source: HttpSource) -> tuple[str, ...]:
    """Return the contradictions, one a line; empty if the source can be used.

    For `validate`. The parser of a single field checks that field.
    """
    return (*_api(source.api), *_request(source), *_watermark(source))


def _api(api: HttpConnectionSettings) -> list[str]:
    found = _url("base_url", api.base_url)
    found += [
        f"allowed_hosts: {host!r} must be host or host:port, without a scheme or a path"
        for host in api.advanced.allowed_hosts
        if not host or set(host) & set("/@?# ")
    ]
    found += _headers("headers", api.headers)
    auth = api.auth
    if auth is None:
        return found
    if auth.token_url is not None:
        found += _url("auth.token_url", auth.token_url)
    if auth.token is not None and (auth.kind == "bearer" or auth.advanced.location == "header"):
        found += _headers("auth", {auth.name or "token": auth.token})
    return found


def sendable(value: str) -> bool:
    """Return whether a header can carry the text."""
    return value.isascii() and value.isprintable() and value == value.strip()


def _headers(name: str, headers: Mapping[str, str]) -> list[str]:
    """Return problems of headers. HTTP clients would quote the whole value in their error."""
    return [
        f"{name}: {shown!r} must be printable ASCII without blanks or line breaks around it"
        for shown, value in headers.items()
        if not (value and sendable(value) and shown and sendable(shown))
    ]


def _url(name: str, url: str) -> list[str]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return [f"{name} is not a URL"]
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return [f"{name} must begin with http:// or https:// and a host"]
    if "@" in parts.netloc:
        return [f"{name} must not hold a user or a password; put them into auth"]
    if parts.query or parts.fragment:
        return [f"{name} must not hold parameters; put them into request.params"]
    return []


def _request(source: HttpSource) -> list[str]:
    request, body = source.request, source.request.body
    found = []
    if "://" in request.path or request.path.startswith("//"):
        found.append("request.path must be a path below base_url, not a URL")
    if "?" in request.path or "#" in request.path:
        found.append("request.path must not hold parameters; put them into request.params")
    return found + [
        f"'{name}' cannot be placed in request.body, because a value on its way is not an object"
        for name in _placed_names(source)
        if not _has_way(body or {}, name.split(".")[:-1])
    ]


def _placed_names(source: HttpSource) -> list[str]:
    """Return the names, as paths, of values that are placed in the body."""
    push, pages = source.push, source.pages
    found: list[str | None] = []
    if push is not None and push.advanced.in_ == "body":
        found += [push.from_.param, push.to.param if push.to else None]
    if pages.advanced.in_ == "body":
        found += [pages.param, pages.limit_param]
    return [name for name in found if name]


def _has_way(body: Any, path: list[str]) -> bool:
    if not isinstance(body, Mapping):
        return False
    return not path or path[0] not in body or _has_way(body[path[0]], path[1:])


def _watermark(source: HttpSource) -> list[str]:
    end = source.push.to if source.push else None
    if end is None or INCLUSIVE_TICKS.get(end.inclusive, tick(end)) >= tick(end):
        return []
    problem = (
        f"watermark.push.to.inclusive: {end.inclusive} is less than format: {end.format} can"
        " express; rows at the end of each window would not be read"
    )
    return [problem]

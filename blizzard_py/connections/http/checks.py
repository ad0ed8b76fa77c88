"""Contradictions in the configuration of an API. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from blizzard_py.connections.http.model import (
    INCLUSIVE_TICKS,
    Api,
    ApiKey,
    Bearer,
    ClientCredentials,
    HttpSource,
    tick,
)


def problems(source: HttpSource) -> tuple[str, ...]:
    """Return the contradictions, one a line; empty if the source can be used.

    For `validate`. The parser of a single field checks that field.
    """
    return (*_api(source.api), *_request(source), *_pages(source), *_watermark(source))


def _api(api: Api) -> list[str]:
    found = _url("base_url", api.base_url)
    if api.timeout_secs <= 0:
        found.append("timeout must be above 0")
    if api.max_answer_bytes <= 0:
        found.append("max_answer_bytes must be above 0")
    found += [
        f"allowed_hosts: {host!r} must be host or host:port, without a scheme or a path"
        for host in api.allowed_hosts
        if not host or set(host) & set("/@?# ")
    ]
    if isinstance(api.auth, ClientCredentials):
        found += _url("auth.token_url", api.auth.token_url)
    found += _headers("headers", api.headers)
    if isinstance(api.auth, Bearer):
        found += _headers("auth", {"token": api.auth.token})
    if isinstance(api.auth, ApiKey) and api.auth.location == "header":
        found += _headers("auth", {api.auth.name: api.auth.value})
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
    found = _headers("request.headers", request.headers)
    if body is not None and request.method != "POST":
        found.append("request.body needs request.method: POST")
    if "://" in request.path or request.path.startswith("//"):
        found.append("request.path must be a path below base_url, not a URL")
    if "?" in request.path or "#" in request.path:
        found.append("request.path must not hold parameters; put them into request.params")
    in_body = [
        name
        for name, there in (
            ("pages.in", source.pages.location == "body"),
            ("watermark.push.in", source.push is not None and source.push.location == "body"),
        )
        if there and request.method != "POST"
    ]
    found += [f"{name}: body needs request.method: POST" for name in in_body]
    return found + [
        f"'{name}' cannot be placed in request.body, because a value on its way is not an object"
        for name in _placed_names(source)
        if not _has_way(body or {}, name.split(".")[:-1])
    ]


def _placed_names(source: HttpSource) -> list[str]:
    """Return the names, as paths, of values that are placed in the body."""
    push, pages, found = source.push, source.pages, []
    if push is not None and push.location == "body":
        found += [push.start.param, push.end.param if push.end else ""]
    if pages.location == "body":
        found += [pages.param, pages.limit_param]
    return [name for name in found if name]


def _has_way(body: Any, path: list[str]) -> bool:
    if not isinstance(body, Mapping):
        return False
    return not path or path[0] not in body or _has_way(body[path[0]], path[1:])


def _pages(source: HttpSource) -> list[str]:
    pages = source.pages
    needed = {
        "none": (),
        "offset": ("param",),
        "page": ("param",),
        "cursor": ("next", "param"),
        "next_link": ("next",),
        "link_header": (),
    }[pages.kind]
    found = [
        f"pages.{name} is needed by kind: {pages.kind}"
        for name in needed
        if not getattr(pages, name)
    ]
    if pages.limit_param and pages.size < 1:
        found.append("pages.limit_param needs a size")
    if "short" in pages.end_on and pages.size < 1:
        found.append("pages.end_on: short needs a size")
    if pages.max < 1:
        found.append("pages.max must be at least 1")
    return found


def _watermark(source: HttpSource) -> list[str]:
    push, found = source.push, []
    if source.column and push is None:
        found.append("watermark.columns needs push.from: without it the API is not told the window")
    if push is not None and not source.column:
        found.append("watermark.push needs watermark.columns")
    if push is not None and push.end is not None and push.end.param == push.start.param:
        found.append("watermark.push: from and to must be two parameters")
    end = push.end if push else None
    if end is not None and INCLUSIVE_TICKS.get(end.inclusive, tick(end)) < tick(end):
        found.append(
            f"watermark.push.to.inclusive: {end.inclusive} is less than format: {end.format} can"
            " express; rows at the end of each window would not be read"
        )
    if source.split is not None and (push is None or push.end is None):
        found.append("split needs watermark.push.to: a range needs an end")
    return found

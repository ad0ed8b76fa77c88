"""One request to an API as a plain value: how it is built, compared and shown. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from blizzard_core.redact import MASK, SECRET_NAME, redacted
from blizzard_core.settings.http_sources import PagesSettings
from blizzard_core.text import printable, shortened
from blizzard_py.connections.http.model import HttpSource

Value: TypeAlias = str | int | float
Location: TypeAlias = Literal["params", "body", "headers"]
_SHOWN = 1000
# Parameter names of API keys, in addition to the secret names known everywhere.
_KEY_NAMES = frozenset({"key", "auth", "sig", "pass", "pwd", "appid", "app_id", "jwt"})


@dataclass(frozen=True, slots=True)
class Call:
    """One request, without the connection's credentials.

    ``url`` may have parameters of its own, as the link of a next page has; ``params`` are added to
    them.
    """

    method: str
    url: str
    params: Mapping[str, Value] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)

    def with_value(self, location: Location, name: str, value: Value) -> Call:
        """Return the request with one value added or replaced."""
        if location == "params":
            return replace(self, params={**self.params, name: value})
        if location == "headers":
            return replace(self, headers={**self.headers, name: str(value)})
        return replace(self, body=_placed(self.body or {}, name.split("."), value))

    @property
    def address(self) -> str:
        """Method and URL without parameters, for messages: parameters may hold values of rows."""
        parts = urlsplit(self.url)
        return f"{self.method} {_plain(urlunsplit((*parts[:3], '', '')))}"

    def content(self) -> bytes | None:
        """Return the body as it is sent."""
        return None if self.body is None else msgspec.json.encode(self.body)

    def digest(self) -> bytes:
        """Return a digest that is equal for equal requests."""
        parts = (self.method, self.url, sorted(self.params.items()), self.content() or b"")
        return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def first_call(source: HttpSource, window: Mapping[str, Value]) -> Call:
    """Return the request of a window; ``window`` maps parameter names to values."""
    request = source.request
    call = Call(
        "GET" if request.body is None else "POST",
        joined(source.api.base_url, request.path),
        {name: _spelt(value) for name, value in request.params.items()},
        body=request.body,
    )
    location = source.push.advanced.in_ if source.push else "params"
    for name, value in window.items():
        call = call.with_value(location, name, value)
    return call


def with_first_page(pages: PagesSettings, call: Call) -> Call:
    """Return the request of the first page."""
    if pages.limit_param and pages.size:
        call = call.with_value(pages.advanced.in_, pages.limit_param, pages.size)
    if pages.param and pages.kind in {"offset", "page"}:
        first = 0 if pages.kind == "offset" else pages.advanced.first
        call = call.with_value(pages.advanced.in_, pages.param, first)
    return call


def is_secret(name: str) -> bool:
    """Return whether a parameter's name says that its value is secret."""
    return name.lower() in _KEY_NAMES or SECRET_NAME.search(name) is not None


def joined(base_url: str, path: str) -> str:
    """Return the base URL with the path appended to its own path."""
    return f"{base_url.rstrip('/')}/{path.lstrip('/')}" if path else base_url


def shown(call: Call, source: HttpSource) -> dict[str, Any]:
    """Return method, URL, parameters, body and headers to show to people, without secrets.

    Only headers that carry the window are included. Values under secret names are masked.
    """
    auth, push = source.api.auth, source.push
    secret = {auth.name} if auth is not None and auth.name else set()
    window_params = {push.from_.param, push.to.param if push.to else ""} if push else set()
    return {
        "method": call.method,
        "url": _plain(call.url),
        "params": _masked(call.params, secret),
        "body": None if call.body is None else _masked(call.body, secret),
        "headers": {k: v for k, v in call.headers.items() if k in window_params},
    }


def line(fields: Mapping[str, Any]) -> str:
    """Return the result of `shown` on one line: ``GET https://…/orders?since=…``."""
    query = urlencode(fields["params"], safe=":,*")
    body = msgspec.json.encode(fields["body"]).decode() if fields["body"] is not None else ""
    headers = " ".join(f"{name}: {value}" for name, value in fields["headers"].items())
    parts = (f"{fields['method']} {fields['url']}{'?' if query else ''}{query}", headers, body)
    return shortened(printable(" ".join(part for part in parts if part)), _SHOWN)


def _placed(body: Mapping[str, Any], path: list[str], value: Value) -> dict[str, Any]:
    name, *rest = path
    inner = body.get(name)
    below = inner if isinstance(inner, Mapping) else {}
    return {**body, name: _placed(below, rest, value) if rest else value}


def _spelt(value: str | float) -> Value:
    """Return a value as APIs expect it in a URL: booleans as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str | int) else repr(value)


def _masked(values: Any, secret: set[str]) -> Any:
    if isinstance(values, Mapping):
        return {
            name: MASK if name in secret or is_secret(str(name)) else _masked(value, secret)
            for name, value in values.items()
        }
    if isinstance(values, list | tuple):
        return [_masked(value, secret) for value in values]
    return redacted(values) if isinstance(values, str) else values


def _plain(url: str) -> str:
    return shortened(printable(redacted(url)), _SHOWN)

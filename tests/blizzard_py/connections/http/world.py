"""Shared helpers of the HTTP tests: a clock that advances when it sleeps, and short forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.settings.connections import AuthSettings, HttpConnectionSettings
from blizzard_core.settings.http_sources import (
    HttpWatermark,
    PagesSettings,
    PushEnd,
    PushParam,
    PushSettings,
    RangeSettings,
    RequestSettings,
)
from blizzard_py.connections.http.model import HttpSource
from blizzard_py.connections.http.reader import HttpReader, access
from blizzard_py.connections.http.retry import Time

NOW = 1_790_000_000.0


@dataclass
class FakeTime:
    """Sleeping costs nothing and is kept; chance is always as small as it can be."""

    now: float = NOW
    slept: list[float] = field(default_factory=list)

    def sleep(self, secs: float) -> None:
        self.slept.append(secs)
        self.now += secs

    @property
    def time(self) -> Time:
        return Time(self.sleep, lambda: self.now, lambda: self.now, lambda: 0.0)


def bearer(token: str) -> AuthSettings:
    return AuthSettings(kind="bearer", token=token)


def basic(username: str, password: str) -> AuthSettings:
    return AuthSettings(kind="basic", username=username, password=password)


def api_key(name: str, token: str, place: str = "header") -> AuthSettings:
    given = {"kind": "api_key", "name": name, "token": token, "advanced": {"in": place}}
    return AuthSettings.model_validate(given)


def oauth_client(token_url: str, secret: str, **advanced: Any) -> AuthSettings:
    given = {"token_url": token_url, "client_id": "me", "client_secret": secret}
    given["kind"] = "oauth2_client_credentials"
    return AuthSettings.model_validate({**given, "advanced": advanced})


def api_at(
    base_url: str,
    auth: AuthSettings | None = None,
    headers: Mapping[str, str] | None = None,
    **advanced: Any,
) -> HttpConnectionSettings:
    given = {"driver": "http", "base_url": base_url, "auth": auth, "headers": headers or {}}
    return HttpConnectionSettings.model_validate({**given, "advanced": advanced})


def request_to(path: str = "", **more: Any) -> RequestSettings:
    return RequestSettings.model_validate({"path": path, **more})


def paging(
    kind: str = "none",
    param: str | None = None,
    size: int | None = None,
    place: str = "params",
    *,
    following: str | None = None,
    limit_param: str | None = None,
    **advanced: Any,
) -> PagesSettings:
    given = {"kind": kind, "param": param, "next": following, "limit_param": limit_param}
    given |= {"size": size, "advanced": {"in": place, **advanced}}
    return PagesSettings.model_validate(given)


def start_as(param: str = "since", form: str = "iso") -> PushParam:
    return PushParam.model_validate({"param": param, "format": form})


def end_as(param: str = "until", form: str = "iso", inclusive: str | None = None) -> PushEnd:
    return PushEnd.model_validate({"param": param, "format": form, "inclusive": inclusive})


def push_as(start: PushParam, end: PushEnd | None = None, place: str = "params") -> PushSettings:
    return PushSettings.model_validate({"from": start, "to": end, "advanced": {"in": place}})


def split_from(start: str, unit: str = "day") -> RangeSettings:
    return RangeSettings.model_validate({"start": start, "unit": unit})


def marked(column: str, push: PushSettings, split: RangeSettings | None = None) -> HttpWatermark:
    return HttpWatermark(columns=[column], push=push, split=split)


def made(
    url: str,
    records: str = "",
    pages: PagesSettings | None = None,
    auth: AuthSettings | None = None,
    *,
    request: RequestSettings | None = None,
    watermark: HttpWatermark | None = None,
    **api: Any,
) -> HttpSource:
    connection = api_at(url, auth, **{"timeout": "20s", **api})
    return HttpSource(
        connection, request or request_to("/rows"), records, pages or paging(), watermark
    )


def text_of(source: HttpSource, clock: FakeTime, window: Mapping[str, Any] | None = None) -> bytes:
    """All that the reader gives, as one piece of text; every piece of it is whole lines."""
    pieces = list(HttpReader(clock.time)(access(source), {"window": window or {}}, ()))
    assert all(piece.endswith(b"\n") for piece in pieces)
    return b"".join(pieces)


def rows_of(
    source: HttpSource, clock: FakeTime, window: Mapping[str, Any] | None = None
) -> list[Any]:
    return [json.loads(line) for line in text_of(source, clock, window).splitlines()]

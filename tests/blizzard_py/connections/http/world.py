"""Shared helpers of the HTTP tests: a clock that advances when it sleeps, and short forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blizzard_py.connections.http.model import Api, Auth, HttpRequest, HttpSource, Pages
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


def made(
    url: str,
    records: str = "",
    pages: Pages | None = None,
    auth: Auth | None = None,
    *,
    request: HttpRequest | None = None,
    **api: Any,
) -> HttpSource:
    return HttpSource(
        Api(url, auth, **{"timeout_secs": 20.0, **api}),
        request or HttpRequest("/rows"),
        records,
        pages or Pages(),
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

"""From the settings of an API to what its connection and its reader go by."""

from __future__ import annotations

import datetime as dt

from blizzard_core.settings.connections import AuthSettings, HttpConnection
from blizzard_core.settings.query_sources import HttpSourceSettings, PushSettings, RangeSettings
from blizzard_py.app.queries.units import request_text
from blizzard_py.connections.http.model import (
    Api,
    ApiKey,
    Auth,
    Basic,
    Bearer,
    ClientCredentials,
    HttpSource,
    Pages,
    Push,
    PushFrom,
    PushTo,
    Ranges,
    Request,
)


def http_source(settings: HttpConnection, source: HttpSourceSettings) -> HttpSource:
    """All that is configured of one source: its connection, and what is asked of it."""
    request, pages, mark = source.request, source.pages, source.watermark
    return HttpSource(
        Api(
            settings.base_url,
            None if settings.auth is None else _auth(settings.auth),
            settings.headers,
            settings.advanced.timeout,
            tuple(settings.advanced.allowed_hosts),
        ),
        Request(
            request_text(source.units, request.path),
            request.method,
            request_text(source.units, request.params),
            request.headers,
            request_text(source.units, request.body),
        ),
        source.records,
        Pages(
            pages.kind,
            pages.param or "",
            pages.next or "",
            pages.limit_param or "",
            pages.size or 0,
            pages.advanced.first,
            pages.advanced.total or "",
            pages.advanced.max,
            pages.in_,
            tuple(pages.advanced.end_on),
        ),
        "" if mark is None else mark.columns[0],
        None if mark is None else _push(mark.push),
        None if mark is None or mark.split is None else _ranges(mark.split),
    )


def _auth(auth: AuthSettings) -> Auth:
    """The kinds need what they need: the settings have seen to it."""
    match auth.kind:
        case "bearer":
            return Bearer(auth.token or "")
        case "basic":
            return Basic(auth.username or "", auth.password or "")
        case "api_key":
            return ApiKey(auth.name or "", auth.value or "", auth.location)
        case "oauth2_client_credentials":
            return ClientCredentials(
                auth.token_url or "",
                auth.client_id or "",
                auth.client_secret or "",
                auth.advanced.scope or "",
                auth.advanced.audience or "",
                auth.advanced.send_as,
            )


def _push(push: PushSettings) -> Push:
    to = push.to
    end = None if to is None else PushTo(to.param, to.format, to.inclusive or "")
    return Push(PushFrom(push.from_.param, push.from_.format), end, push.in_)


def _ranges(split: RangeSettings) -> Ranges:
    start = dt.datetime.fromisoformat(split.start)
    whole = len(split.start) == len("2023-07-01")
    return Ranges(start.date() if whole else start, split.unit, split.amount)

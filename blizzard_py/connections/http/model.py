"""The configuration of an API as plain values; the settings of a `kind: http` source map to it.

The values travel to Spark executors, so they are picklable and do not need pydantic. Fields that
may hold a secret have no ``repr``. Nothing here is read from an answer, and no default would need a
guess: the configuration states where the records are, how pages follow each other and which
parameters carry the window. `checks` reports contradictions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from blizzard_core.limits import ANSWER_BYTES
from blizzard_py.connections.placeholders import Values, in_path, in_text
from blizzard_py.connections.sent_values import FORMAT_TICKS

TimeFormat = Literal["iso", "date", "datetime", "datetime_ms", "timestamp", "timestamp_ms"]
Inclusive = Literal["", "1ms", "1s", "1day"]
Location = Literal["params", "body", "headers"]
EndSign = Literal["repeat", "empty", "short"]
PageKind = Literal["none", "offset", "page", "cursor", "next_link", "link_header"]
RangeUnit = Literal["hour", "day", "week", "month", "year"]


@dataclass(frozen=True, slots=True)
class Bearer:
    """``auth: { kind: bearer, token }``: ``Authorization: Bearer …``."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Basic:
    """``auth: { kind: basic, username, password }``."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``auth: { kind: api_key, name, token, in: header | query }``."""

    name: str
    value: str = field(repr=False)
    location: Literal["header", "query"] = "header"


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """``auth: { kind: oauth2_client_credentials, token_url, client_id, client_secret, … }``.

    ``send_as`` is how the client identifies itself at ``token_url``, which may be on another host:
    basic auth or form fields. ``scope`` and ``audience`` are sent if not empty.
    """

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    audience: str = ""
    send_as: Literal["basic", "form"] = "basic"


Auth: TypeAlias = Bearer | Basic | ApiKey | ClientCredentials


@dataclass(frozen=True, slots=True)
class Api:
    """A connection with ``driver: http``.

    * ``headers`` count as credentials: they are sent only to the origin of ``base_url`` (scheme,
      host and port).
    * ``allowed_hosts`` (``host`` for the scheme's own port, or ``host:port``) are further hosts
      that next pages and redirects may lead to. Requests to them carry no credentials.
    * ``timeout_secs`` limits one answer from the request to its last byte.
    * ``max_answer_bytes`` limits its unpacked length: a page is held in memory completely.
    """

    base_url: str
    auth: Auth | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_secs: float = 60.0
    allowed_hosts: tuple[str, ...] = ()
    max_answer_bytes: int = ANSWER_BYTES


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """``request:``. ``path`` is appended to the base URL. ``body`` is sent as JSON, with POST."""

    path: str = ""
    method: Literal["GET", "POST"] = "GET"
    params: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Pages:
    """``pages:``: how one answer leads to the next.

    ===========  =================================================  ===========================
    kind         the next request                                   the last page
    ===========  =================================================  ===========================
    none         there is none                                      the first
    offset       ``param`` is the number of records so far          one without records
    page         ``param`` is ``first``, ``first`` + 1, …           one without records
    cursor       ``param`` is what stands at ``next``               nothing, null or "" there
    next_link    the URL that stands at ``next``                    nothing, null or "" there
    link_header  the URL of ``Link: <…>; rel="next"``               no such link
    ===========  =================================================  ===========================

    ``next`` and ``total`` are paths into the answer (``meta.next``). ``limit_param`` is sent with
    ``size`` where both are given. Where ``total`` is given, a task that got fewer records
    than it states fails. A task with more than ``max`` pages fails. ``location`` is where
    ``param`` and ``limit_param`` are sent: in a body, names may be paths (``page.size``).
    ``end_on`` names other signs of the end: a page that repeats an earlier one exactly, a page
    without records, a page of fewer than ``size`` records.
    """

    kind: PageKind = "none"
    param: str = ""
    next: str = ""
    limit_param: str = ""
    size: int = 0
    first: int = 1
    total: str = ""
    max: int = 10_000
    location: Literal["params", "body"] = "params"
    end_on: tuple[EndSign, ...] = ()


@dataclass(frozen=True, slots=True)
class PushFrom:
    """``watermark.push.from``: the parameter that carries the window's start."""

    param: str
    format: TimeFormat = "iso"


@dataclass(frozen=True, slots=True)
class PushTo:
    """``watermark.push.to``: the parameter that carries the window's end.

    ``inclusive`` is for APIs that return rows *at* the end too. The sent value is lower by that
    amount; the window's end is not.
    """

    param: str
    format: TimeFormat = "iso"
    inclusive: Inclusive = ""


@dataclass(frozen=True, slots=True)
class Push:
    """``watermark.push:``; ``location`` is its ``in``. In a body, names may be paths."""

    start: PushFrom
    end: PushTo | None = None
    location: Location = "params"


@dataclass(frozen=True, slots=True)
class CalendarSplit:
    """``split: { unit, start }``: the window in calendar ranges, a task each.

    ``start`` is where the very first window begins.
    """

    start: dt.datetime | dt.date
    unit: RangeUnit = "day"


@dataclass(frozen=True, slots=True)
class HttpSource:
    """The configuration of one source: its connection and its request.

    ``records`` is the path of the list of records, ``""`` for the answer itself. ``column`` is the
    watermark's column (an API takes one window). ``""``: no column, so everything is read each
    time.
    """

    api: Api
    request: HttpRequest
    records: str
    pages: Pages = Pages()
    column: str = ""
    push: Push | None = None
    split: CalendarSplit | None = None


_SECOND, _MILLI, _DAY = dt.timedelta(seconds=1), dt.timedelta(milliseconds=1), dt.timedelta(days=1)
INCLUSIVE_TICKS = {"1ms": _MILLI, "1s": _SECOND, "1day": _DAY}
_FINEST = dt.timedelta(microseconds=1)


def tick(sent: PushFrom | PushTo) -> dt.timedelta:
    """Return the smallest distance of two values that the parameter can express."""
    inclusive = sent.inclusive if isinstance(sent, PushTo) else ""
    return max(FORMAT_TICKS.get(sent.format, _FINEST), INCLUSIVE_TICKS.get(inclusive, _FINEST))


def filled(request: HttpRequest, values: Values) -> HttpRequest:
    """Return a unit's request.

    Raises `SourceError` for a value that cannot be put in its place.
    """
    return replace(
        request,
        path=in_path(request.path, values),
        params=in_text(request.params, values),
        body=in_text(request.body, values),
    )


def packed(request: HttpRequest) -> dict[str, Any]:
    """Return the parts that differ from unit to unit, for a task's spec."""
    return {"path": request.path, "params": dict(request.params), "body": request.body}


def unpacked(request: HttpRequest, spec: Mapping[str, Any]) -> HttpRequest:
    """Return the inverse of `packed`, given the request as configured."""
    return replace(request, path=spec["path"], params=spec["params"], body=spec["body"])

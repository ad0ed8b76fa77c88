"""Requests and their answers, with all errors that may occur in between.

* Passing failures (408, 425, 429, 5xx, a broken connection, no complete answer in time) are
  repeated after a pause (`retry`), six attempts in all. Then `Unavailable` is raised.
* 401 and 403 raise `AccessDenied`. Exception: after the first 401 of a request with OAuth, the
  client fetches one new token and repeats the request.
* A redirect is followed if `hosts.target` allows it, at most five in a row, and only without a
  body. Credentials and configured headers are added last, by the URL that is really requested.
* Everything else that is not a readable answer raises `SourceError`.

Cookies are neither stored nor sent. No message contains credentials.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urlencode

import httpx

from blizzard_core.errors import AccessDenied, SourceError, Unavailable
from blizzard_core.limits import ANSWER_BYTES
from blizzard_core.redact import redacted
from blizzard_core.settings.connections import AuthSettings, HttpConnectionSettings
from blizzard_core.settings.http_sources import RequestSettings
from blizzard_core.text import printable, shortened
from blizzard_py.connections.http import credentials, decompression, retry
from blizzard_py.connections.http.calls import Call
from blizzard_py.connections.http.credentials import Token
from blizzard_py.connections.http.hosts import target
from blizzard_py.connections.http.retry import TRIES, Time


class Deadline:
    """Ends an exchange when its time is up, however slowly bytes still arrive.

    The client's own time-outs count from one byte to the next. A server that sends one byte a
    second would hold a task for ever. Closing the socket wakes the thread that waits for it.
    """

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self.rang = False

    def see(self, event: str, info: Mapping[str, Any]) -> None:
        """Take the socket of a connection that the client opens; called for every step."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.rang:
                self._ring()

    def __enter__(self) -> None:
        self.rang = False
        self._timer = threading.Timer(self._secs, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self.rang = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_RECORDS = frozenset({200, 201, 203})
_NO_CONTENT = 204
# How much of an error answer is read, for the message.
_EXCERPT_BYTES = 16 << 10
_TOKEN_BYTES = 1 << 20
# How long the clock in an answer is used.
_CLOCK_SECS = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. ``framed``: its end was marked, so it cannot have been cut.

    ``links`` are the ``Link`` headers as they came.
    """

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytearray
    links: tuple[str, ...] = ()
    framed: bool = True

    @property
    def is_empty(self) -> bool:
        """True for status 204: there is certainly no content."""
        return self.status == _NO_CONTENT


@dataclass(frozen=True, slots=True)
class _Clock:
    """The time in an answer, None if it had none, and when it came by the local clock."""

    server_time: float | None
    seen_at: float


class Refused(SourceError):
    """An answer with a status that says the request is wrong."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _ForNow(Exception):  # never leaves this module
    """The same request may succeed later."""

    def __init__(self, reason: str, retry_after: str = "", date: str = "") -> None:
        super().__init__(reason)
        self.reason, self.retry_after, self.date = reason, retry_after, date


class Client:
    """One connection to an API, for one thread. Opened when it is first needed."""

    def __init__(self, api: HttpConnectionSettings, request: RequestSettings, time: Time) -> None:
        self._api = api
        self._request = request
        self._time = time
        self._token: Token | None = None
        self._clock: _Clock | None = None
        self._alarm = Deadline(api.advanced.timeout)
        self._http = httpx.Client(
            verify=_trusted(),
            timeout=api.advanced.timeout,
            limits=httpx.Limits(max_connections=1),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"Accept": "application/json", "Accept-Encoding": decompression.ACCEPTED},
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def send(self, call: Call, what: str) -> Answer:
        """Send a request and return the answer; ``what`` begins the messages.

        Errors are those of the module's docstring.
        """
        renewed = False
        while True:
            answer = self._with_retries(what, lambda: self._follow_redirects(call, what))
            if answer.status == 401 and self._token is not None and not renewed:  # unauthorized
                self._token, renewed = None, True
                continue
            if answer.status in _RECORDS or answer.is_empty:
                return answer
            raise self._refusal(answer, what)

    def server_time(self, call: Call, what: str) -> float | None:
        """Return epoch seconds by the server's clock (``Date``), None if it sends no time.

        An answer of the last five minutes is used. Without one, ``call`` is sent; any status will
        do. Raises `Unavailable` without an answer.
        """
        now = self._time.monotonic()
        if self._clock is None or now - self._clock.seen_at > _CLOCK_SECS:
            self._with_retries(what, lambda: self._request_once(call, what, is_read=False))
            now = self._time.monotonic()
        clock = self._clock
        return (
            None
            if clock is None or clock.server_time is None
            else clock.server_time + now - clock.seen_at
        )

    def _with_retries(self, what: str, attempt: Callable[[], Answer]) -> Answer:
        failures = 0
        while True:
            try:
                return attempt()
            except _ForNow as passing:
                failures += 1
                if failures == TRIES:
                    reason = f"{passing.reason}, {failures} times in a row"
                    raise Unavailable(f"{what}: {reason}") from None
                resume_at, chance = retry.moment(passing.date), self._time.chance()
                now = self._time.wall() if resume_at is None else resume_at
                self._time.sleep(retry.pause(failures, passing.retry_after, now, chance))

    def _follow_redirects(self, call: Call, what: str) -> Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._request_once(call, what)
            if retry.passes(answer.status):
                date = answer.headers.get("date", "")
                raise _ForNow(
                    f"answered {answer.status}", answer.headers.get("retry-after", ""), date
                )
            if answer.status not in _REDIRECTS:
                return answer
            if call.body is not None:
                raise SourceError(
                    f"{what}: answered {answer.status}, a redirect, which is not followed with"
                    " a body; correct base_url or path"
                )
            link = answer.headers.get("location", "")
            there = target(self._api, answer.url, link, f"{what}: the redirect")
            if there.ours and (lost := _lost_params(call, there.url)):
                raise SourceError(
                    f"{what}: answered {answer.status}, and the redirect to another spelling of"
                    f" the same path drops the parameter '{printable(lost)}'; correct base_url or"
                    " request.path"
                )
            call = replace(call, url=there.url, params={})
        raise SourceError(f"{what}: more than {_MAX_REDIRECTS} redirects in a row")

    def _request_once(self, call: Call, what: str, *, is_read: bool = True) -> Answer:
        """Exchange once, with credentials if the URL is at the origin that they belong to."""
        there = target(self._api, self._api.base_url, call.url, what)
        if not there.ours:
            if call.body is not None:
                raise SourceError(f"{what}: leads to another host; a body is never sent there")
            return self._exchange(replace(call, headers={}), {}, what)
        carried = credentials.request_credentials(self._api.auth, self._valid_token())
        params = {**call.params, **carried.params}
        headers = {**self._api.headers, **call.headers, **carried.headers}
        answer = self._exchange(replace(call, params=params), headers, what, is_read=is_read)
        # Measured after the answer arrived, so that the estimated server clock is never too late.
        server_time = retry.moment(answer.headers.get("date", ""))
        self._clock = _Clock(server_time, self._time.monotonic())
        return answer

    def _exchange(
        self, call: Call, headers: Mapping[str, str], what: str, *, is_read: bool = True
    ) -> Answer:
        content = call.content()
        if content is not None:
            headers = {"Content-Type": "application/json", **headers}
        url = _with_params(call.url, call.params)
        try:
            request = self._http.build_request(call.method, url, headers=headers, content=content)
        except (httpx.InvalidURL, ValueError):
            raise SourceError(f"{what}: the request's URL or headers cannot be sent") from None
        return self._read(request, what, ANSWER_BYTES, is_read=is_read)

    def _valid_token(self) -> Token | None:
        auth = self._api.auth
        if auth is None or auth.kind != "oauth2_client_credentials":
            return None
        if self._token is None or self._time.monotonic() >= self._token.ends_at:
            self._token = self._new_token(auth)
        return self._token

    def _new_token(self, auth: AuthSettings) -> Token:
        """Request a token at its own host; redirects are not followed."""
        headers, form = credentials.token_request(auth)
        url = auth.token_url or ""
        what = f"the token of {shortened(printable(url), 300)}"
        request = self._http.build_request("POST", url, headers=headers, data=form)
        answer = self._read(request, what, _TOKEN_BYTES)
        if retry.passes(answer.status):
            date, after = answer.headers.get("date", ""), answer.headers.get("retry-after", "")
            raise _ForNow(f"{what}: answered {answer.status}", after, date)
        return credentials.read_token(answer.status, answer.body, self._time.monotonic(), what)

    def _read(
        self, request: httpx.Request, what: str, limit: int, *, is_read: bool = True
    ) -> Answer:
        request.extensions["trace"] = self._alarm.see
        try:
            with self._alarm, contextlib.closing(self._http.send(request, stream=True)) as response:
                whole = is_read and response.status_code in _RECORDS
                return _answer(response, limit if whole else _EXCERPT_BYTES, whole=whole)
        except httpx.LocalProtocolError:
            raise SourceError(f"{what}: the request's headers cannot be sent") from None
        except httpx.TransportError as error:
            raise _ForNow(self._broken(error)) from None
        except decompression.Damaged as damaged:
            raise _ForNow(str(damaged)) from None
        except decompression.TooLong:
            raise SourceError(
                f"{what}: the answer is longer than {limit:,} bytes; ask for smaller pages"
            ) from None
        except decompression.UnknownEncoding as unknown:
            raise SourceError(f"{what}: {unknown}") from None

    def _broken(self, error: httpx.TransportError) -> str:
        """Return what went wrong on the way.

        The client's texts may quote headers, so only the text of a failed connect is used.
        """
        if self._alarm.rang or isinstance(error, httpx.TimeoutException):
            return f"no whole answer within {self._api.advanced.timeout:g} s"
        if isinstance(error, httpx.ConnectError):
            return f"no connection: {shortened(printable(redacted(str(error))), 200)}"
        return f"the connection broke ({type(error).__name__})"

    def _refusal(self, answer: Answer, what: str) -> Exception:
        secrets = credentials.secrets_of(self._api, self._request, self._token)
        text = credentials.without_secrets(answer.body.decode(errors="replace"), secrets)
        problem = f"{answer.status}: {text}" if text else f"{answer.status}"
        if answer.status in {401, 403}:
            return AccessDenied(f"{what}: the API refuses the credentials, {problem}")
        return Refused(f"{what}: answered {problem}", answer.status)


@cache
def _trusted() -> ssl.SSLContext:
    """Return the trusted authorities. Reading them takes as long as a small task."""
    return httpx.create_ssl_context()


def _answer(response: httpx.Response, limit: int, *, whole: bool) -> Answer:
    headers = response.headers
    pieces, encoding = response.iter_raw(64 << 10), headers.get("content-encoding", "")
    if whole:
        body = decompression.json_body(pieces, encoding, limit)
    else:
        body = _beginning(pieces, limit) if not encoding else bytearray()
    return Answer(
        response.status_code,
        str(response.url),
        headers,
        body,
        tuple(headers.get_list("link")),
        framed="content-length" in headers or "transfer-encoding" in headers,
    )


def _beginning(pieces: Iterator[bytes], limit: int) -> bytearray:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) >= limit:
            break
    return found[:limit]


def _lost_params(call: Call, link: str) -> str:
    """Return a parameter that a redirect to another spelling of the same path has lost.

    Without it the answer would be another page, or everything. A redirect to another path is fine:
    the signed address of a file has parameters of its own.
    """
    here, there = httpx.URL(_with_params(call.url, call.params)), httpx.URL(link)
    if here.path.strip("/").casefold() != there.path.strip("/").casefold():
        return ""
    return next((name for name in here.params if name not in there.params), "")


def _with_params(url: str, params: Mapping[str, Any]) -> str:
    """Return the URL with the parameters that it does not have already.

    Its own parameters stay as they are written.
    """
    there = httpx.URL(url)
    added = urlencode({k: v for k, v in params.items() if k not in there.params})
    if not added:
        return url
    return f"{url}{'&' if there.query else '?'}{added}"

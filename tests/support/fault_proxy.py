"""A proxy in front of a store that fails chosen requests, as networks and stores do.

Every request goes to the store behind and its answer comes back as it is, except
for the listing requests (S3's ``list-type=2``, GCS's ``…/o?``, Azure's
``comp=list``) that a test names by their number, counted from 0 in the order
they arrive. Repeated tries count, so "the second page fails twice" is {1, 2}.

Any request may also be *lost*: it is applied, and then there is no answer, or one
that says 500; or there is no answer and it is applied seconds later, whatever the
client has done meanwhile. All requests are counted, by ``METHOD path``.

Stores that copy objects between buckets keep their modification times, and the server
behind cannot: ``dated`` gives keys the times that listings and heads say. A store that
does not know a header of a request goes on as if it were not there: ``dropped``.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import http.client
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

Fault = int | Literal["cut", "hang"]
# How an applied request ends: without an answer, or with 500; ``refused`` is not applied.
# A number: without an answer, and it is applied that many seconds later.
Lost = Literal["silence", "error", "refused"] | float

_LISTING = re.compile(r"list-type=2|comp=list|/o\?")
_CODES = {403: "AccessDenied", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}
_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>")
_LAST_MODIFIED = re.compile(rb"<LastModified>.*?</LastModified>")
_NOT_SENT_ON = {"connection", "content-length", "transfer-encoding", "keep-alive", "expect"}

_Request = tuple[str, str, dict[str, str]]


@dataclass
class FaultProxy:
    """``fault`` maps the number of a listing request to what happens to it."""

    upstream: str
    endpoint: str = ""
    listings: int = 0
    fault: Callable[[int], Fault | None] = lambda _number: None
    lose: Callable[[str], Lost | None] = lambda _method: None
    seen: list[str] = field(default_factory=list)
    lost: int = 0
    delayed: list[threading.Thread] = field(default_factory=list)
    dated: dict[str, float] = field(default_factory=dict)
    # Request headers, in lower case, that never reach the store.
    dropped: frozenset[str] = frozenset()
    # The status and code of an answer to a request (its method, its headers in lower case)
    # that never reaches the store; None lets it through.
    refuse: Callable[[str, dict[str, str]], tuple[int, str] | None] = lambda _method, _headers: None
    # Headers of these answers, besides those that every one has.
    refusal_headers: dict[str, str] = field(default_factory=dict)
    # How many seconds the store's clock is ahead, as its answers say.
    clock_ahead: float = 0
    # The date of answers, if it is none.
    date: str = ""
    # The path of a request with its query, as it reaches the store.
    repath: Callable[[str], str] = lambda path: path
    # The body of each listing, as the client gets it.
    relist: Callable[[bytes], bytes] = lambda data: data
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def next_fault(self) -> Fault | None:
        with self.lock:
            number, self.listings = self.listings, self.listings + 1
        return self.fault(number)

    def arm(self, fault: Callable[[int], Fault | None]) -> None:
        """Count from 0 again, with these faults."""
        with self.lock:
            self.listings, self.fault = 0, fault

    def land(self) -> None:
        """Return when every delayed request has been applied."""
        for thread in self.delayed:
            thread.join()

    def apply_later(self, secs: float, forward: Callable[[], Any]) -> None:
        """Apply a request after ``secs``, unless everything ends before."""

        def apply() -> None:
            if not self.over.wait(secs):
                forward()

        thread = threading.Thread(target=apply)
        self.delayed.append(thread)
        thread.start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = (
        True  # nor does an answer behind another wait for that one's acknowledgement
    )
    proxy: FaultProxy  # set on the subclass that a proxy is made with

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        listing = self.command == "GET" and _LISTING.search(self.path)
        fault = self.proxy.next_fault() if listing else None
        self.proxy.seen.append(f"{self.command} {self.path}")
        lost = self.proxy.lose(self.command)
        refused = self.proxy.refuse(self.command, {k.lower(): v for k, v in self.headers.items()})
        if refused is not None:
            headers = {"Content-Type": "application/xml", **self.proxy.refusal_headers}
            self._send(refused[0], headers, _refusal(refused[1]))
        elif lost is not None:
            with self.proxy.lock:
                self.proxy.lost += 1
            if isinstance(lost, float):
                # The headers are this request's own: the handler goes on to the next with others.
                self.proxy.apply_later(lost, partial(self._forward, body, self._to_send()))
            elif lost != "refused":
                self._forward(body)
            if lost == "silence" or isinstance(lost, float):
                self.close_connection = True
            else:
                self._send(500, {"Content-Type": "application/xml"}, _error(500))
        elif fault == "hang":
            self.proxy.over.wait()  # longer than any client of a test is patient
            self.close_connection = True
        elif isinstance(fault, int):
            self._send(fault, {"Content-Type": "application/xml"}, _error(fault))
        else:
            status, headers, data = self._forward(body)
            if listing:
                data = self.proxy.relist(data)
            self._send(status, headers, data, cut=fault == "cut")

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815  # the base's names

    def handle_expect_100(self) -> bool:
        """Botocore waits for leave before it sends a body, so it must not stay in the buffer."""
        resumed = super().handle_expect_100()
        self.wfile.flush()
        return resumed

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Say nothing."""

    def _to_send(self) -> _Request:
        kept_back = _NOT_SENT_ON | self.proxy.dropped
        sent = {k: v for k, v in self.headers.items() if k.lower() not in kept_back}
        return self.command, self.proxy.repath(self.path), sent

    def _forward(
        self, body: bytes, request: _Request | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        command, path, sent = request or self._to_send()
        connection = http.client.HTTPConnection(urlsplit(self.proxy.upstream).netloc)
        try:
            connection.request(command, path, body, sent)
            answer = connection.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in _NOT_SENT_ON}
            if command == "HEAD":
                # Nothing follows, so the length is not that of the data.
                kept["Content-Length"] = answer.getheader("Content-Length", "0")
            return answer.status, *self._redated(path, kept, answer.read())
        finally:
            connection.close()

    def _redated(
        self, path: str, headers: dict[str, str], data: bytes
    ) -> tuple[dict[str, str], bytes]:
        """Return the answer with the modification times that the test set for the keys."""
        dated = self.proxy.dated
        if not dated:
            return headers, data
        secs = dated.get(unquote(urlsplit(path).path).split("/", 2)[-1])
        if secs is not None:
            kept = {k: v for k, v in headers.items() if k.lower() != "last-modified"}
            headers = {**kept, "Last-Modified": email.utils.formatdate(secs, usegmt=True)}
        if _LISTING.search(path):
            data = _CONTENTS.sub(lambda found: _with_time(found[0], dated), data)
        return headers, data

    def _send(
        self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        now = email.utils.formatdate(time.time() + self.proxy.clock_ahead, usegmt=True)
        for name, value in {**headers, "Date": self.proxy.date or now}.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that die in the middle: the tests do it on purpose."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _with_time(contents: bytes, dated: dict[str, float]) -> bytes:
    """One object of a listing."""
    key = _KEY.search(contents)
    secs = dated.get(unquote(key[1].decode())) if key else None
    if secs is None:
        return contents
    moment = dt.datetime.fromtimestamp(secs, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return _LAST_MODIFIED.sub(f"<LastModified>{moment}</LastModified>".encode(), contents)


def _error(status: int) -> bytes:
    return _refusal(_CODES[status])


def _refusal(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as asked</Message></Error>".encode()


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy to the server at ``upstream`` on a free port, in a thread of this process."""
    proxy = FaultProxy(upstream)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.over.set()
            server.shutdown()
            thread.join()
            proxy.land()

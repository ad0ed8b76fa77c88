"""HTTP API for tests: it answers as a test says, with every kind of failure.

Real sockets from a thread of this process. Two of them are two hosts for credentials: another
port is another origin. What was asked is kept, so a test can say what was never sent.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

# How an answer is sent. ``cut``: half of what its length says; ``cut-chunked``: without the last
# chunk; ``close``: no length, the connection's end is its end; ``reset``: no answer;
# ``hang``: none, for ever; ``drip``: a byte at a time; ``drip-head``: likewise, in the headers.
How = Literal[
    "length", "chunked", "close", "cut", "cut-chunked", "reset", "hang", "drip", "drip-head"
]


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def everything(self) -> str:
        """Return the whole request as text, to look for secrets."""
        return repr(self)


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    how: How = "length"


def reply(content: Any, status: int = 200, how: How = "length", **headers: str) -> Reply:
    """Return a JSON answer; underscores in header names become dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        json.dumps(content).encode(), status, {"Content-Type": "application/json", **named}, how
    )


@dataclass
class ApiServer:
    """``answer`` may be set anew at any time; ``date`` is the clock of its ``Date``."""

    url: str = ""
    answer: Callable[[ReceivedRequest], Reply] = lambda _asked: reply([])
    date: Callable[[], float] | None = time.time
    asked: list[ReceivedRequest] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def script(self, *replies: Reply) -> None:
        """Give these answers in turn; the last one for ever."""
        left = list(replies)
        self.answer = lambda _asked: left.pop(0) if len(left) > 1 else left[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body need not wait until its head is acknowledged
    api: ApiServer  # set on the subclass that a server is made with

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        asked = ReceivedRequest(
            self.command, parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()}, body,
        )  # fmt: skip
        self.api.asked.append(asked)
        self._send(self.api.answer(asked))

    do_POST = do_HEAD = do_GET  # noqa: N815  # the base's names

    def _send(self, answer: Reply) -> None:
        if answer.how == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            return
        if answer.how == "hang":
            self.api.over.wait()
            self.close_connection = True
            return
        head, body = self._head(answer), answer.body
        if self.command == "HEAD":
            self.wfile.write(head)
            return
        if answer.how in {"chunked", "cut-chunked"}:
            body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in _pieces(body))
            body += b"0\r\n\r\n" if answer.how == "chunked" else b""
        elif answer.how == "cut":
            body = body[: len(body) // 2]
        self._write(head, slowly=answer.how == "drip-head")
        self._write(body, slowly=answer.how == "drip")
        if answer.how not in {"length", "chunked"}:
            self.close_connection = True

    def _head(self, answer: Reply) -> bytes:
        headers = dict(answer.headers)
        if self.api.date is not None:
            headers.setdefault("Date", email.utils.formatdate(self.api.date(), usegmt=True))
        if answer.how in {"chunked", "cut-chunked"}:
            headers["Transfer-Encoding"] = "chunked"
        elif answer.how == "close":
            headers["Connection"] = "close"
        elif answer.status not in {204, 304}:
            headers.setdefault("Content-Length", str(len(answer.body)))
        lines = [f"HTTP/1.1 {answer.status} As-Asked", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _write(self, data: bytes, *, slowly: bool) -> None:
        for start in range(0, len(data), 1) if slowly else ():
            if self.api.over.wait(0.02):
                return
            self.wfile.write(data[start : start + 1])
            self.wfile.flush()
        if not slowly:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up in the middle: the tests do it on purpose."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """Run an API on a free port of 127.0.0.1."""
    api = ApiServer()
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api})) as server:
        api.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield api
        finally:
            api.over.set()
            server.shutdown()
            thread.join()


def _pieces(body: bytes) -> Iterator[bytes]:
    return (body[start : start + 1000] for start in range(0, len(body), 1000))


def shop(rows: Sequence[Mapping[str, Any]], *, most: int = 3) -> Callable[[ReceivedRequest], Reply]:
    """Orders with ``updated_at``, paged in every way, at most ``most`` a page whatever is asked.

    ``/none /offset /page /cursor /next_link /link_header``; ``since`` (at or after) and ``until``
    (before) as ISO 8601.
    """

    def answer(asked: ReceivedRequest) -> Reply:
        wanted = {**asked.params, **(asked.json if asked.body else {})}
        since, until = (_time(wanted.get(name)) for name in ("since", "until"))
        found = [
            row
            for row in rows
            if (since is None or _time(row["updated_at"]) >= since)
            and (until is None or _time(row["updated_at"]) < until)
        ]
        return _paged(asked.path.rpartition("/")[2], wanted, found, most)

    return answer


def _paged(
    kind: str, wanted: Mapping[str, Any], found: Sequence[Mapping[str, Any]], most: int
) -> Reply:
    if kind == "none":
        return reply({"items": found})
    size = min(int(wanted.get("limit", most)), most)
    place = {"offset": "offset", "page": "page", "cursor": "cursor"}.get(kind, "at")
    start = int(wanted.get(place, 1 if kind == "page" else 0))
    start = (start - 1) * size if kind == "page" else start
    items, after = found[start : start + size], start + size
    more = after < len(found)
    meta: dict[str, Any] = {"total": len(found)}
    link = f"/next_link?{urlencode({**wanted, 'at': after})}"
    if kind == "cursor":
        meta["next"] = str(after) if more else None
    if kind == "next_link":
        meta["next"] = link if more else ""
    headers = {"Link": f'<{link.replace("next_link", kind)}>; rel="next"'} if more else {}
    return reply({"items": items, "meta": meta}, **(headers if kind == "link_header" else {}))


def _time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text) if text else None

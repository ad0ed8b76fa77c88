"""Google's Pub/Sub REST interface, as far as `PubSubQueue` uses it.

As its reference says: a pulled message comes again when its deadline of ten seconds is over,
unless that was modified; acknowledging what is gone is no error; ``seek`` to a time acknowledges
what was published before. Known gaps: no authentication, and a pull never waits.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class PubSubServer:
    """Subscriptions by name, each with messages by id; when they are visible again."""

    host: str = ""
    messages: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    visible: dict[str, float] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def environment(self) -> dict[str, str]:
        return {"PUBSUB_EMULATOR_HOST": self.host}

    def new_subscription(self) -> str:
        name = f"projects/p/subscriptions/s{next(self.numbers)}"
        self.messages[name] = {}
        return name

    def publish(self, name: str, data: bytes, **attributes: str) -> None:
        number = str(next(self.numbers))
        self.messages[name][number] = {
            "messageId": number,
            "data": base64.b64encode(data).decode(),
            "publishTime": dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z"),
            **({"attributes": attributes} if attributes else {}),
        }

    def answer(self, name: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        waiting, now = self.messages[name], time.monotonic()
        if verb == "pull":
            found = [n for n in waiting if self.visible.get(n, 0.0) <= now][: body["maxMessages"]]
            self.visible |= dict.fromkeys(found, now + 10)
            return (
                {"receivedMessages": [{"ackId": n, "message": waiting[n]} for n in found]}
                if found
                else {}
            )
        if verb == "modifyAckDeadline":
            self.visible |= dict.fromkeys(body["ackIds"], now + body["ackDeadlineSeconds"])
        elif verb == "acknowledge":
            for number in body["ackIds"]:
                waiting.pop(number, None)
        elif verb == "seek":
            dt.datetime.fromisoformat(body["time"])
            waiting.clear()
        return {}


@contextmanager
def pubsub_server() -> Iterator[PubSubServer]:
    """Serve subscriptions until the end."""
    state = PubSubServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, _, verb = self.path.removeprefix("/v1/").rpartition(":")
            status, found = 200, {}
            if name in state.messages:
                found = state.answer(name, verb, body)
            else:
                status, found = 404, {"error": {"code": 404, "status": "NOT_FOUND"}}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state.host = f"127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()

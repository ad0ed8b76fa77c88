"""Moto's S3 behind a front that keeps connections open: ``python -m tests.support.s3_process``.

Moto's own front looks through its 200 services for each request, closes each connection and
waits for what may still come on it: most of a request's time. It prints its port and ends when
its standard input closes, also if the tests are killed.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from botocore.utils import parse_to_aware_datetime  # type: ignore[import-untyped]  # as boto3
from moto.core import serialize
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3.responses import S3Response
from werkzeug.datastructures import Headers
from werkzeug.serving import ThreadedWSGIServer
from werkzeug.test import run_wsgi_app

# A request's service, in the scope of its signature.
SERVICE = re.compile(r"/(sqs|sns|events)/aws4_request")
NO_BODY = {"204", "304"}


class Handler(MotoRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    # Nor does an answer behind "100 Continue" wait 40 ms until that is acknowledged.
    disable_nagle_algorithm = True

    def run_wsgi(self) -> None:
        # Read to its end, or the rest would be taken for the next request.
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environ = self.make_environ() | {"wsgi.input": io.BytesIO(body)}
        parts: Iterable[bytes]
        try:
            parts, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
        except Exception as error:
            # A key that XML cannot carry, for one: as a store that is broken.
            parts, status, headers = [str(error).encode()], "500 Internal Server Error", Headers()
        data = b"".join(parts)
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        if "Content-Length" not in headers and code not in NO_BODY:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_expect_100(self) -> bool:
        """Botocore waits for leave before it sends a body, so it must not stay in the buffer."""
        resumed = bool(super().handle_expect_100())
        self.wfile.flush()
        return resumed


def one_at_a_time(put: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Moto looks at the condition of a PUT and then stores: with no other in between."""
    lock = threading.Lock()

    def locked(response: Any) -> Any:
        with lock:
            return put(response)

    return locked


class Services:
    """All services of moto that are asked for, by the service that signed a request."""

    def __init__(self) -> None:
        self._apps = {"s3": create_backend_app("s3")}

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        found = SERVICE.search(environ.get("HTTP_AUTHORIZATION", ""))
        name = "s3" if found is None else found[1]
        if name not in self._apps:
            self._apps[name] = create_backend_app(name)
        return self._apps[name](environ, start)


def main() -> None:
    put = one_at_a_time(S3Response.put_object)
    S3Response.put_object = put  # type: ignore[method-assign, assignment]  # replaced on purpose
    # A listing parses the same times again and again.
    parse = lru_cache(100_000)(parse_to_aware_datetime)
    serialize.parse_to_aware_datetime = parse  # type: ignore[attr-defined]  # as above
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedWSGIServer("127.0.0.1", 0, Services(), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    print(server.server_port, flush=True)  # noqa: T201  # to the tests, which wait for it
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()

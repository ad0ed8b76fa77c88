"""An S3 that lists from memory, to measure the requests and answers of discovery.

It knows ListObjectsV2 (``Prefix``, ``StartAfter``, ``ContinuationToken``, ``Delimiter``,
``MaxKeys``, ``EncodingType=url``), PUT and DELETE of empty objects, and new buckets. Keys
lie in one sorted list, so a page costs its own size and not the bucket's. It counts
requests, keys and bytes on the wire, and can hold every answer back for a while without
holding up the others. No signature is checked.

    python benchmarks/s3_stand_in.py        # prints its port, ends with its standard input

`stand_in` runs it as a process of its own, so that it does not share the interpreter lock
with what is measured. Standard library only. Paths that begin with ``/-/`` are its control
surface and are neither counted nor delayed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import time
import urllib.request
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

MAX_KEYS = 1000
_ETAG = "&quot;d41d8cd98f00b204e9800998ecf8427e&quot;"  # MD5 of nothing, as of every object here
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~/-]")


# --- What is stored, and how it is listed ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """One page: indices of the bucket's keys, rolled-up prefixes, and the next start."""

    found: range | list[int]
    prefixes: list[str]
    token: str | None


@dataclass(slots=True)
class Bucket:
    """Keys in order and, beside them, their modification times in epoch seconds.

    Python compares strings by code point, which is the order of their UTF-8 bytes and
    thereby S3's.
    """

    keys: list[str] = field(default_factory=list)
    modified: array[float] = field(default_factory=lambda: array("d"))

    def load(self, objects: Mapping[str, float]) -> None:
        """Replace everything."""
        self.keys = sorted(objects)
        self.modified = array("d", (objects[key] for key in self.keys))

    def put(self, key: str, modified: float) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            self.modified[at] = modified
        else:
            self.keys.insert(at, key)
            self.modified.insert(at, modified)

    def delete(self, key: str) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            del self.keys[at]
            del self.modified[at]

    def page(
        self, prefix: str, after: str, token: str | None, delimiter: str, limit: int
    ) -> Listing:
        """At most ``limit`` keys and prefixes with ``prefix``, behind ``after`` or ``token``."""
        at = bisect_left(self.keys, prefix)
        if token is not None:
            kind, last = _unpack(token)
            at = max(at, bisect_right(self.keys, last))
            if kind == "p":
                at = self._behind(last, at)
        elif after:
            at = max(at, bisect_right(self.keys, after))
        end = self._behind(prefix, at)
        if limit == 0:
            return Listing([], [], None)
        if not delimiter:
            stop = min(at + limit, end)
            more = stop < end
            return Listing(range(at, stop), [], _pack("k", self.keys[stop - 1]) if more else None)
        found: list[int] = []
        prefixes: list[str] = []
        last_seen = ""
        while at < end and len(found) + len(prefixes) < limit:
            key = self.keys[at]
            cut = key.find(delimiter, len(prefix))
            if cut < 0:
                found.append(at)
                last_seen = _pack("k", key)
                at += 1
            else:
                prefixes.append(key[: cut + len(delimiter)])
                last_seen = _pack("p", prefixes[-1])
                at = self._behind(prefixes[-1], at)
        return Listing(found, prefixes, last_seen if at < end else None)

    def _behind(self, prefix: str, start: int) -> int:
        """Return the first index from ``start`` on whose key lacks ``prefix``.

        From ``start`` on, keys with the prefix must come first.
        """
        return bisect_left(self.keys, True, lo=start, key=lambda key: not key.startswith(prefix))


def _pack(kind: str, last: str) -> str:
    return base64.urlsafe_b64encode((kind + last).encode()).decode()


def _unpack(token: str) -> tuple[str, str]:
    text = base64.urlsafe_b64decode(token).decode()
    return text[:1], text[1:]


# --- The answers ----------------------------------------------------------------------


def _url(text: str) -> str:
    """``quote(text)``, several times as fast for the usual key."""
    if not text.isascii():
        return quote(text)
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


@lru_cache(maxsize=100_000)
def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def list_answer(bucket: Bucket, name: str, query: Mapping[str, str]) -> tuple[bytes, int]:
    """Return the XML of a ListObjectsV2 answer and its ``KeyCount``."""
    prefix = query.get("prefix", "")
    delimiter = query.get("delimiter", "")
    limit = min(int(query.get("max-keys", MAX_KEYS)), MAX_KEYS)
    page = bucket.page(
        prefix, query.get("start-after", ""), query.get("continuation-token"), delimiter, limit
    )
    encoded = query.get("encoding-type") == "url"
    text: Callable[[str], str] = _url if encoded else escape
    count = len(page.found) + len(page.prefixes)
    parts = [
        (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{escape(name)}</Name><Prefix>{text(prefix)}</Prefix>"
            f"<KeyCount>{count}</KeyCount><MaxKeys>{limit}</MaxKeys>"
            f"<IsTruncated>{'false' if page.token is None else 'true'}</IsTruncated>"
        )
    ]
    if delimiter:
        parts.append(f"<Delimiter>{text(delimiter)}</Delimiter>")
    if "start-after" in query:
        parts.append(f"<StartAfter>{text(query['start-after'])}</StartAfter>")
    if encoded:
        parts.append("<EncodingType>url</EncodingType>")
    if "continuation-token" in query:
        parts.append(f"<ContinuationToken>{query['continuation-token']}</ContinuationToken>")
    if page.token is not None:
        parts.append(f"<NextContinuationToken>{page.token}</NextContinuationToken>")
    keys, modified = bucket.keys, bucket.modified
    parts += [
        f"<Contents><Key>{text(keys[at])}</Key>"
        f"<LastModified>{_instant(int(modified[at]))}</LastModified>"
        f"<ETag>{_ETAG}</ETag><Size>0</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for at in page.found
    ]
    parts += [
        f"<CommonPrefixes><Prefix>{text(rolled)}</Prefix></CommonPrefixes>"
        for rolled in page.prefixes
    ]
    parts.append("</ListBucketResult>")
    return "".join(parts).encode(), count


@dataclass(slots=True)
class Counters:
    """Requests of S3 clients since the last reset.

    ``bytes_sent`` are whole answers with their headers; ``peak`` is the largest number
    of requests that were under way at once.
    """

    requests: int = 0
    lists: int = 0
    keys: int = 0
    bytes_sent: int = 0
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    buckets: dict[str, Bucket] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    latency: float = 0.0
    under_way: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive until the client closes it or the server ends."""
        # A cancelled handler is the usual end, and Python 3.11 would print a trace for it.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await _read(reader, writer)
                if request.path.startswith("/-/"):
                    writer.write(_answer(200, self.control(request)))
                else:
                    self.under_way += 1
                    self.counters.requests += 1
                    self.counters.peak = max(self.counters.peak, self.under_way)
                    try:
                        if self.latency:
                            await asyncio.sleep(self.latency)
                        answer = self.s3(request)
                    finally:
                        self.under_way -= 1
                    self.counters.bytes_sent += len(answer)
                    writer.write(answer)
                await writer.drain()
        writer.close()

    def control(self, request: Request) -> bytes:
        """Load data, set latency, or return the counters as they were before a reset."""
        known = json.dumps(asdict(self.counters)).encode()
        match request.path:
            case "/-/load":
                self.buckets.setdefault(request.query["bucket"], Bucket()).load(
                    json.loads(request.body)
                )
            case "/-/reset":
                self.counters = Counters()
            case "/-/latency":
                self.latency = float(request.query["seconds"])
        return known

    def s3(self, request: Request) -> bytes:
        name, _, key = request.path[1:].partition("/")
        bucket = self.buckets.get(name)
        if request.method == "PUT" and not key:
            self.buckets.setdefault(name, Bucket())
            return _answer(200, b"")
        if bucket is None:
            return _refusal(404, "NoSuchBucket")
        if request.method == "GET" and not key and request.query.get("list-type") == "2":
            body, count = list_answer(bucket, name, request.query)
            self.counters.lists += 1
            self.counters.keys += count
            return _answer(200, body)
        if request.method == "PUT" and key and not request.body:
            bucket.put(key, time.time())
            return _answer(200, b"")
        if request.method == "DELETE" and key:
            bucket.delete(key)
            return _answer(204, b"")
        return _refusal(501, "NotImplemented")


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """Return the next request; raise `IncompleteReadError` if the client has hung up."""
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    path, _, query = target.partition("?")
    return Request(method, unquote(path), dict(parse_qsl(query, keep_blank_values=True)), body)


def _answer(status: int, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: application/xml\r\nx-amz-request-id: 0\r\n"
        f'ETag: "d41d8cd98f00b204e9800998ecf8427e"\r\nContent-Length: {len(body)}\r\n\r\n'
    )
    return head.encode() + body


def _refusal(status: int, code: str) -> bytes:
    return _answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


async def main() -> None:
    """Serve on a port the system chooses until standard input ends."""
    state = Server()
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


# --- The other side: starting and steering it -----------------------------------------


@dataclass(frozen=True, slots=True)
class StandIn:
    """A running stand-in."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options for a source on it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }

    def load(self, bucket: str, objects: Mapping[str, float]) -> None:
        """Make the bucket hold exactly these: key to modification time in epoch seconds."""
        self._control(f"load?bucket={quote(bucket)}", json.dumps(dict(objects)).encode())

    def reset(self) -> Counters:
        """Return the counters since the last reset and start again from zero."""
        return Counters(**json.loads(self._control("reset")))

    def set_latency(self, seconds: float) -> None:
        """Hold back every answer for so long; requests under way at once wait at once."""
        self._control(f"latency?seconds={seconds}")

    def _control(self, command: str, body: bytes = b"") -> bytes:
        request = urllib.request.Request(
            f"{self.endpoint}/-/{command}",
            data=body,
            method="POST",
            headers={"Connection": "close"},
        )
        with _OPENER.open(request, timeout=300) as answer:
            found: bytes = answer.read()
        return found


# A proxy of the environment must not come between this machine and itself.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Start the stand-in, stop it at the end, also if this process is killed."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield StandIn(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.stdin.close()
            process.wait(timeout=10)


if __name__ == "__main__":
    asyncio.run(main())

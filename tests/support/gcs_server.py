"""Google's Cloud Storage JSON API over HTTP, as far as `GCSStorage` uses it.

Ours, and not an emulator from PyPI: gcp-storage-emulator ignores ``startOffset``,
``endOffset``, ``maxResults`` and ``ifGenerationMatch``, so neither the bounds and
pages of a listing nor a conditional write could be shown with it. What counts
here follows the API's reference: offsets compare names by their UTF-8 bytes,
``startOffset`` is inclusive and ``endOffset`` is not, generations rise with each
write and never come back, ``ifGenerationMatch=0`` means "there is none".

Objects with ``Content-Encoding: gzip`` are sent as they are stored to those who accept
gzip, and unpacked to all others; a ``multipart/related`` body is cut at its boundary.

``customTime`` is the only thing that can be patched, and never goes back.

Known gaps: no authentication, no metadata beyond size, times and checksum, a
resumable upload takes any chunk it is sent in order, and ``delimiter`` lists
one page only.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import hashlib
import itertools
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass
class Stored:
    data: bytes
    generation: int
    updated: str
    encoding: str | None = None
    custom_time: str | None = None
    # When its metadata changed last, if they ever did.
    metadata_updated: str = ""


@dataclass
class GcsServer:
    """The buckets, and where they are served."""

    endpoint: str = ""
    buckets: dict[str, dict[str, Stored]] = field(default_factory=dict)
    uploads: dict[str, tuple[str, str, dict[str, str], bytearray]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000))

    @property
    def options(self) -> dict[str, str]:
        return {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_SKIP_SIGNATURE": "true"}

    def new_bucket(self) -> str:
        """Return the name of a fresh bucket, so that tests share only the server."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.buckets[name] = {}
        return name

    def put(self, bucket: str, name: str, data: bytes, encoding: str | None = None) -> None:
        """Store an object as others do, with a ``Content-Encoding`` if there is one."""
        now = "2024-01-28T14:00:00.000Z"
        self.buckets[bucket][name] = Stored(data, next(self.generations), now, encoding)


class _Problem(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: otherwise each waits for an acknowledgement
    state: GcsServer  # set on the subclass that a server is made with

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815  # the base's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
        """Say nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            with self.state.lock:
                status, headers, data = self._route(url.path, query, body)
        except _Problem as problem:
            error = {"code": problem.status, "message": str(problem)}
            status, headers, data = problem.status, {}, json.dumps({"error": error}).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _route(  # noqa: PLR0911  # one per method of the API
        self, path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["storage", "v1", "b", bucket, "o"] if self.command == "GET":
                return 200, {}, json.dumps(self._list(bucket, query)).encode()
            case ["storage", "v1", "b", bucket, "o", name] if self.command == "DELETE":
                self._check_generation(self._existing(bucket, name).generation, query)
                del self._bucket(bucket)[name]
                return 204, {}, b""
            case ["storage", "v1", "b", bucket, "o", name] if self.command == "PATCH":
                stored = self._existing(bucket, name)
                self._check_generation(stored.generation, query)
                wanted = json.loads(body)["customTime"]
                if _time(wanted) < _time(stored.custom_time or wanted):
                    raise _Problem(400, "Custom time cannot be set to an earlier time.")
                stored.custom_time = wanted
                stored.metadata_updated = "2999-01-01T00:00:00Z"
                return 200, {}, json.dumps(_resource(name, stored)).encode()
            case ["storage", "v1", "b", bucket, "o", name] if query.get("alt") != "media":
                return 200, {}, json.dumps(_resource(name, self._existing(bucket, name))).encode()
            case ["download", "storage", "v1", "b", bucket, "o", name] | [
                "storage",
                "v1",
                "b",
                bucket,
                "o",
                name,
            ]:
                return self._download(bucket, name, query)
            case ["storage", "v1", "b", bucket, "o", name, "rewriteTo", "b", other, "o", target]:
                data = self._existing(bucket, name).data
                resource = self._store(other, target, data, query)
                return 200, {}, json.dumps({"done": True, "resource": resource}).encode()
            case ["upload", "storage", "v1", "b", bucket, "o"]:
                return self._upload(bucket, query, body)
            case ["storage", "v1", "b", bucket]:
                self._bucket(bucket)
                return 200, {}, json.dumps({"name": bucket}).encode()
        raise _Problem(404, f"no such method: {self.command} {path}")

    def _bucket(self, bucket: str) -> dict[str, Stored]:
        if bucket not in self.state.buckets:
            raise _Problem(404, "The specified bucket does not exist.")
        return self.state.buckets[bucket]

    def _existing(self, bucket: str, name: str) -> Stored:
        objects = self._bucket(bucket)
        if name not in objects:
            raise _Problem(404, f"No such object: {bucket}/{name}")
        return objects[name]

    def _list(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        low = max(query.get("startOffset", ""), query.get("pageToken", ""), key=str.encode)
        high = query.get("endOffset")
        objects = self._bucket(bucket)
        names = sorted(
            (
                name
                for name in objects
                if name.startswith(prefix)
                and name.encode() >= low.encode()
                and (not high or name.encode() < high.encode())
            ),
            key=str.encode,
        )
        if delimiter:
            below = {name: name[len(prefix) :].partition(delimiter) for name in names}
            folders = sorted({prefix + head + mark for head, mark, _ in below.values() if mark})
            items = [_resource(n, objects[n]) for n in names if not below[n][1]]
            return {"items": items, "prefixes": folders}
        limit = min(int(query.get("maxResults", 1000)), 1000)
        answer: dict[str, Any] = {"kind": "storage#objects"}
        if names[:limit]:
            answer["items"] = [_resource(name, objects[name]) for name in names[:limit]]
        if len(names) > limit:
            answer["nextPageToken"] = names[limit]
        return answer

    def _download(
        self, bucket: str, name: str, query: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        stored = self._existing(bucket, name)
        self._check_generation(stored.generation, query)
        headers = {
            "X-Goog-Generation": str(stored.generation),
            "ETag": str(stored.generation),
            "X-Goog-Stored-Content-Length": str(len(stored.data)),
            "X-Goog-Stored-Content-Encoding": stored.encoding or "identity",
        }
        if stored.encoding is not None:
            if "gzip" not in (self.headers.get("Accept-Encoding") or ""):
                # It unpacks for those who cannot; and then there are no parts.
                return 200, headers, gzip.decompress(stored.data)
            headers["Content-Encoding"] = stored.encoding
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return 200, headers, stored.data
        start, size = int(wanted[1]), len(stored.data)
        if start >= size:
            raise _Problem(416, "InvalidRange: not satisfiable")
        end = min(int(wanted[2] or size), size - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        return 206, headers, stored.data[start : end + 1]

    def _upload(
        self, bucket: str, query: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        match query.get("uploadType"):
            case "media":
                resource = self._store(bucket, query["name"], body, query)
            case "multipart":
                boundary = self.headers["Content-Type"].partition("boundary=")[2].strip('"')
                metadata, data = _two_parts(body, b"--" + boundary.encode())
                resource = self._store(bucket, metadata["name"], data, query)
            case _ if "upload_id" in query:
                return self._continue(query["upload_id"], body)
            case _:
                upload = uuid.uuid4().hex
                name = query.get("name") or json.loads(body)["name"]
                self.state.uploads[upload] = (bucket, name, query, bytearray())
                location = f"{self.state.endpoint}/upload/storage/v1/b/{bucket}/o"
                return 200, {"Location": f"{location}?upload_id={upload}"}, b""
        return 200, {}, json.dumps(resource).encode()

    def _continue(self, upload: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        bucket, name, query, received = self.state.uploads[upload]
        received += body
        if self.headers.get("Content-Range", "").endswith("/*"):
            return 308, {"Range": f"bytes=0-{len(received) - 1}"}, b""
        del self.state.uploads[upload]
        return 200, {}, json.dumps(self._store(bucket, name, bytes(received), query)).encode()

    def _check_generation(self, found: int, query: dict[str, str]) -> None:
        wanted = query.get("ifGenerationMatch")
        if wanted is not None and int(wanted) != found:
            raise _Problem(412, "At least one of the pre-conditions you specified did not hold.")

    def _store(self, bucket: str, name: str, data: bytes, query: dict[str, str]) -> dict[str, Any]:
        objects = self._bucket(bucket)
        self._check_generation(objects[name].generation if name in objects else 0, query)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        objects[name] = Stored(data, next(self.state.generations), now)
        return _resource(name, objects[name])


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _two_parts(body: bytes, boundary: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the content of a ``multipart/related`` upload (RFC 2046).

    A line that begins with the boundary ends a part wherever it stands, also in what somebody
    took for content; what follows the closing one is dropped, as real servers do.
    """
    line = re.compile(rb"(?:^|\r?\n)" + re.escape(boundary) + rb"(--)?[ \t]*(?:\r?\n|$)")
    ends: list[re.Match[bytes]] = []
    for found in line.finditer(body):
        ends.append(found)
        if found[1]:
            break
    if len(ends) < 3 or not ends[-1][1]:
        raise _Problem(400, "multipart body is malformed: no two parts, or no closing boundary")
    parts = [body[a.end() : b.start()] for a, b in itertools.pairwise(ends)]
    metadata, data = (re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in parts[:2])
    return json.loads(metadata), data


def _resource(name: str, stored: Stored) -> dict[str, Any]:
    more = {} if stored.custom_time is None else {"customTime": stored.custom_time}
    return more | {
        "name": name,
        "size": str(len(stored.data)),
        "generation": str(stored.generation),
        "updated": stored.metadata_updated or stored.updated,
        "timeCreated": stored.updated,
        "md5Hash": base64.b64encode(hashlib.md5(stored.data).digest()).decode(),
    }


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Serve from a thread of this process, on a free port; the objects die with it."""
    state = GcsServer()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()

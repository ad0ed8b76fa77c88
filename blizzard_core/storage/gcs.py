"""Google Cloud Storage: listings between two names, writes conditional on a generation."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from os import SEEK_END
from typing import Any, Protocol

from aiohttp import ClientTimeout, ServerTimeoutError
from gcsfs.core import GCSFileSystem, UnclosableBytesIO  # type: ignore[import-untyped]  # ships no types
from gcsfs.retry import (  # type: ignore[import-untyped]  # ships no types
    HttpError,
    NonRetryableError,
    retry_request,
)

from blizzard_core.errors import Conflict, NotFound, Unavailable
from blizzard_core.limits import FIRST_PAGE_KEYS, PAGE_KEYS
from blizzard_core.storage.failures import bucket_missing
from blizzard_core.storage.objects import FileSystem, Patience, bounded
from blizzard_core.storage.order import pages_in_order
from blizzard_core.storage.protocol import Entry, ListingPage
from blizzard_core.storage.ranges import folder_of
from blizzard_core.storage.stored_bytes import ObjectPart, StoredBytes

_FIELDS = "items(name,size,timeCreated),nextPageToken"
_WITH_VERSIONS = "items(name,size,timeCreated,generation),nextPageToken"
_TIMES = "generation,customTime"
_API = "storage/v1/"
_UNAUTHORIZED = 401

# It logs each error with its trace; what is raised says it in one line.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


class RestFileSystem(FileSystem, Protocol):
    """The additions of gcsfs: the raw JSON API, below ``base``."""

    base: str

    def call(self, method: str, path: str, *names: str, **arguments: Any) -> Any: ...


def make_file_system(patience: Patience, **arguments: Any) -> RestFileSystem:
    """Make a gcsfs that speaks JSON over HTTP, with limited time-outs and tries.

    ``fsspec.filesystem("gs")`` gives another class. That one first asks another API for the kind of
    each bucket, which needs more rights and exists in no emulator. gcsfs tries six times over 35 s;
    ``patience`` replaces that for every request.
    """
    fs = GCSFileSystem(
        # Between bytes, not for the whole: a large object may take longer.
        requests_timeout=ClientTimeout(
            sock_connect=patience.connect_secs, sock_read=patience.read_secs
        ),
        # Bodies stay as they are sent. Who does not take gzip gets objects with
        # `Content-Encoding: gzip` unpacked by the store, without a size and not in parts: `_get`.
        session_kwargs={"auto_decompress": False, "headers": {"Accept-Encoding": "identity"}},
        **arguments,
    )
    tries = patience.tries(lambda count: 1.0 + 2**count)  # as gcsfs waits, at the longest
    request = retry_request(retries=tries)(_bounded_request(patience))
    fs._request = partial(request, fs)  # noqa: SLF001  # as above
    made: RestFileSystem = fs
    return made


def _bounded_request(patience: Patience) -> Callable[..., Awaitable[Any]]:
    """Return gcsfs's request function without its tries, with a limit for uploads."""
    plain = GCSFileSystem._request.__wrapped__  # noqa: SLF001  # no setting of gcsfs reaches the number of tries

    async def request(*where: Any, data: Any = None, **options: Any) -> Any:
        if not data:
            return await _once_if_denied(plain(*where, data=data, **options))
        # As a file, which is sent piece by piece; large bytes would hold up all other requests.
        body = data if hasattr(data, "seek") else UnclosableBytesIO(data)
        try:
            size = body.seek(0, SEEK_END)
            sending = _once_if_denied(plain(*where, data=body, **options))
            return await bounded(sending, size, patience)
        except TimeoutError as error:
            raise ServerTimeoutError("the upload took too long") from error

    return request


async def _once_if_denied(answer: Awaitable[Any]) -> Any:
    """Return the answer; raise a refusal of credentials so that gcsfs does not repeat it.

    It renews tokens before each request, and would ask for half a minute with the same ones.
    """
    try:
        return await answer
    except HttpError as error:
        if error.code == _UNAUTHORIZED:
            raise NonRetryableError(str(error)) from error
        raise


class GCSStorage(StoredBytes):
    """A bucket or a prefix of it."""

    def __init__(self, fs: RestFileSystem, root: str, uri: str, *, versions: bool = False) -> None:
        super().__init__(fs, root, uri, versions=versions)
        self._gcs = fs

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """List with ``startOffset`` (inclusive) and ``endOffset``."""
        arguments: dict[str, Any] = {
            "prefix": self._prefix + folder_of(after, until) or None,
            "startOffset": self._prefix + after if after else None,
            "endOffset": None if until is None else self._prefix + until,
            "fields": _WITH_VERSIONS if self._versions else _FIELDS,
        }

        def ask(token: str | None) -> tuple[list[Entry], str | None]:
            size = FIRST_PAGE_KEYS if token is None else PAGE_KEYS
            place = {"maxResults": size, "pageToken": token}
            answer = self._call("", lambda: self._list(**arguments, **place))
            found = [self._listed(item["name"], item) for item in answer.get("items", [])]
            return found, answer.get("nextPageToken") or None

        return pages_in_order(self.uri, after, until, ask, inclusive=True)

    def _list(self, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._gcs.call(
                "GET", "b/{}/o", self._bucket, json_out=True, **arguments
            )
        except FileNotFoundError as error:
            raise bucket_missing(f"{self.uri}/") from error
        return answer

    def _get(
        self, key: str, span: tuple[int, int] | None = None, version: str | None = None
    ) -> ObjectPart:
        wanted = {"Accept-Encoding": "gzip"}
        if span is not None:
            wanted["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        headers, data = self._gcs.call(
            "GET",
            "b/{}/o/{}",
            self._bucket,
            self._name(key),
            alt="media",
            ifGenerationMatch=version,
            headers=wanted,
        )
        stored = headers.get("X-Goog-Stored-Content-Length")
        if span is not None:
            total = headers.get("Content-Range", "").rpartition("/")[2]
        else:
            total = stored or str(len(data))
        if not total.isdigit() or (span is None and int(total) != len(data)):
            raise Unavailable(
                f"{self.uri}: {key} did not come as it is stored ({len(data):,} bytes of"
                f" {stored or 'unknown'}); see that no proxy unpacks bodies on the way"
            )
        return ObjectPart(bytes(data), str(headers["X-Goog-Generation"]), int(total))

    def put_atomic(self, path: str, data: bytes) -> None:
        """Replace the object with one PUT: readers see the old object or the new one, whole."""
        self._call(path, lambda: self._upload(self._key(path), data))

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        return self._upload(key, data, version or "0")

    def _delete_if(self, key: str, version: str) -> None:
        self._gcs.call(
            "DELETE", "b/{}/o/{}", self._bucket, self._name(key), ifGenerationMatch=version
        )

    def tag_if(self, path: str, version: str, tag: str) -> bool:  # noqa: ARG002  # there are none
        """Set ``customTime`` if the object has this version; see `Storage.tag_if`.

        It can never be set back. A later one stays, and lets the object live longer.
        """
        try:
            self._call(path, lambda: self._set_time(self._key(path), version))
        except NotFound:
            return False
        return True

    def _set_time(self, key: str, version: str) -> None:
        where = "b/{}/o/{}", self._bucket, self._name(key)
        now = dt.datetime.now(dt.UTC)
        found = self._gcs.call("GET", *where, json_out=True, fields=_TIMES)
        if found["generation"] != version:
            raise Conflict(f"{self.uri}: {key} was changed by another writer")
        known = found.get("customTime")
        if known is not None and dt.datetime.fromisoformat(known) >= now:
            return
        made = {"customTime": now.isoformat()}
        self._gcs.call("PATCH", *where, ifGenerationMatch=version, json=made)

    def _upload(self, key: str, data: bytes, generation: str | None = None) -> str:
        """Upload the body unchanged; returns the new generation.

        gcsfs uploads it as a part between boundaries. Its boundary is constant, and an object that
        contains it would end there.
        """
        answer = self._gcs.call(
            "POST",
            f"{self._gcs.base.removesuffix(_API)}upload/{_API}b/{{}}/o",
            self._bucket,
            uploadType="media",
            name=self._name(key),
            ifGenerationMatch=generation,
            headers={"Content-Type": "application/octet-stream"},
            data=data,
            json_out=True,
        )
        return str(answer["generation"])

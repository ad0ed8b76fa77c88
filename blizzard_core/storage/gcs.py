"""Google Cloud Storage: listings between two names, writes conditional on a generation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from os import SEEK_END
from typing import Any, Protocol

from aiohttp import ClientTimeout, ServerTimeoutError
from gcsfs.core import GCSFileSystem  # type: ignore[import-untyped]  # ships no types
from gcsfs.retry import retry_request  # type: ignore[import-untyped]  # ships no types

from blizzard_core.bounds import FIRST_PAGE_KEYS, PAGE_KEYS
from blizzard_core.errors import Conflict
from blizzard_core.storage.failures import bucket_missing
from blizzard_core.storage.objects import FileSystem, ObjectStorage, Patience, modified_of
from blizzard_core.storage.protocol import Entry, Page, order_key
from blizzard_core.storage.sending import bounded

_FIELDS = "items(name,size,updated),nextPageToken"
_API = "storage/v1/"


class RestFileSystem(FileSystem, Protocol):
    """What gcsfs adds: the raw JSON API, below ``base``."""

    base: str

    def call(self, method: str, path: str, *names: str, **arguments: Any) -> Any: ...


def make_file_system(patience: Patience, **arguments: Any) -> RestFileSystem:
    """A gcsfs that speaks JSON over HTTP, with time-outs and tries bounded.

    Not the class that ``fsspec.filesystem("gs")`` gives: that one asks for the
    kind of each bucket over another API first, which needs more rights and
    which no emulator has. It tries six times over 35 s; ``patience`` replaces
    that for every request but the reading of content.
    """
    fs = GCSFileSystem(
        # Between bytes, not for the whole: a large object may take longer.
        requests_timeout=ClientTimeout(
            sock_connect=patience.connect_secs, sock_read=patience.read_secs
        ),
        **arguments,
    )
    tries = patience.tries(lambda count: 1.0 + 2**count)  # as gcsfs waits, at the longest
    request = retry_request(retries=tries)(_bounded_request(patience))
    fs._request = partial(request, fs)  # noqa: SLF001  # as above
    made: RestFileSystem = fs
    return made


def _bounded_request(patience: Patience) -> Callable[..., Awaitable[Any]]:
    """A request of gcsfs without its tries, and with a bound for uploads."""
    plain = GCSFileSystem._request.__wrapped__  # noqa: SLF001  # no setting of gcsfs reaches the number of tries

    async def request(*where: Any, data: Any = None, **options: Any) -> Any:
        sending = plain(*where, data=data, **options)
        if not data:
            return await sending
        try:
            size = data.seek(0, SEEK_END) if hasattr(data, "seek") else len(data)
            return await bounded(sending, size, patience)
        except TimeoutError as error:
            raise ServerTimeoutError("the upload took too long") from error

    return request


class GCSStorage(ObjectStorage):
    """A bucket or a prefix of it."""

    def __init__(self, fs: RestFileSystem, root: str, uri: str) -> None:
        super().__init__(fs, root, uri)
        self._gcs = fs
        self._bucket, _, prefix = self._root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def conditional_writes(self) -> bool:
        """True: ``ifGenerationMatch``."""
        return True

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        """``objects.list`` with ``startOffset`` (inclusive, so filtered) and ``endOffset``."""
        arguments: dict[str, Any] = {
            "prefix": self._prefix or None,
            "startOffset": self._prefix + after if after else None,
            "endOffset": None if until is None else self._prefix + until,
            "maxResults": FIRST_PAGE_KEYS,
            "fields": _FIELDS,
        }
        low = order_key(after)
        high = None if until is None else order_key(until)
        while True:
            answer = self._call("", partial(self._list, **arguments))
            items = answer.get("items", [])
            entries: list[Entry] = []
            past = False
            for item in items:
                path = item["name"][len(self._prefix) :]
                key = order_key(path)
                if high is not None and key >= high:
                    past = True
                    break
                # A name that ends with "/" is a console's folder marker.
                if key > low and not path.endswith("/"):
                    entries.append(Entry(path, int(item["size"]), modified_of(item)))
            yield Page(tuple(entries), 1, len(items))
            token = answer.get("nextPageToken")
            if past or not token:
                return
            arguments |= {"maxResults": PAGE_KEYS, "pageToken": token}

    def _list(self, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._gcs.call(
                "GET", "b/{}/o", self._bucket, json_out=True, **arguments
            )
        except FileNotFoundError as error:
            raise bucket_missing(f"{self.uri}/") from error
        return answer

    def _get_versioned(self, key: str) -> tuple[bytes, str]:
        headers, content = self._gcs.call(
            "GET", "b/{}/o/{}", self._bucket, self._name(key), alt="media"
        )
        return bytes(content), str(headers["X-Goog-Generation"])

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        try:
            answer = self._gcs.call(
                "POST",
                f"{self._gcs.base.removesuffix(_API)}upload/{_API}b/{{}}/o",
                self._bucket,
                uploadType="media",
                name=self._name(key),
                ifGenerationMatch=version or "0",
                headers={"Content-Type": "application/octet-stream"},
                data=data,
                json_out=True,
            )
        except FileExistsError as error:  # gcsfs' word for 412
            raise Conflict(f"{self.uri}: {key} was changed by another writer") from error
        return str(answer["generation"])

    def _name(self, key: str) -> str:
        return key.partition("/")[2]

"""Azure Blob Storage: pruned directory listings, writes conditional on an ETag.

Only new API versions can start a listing at a name (``startFrom``, which the emulator long
ignored). The order of listings differs between accounts: bytes, UTF-16 units (the emulator), or
directory by directory (hierarchical namespaces). So no listing here relies on order.

The tree is read like a local disk: one level at a time with a delimiter, sorted here. Directories
outside the range are skipped; a directory wholly inside is listed flat. A poll costs the levels of
its gaps plus the names in the partitions that are being written, whatever lies below the
watermarks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from adlfs.spec import AzureBlobFileSystem  # type: ignore[import-untyped]  # ships no types
from azure.core import MatchConditions
from azure.core.exceptions import ServiceResponseTimeoutError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import (
    BlobClient,
    BlobPrefix,
    BlobServiceClient,
    ContainerClient,
    ExponentialRetry,
)
from fsspec.asyn import sync

from blizzard_core.errors import Unavailable, UnreadableName
from blizzard_core.storage.objects import ExactPaths, FileSystem, Patience, bounded
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.storage.stored_bytes import ObjectPart, StoredBytes
from blizzard_core.storage.tagging import ObjectVersion, TaggedObjects

T = TypeVar("T")

PAGE_NAMES = 5000  # the most that Azure sends
_COPY_POLL_SECS = 0.2
_LEVELS_TOGETHER = 8


class BlobFileSystem(FileSystem, Protocol):
    """The additions of adlfs: the client of the account and the event loop it lives on."""

    service_client: BlobServiceClient
    loop: Any


class _ExactBlobs(ExactPaths, AzureBlobFileSystem):  # type: ignore[misc]  # adlfs ships no types
    """adlfs that takes every name literally, and the environment's connection string never.

    It would win over the account that the configuration names. `environment` makes options of it.
    """

    @property
    def connection_string(self) -> None:
        """Return None, whatever adlfs found in the environment."""

    @connection_string.setter
    def connection_string(self, value: str | None) -> None:
        pass


class _Transport(AioHttpTransport):  # type: ignore[misc]  # its module has no types
    """Azure's transport with time-outs and a limit for uploads."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(connection_timeout=patience.connect_secs, read_timeout=patience.read_secs)
        self._patience = patience

    async def send(self, request: Any, **config: Any) -> Any:
        sending = super().send(request, **config)
        size = int(request.headers.get("Content-Length") or 0)
        if not size:
            return await sending
        try:
            return await bounded(sending, size, self._patience)
        except TimeoutError as error:
            raise ServiceResponseTimeoutError("the upload took too long", error=error) from error


def make_file_system(patience: Patience, endpoint: str | None, **arguments: Any) -> BlobFileSystem:
    """Make an adlfs with limited time-outs and tries, and with another ``endpoint`` if given.

    adlfs passes neither on, and Azure's client waits up to two minutes by default. So its client is
    replaced by a configured one. Raises `ValueError` for unusable credentials.
    """
    fs: BlobFileSystem = _ExactBlobs(**arguments)
    made = fs.service_client
    url = made.url
    if endpoint is not None:
        url = f"{endpoint.rstrip('/')}?{urlsplit(made.url).query}".rstrip("?")
    base = 2
    tries = patience.tries(lambda count: base ** (count + 1) + 1)
    fs.service_client = BlobServiceClient(
        url,
        credential=made.credential,
        transport=_Transport(patience),
        # It waits 2ⁿ⁺¹ ± 1 seconds after the n-th try (from 0).
        retry_policy=ExponentialRetry(
            initial_backoff=0, increment_base=base, retry_total=tries - 1, random_jitter_range=1
        ),
    )
    sync(fs.loop, made.close)
    return fs


@dataclass(frozen=True, slots=True)
class _Level:
    """One directory: its subdirectories with ``/``, its files, and the cost of listing it."""

    folders: tuple[str, ...]
    files: tuple[Entry, ...]
    requests: int
    keys: int


class AzureStorage(TaggedObjects, StoredBytes):
    """A container or a prefix of it."""

    def __init__(self, fs: BlobFileSystem, root: str, uri: str, *, versions: bool = False) -> None:
        super().__init__(fs, root, uri, versions=versions)
        self._azure = fs

    def _key(self, path: str) -> str:
        """Return the key of a path. Raises `UnreadableName` for one that a URL cannot hold."""
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise UnreadableName(
                f"{self.uri}/{path}: a name with . or .. as a folder cannot be asked for in"
                " Azure; store the file under another name"
            )
        return super()._key(path)

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """List level by level from the bounds' common directory; see the module's docstring.

        The storage's own root is always read as a level of its own, so that a
        caller may leap over a directory there.
        """
        return self._list(Ranges([Range(after, until)]), together=1)

    def list_ranges(
        self,
        ranges: Sequence[Range],
        may_be_wanted: NameTest | None = None,  # noqa: ARG002  # the listing has all sizes
    ) -> Iterator[ListingPage]:
        """List each level that a range reaches into once; neighbouring ones at the same time."""
        if not ranges:
            return iter(())
        return self._list(Ranges(ranges), together=_LEVELS_TOGETHER)

    def _list(self, wanted: Ranges, together: int) -> Iterator[ListingPage]:
        after, until = wanted.ranges[0].after, wanted.ranges[-1].until
        start = "" if until is None else _common_folder(after, until)
        flat = bool(start) and wanted.hold_all_of(order_key(start))
        level = self._call("", lambda: self._level(start, flat=flat))
        yield from self._walk(level, wanted, together)

    def _walk(self, level: _Level, wanted: Ranges, together: int) -> Iterator[ListingPage]:
        entries: list[Entry] = []
        requests, keys = level.requests, level.keys
        children: list[tuple[bytes, str, Entry | None]] = [
            (order_key(path), path, None)
            for path in level.folders
            if wanted.reach_into(order_key(path))
        ]
        children += [
            (order_key(entry.path), entry.path, entry)
            for entry in level.files
            if wanted.has_file(order_key(entry.path))
        ]
        children.sort(key=lambda child: child[0])
        # Directories that lie wholly inside may be large, and are listed one at a time.
        partly = [
            path for key, path, entry in children if entry is None and not wanted.hold_all_of(key)
        ]
        ahead: dict[str, _Level] = {}
        for key, path, entry in children:
            if entry is not None:
                entries.append(entry)
                continue
            yield ListingPage(tuple(entries), requests, keys)
            entries, requests, keys = [], 0, 0
            if wanted.hold_all_of(key):
                below = self._call("", lambda: self._level(path, flat=True))  # noqa: B023  # called at once
            else:
                if path not in ahead:
                    some, partly = partly[:together], partly[together:]
                    ahead = dict(zip(some, self._call("", lambda: self._levels(some)), strict=True))  # noqa: B023  # called at once
                below = ahead.pop(path)
            yield from self._walk(below, wanted, together)
        yield ListingPage(tuple(entries), requests, keys)

    def _levels(self, folders: Sequence[str]) -> list[_Level]:
        """List several directories at the same time. A failure is raised when all have ended."""

        async def fetch() -> list[_Level]:
            each = [self._fetch(folder, flat=False) for folder in folders]
            levels: list[_Level] = []
            for found in await asyncio.gather(*each, return_exceptions=True):
                if isinstance(found, BaseException):
                    raise found
                levels.append(found)
            return levels

        return self._run(fetch)

    def _level(self, folder: str, *, flat: bool) -> _Level:
        """List ``folder``; with ``flat``, everything below it."""
        return self._run(lambda: self._fetch(folder, flat=flat))

    async def _fetch(self, folder: str, *, flat: bool) -> _Level:
        container = self._azure.service_client.get_container_client(self._bucket)
        cut = len(self._prefix)
        folders: list[str] = []
        files: list[Entry] = []
        requests = keys = 0
        async for page in _pages(container, self._prefix + folder, flat=flat):
            requests += 1
            async for item in page:
                keys += 1
                if isinstance(item, BlobPrefix):
                    folders.append(item.name[cut:])
                elif not _marks_a_folder(item):
                    modified = item.last_modified.timestamp()
                    version = self._version(item.etag or "", modified) if self._versions else ""
                    files.append(Entry(item.name[cut:], int(item.size), modified, version=version))
        return _Level(tuple(folders), tuple(files), requests, keys)

    def _get(
        self, key: str, span: tuple[int, int] | None = None, version: str | None = None
    ) -> ObjectPart:
        wanted: dict[str, Any] = {"decompress": False}
        if span is not None:
            wanted |= {"offset": span[0], "length": span[1] - span[0]}
        if version is not None:
            wanted |= {"etag": version, "match_condition": MatchConditions.IfNotModified}

        async def fetch() -> ObjectPart:
            stream = await self._blob(key).download_blob(**wanted)
            data = await stream.readall()
            found = stream.properties
            total = (found.content_range or "").rpartition("/")[2]
            whole = len(data) if span is None else int(total)
            return ObjectPart(data, str(found.etag), whole)

        return self._run(fetch)

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        condition: dict[str, Any] = (
            {"overwrite": False}
            if version is None
            else {
                "overwrite": True,
                "etag": version,
                "match_condition": MatchConditions.IfNotModified,
            }
        )

        async def store() -> str:
            answer = await self._blob(key).upload_blob(data, **condition)
            return str(answer["etag"])

        return self._run(store)

    def _version(self, tag: str, modified: float) -> str:  # noqa: ARG002  # S3 needs the time
        """Return an ETag without quotes: listings have none, other answers do."""
        return tag.strip('"')

    def _delete_if(self, key: str, version: str) -> None:
        blob = self._blob(key)
        self._run(
            lambda: blob.delete_blob(
                etag=f'"{version}"', match_condition=MatchConditions.IfNotModified
            )
        )

    def object_version(self, path: str) -> ObjectVersion:
        """Return the version of a blob; see `TaggedObjects`."""
        found = self._ask(path, lambda blob: blob.get_blob_properties())
        return ObjectVersion(self._version(found.etag or "", 0.0), found.version_id)

    def read_tags(self, path: str, found: ObjectVersion) -> Mapping[str, str]:
        """Return the tags of a blob; see `TaggedObjects`."""
        return self._ask(path, lambda blob: blob.get_blob_tags(version_id=found.version_id))

    def write_tags(self, path: str, found: ObjectVersion, tags: Mapping[str, str]) -> None:
        """Replace the tags of a blob; see `TaggedObjects`."""
        made = dict(tags)
        self._ask(path, lambda blob: blob.set_blob_tags(made, version_id=found.version_id))

    def _ask(self, path: str, question: Callable[[BlobClient], Awaitable[T]]) -> T:
        blob = self._blob(self._key(path))
        return self._call(path, lambda: self._run(lambda: question(blob)))

    def _copy(self, source: str, target: str) -> None:
        """Start the copy and wait for it: Azure may copy later, and the source is deleted next."""
        source_blob = self._blob(source)
        blob = self._blob(target)
        status: Any = self._run(lambda: blob.start_copy_from_url(source_blob.url))["copy_status"]
        while status == "pending":
            time.sleep(_COPY_POLL_SECS)
            status = self._run(blob.get_blob_properties).copy.status
        if status != "success":
            raise Unavailable(f"{self.uri}: copying to {target} ended as {status!r}")

    def _blob(self, key: str) -> BlobClient:
        return self._azure.service_client.get_blob_client(self._bucket, self._name(key))

    def _run(self, action: Callable[[], Awaitable[T]]) -> T:
        result: T = sync(self._azure.loop, action)
        return result


def _pages(container: ContainerClient, prefix: str, *, flat: bool) -> Any:
    listing = container.list_blobs if flat else container.walk_blobs
    return listing(
        name_starts_with=prefix or None,
        include=["metadata"],
        results_per_page=PAGE_NAMES,
    ).by_page()


def _marks_a_folder(item: Any) -> bool:
    """Return whether a blob is a folder marker of a hierarchical account, adlfs or a console."""
    metadata = item.metadata or {}
    made = {metadata.get("hdi_isfolder"), metadata.get("is_directory")}
    return item.name.endswith("/") or "true" in made


def _common_folder(after: str, until: str) -> str:
    """Return the deepest directory that holds every path between the bounds: ``""`` or with ``/``.

    What lies between two strings starts with what they have in common.
    """
    same = 0
    for one, other in zip(after, until, strict=False):
        if one != other:
            break
        same += 1
    return after[: after.rfind("/", 0, same) + 1]

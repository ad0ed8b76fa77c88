"""Object stores through fsspec: their common operations and error handling.

S3, GCS and Azure list, and write on a condition, by APIs of their own. fsspec's caches are off:
they never expire and hide other writers' files. Rename is copy and delete, so after a crash both
objects may exist; callers handle that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, Self, TypeVar, cast

from blizzard_core.errors import Conflict, NotFound, StorageError
from blizzard_core.storage.failures import bucket_missing, wrap_error
from blizzard_core.storage.protocol import (
    Entry,
    ListingPage,
    NameTest,
    Range,
    ServerFacts,
    join,
)
from blizzard_core.threads import ThreadPool

T = TypeVar("T")

# Deletions of a tree that run at the same time.
_DELETIONS = 8


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of a request, in seconds.

    ``retry_secs`` limits the sum of the waits between tries: a store that answers 503 at once fails
    after about that long. A store that does not answer costs ``read_secs`` more for each try.
    """

    connect_secs: float = 10
    read_secs: float = 60
    retry_secs: float = 12

    def tries(self, waits: Callable[[int], float]) -> int:
        """Return how many tries fit; ``waits(n)`` is the longest wait after the n-th (from 0)."""
        total, count = 0.0, 0
        while (total := total + waits(count)) <= self.retry_secs:
            count += 1
        return count + 1


class FileSystem(Protocol):
    """The part of an fsspec file system that is used here."""

    def info(self, path: str) -> dict[str, Any]: ...
    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def open(self, path: str, mode: str) -> BinaryIO: ...
    def cp_file(self, path1: str, path2: str) -> None: ...
    def rm_file(self, path: str) -> None: ...


class ExactPaths:
    """Literal paths for fsspec's file systems: ``bucket/key``, the key as it was listed.

    Mixed in before the file system. Their own parsing treats a path as a URL: it cuts keys at
    ``?versionId=`` and drops line breaks, and then reads another object.
    """

    def split_path(self, path: str) -> tuple[str, str, None]:
        """Return bucket, key and no version."""
        bucket, _, key = path.partition("/")
        return bucket, key, None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


class ObjectStorage:
    """An object store below one root: ``bucket/prefix``."""

    def __init__(self, fs: FileSystem, root: str, uri: str, *, versions: bool = False) -> None:
        """Create it; with ``versions`` listings have them."""
        self._fs = fs
        self._root = root.strip("/")
        self._bucket, _, prefix = self._root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._uri = uri.rstrip("/")
        self._versions = versions

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uri!r})"

    @property
    def uri(self) -> str:
        return self._uri

    def server_facts(self) -> ServerFacts:
        """Return what the store tells of itself; nothing that all stores share."""
        return ServerFacts()

    def keeps_versions(self, path: str) -> bool:  # noqa: ARG002  # S3 asks the object
        """Return whether a version of the object stays when it is removed, as far as it says."""
        return False

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _name(self, key: str) -> str:
        """Return a key without its bucket."""
        return key.partition("/")[2]

    def _call(self, path: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except StorageError:
            raise
        except Exception as error:  # fsspec back ends share no base class of their own
            raise wrap_error(f"{self._uri}/{path}", error) from error

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """See `Storage.list_range`."""
        raise NotImplementedError

    def list_ranges(
        self,
        ranges: Sequence[Range],  # noqa: ARG002  # Azure lists directories
        may_be_wanted: NameTest | None = None,  # noqa: ARG002  # the listing has all sizes
    ) -> Iterator[ListingPage] | None:
        """Return None: a listing begins at any key."""
        return None

    def stat(self, path: str) -> Entry | None:
        try:
            info = self._call(path, lambda: self._fs.info(self._key(path)))
        except NotFound:
            return None
        if info.get("type") == "directory":
            return None
        return self._entry(path, info)

    def _entry(self, path: str, info: Mapping[str, Any], *, versions: bool = True) -> Entry:
        """Return an object by what the store says of it, in a listing or not."""
        size, modified = int(info.get("size") or info.get("Size") or 0), modified_of(info)
        tag = info.get("generation") or info.get("ETag") or info.get("etag") or ""
        version = self._version(str(tag), modified) if versions else ""
        return Entry(path, size, modified, version=version)

    def _listed(self, name: str, info: Mapping[str, Any]) -> Entry:
        """Return an object of a listing that names it with the prefix."""
        return self._entry(name[len(self._prefix) :], info, versions=self._versions)

    def _version(self, tag: str, modified: float) -> str:  # noqa: ARG002  # S3 needs the time
        """Return an object's version by its generation or ETag."""
        return tag

    def read(self, path: str) -> bytes:
        return self._call(path, lambda: self._fs.cat_file(self._key(path)))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read a range with one GET."""
        return self._call(path, lambda: self._fs.cat_file(self._key(path), start=start, end=end))

    def open_input(self, path: str) -> BinaryIO:
        """Open the object as a buffered stream; read errors are converted as well."""
        stream = self._call(path, lambda: self._fs.open(self._key(path), "rb"))
        return cast("BinaryIO", _Reader(stream, f"{self._uri}/{path}"))

    def open_output(self, path: str) -> BinaryIO:
        """Open a stream that uploads in parts and makes the object visible on close."""
        return self._call(path, lambda: self._fs.open(self._key(path), "wb"))

    def put_atomic(self, path: str, data: bytes) -> None:
        """Replace the object with one PUT: readers see the old object or the new one, whole."""
        self._call(path, lambda: self._fs.pipe_file(self._key(path), data))

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        return self._call(path, lambda: self._get_versioned(self._key(path)))

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        """Write with one conditional PUT where the store has it; see `Storage.put_if`."""
        try:
            return self._call(path, lambda: self._put_if(self._key(path), data, version))
        except NotFound as error:
            if version is None:
                raise bucket_missing(f"{self._uri}/{path}") from error
            raise Conflict(f"{self._uri}/{path}: deleted by another writer") from error

    def _get_versioned(self, key: str) -> tuple[bytes, str]:
        raise NotImplementedError

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        raise NotImplementedError

    def rename(self, source: str, target: str) -> None:
        """Copy on the server, then delete."""
        self._call(source, lambda: self._copy(self._key(source), self._key(target)))
        self._call(source, lambda: self._fs.rm_file(self._key(source)))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Look, then copy and delete; see `Storage.rename_if_absent`."""
        if self.stat(target) is not None:
            raise Conflict(f"{self._uri}/{target}: written by another writer")
        self.rename(source, target)

    def _copy(self, source: str, target: str) -> None:
        self._fs.cp_file(source, target)

    def sync(self, path: str) -> None:
        """Do nothing: an object that a store acknowledged is durable."""

    def delete(self, path: str) -> None:
        try:
            self._call(path, lambda: self._fs.rm_file(self._key(path)))
        except NotFound:
            return

    def delete_if(self, path: str, version: str) -> bool:
        if not version:
            if self.stat(path) is None:
                return False
            raise Conflict(f"{self._uri}/{path}: its version is unknown, so it is not removed")
        try:
            self._call(path, lambda: self._delete_if(self._key(path), version))
        except NotFound:
            return False
        except Conflict:
            if self.stat(path) is None:
                return False
            raise
        return True

    def _delete_if(self, key: str, version: str) -> None:
        raise NotImplementedError

    def delete_tree(self, prefix: str) -> int:
        """List below ``prefix/`` and delete what is found, several at a time.

        One request each: the clients' own deletion of many takes names with
        ``*`` or ``[`` for patterns.
        """
        folder = prefix.rstrip("/")
        doomed = [
            entry.path
            for page in self.list_range(f"{folder}/", f"{folder}0")  # "0" follows "/"
            for entry in page.entries
        ]
        with ThreadPool(max_workers=_DELETIONS) as pool:
            list(pool.map(self.delete, doomed))
        return len(doomed)


class _Reader:
    """A stream whose read errors are storage errors, so that they are not taken for bad data."""

    def __init__(self, stream: BinaryIO, uri: str) -> None:
        self._stream = stream
        self._uri = uri

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except Exception as error:  # see ObjectStorage._call
            raise wrap_error(self._uri, error) from error

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def modified_of(info: Mapping[str, Any]) -> float:
    """Return the modification time in epoch seconds, from any key that clients use.

    Google Cloud Storage makes an object anew when its content changes; ``updated`` also changes
    with its metadata, such as the ``customTime`` of `Storage.tag_if`.
    """
    for key in ("timeCreated", "LastModified", "last_modified"):
        value = info.get(key)
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, str):
            return dt.datetime.fromisoformat(value).timestamp()
    return 0.0


def bucket_root(uri: str) -> str:
    """Convert ``s3://bucket/a/b/`` to fsspec's ``bucket/a/b``."""
    return join(uri.partition("://")[2])


# All clients use aiohttp, whose time-out between bytes begins after the last byte of a request. A
# store that stops reading a body would block a save for ever, so uploads have a limit.
# It allows 13 minutes for a part of 50 MiB.
SLOWEST_BYTES_A_SEC = 64 << 10


async def bounded(sending: Awaitable[T], size: int, patience: Patience) -> T:
    """Return the answer to an upload of that size. Raises `TimeoutError` if it takes too long."""
    import asyncio  # noqa: PLC0415  # local paths need none of it

    limit_secs = patience.connect_secs + patience.read_secs + size / SLOWEST_BYTES_A_SEC
    return await asyncio.wait_for(sending, limit_secs)

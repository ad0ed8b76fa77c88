"""Object stores through fsspec, with S3's ordered listing used directly.

fsspec's own caches are off: they never expire and hide other writers' files.
Rename is copy and delete here, so callers treat "both are there" as a state
that a crash can leave behind.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Protocol, Self, TypeVar, cast

from blizzard_py.core.errors import AccessDenied, NotFound, StorageError, Unavailable
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import FIRST_PAGE_KEYS, PAGE_KEYS, Page, join, order_key

T = TypeVar("T")

# S3 error codes that mean "not allowed", whatever the HTTP status around them.
_DENIED = frozenset(
    {
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "403",
    }
)
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "NotFound", "404"})


class FileSystem(Protocol):
    """The part of an fsspec file system that is used here."""

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, Any]]: ...
    def info(self, path: str) -> dict[str, Any]: ...
    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def open(self, path: str, mode: str) -> BinaryIO: ...
    def cp_file(self, path1: str, path2: str) -> None: ...
    def rm_file(self, path: str) -> None: ...
    def rm(self, path: list[str]) -> None: ...


class ObjectStorage:
    """Any fsspec file system below one root: ``bucket/prefix``."""

    def __init__(self, fs: FileSystem, root: str, uri: str) -> None:
        self._fs = fs
        self._root = root.strip("/")
        self._uri = uri.rstrip("/")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uri!r})"

    @property
    def uri(self) -> str:
        """The root URI."""
        return self._uri

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _call(self, path: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except StorageError:
            raise
        except Exception as error:  # fsspec back ends share no base class of their own
            raise wrap_error(f"{self._uri}/{path}", error) from error

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        """Everything below the root in one request's worth of result, filtered here."""
        found = self._call("", lambda: self._fs.find(self._root, detail=True))
        low = order_key(after)
        high = None if until is None else order_key(until)
        cut = len(self._root) + 1
        named = ((name.lstrip("/")[cut:], info) for name, info in found.items())
        entries = sorted(
            (
                Entry(path, int(info.get("size") or 0), _modified(info))
                for path, info in named
                if order_key(path) > low and (high is None or order_key(path) < high)
            ),
            key=lambda entry: order_key(entry.path),
        )
        yield Page(tuple(entries), 1 + len(found) // PAGE_KEYS, len(found))

    def stat(self, path: str) -> Entry | None:
        """Size and modification time, or None."""
        try:
            info = self._call(path, lambda: self._fs.info(self._key(path)))
        except NotFound:
            return None
        if info.get("type") == "directory":
            return None
        return Entry(path, int(info.get("size") or 0), _modified(info))

    def read(self, path: str) -> bytes:
        """The whole object."""
        return self._call(path, lambda: self._fs.cat_file(self._key(path)))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """One ranged GET."""
        return self._call(path, lambda: self._fs.cat_file(self._key(path), start=start, end=end))

    def open_input(self, path: str) -> BinaryIO:
        """The object as a buffered stream; errors on reading are wrapped as well."""
        stream = self._call(path, lambda: self._fs.open(self._key(path), "rb"))
        return cast("BinaryIO", _Reader(stream, f"{self._uri}/{path}"))

    def open_output(self, path: str) -> BinaryIO:
        """A stream that uploads in parts and makes the object visible on close."""
        return self._call(path, lambda: self._fs.open(self._key(path), "wb"))

    def put_atomic(self, path: str, data: bytes) -> None:
        """One PUT: object stores show the old object or the new one, whole."""
        self._call(path, lambda: self._fs.pipe_file(self._key(path), data))

    def rename(self, source: str, target: str) -> None:
        """Server-side copy, then delete."""
        self._call(source, lambda: self._fs.cp_file(self._key(source), self._key(target)))
        self._call(source, lambda: self._fs.rm_file(self._key(source)))

    def sync(self, path: str) -> None:
        """An object that a store acknowledged is durable."""

    def delete(self, path: str) -> None:
        """Remove the object, if it is there."""
        try:
            self._call(path, lambda: self._fs.rm_file(self._key(path)))
        except NotFound:
            return

    def delete_tree(self, prefix: str) -> int:
        """List below ``prefix/`` and delete what is found."""
        folder = prefix.rstrip("/")
        doomed = [
            self._key(entry.path)
            for page in self.list_range(f"{folder}/", f"{folder}0")  # "0" follows "/"
            for entry in page.entries
        ]
        if doomed:
            self._call(prefix, lambda: self._fs.rm(doomed))
        return len(doomed)


class S3FileSystem(FileSystem, Protocol):
    """What s3fs adds: the raw S3 API."""

    def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]: ...


class S3Storage(ObjectStorage):
    """S3 and everything that speaks its API: ordered listing from any key."""

    def __init__(self, fs: S3FileSystem, root: str, uri: str) -> None:
        super().__init__(fs, root, uri)
        self._s3 = fs
        self._bucket, _, prefix = self._root.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""

    def list_range(self, after: str, until: str | None) -> Iterator[Page]:
        """``ListObjectsV2`` with ``StartAfter``; stops at the first key past ``until``."""
        arguments: dict[str, Any] = {
            "Bucket": self._bucket,
            "Prefix": self._prefix,
            "MaxKeys": FIRST_PAGE_KEYS,
        }
        if after:
            arguments["StartAfter"] = self._prefix + after
        low = order_key(after)
        high = None if until is None else order_key(until)
        while True:
            answer = self._call("", partial(self._s3.call_s3, "list_objects_v2", **arguments))
            contents = answer.get("Contents", [])
            entries: list[Entry] = []
            past = False
            for item in contents:
                path = item["Key"][len(self._prefix) :]
                key = order_key(path)
                if high is not None and key >= high:
                    past = True
                    break
                # A key that ends with "/" is a console's folder marker.
                if key > low and not path.endswith("/"):
                    modified: dt.datetime = item["LastModified"]
                    entries.append(Entry(path, int(item["Size"]), modified.timestamp()))
            yield Page(tuple(entries), 1, len(contents))
            if past or not answer.get("IsTruncated"):
                return
            arguments = {
                "Bucket": self._bucket,
                "Prefix": self._prefix,
                "MaxKeys": PAGE_KEYS,
                "ContinuationToken": answer["NextContinuationToken"],
            }


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


def wrap_error(uri: str, error: Exception) -> StorageError:
    """The `StorageError` that tells what happened, from what a back end raised.

    s3fs turns S3 codes into `OSError` and keeps the original as ``__cause__``;
    botocore raises its own classes for missing credentials and lost
    connections. Texts of foreign exceptions are kept out of credential errors.
    """
    code = _error_code(error)
    name = type(error.__cause__ or error).__name__
    if isinstance(error, FileNotFoundError) or code in _MISSING:
        what = "the bucket does not exist" if code == "NoSuchBucket" else "not found"
        return NotFound(f"{uri}: {what}")
    if code in _DENIED or isinstance(error, PermissionError):
        return AccessDenied(f"{uri}: access denied ({code or error})")
    if name in {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"}:
        return AccessDenied(
            f"{uri}: no credentials found; set them in storage_options or the environment"
        )
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return Unavailable(f"{uri}: timed out")
    return Unavailable(f"{uri}: {code or name}: {error}")


def _error_code(error: BaseException) -> str:
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _modified(info: Mapping[str, Any]) -> float:
    """Modification time in epoch seconds, from whichever key the back end uses."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, dt.datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            return dt.datetime.fromisoformat(value).timestamp()
    return 0.0


def bucket_root(uri: str) -> str:
    """``s3://bucket/a/b/`` as fsspec's ``bucket/a/b``."""
    return join(uri.partition("://")[2])

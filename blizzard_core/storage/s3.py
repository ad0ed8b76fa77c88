"""S3 and compatible stores: listings from any key, conditional PUT.

Some compatible servers accept ``If-Match`` or ``If-None-Match`` on a PUT and ignore it. Two daemons
would overwrite each other's state there, and two commits of one version each other. So after a
storage's first conditional write both conditions are tested, and both must be refused.

Other servers list in another order than UTF-8 bytes (SeaweedFS: ``a/`` before ``a-b/``), or in none
(directory buckets). Such listings raise: a key out of order would never be found.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]  # ships no types
from botocore.exceptions import ReadTimeoutError  # type: ignore[import-untyped]  # ships no types
from fsspec.asyn import sync
from s3fs import core as s3fs  # type: ignore[import-untyped]  # ships no types

from blizzard_core.errors import Conflict, NotFound, StorageError
from blizzard_core.limits import FIRST_PAGE_KEYS, PAGE_KEYS
from blizzard_core.storage.failures import bucket_missing, hides_reason, response_of
from blizzard_core.storage.objects import (
    ExactPaths,
    FileSystem,
    Patience,
    bounded,
)
from blizzard_core.storage.order import pages_in_order
from blizzard_core.storage.protocol import Entry, ListingPage, ServerFacts
from blizzard_core.storage.ranges import folder_of
from blizzard_core.storage.tagging import ObjectVersion, TaggedObjects

T = TypeVar("T")

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_NOT_IMPLEMENTED = 501
# An ETag that no object has: that of a body whose digest is zero.
_NO_SUCH_ETAG = f'"{"0" * 32}"'


class S3FileSystem(FileSystem, Protocol):
    """The additions of s3fs: the raw S3 API, its event loop, and how often it tries."""

    loop: Any
    retries: int
    s3: Any

    def call_s3(self, method: str, **arguments: Any) -> dict[str, Any]: ...
    async def _call_s3(self, method: str, **arguments: Any) -> dict[str, Any]: ...


class _ExactS3(ExactPaths, s3fs.S3FileSystem):  # type: ignore[misc]  # s3fs ships no types
    """s3fs that takes every key literally."""


def make_file_system(patience: Patience, **arguments: Any) -> S3FileSystem:
    """Make an s3fs with limited time-outs and tries.

    botocore does not retry, because s3fs does. s3fs waits ``0.1 · 1.7ⁿ`` seconds after each try,
    including the last one: hence one try less.
    """
    config = {**client_arguments(patience), "http_session_cls": _session_class(patience)}
    made: S3FileSystem = _ExactS3(config_kwargs=config, **arguments)
    made.retries = max(1, patience.tries(lambda count: 0.1 * 1.7**count) - 1)
    return made


def client_arguments(patience: Patience) -> dict[str, Any]:
    """Return botocore's settings: the time-outs, and no retries."""
    return {
        "connect_timeout": patience.connect_secs,
        "read_timeout": patience.read_secs,
        "max_pool_connections": 64,
        "retries": {"total_max_attempts": 1},
    }


def _session_class(patience: Patience) -> type[AIOHTTPSession]:
    """Return aiobotocore's session class with a limit for uploads that send ``Expect``."""

    class Session(AIOHTTPSession):  # type: ignore[misc]  # ships no types
        async def send(self, request: Any) -> Any:
            headers = request.headers
            if "Expect" not in headers:
                return await super().send(request)
            size = headers.get("X-Amz-Decoded-Content-Length") or headers.get("Content-Length")
            try:
                return await bounded(super().send(request), int(size or 0), patience)
            except TimeoutError as error:
                raise ReadTimeoutError(endpoint_url=request.url, error=error) from None

    return Session


def _is_transient(error: Exception) -> bool:
    """Return whether an error is transient: throttling, server errors and met conditional writes.

    And a conditional write that met another request: nothing was written, and S3 says to repeat it.
    """
    response = getattr(error, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if response.get("Error", {}).get("Code") == "ConditionalRequestConflict":
        return True
    failed = status >= _SERVER_ERRORS and status != _NOT_IMPLEMENTED
    return bool(status == _TOO_MANY_REQUESTS or failed)


# s3fs retries time-outs, broken connections and cut bodies; this adds the rest. It is
# one hook for the whole process, and says the same for every file system in it.
s3fs.set_custom_error_handler(_is_transient)


class S3Storage(TaggedObjects):
    """A bucket or a prefix of it."""

    def __init__(self, fs: S3FileSystem, root: str, uri: str, *, versions: bool = False) -> None:
        super().__init__(fs, root, uri, versions=versions)
        self._s3 = fs
        # Whether this store has refused writes under both conditions.
        self._refuses = False
        # Whether it has refused to delete an object of another version.
        self._refuses_deletion = False

    def server_facts(self) -> ServerFacts:
        """Ask for the bucket's head, whose answer has date and region even if it refuses.

        Raises `BucketMissing`, and what other requests raise if there is no answer.
        """
        try:
            answer = super()._call("", lambda: self._s3.call_s3("head_bucket", Bucket=self._bucket))
        except NotFound as error:
            raise bucket_missing(f"{self.uri}/") from error
        except StorageError as error:
            found = response_of(error.__cause__)
            if found is None:
                raise
            answer = dict(found)
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        date, meta = headers.get("date"), self._s3.s3.meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        return ServerFacts(
            now=_moment(date or ""),
            region=headers.get("x-amz-bucket-region"),
            asked_region=meta.region_name,
            checks_region="amazonaws.com" in host,
        )

    def _call(self, path: str, action: Callable[[], T]) -> T:
        """Call as others do, and ask once more where an answer without a body hid the reason."""
        try:
            return super()._call(path, action)
        except StorageError as error:
            if not hides_reason(error.__cause__):
                raise
            reason = self._reason(path)
            if reason is None:
                raise
            raise reason from error.__cause__

    def _reason(self, path: str) -> StorageError | None:
        """Return why the store refuses a request, told in the body of a GET; None if it does not.

        S3 answers a HEAD for an expired token or another region with a bare 400.
        """

        async def ask() -> None:
            if not path:
                await self._s3._call_s3(  # noqa: SLF001  # the awaitable of `call_s3`
                    "list_objects_v2", Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1
                )
                return
            answer = await self._s3._call_s3(  # noqa: SLF001  # as above
                "get_object",
                Bucket=self._bucket,
                Key=self._name(self._key(path)),
                Range="bytes=0-0",
            )
            async with answer["Body"]:
                return

        try:
            super()._call(path, lambda: sync(self._s3.loop, ask))
        except NotFound:
            return None
        except StorageError as error:
            return None if hides_reason(error.__cause__) else error
        return None

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """``ListObjectsV2`` with ``StartAfter``; stops at the first key past ``until``."""
        start = {"StartAfter": self._prefix + after} if after else {}
        prefix = self._prefix + folder_of(after, until)

        def ask(token: str | None) -> tuple[list[Entry], str | None]:
            size = FIRST_PAGE_KEYS if token is None else PAGE_KEYS
            place = start if token is None else {"ContinuationToken": token}
            answer = self._call(
                "",
                lambda: self._s3.call_s3(
                    "list_objects_v2", Bucket=self._bucket, Prefix=prefix, MaxKeys=size, **place
                ),
            )
            found = [self._listed(item["Key"], item) for item in answer.get("Contents", [])]
            goes_on = answer.get("IsTruncated")
            return found, answer.get("NextContinuationToken", "") if goes_on else None

        return pages_in_order(self.uri, after, until, ask)

    def _get_versioned(self, key: str) -> tuple[bytes, str]:
        async def fetch() -> tuple[bytes, str]:
            answer = await self._s3._call_s3(  # noqa: SLF001  # the awaitable of `call_s3`
                "get_object", Bucket=self._bucket, Key=self._name(key)
            )
            async with answer["Body"] as body:
                return await body.read(), answer["ETag"]

        found: tuple[bytes, str] = sync(self._s3.loop, fetch)
        return found

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        """Write as `Storage.put_if` does. Raises `StorageError` if a condition is ignored."""
        found = super().put_if(path, data, version)
        if not self._refuses:
            self._check_refused(path, data, None, "If-None-Match")
            self._check_refused(path, data, _NO_SUCH_ETAG, "If-Match")
            self._refuses = True
        return found

    def _check_refused(self, path: str, data: bytes, version: str | None, condition: str) -> None:
        """Write the same data under a condition that must fail; success would change nothing."""
        try:
            super().put_if(path, data, version)
        except Conflict:
            return
        raise StorageError(
            f"{self.uri}/{path}: this store ignores {condition}, so daemons and commits would"
            " overwrite each other unnoticed; update the server to a version that honours"
            " conditional PUT, or use another store"
        )

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        answer = self._s3.call_s3(
            "put_object", Bucket=self._bucket, Key=self._name(key), Body=data, **condition
        )
        return str(answer["ETag"])

    def keeps_versions(self, path: str) -> bool:
        """Return whether the bucket keeps a version of an object that is removed."""
        return self.object_version(path).version_id is not None

    def _version(self, tag: str, modified: float) -> str:
        """Return an ETag with its time; empty without an ETag. Some servers list fractions."""
        return f"{tag}@{int(modified)}" if tag else ""

    def delete_if(self, path: str, version: str) -> bool:
        """Remove the object if it has this version; see `Storage.delete_if`.

        An ETag comes back with the same bytes: the time tells whether they were replaced in between
        by others, which may be the ones that a reader has got. Raises `StorageError` if the store
        ignores the condition.
        """
        if version and not self._refuses_deletion:
            self._check_deletion_refused()
            self._refuses_deletion = True
        if version:
            found = self.stat(path)
            if found is None:
                return False
            if found.version != version:
                raise Conflict(f"{self.uri}/{path}: changed by another writer")
        return super().delete_if(path, version.rpartition("@")[0])

    def _check_deletion_refused(self) -> None:
        """Delete an object of our own under a condition that must fail."""
        # No listing of ours takes hidden names for data.
        probe = f"_blizzard_probe_{uuid.uuid4().hex}"
        self.put_atomic(probe, b"blizzard")
        try:
            super().delete_if(probe, _NO_SUCH_ETAG)
        except Conflict:
            return
        finally:
            self.delete(probe)
        raise StorageError(
            f"{self.uri}: this store ignores If-Match when an object is removed, so one that was"
            " written meanwhile could be lost; update the server to a version that honours the"
            " condition"
        )

    def _delete_if(self, key: str, version: str) -> None:
        # One object a request: servers take an ETag in DeleteObjects and may ignore it.
        self._s3.call_s3("delete_object", Bucket=self._bucket, Key=self._name(key), IfMatch=version)

    def object_version(self, path: str) -> ObjectVersion:
        """Return the version of an object; see `TaggedObjects`."""
        found = self._ask("head_object", path)
        # "null": written without versions, so it is replaced in place.
        version_id = found.get("VersionId", "null")
        version = self._version(found.get("ETag", ""), found["LastModified"].timestamp())
        return ObjectVersion(version, None if version_id == "null" else version_id)

    def read_tags(self, path: str, found: ObjectVersion) -> Mapping[str, str]:
        """Return the tags of an object; see `TaggedObjects`."""
        answer = self._ask("get_object_tagging", path, VersionId=found.version_id)
        return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}

    def write_tags(self, path: str, found: ObjectVersion, tags: Mapping[str, str]) -> None:
        """Replace the tags of an object; see `TaggedObjects`."""
        if not tags:
            self._ask("delete_object_tagging", path, VersionId=found.version_id)
            return
        made = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        self._ask("put_object_tagging", path, VersionId=found.version_id, Tagging=made)

    def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if value is not None}
        key = self._name(self._key(path))
        return self._call(
            path, lambda: self._s3.call_s3(method, Bucket=self._bucket, Key=key, **given)
        )


def _moment(date: str) -> float | None:
    """Return the time in a header; None if it is none, as of a proxy that makes its own."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None

"""A storage wrapper that counts and times requests, for every store and both daemons."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import BinaryIO, TypeVar

from prometheus_client import Counter, Histogram

from blizzard_core.errors import AccessDenied, Conflict, NotFound, Unavailable
from blizzard_core.observability.metrics import STORAGE_REQUESTS, STORAGE_SECS
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, Storage

T = TypeVar("T")

_STATUS = (
    (NotFound, "not_found"),
    (AccessDenied, "access_denied"),
    (Conflict, "conflict"),
    (Unavailable, "unavailable"),
)


@functools.cache
def _series(operation: str, status: str) -> tuple[Counter, Histogram]:
    """Return the two series of a request; cached, since a look-up by label costs as much again."""
    return STORAGE_REQUESTS.labels(operation, status), STORAGE_SECS.labels(operation)


def status_of(error: BaseException) -> str:
    """Return the status label of a failed request."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), "error")


class Metered:
    """A storage that counts and times each request.

    ``answered`` is called after each request, also after a failure: an answer of a store is a sign
    of life. Of streams only the opening is counted.
    """

    def __init__(self, storage: Storage, answered: Callable[[], None]) -> None:
        self._storage = storage
        self._answered = answered

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._storage!r})"

    @property
    def uri(self) -> str:
        """The root URI."""
        return self._storage.uri

    @property
    def conditional_writes(self) -> bool:
        """As the storage inside."""
        return self._storage.conditional_writes

    def _count(self, operation: str, status: str, started: float, requests: int = 1) -> None:
        count, timer = _series(operation, status)
        count.inc(requests)
        timer.observe(perf_counter() - started)
        self._answered()

    def _timed(self, operation: str, action: Callable[[], T]) -> T:
        started = perf_counter()
        try:
            found = action()
        except Exception as error:
            self._count(operation, status_of(error), started)
            raise
        self._count(
            operation, "not_found" if found is None and operation == "stat" else "ok", started
        )
        return found

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """List page by page and time each request; the caller's work in between is not counted."""
        return self._timed_pages(self._storage.list_range(after, until))

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        """See `list_range`."""
        pages = self._storage.list_ranges(ranges, may_be_wanted)
        return None if pages is None else self._timed_pages(pages)

    def _timed_pages(self, pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
        while True:
            started = perf_counter()
            try:
                page = next(pages, None)
            except Exception as error:
                self._count("list", status_of(error), started)
                raise
            if page is None:
                return
            self._count("list", "ok", started, page.requests)
            yield page

    def stat(self, path: str) -> Entry | None:
        return self._timed("stat", lambda: self._storage.stat(path))

    def read(self, path: str) -> bytes:
        return self._timed("read", lambda: self._storage.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._timed("read_range", lambda: self._storage.read_range(path, start, end))

    def open_input(self, path: str) -> BinaryIO:
        return self._timed("open_input", lambda: self._storage.open_input(path))

    def open_output(self, path: str) -> BinaryIO:
        return self._timed("open_output", lambda: self._storage.open_output(path))

    def put_atomic(self, path: str, data: bytes) -> None:
        self._timed("put", lambda: self._storage.put_atomic(path, data))

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        return self._timed("read", lambda: self._storage.read_versioned(path))

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        return self._timed("put_if", lambda: self._storage.put_if(path, data, version))

    def rename(self, source: str, target: str) -> None:
        self._timed("rename", lambda: self._storage.rename(source, target))

    def rename_if_absent(self, source: str, target: str) -> None:
        self._timed("rename", lambda: self._storage.rename_if_absent(source, target))

    def sync(self, path: str) -> None:
        self._timed("sync", lambda: self._storage.sync(path))

    def delete(self, path: str) -> None:
        self._timed("delete", lambda: self._storage.delete(path))

    def delete_if(self, path: str, version: str) -> bool:
        return self._timed("delete_if", lambda: self._storage.delete_if(path, version))

    def tag_if(self, path: str, version: str, tag: str) -> bool:
        return self._timed("tag_if", lambda: self._storage.tag_if(path, version, tag))

    def delete_tree(self, prefix: str) -> int:
        return self._timed("delete_tree", lambda: self._storage.delete_tree(prefix))

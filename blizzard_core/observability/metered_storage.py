"""A storage wrapper that counts and times requests, for every store and both daemons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any, TypeVar, cast

from prometheus_client import Counter, Histogram

from blizzard_core.errors import AccessDenied, Conflict, NotFound, Unavailable
from blizzard_core.observability.metrics import STORAGE_REQUESTS, STORAGE_SECS
from blizzard_core.storage.protocol import ListingPage, NameTest, Range, Storage

T = TypeVar("T")

_STATUS = (
    (NotFound, "not_found"),
    (AccessDenied, "access_denied"),
    (Conflict, "conflict"),
    (Unavailable, "unavailable"),
)


@cache
def _series(operation: str, status: str) -> tuple[Counter, Histogram]:
    """Return the two series of a request; cached, since a look-up by label costs as much again."""
    return STORAGE_REQUESTS.labels(operation, status), STORAGE_SECS.labels(operation)


def status_of(error: BaseException) -> str:
    """Return the status label of a failed request."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), "error")


# Methods that are one request each, and the names of these in metrics.
_OPERATIONS = {
    "stat": "stat",
    "read": "read",
    "read_versioned": "read",
    "read_range": "read_range",
    "open_input": "open_input",
    "open_output": "open_output",
    "put_atomic": "put",
    "put_if": "put_if",
    "rename": "rename",
    "rename_if_absent": "rename",
    "sync": "sync",
    "delete": "delete",
    "delete_if": "delete_if",
    "tag_if": "tag_if",
    "delete_tree": "delete_tree",
}


def metered(storage: Storage, answered: Callable[[], None]) -> Storage:
    """Return the storage with each request counted and timed.

    ``answered`` is called after each request, also after a failure: an answer of a store is a sign
    of life. Of streams only the opening is counted.
    """
    return cast("Storage", _Metered(storage, answered))


class _Metered:
    def __init__(self, storage: Storage, answered: Callable[[], None]) -> None:
        self._storage = storage
        self._answered = answered

    def __repr__(self) -> str:
        return f"metered({self._storage!r})"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        operation = _OPERATIONS.get(name)
        return found if operation is None else partial(self._timed, operation, found)

    def _count(self, operation: str, status: str, started: float, requests: int = 1) -> None:
        count, timer = _series(operation, status)
        count.inc(requests)
        timer.observe(perf_counter() - started)
        self._answered()

    def _timed(self, operation: str, action: Callable[..., T], *arguments: Any) -> T:
        started = perf_counter()
        try:
            found = action(*arguments)
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

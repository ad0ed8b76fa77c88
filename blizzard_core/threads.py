"""A pool of threads that starts none where one call runs at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

R = TypeVar("R")


class ThreadPool(ThreadPoolExecutor):
    """Threads for requests to a store or a database.

    Most polls list one range and read one object. Starting a thread for that, and waiting until it
    has its turn, takes longer than the request itself where the machine is busy.
    """

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        super().__init__(max_workers, thread_name_prefix)
        self._is_single = max_workers == 1

    def map(self, fn: Callable[..., R], *iterables: Iterable[Any], **options: Any) -> Iterator[R]:
        """Return the results in order; calls that have no company run here and now."""
        calls = list(zip(*iterables, strict=False))
        if self._is_single or len(calls) == 1:
            return iter([fn(*call) for call in calls])
        return super().map(fn, *zip(*calls, strict=True), **options)

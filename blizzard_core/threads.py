"""Threads: a pool that starts none where one call runs at a time, and one beside a block."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")


@contextmanager
def in_background(
    name: str, *turns: Callable[[threading.Event], None], secs: float | None = None
) -> Iterator[None]:
    """Run each turn in a thread while the block runs; it returns once its event is set.

    At the end wait for all, ``secs`` at most. None delays the end of the process.
    """
    over = threading.Event()
    threads = [
        threading.Thread(target=turn, args=(over,), name=name, daemon=True) for turn in turns
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        until = None if secs is None else time.monotonic() + secs
        for thread in threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))


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


# For what runs here and now, such as reads of a local disk: a thread takes longer than each.
INLINE = ThreadPool(1)

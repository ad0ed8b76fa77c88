"""Threads: a pool that starts none where one call runs at a time, and one beside a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")


@contextmanager
def in_background(
    name: str, turn: Callable[[threading.Event], None], secs: float | None = None
) -> Iterator[None]:
    """Run ``turn`` in a thread while the block runs; it returns once its event is set.

    At the end wait for it, ``secs`` at most. It never delays the end of the process.
    """
    over = threading.Event()
    thread = threading.Thread(target=turn, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(secs)


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

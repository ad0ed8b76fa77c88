"""The limit of queries that start at the same time in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A start takes some Python processes; each imports for about a second of CPU time and must answer
# Spark within ten seconds. Five pipelines that started together on two cores failed by that;
# twenty made no batch. Two starts keep two cores busy and leave each process enough time.
STARTS = 2
# The interval at which a waiting start checks whether it was cancelled.
_LOOK_SECS = 0.2

_turns = threading.BoundedSemaphore(STARTS)


@contextmanager
def wait_for_turn(check_wanted: Callable[[], None]) -> Iterator[None]:
    """Wait until fewer queries start, and count as one of them until the block ends.

    Calls ``check_wanted`` meanwhile and raises its errors.
    """
    while not _turns.acquire(timeout=_LOOK_SECS):
        check_wanted()
    try:
        yield
    finally:
        _turns.release()

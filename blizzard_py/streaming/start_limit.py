"""The limit of queries that start at a time in this process, and their turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A start takes some Python processes, each of which imports for about a second of CPU time, and
# Spark gives each ten seconds to answer. Five pipelines that started together on two cores failed
# by that; twenty made no batch. Two keep such cores busy, and leave each process its seconds.
STARTS = 2
# So often one that waits looks whether it is still wanted.
_LOOK_SECS = 0.2

_turns = threading.BoundedSemaphore(STARTS)


@contextmanager
def wait_for_turn(check_wanted: Callable[[], None]) -> Iterator[None]:
    """Wait until few enough queries start, and be one of them until the block ends.

    Raises what ``check_wanted`` raises, which is called meanwhile.
    """
    while not _turns.acquire(timeout=_LOOK_SECS):
        check_wanted()
    try:
        yield
    finally:
        _turns.release()

"""Work on the next items while the current one is used.

If a batch has fewer files than cores, cores would be idle: one large file is one task. Parsing is
most of its work, and pyarrow parses without the interpreter's lock. So threads parse the next
chunks while the task's own thread reads, places and writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetch(
    work: Callable[[T], R],
    items: Iterable[T],
    pool: Executor,
    depth: int,
    size: Callable[[T], int],
    budget: int,
) -> Iterator[R]:
    """Yield ``work(item)`` for each item in order, as `map` would.

    At most ``depth`` items beside the current one are started early, and only while their sizes sum
    up to less than ``budget``. Errors of an item, or of the source of items, are raised in the
    item's turn, so the first failure is the same as without threads.
    """
    stream = iter(items)
    waiting: deque[tuple[int, Future[R]]] = deque()
    held = 0
    failure: BaseException | None = None
    ended = False
    while True:
        while not ended and len(waiting) <= depth and (held < budget or not waiting):
            try:
                item = next(stream)
            except StopIteration:
                ended = True
            except Exception as error:  # any error is raised in its turn
                failure, ended = error, True
            else:
                waiting.append((size(item), pool.submit(work, item)))
                held += waiting[-1][0]
        if not waiting:
            break
        done, result = waiting.popleft()
        held -= done
        yield result.result()
    if failure is not None:
        raise failure

"""How much waits to be ingested and for how long, for a bounded number of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Progress, gaps, is_hidden, is_new, with_depth

# Names after which a range is left, and requests after which all are: on an object
# store that is two requests a range at most, on a disk a request is a directory.
NAMES_PER_GAP = 1000
REQUESTS = 200


@dataclass(frozen=True, slots=True)
class Backlog:
    """Files that wait; ``oldest_ts`` is when the oldest of them was modified (epoch seconds).

    Without ``complete`` there are more than were looked at.
    """

    files: int
    oldest_ts: float | None
    complete: bool


def backlog(
    storage: Storage,
    progress: Progress,
    accept: Callable[[str], bool],
    queued: Iterable[Entry],
) -> Backlog:
    """What is above the watermarks or ``queued``, from the beginning of each range.

    Raises `StorageError`.
    """
    found: list[Entry] = []
    complete = True
    left = REQUESTS
    for gap in gaps(progress):
        if left <= 0:
            complete = False
            break
        names = 0
        for page in storage.list_range(gap.after, gap.until):
            found += (e for e in page.entries if not is_hidden(e.path) and accept(e.path))
            names += page.keys
            left -= page.requests
            # There may be nothing behind this page; then it says too much, and never too little.
            if names > NAMES_PER_GAP or left <= 0:
                complete = False
                break
    settled = with_depth(progress, (entry.path for entry in found)) if found else progress
    waiting = {
        entry.path: entry.modified
        for entry in chain(queued, (e for e in found if is_new(settled, e.path)))
    }
    return Backlog(len(waiting), min(waiting.values(), default=None), complete)

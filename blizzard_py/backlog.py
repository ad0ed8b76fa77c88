"""How much waits to be ingested and for how long, for a bounded number of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from blizzard_py.core.watermark import Progress, gaps, is_hidden, is_new, with_depth

# Pages looked at in each range, and in all of them together.
PAGES_PER_GAP = 2
PAGES = 200


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
    """What is above the watermarks or ``queued``, from the first pages of each range.

    Raises `StorageError`.
    """
    found: list[Entry] = []
    complete = True
    left = PAGES
    for gap in gaps(progress):
        for number, page in enumerate(storage.list_range(gap.after, gap.until)):
            if number == PAGES_PER_GAP or not left:
                complete = False
                break
            left -= 1
            found += (e for e in page.entries if not is_hidden(e.path) and accept(e.path))
    settled = with_depth(progress, (entry.path for entry in found)) if found else progress
    waiting = {
        entry.path: entry.modified
        for entry in chain(queued, (e for e in found if is_new(settled, e.path)))
    }
    return Backlog(len(waiting), min(waiting.values(), default=None), complete)

"""The size and the age of the backlog, for a bounded number of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_core.watermark.paths import depth_of
from blizzard_core.watermark.progress import Progress, gaps, is_new
from blizzard_py.sources.files.discovery import Places
from blizzard_py.sources.protocol import Backlog

# Names after which a range is left, and requests after which all are: on an object
# store that is two requests a range at most, on a disk a request is a directory.
NAMES_PER_GAP = 1000
REQUESTS = 200


def backlog(
    storage: Storage,
    progress: Progress,
    accept: Callable[[str], bool],
    places_of: Callable[[Progress], Places],
    queued: Iterable[Entry],
) -> Backlog:
    """Return what is above the watermarks or ``queued``, from the beginning of each range.

    ``places_of`` tells where to look, once the depth is known. Raises `StorageError`.
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
    if progress.depth is None:
        progress = replace(progress, depth=depth_of(entry.path for entry in found))
    places = places_of(progress)
    waiting = {
        entry.path: entry.modified
        for entry in chain(queued, (e for e in found if is_new(progress, e.path)))
        if places.take(entry.path)
    }
    return Backlog(len(waiting), min(waiting.values(), default=None), complete, places.apart)

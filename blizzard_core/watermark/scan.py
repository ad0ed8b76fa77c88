"""Skip-scan: list only the ranges that can hold new files.

A poll costs at most one request per gap plus the pages of new names, whatever lies below the
watermarks; `gap_listing` takes fewer where it can. Hidden top-level directories (``_delta_log/``,
``_blizzard/``) may hold far more names than the data: a listing jumps over them.

The result is filtered again by `is_new`. So a store that ignores bounds costs requests and never
correctness, and a repeated key counts once. If any listing fails, the scan fails.

**Limited.** With a ``limit`` a scan stops soon after that many new files, so its memory does not
depend on the store's content. It reports how far it went; later names count as not listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry, Listing, is_hidden, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.gap_listing import Behind, ListingBounds, list_gaps
from blizzard_core.watermark.paths import covers, depth_of, split
from blizzard_core.watermark.progress import Progress, gaps, is_new

# A source with more files at its root than this and no directory has no partitions,
# whether they are new or done. Up to there the root is listed whole, so that the first
# directory decides the depth.
FLAT_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Scan:
    """New files in byte order, the cost of finding them, and the progress with its depth.

    ``until`` is the path at which a limited scan stopped; None: it listed everything.
    """

    entries: tuple[Entry, ...]
    requests: int
    keys: int
    progress: Progress
    until: str | None = None


def scan(
    storage: Listing,
    progress: Progress,
    accept: Callable[[Entry], bool],
    concurrency: int,
    limit: int | None = None,
    behind: Behind | None = None,
    cover: Ranges | None = None,
) -> Scan:
    """List all new files that ``accept`` takes. Raises `StorageError`.

    With a ``cover`` only its ranges are listed, and only files of partitions that it covers count.

    A cold start derives the partition depth from the files it finds; the returned ``progress`` has
    it. ``limit`` bounds the number of new files; at least one is found if there is any. For a path
    that is never taken ``behind`` returns the end of the names with the same beginning: a long
    listing continues there.
    """
    ranges = gaps(progress) if cover is None else cover.within(gaps(progress))
    is_covered = _CoveredPaths(progress, cover)

    # Finished files count as well; more than this prove nothing more.
    files: set[str] = set()

    has_depth = progress.depth is not None

    def may_be_wanted(path: str) -> bool:
        return not has_depth or is_new(progress, path)

    def wanted(entry: Entry) -> bool:
        # Most files are done, and `accept` asks more of each.
        if not may_be_wanted(entry.path):
            return False
        if is_hidden(entry.path) or not accept(entry):
            return False
        if not has_depth and len(files) <= FLAT_KEYS:
            files.add(entry.path)
        return (has_depth or is_new(progress, entry.path)) and is_covered(entry.path)

    bounds = ListingBounds(limit, behind)
    listed = (
        list_gaps(storage, ranges, concurrency, wanted, bounds, may_be_wanted) if ranges else []
    )
    if progress.depth is None:
        depth = depth_of(path for part in listed for path in part.entries)
        if depth is None and len(files) > FLAT_KEYS:
            depth = 0
        progress = replace(progress, depth=depth)
    found: dict[str, Entry] = {}
    for part in listed:
        found |= part.entries
    new = sorted(
        (entry for entry in found.values() if is_new(progress, entry.path)),
        key=lambda entry: order_key(entry.path),
    )
    return Scan(
        tuple(new),
        sum(part.requests for part in listed),
        sum(part.keys for part in listed),
        progress,
        next((part.until for part in listed if part.until is not None), None),
    )


class _CoveredPaths:
    """A test for paths of covered partitions. It keeps answers, since it is asked for each name."""

    def __init__(self, progress: Progress, cover: Ranges | None) -> None:
        self._progress = progress
        self._cover = cover
        self._known: dict[str, bool] = {}

    def __call__(self, path: str) -> bool:
        if self._cover is None:
            return True
        partition = split(path, self._progress.depth or 0)[0]
        found = self._known.get(partition)
        if found is None:
            known = self._progress.partitions.get(partition)
            before = None if known is None else known.before
            found = self._known[partition] = covers(self._cover, partition, before)
        return found

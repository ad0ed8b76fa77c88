"""Skip-scan: list only the ranges that can hold new files.

A poll costs one request per gap plus the pages of new names, whatever lies below the watermarks.
Gaps are listed concurrently, up to a limit. Hidden top-level directories (``_delta_log/``,
``_blizzard/``) may hold far more names than the data: a listing jumps over them.

The result is filtered again by `is_new`. So a store that ignores bounds costs requests and never
correctness, and a repeated key counts once. If any listing fails, the scan fails.

**Limited.** With a ``limit`` a scan stops soon after that many new files, so its memory does not
depend on the store's content. It reports how far it went; later names count as not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.storage.protocol import Entry, Listing, ListingPage, is_hidden, order_key
from blizzard_core.watermark.paths import depth_of
from blizzard_core.watermark.progress import Gap, Progress, gaps, is_new

# A source with more files at its root than this and no directory has no partitions,
# whether they are new or done. Up to there the root is listed whole, so that the first
# directory decides the depth.
FLAT_KEYS = 1000
# Returns the end of the names to skip together with a path; None: do not skip it.
Behind = Callable[[str], str | None]


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
    accept: Callable[[str], bool],
    concurrency: int,
    limit: int | None = None,
    behind: Behind | None = None,
) -> Scan:
    """List all new files that ``accept`` takes. Raises `StorageError`.

    A cold start derives the partition depth from the files it finds; the returned ``progress`` has
    it. ``limit`` bounds the number of new files; at least one is found if there is any. For a path
    that is never taken ``behind`` returns the end of the names with the same beginning: a long
    listing continues there.
    """
    ranges = gaps(progress)

    # Finished files count as well; more than this prove nothing more.
    files: set[str] = set()

    def wanted(entry: Entry) -> bool:
        if is_hidden(entry.path) or not accept(entry.path):
            return False
        if progress.depth is None and len(files) <= FLAT_KEYS:
            files.add(entry.path)
        return is_new(progress, entry.path)

    listed = _listed(storage, ranges, concurrency, wanted, _Bounds(limit, behind))
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


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The limit of a listing, and the names that it jumps over."""

    limit: int | None
    behind: Behind | None

    def jump(self, page: ListingPage) -> str | None:
        """Return where to continue instead of right after this page; None to continue there."""
        if not page.entries:
            return None
        last = page.entries[-1].path
        hidden = _past_hidden(last)
        if hidden is not None or self.behind is None or page.keys < FIRST_PAGE_KEYS:
            return hidden  # a short page is the last one, and to ask again would cost a request
        return self.behind(last)


@dataclass(frozen=True, slots=True)
class _Listed:
    entries: dict[str, Entry]
    requests: int
    keys: int
    until: str | None = None


def _listed(
    storage: Listing,
    ranges: Sequence[Gap],
    concurrency: int,
    wanted: Callable[[Entry], bool],
    bounds: _Bounds,
) -> list[_Listed]:
    """List the ranges in order, up to the one that reaches ``limit``."""
    if len(ranges) <= 1:
        return [_list_gap(storage, gap, wanted, bounds) for gap in ranges]
    limit = bounds.limit
    parts: list[_Listed] = []
    count = 0
    with ThreadPoolExecutor(max_workers=min(concurrency, len(ranges))) as pool:
        for start in range(0, len(ranges), concurrency):
            some = ranges[start : start + concurrency]
            for gap, part in zip(
                some,
                pool.map(lambda gap: _list_gap(storage, gap, wanted, bounds), some),
                strict=True,
            ):
                count += len(part.entries)
                full = limit is not None and count >= limit and gap is not ranges[-1]
                parts.append(
                    replace(part, until=gap.until) if full and part.until is None else part
                )
                if parts[-1].until is not None:
                    return parts
    return parts


def _list_gap(
    storage: Listing, gap: Gap, wanted: Callable[[Entry], bool], bounds: _Bounds
) -> _Listed:
    limit = bounds.limit
    entries: dict[str, Entry] = {}
    requests = keys = 0
    after: str | None = gap.after
    while after is not None:
        start, after = after, None
        for page in storage.list_range(start, gap.until):
            requests += page.requests
            keys += page.keys
            entries |= {entry.path: entry for entry in page.entries if wanted(entry)}
            if limit is not None and len(entries) >= limit:
                return _Listed(entries, requests, keys, page.entries[-1].path)
            jump = bounds.jump(page)
            if jump is not None and order_key(jump) > order_key(start):
                if gap.until is None or order_key(jump) < order_key(gap.until):
                    after = jump
                break
    return _Listed(entries, requests, keys)


def _past_hidden(path: str) -> str | None:
    """Return the end of the range of hidden top-level names around ``path``, if it is hidden.

    ``"`"`` follows ``_`` and ``/`` follows ``.`` in ASCII, so names that start with
    ``_`` or ``.`` lie between those bounds and nothing else does.
    """
    head = path[:1]
    return {"_": "`", ".": "/"}.get(head) if "/" in path else None

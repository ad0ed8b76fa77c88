"""Skip-scan: list only where new files can be.

The cost of a poll is one request per gap plus the pages of new names, whatever
is stored below the watermarks. Gaps are listed at the same time, up to a bound.
Hidden top-level directories (``_delta_log/``, ``_blizzard/``) may hold far more
names than the data: when a listing meets one it jumps to its end.

The result is filtered again by `is_new`, so a store that ignores bounds costs
requests and never correctness. A scan that fails anywhere fails as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage, order_key
from blizzard_py.core.watermark import Gap, Progress, gaps, is_hidden, is_new, with_depth


@dataclass(frozen=True, slots=True)
class Scan:
    """New files in byte order of their paths, what finding them cost, and the depth used."""

    entries: tuple[Entry, ...]
    requests: int
    keys: int
    progress: Progress


def scan(
    storage: Storage,
    progress: Progress,
    accept: Callable[[str], bool],
    concurrency: int,
    within: Gap | None = None,
) -> Scan:
    """Everything above the watermarks that ``accept`` takes. Raises `StorageError`.

    A cold start settles the partition depth from what it finds; the returned
    ``progress`` has it. ``within`` bounds the listing to a range.
    """
    ranges = gaps(progress)
    if within is not None:
        ranges = tuple(_clipped(ranges, within))
    if len(ranges) <= 1:
        parts = [_list_gap(storage, gap) for gap in ranges]
    else:
        with ThreadPoolExecutor(max_workers=min(concurrency, len(ranges))) as pool:
            parts = list(pool.map(lambda gap: _list_gap(storage, gap), ranges))
    visible = [
        entry
        for part in parts
        for entry in part.entries
        if not is_hidden(entry.path) and accept(entry.path)
    ]
    settled = with_depth(progress, (e.path for e in visible)) if visible else progress
    new = sorted((e for e in visible if is_new(settled, e.path)), key=lambda e: order_key(e.path))
    return Scan(tuple(new), sum(p.requests for p in parts), sum(p.keys for p in parts), settled)


def _clipped(ranges: tuple[Gap, ...], within: Gap) -> Iterator[Gap]:
    for gap in ranges:
        after = max(gap.after, within.after, key=order_key)
        ends = [until for until in (gap.until, within.until) if until is not None]
        until = min(ends, key=order_key, default=None)
        if until is None or order_key(after) < order_key(until):
            yield Gap(after, until)


@dataclass(frozen=True, slots=True)
class _Listed:
    entries: list[Entry]
    requests: int
    keys: int


def _list_gap(storage: Storage, gap: Gap) -> _Listed:
    entries: list[Entry] = []
    requests = keys = 0
    after: str | None = gap.after
    while after is not None:
        start, after = after, None
        for page in storage.list_range(start, gap.until):
            requests += page.requests
            keys += page.keys
            entries += page.entries
            jump = _past_hidden(page.entries[-1].path) if page.entries else None
            if jump is not None and order_key(jump) > order_key(start):
                if gap.until is None or order_key(jump) < order_key(gap.until):
                    after = jump
                break
    return _Listed(entries, requests, keys)


def _past_hidden(path: str) -> str | None:
    """The end of the range of hidden top-level names that ``path`` lies in, if it does.

    ``"`"`` follows ``_`` and ``/`` follows ``.`` in ASCII, so names that start with
    ``_`` or ``.`` lie between those bounds and nothing else does.
    """
    head = path[:1]
    return {"_": "`", ".": "/"}.get(head) if "/" in path else None

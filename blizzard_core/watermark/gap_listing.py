"""Listings of gaps: neighbours share pages where that costs less.

A scan lists the gaps between what is done. There are two ways:

* **Stores that list directories** (local disks, Azure) list all gaps in one pass, each directory
  once. So does any store that can only list everything.
* **Stores whose listings begin at any key** (S3, GCS) list a gap at the cost of a page. Where gaps
  lie close together, a page reaches over several. Such a listing goes on over its neighbours for as
  long as it carries no more foreign keys than their own listings would. Others are listed alone,
  several at once.

**Contract.** Every file that lies in a gap from the scan's begin to its end is returned. A gap
counts as listed only if pages of this scan reach from its begin to its end. Names outside of the
gaps are dropped here. So which way was taken changes requests, and nothing else. No way takes more
requests than each gap alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.storage.protocol import Entry, Listing, ListingPage, NameTest, Range, order_key
from blizzard_core.threads import ThreadPool

# Returns the end of the names to skip together with a path; None: do not skip it.
Behind = Callable[[str], str | None]
# With more rounds of listings than this the first page comes alone: it shows whether gaps are close
# together. With fewer a round trip more would take longer than it saves.
_ROUNDS_WITHOUT_PROBE = 4
# The hidden names at the root that a listing passes over: up to the last of ASCII, which every
# server understands. The few names behind it are listed, and not taken.
_HIDDEN = {".": ".~", "_": "_~"}


@dataclass(frozen=True, slots=True)
class ListingBounds:
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
class Listed:
    """Wanted files of so many neighbouring ``gaps``.

    ``until`` is the path at which the limit stopped it; None: the gaps were listed to their ends.
    """

    entries: dict[str, Entry]
    requests: int
    keys: int
    gaps: int
    until: str | None = None


@dataclass(frozen=True, slots=True)
class PageReach:
    """The reach of a page over gaps.

    ``inside`` are its entries in gaps. It reached the ends of ``finished`` gaps, and stops within
    the next one if ``is_open``.
    """

    inside: tuple[Entry, ...]
    finished: int
    is_open: bool

    def goes_on(self, keys: int) -> bool:
        """Return whether to list on from a page of ``keys``, instead of each gap alone.

        A gap listed alone carries up to a first page of foreign keys. The first finished gap had to
        be listed anyway; the others each saved such a page.
        """
        if not self.finished:
            return self.is_open
        return keys - len(self.inside) <= FIRST_PAGE_KEYS * (self.finished - 1)


def reach_of(page: ListingPage, gaps: Sequence[Range]) -> PageReach:
    """Return how far a page with entries reaches over the gaps; it begins at or before the first.

    Its last entry shows how far it reaches: everything up to that was listed.
    """
    keys = [order_key(entry.path) for entry in page.entries]
    inside: list[Entry] = []
    for finished, gap in enumerate(gaps):
        low = bisect_right(keys, order_key(gap.after))
        if low == len(keys):
            return PageReach(tuple(inside), finished, is_open=False)
        end = None if gap.until is None else order_key(gap.until)
        high = len(keys) if end is None else bisect_left(keys, end)
        inside += page.entries[low:high]
        if end is None or keys[-1] < end:
            return PageReach(tuple(inside), finished, is_open=True)
    return PageReach(tuple(inside), len(gaps), is_open=False)


def list_gaps(
    storage: Listing,
    gaps: Sequence[Range],
    concurrency: int,
    wanted: Callable[[Entry], bool],
    bounds: ListingBounds,
    may_be_wanted: NameTest | None = None,
) -> list[Listed]:
    """List ascending gaps in order, up to the one that reaches the limit. Raises `StorageError`.

    A path for which ``may_be_wanted`` is False is none of those that are ``wanted``.
    """
    pages = storage.list_ranges(visible_ranges(gaps), may_be_wanted)
    if pages is not None:
        return [_list_at_once(pages, len(gaps), wanted, bounds.limit)]
    parts: list[Listed] = []
    count = at = 0
    width = 1 if len(gaps) > concurrency * _ROUNDS_WITHOUT_PROBE else concurrency
    with ThreadPool(max_workers=min(concurrency, len(gaps))) as pool:
        while at < len(gaps):
            alone = [(gap,) for gap in gaps[at : min(at + width, len(gaps)) - 1]]
            runs = [*alone, gaps[at + len(alone) :]]
            width = concurrency
            for part in pool.map(lambda run: _list_run(storage, run, wanted, bounds), runs):
                at += part.gaps
                count += len(part.entries)
                is_full = bounds.limit is not None and count >= bounds.limit and at < len(gaps)
                if is_full and part.until is None:
                    parts.append(replace(part, until=gaps[at - 1].until))
                else:
                    parts.append(part)
                if parts[-1].until is not None:
                    return parts
    return parts


def visible_ranges(gaps: Iterable[Range]) -> list[Range]:
    """Return the gaps as ranges without hidden names at the root, which may be many."""
    ranges: list[Range] = []
    for gap in gaps:
        after = gap.after
        for first, last in _HIDDEN.items():
            if gap.until is not None and order_key(gap.until) <= order_key(first):
                break
            if order_key(after) < order_key(first):
                ranges.append(Range(after, first))
            after = max(after, last, key=order_key)
        if gap.until is None or order_key(after) < order_key(gap.until):
            ranges.append(Range(after, gap.until))
    return ranges


def _list_at_once(
    pages: Iterator[ListingPage],
    gaps: int,
    wanted: Callable[[Entry], bool],
    limit: int | None,
) -> Listed:
    entries: dict[str, Entry] = {}
    requests = keys = 0
    for page in pages:
        requests += page.requests
        keys += page.keys
        entries |= {entry.path: entry for entry in page.entries if wanted(entry)}
        if limit is not None and len(entries) >= limit and page.entries:
            return Listed(entries, requests, keys, gaps, page.entries[-1].path)
    return Listed(entries, requests, keys, gaps)


def _list_run(
    storage: Listing, run: Sequence[Range], wanted: Callable[[Entry], bool], bounds: ListingBounds
) -> Listed:
    """List the first gap of a run, and the next ones for as long as a page reaches over them."""
    entries: dict[str, Entry] = {}
    requests = keys = done = 0
    end = run[-1].until
    after: str | None = run[0].after
    while after is not None:
        start, after = after, None
        for page in storage.list_range(start, end):
            requests += page.requests
            keys += page.keys
            if not page.entries:
                continue
            reach = reach_of(page, run[done:])
            entries |= {entry.path: entry for entry in reach.inside if wanted(entry)}
            last = page.entries[-1].path
            if bounds.limit is not None and len(entries) >= bounds.limit:
                return Listed(entries, requests, keys, done + reach.finished, last)
            done += reach.finished
            if done == len(run) or (done and not reach.goes_on(page.keys)):
                return Listed(entries, requests, keys, done)
            jump = bounds.jump(page)
            if jump is not None and order_key(jump) > order_key(start):
                done += _count_finished(run[done:], jump)
                if done == len(run):
                    return Listed(entries, requests, keys, done)
                after = jump
                break
    return Listed(entries, requests, keys, len(run))


def _count_finished(gaps: Sequence[Range], at: str) -> int:
    """Return how many gaps end at or before a path."""
    for number, gap in enumerate(gaps):
        if gap.until is None or order_key(gap.until) > order_key(at):
            return number
    return len(gaps)


def _past_hidden(path: str) -> str | None:
    """Return where to go on behind the hidden top-level names around ``path``, if it is hidden."""
    return _HIDDEN.get(path[:1]) if "/" in path else None

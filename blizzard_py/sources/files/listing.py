"""The listing of a source of files: what is stored, as far as its settings select it.

Whatever looks for files of a source lists here, so nothing outside of its ``range`` and of the
beginnings of ``include`` is ever found, and no request is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.storage.protocol import Listing, ListingPage, NameTest, Range, Storage, order_key
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.name_range import LAST, NameRange
from blizzard_core.watermark.selection import NameSelection
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import can_count, selection_of


@dataclass(frozen=True, slots=True)
class SelectedListing:
    """A store, of which the ``names`` of a range and of a ``selection`` are listed. A `Listing`.

    ``is_file`` tells a file's name from a folder's.
    """

    storage: Storage
    names: NameRange
    selection: NameSelection
    is_file: Callable[[str], bool]
    ranges: Ranges

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """See `Listing`."""
        asked = [Range(after, until)]
        yield from self._first_file(asked)
        for start, end in self.ranges.within(asked):
            yield from self._pages(start, end)

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        """See `Listing`."""
        pages = self.storage.list_ranges(self.ranges.within(ranges), may_be_wanted)
        return None if pages is None else chain(self._first_file(ranges), pages)

    def _pages(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """List a range, and jump over folders in which nothing is selected."""
        is_seekable = bool(self.selection) and self.storage.list_ranges(()) is None
        start: str | None = after
        while start is not None:
            begin, start = start, None
            for page in self.storage.list_range(begin, until):
                yield page
                jump = self._jump(page) if is_seekable else None
                if jump == LAST:
                    return
                if jump is not None:
                    is_inside = until is None or order_key(jump) < order_key(until)
                    start = jump if is_inside else None
                    break

    def _jump(self, page: ListingPage) -> str | None:
        """Return where to go on, if half of a long page is a part of what is jumped over.

        To list from there costs a request, so a few names that are not selected are read over.
        """
        if page.keys < FIRST_PAGE_KEYS or not page.entries:
            return None
        jump = self.selection.jump_from(page.entries[len(page.entries) // 2].path)
        is_far = jump is not None and order_key(jump) > order_key(page.entries[-1].path)
        return jump if is_far else None

    def _first_file(self, ranges: Sequence[Range]) -> Iterator[ListingPage]:
        """Yield the file with which the source's range begins: a listing begins behind a name."""
        first = self.names.first
        key = order_key(first)
        is_asked = any(
            order_key(after) < key and (until is None or key < order_key(until))
            for after, until in ranges
        )
        if is_asked and self.is_file(first):
            entry = self.storage.stat(first)
            yield ListingPage(() if entry is None else (entry,), 1, 0 if entry is None else 1)


def listing_within(
    storage: Storage, names: NameRange, selection: NameSelection, is_file: Callable[[str], bool]
) -> Listing:
    """Return the listing of a store's names that lie in a range and in a selection."""
    if not names and not selection:
        return storage
    bounds, selected = Range(names.first, names.end), selection.ranges()
    ranges = Ranges((bounds,) if selected is None else selected.within([bounds]))
    return SelectedListing(storage, names, selection, is_file, ranges)


def listing_of(parts: SourceContext) -> Listing:
    """Return where files of a source are looked for."""
    return listing_within(
        parts.stores.source,
        parts.identity.range or NameRange(),
        selection_of(parts.files),
        can_count(parts.files),
    )


def outside(names: NameRange | None, path: str) -> str:
    """Return why a file is not the source's, empty if it lies in its range."""
    if names is None or names.holds(path):
        return ""
    return f"it lies outside of the source's range ({names})"

"""The listing of a source of files: what is stored, as far as its ``range`` goes.

Whatever looks for files of a source lists here, so nothing outside of the range is ever found, and
no request is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from blizzard_core.storage.protocol import Listing, ListingPage, Range, Storage, order_key
from blizzard_core.watermark.name_range import NameRange
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import can_count


@dataclass(frozen=True, slots=True)
class RangeListing:
    """A store, of which the names of a range are listed. A `Listing`.

    ``is_file`` tells a file's name from a folder's.
    """

    storage: Storage
    names: NameRange
    is_file: Callable[[str], bool]

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """See `Listing`."""
        yield from self._first_file([(after, until)])
        for start, end in self._cut([(after, until)]):
            yield from self.storage.list_range(start, end)

    def list_ranges(self, ranges: Sequence[Range]) -> Iterator[ListingPage] | None:
        """See `Listing`."""
        pages = self.storage.list_ranges(self._cut(ranges))
        return None if pages is None else chain(self._first_file(ranges), pages)

    def _cut(self, ranges: Sequence[Range]) -> list[Range]:
        """Return the parts of the ranges that are the source's."""
        last = self.names.end
        cut: list[Range] = []
        for after, until in ranges:
            start, end = max(after, self.names.first, key=order_key), until
            if last is not None and (end is None or order_key(last) < order_key(end)):
                end = last
            if end is None or order_key(start) < order_key(end):
                cut.append((start, end))
        return cut

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


def listing_of(parts: SourceContext) -> Listing:
    """Return where files of a source are looked for."""
    names = parts.identity.range
    source = parts.stores.source
    return source if names is None else RangeListing(source, names, can_count(parts.files))


def outside(names: NameRange | None, path: str) -> str:
    """Return why a file is not the source's, empty if it lies in its range."""
    if names is None or names.holds(path):
        return ""
    return f"it lies outside of the source's range ({names})"

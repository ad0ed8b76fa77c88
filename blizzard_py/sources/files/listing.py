"""The listing of a source of files: what is stored, as far as its ``range`` goes.

Whatever looks for files of a source lists here, so nothing outside of the range is ever found, and
no request is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from blizzard_core.storage.protocol import Listing, ListingPage, Storage, order_key
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
        first, last = self.names.first, self.names.end
        if last is not None and (until is None or order_key(last) < order_key(until)):
            until = last
        start = max(after, first, key=order_key)
        if until is not None and order_key(until) <= order_key(start):
            return
        if start != after and self.is_file(start):
            # A listing begins behind a name, and this one is a file's.
            entry = self.storage.stat(start)
            yield ListingPage(() if entry is None else (entry,), 1, 0 if entry is None else 1)
        yield from self.storage.list_range(start, until)


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

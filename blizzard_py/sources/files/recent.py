"""The newest files of a source, done or not: what records look like now."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.storage.protocol import Entry, Storage, is_hidden, order_key
from blizzard_py.sources.files.discovery import accepts
from blizzard_py.sources.parts import Parts
from blizzard_py.state.source_state import SourceState

# Partitions that are looked into, and keys and pages in all, however large the source is.
_PARTITIONS = 8
_KEYS = 20_000
_PAGES = 200


def recent_files(parts: Parts, state: SourceState, most: int) -> list[Entry]:
    """At most ``most`` files with something in them, those that were modified last, oldest first.

    Of the partitions whose names sort highest, those that the checkpoint knows and later ones;
    where it knows of none, of the first thousands of the listing.
    """
    accept = accepts(parts.files.compression)
    named = sorted((name for name in state.progress.partitions if name), key=order_key)
    newest = named[: -_PARTITIONS - 1 : -1]
    places: list[tuple[str, str | None]] = [(f"{name}/", f"{name}0") for name in newest]
    if places:  # what sorts above it is newer, and no poll knows it yet
        places[0] = (places[0][0], None)
    found = [
        entry
        for entry in _listed(parts.stores.source, places or [("", None)])
        if entry.size and accept(entry.path) and not is_hidden(entry.path)
    ]
    return sorted(found, key=lambda entry: (entry.modified, entry.path))[-most:]


def _listed(storage: Storage, places: list[tuple[str, str | None]]) -> Iterator[Entry]:
    keys = pages = 0
    for after, until in places:
        for page in storage.list_range(after, until):
            yield from page.entries
            keys += len(page.entries)
            pages += 1
            if keys >= _KEYS or pages >= _PAGES:
                return

"""Several objects of a store at once: those of a range, and what is in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Entry, Storage


def listed(storage: Storage, after: str, until: str | None) -> Iterator[Entry]:
    """What lies in a range; nothing where nothing was written to yet."""
    try:
        for page in storage.list_range(after, until):
            yield from page.entries
    except NotFound:
        return  # a local directory that nothing was written to yet


def read_each(
    storage: Storage, paths: Iterable[str], concurrency: int
) -> Iterator[tuple[str, bytes]]:
    """URI and content of each object in order; those removed meanwhile are left out."""

    def read(path: str) -> tuple[str, bytes] | None:
        try:
            return f"{storage.uri}/{path}", storage.read(path)
        except NotFound:
            return None

    left = iter(paths)
    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        while chunk := list(islice(left, concurrency)):
            for found in pool.map(read, chunk):
                if found is not None:
                    yield found

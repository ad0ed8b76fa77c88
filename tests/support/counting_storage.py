"""A storage that counts requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from blizzard_core.storage.protocol import ListingPage, NameTest, Range, Storage


class CountingStorage:
    """A storage that counts what is asked of it."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def called(*arguments: Any) -> Any:
            self.asked.append(f"{name} {arguments[0]}")
            return found(*arguments)

        return called

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        for page in self._inner.list_range(after, until):
            self.asked.append(f"list {after}")
            yield page

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        pages = self._inner.list_ranges(ranges, may_be_wanted)
        return None if pages is None else self._counted(pages)

    def _counted(self, pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
        for page in pages:
            self.asked.append("list")
            yield page

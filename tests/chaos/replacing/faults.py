"""A storage where each request may be the last one or lose its answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from blizzard_core.errors import Unavailable
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, Storage

T = TypeVar("T")


class Killed(BaseException):
    """Death of the process; nothing handles it."""


@dataclass
class Faults:
    """A random choice, for each step, whether it fails; counts the failures."""

    chance: random.Random
    rate: float
    deaths: int = 0
    lost: int = 0

    def around(self, action: Callable[[], T], lost: Callable[[], Exception]) -> T:
        """Run it; die before or after it, or lose its answer."""
        self._may_die()
        found = action()
        self._may_die()
        if self.chance.random() < self.rate:
            self.lost += 1
            raise lost()
        return found

    def _may_die(self) -> None:
        if self.chance.random() < self.rate:
            self.deaths += 1
            raise Killed


class Dying:
    """A storage with faults around each request."""

    def __init__(self, inner: Storage, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def _with_faults(self, action: Callable[[], T]) -> T:
        return self._faults.around(action, lambda: Unavailable("no answer"))

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        return iter(self._with_faults(lambda: list(self._inner.list_range(after, until))))

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        pages = self._inner.list_ranges(ranges, may_be_wanted)
        return None if pages is None else iter(self._with_faults(lambda: list(pages)))

    def stat(self, path: str) -> Entry | None:
        return self._with_faults(lambda: self._inner.stat(path))

    def read(self, path: str) -> bytes:
        return self._with_faults(lambda: self._inner.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._with_faults(lambda: self._inner.read_range(path, start, end))

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        return self._with_faults(lambda: self._inner.read_versioned(path))

    def open_output(self, path: str) -> BinaryIO:
        return self._with_faults(lambda: self._inner.open_output(path))

    def sync(self, path: str) -> None:
        self._with_faults(lambda: self._inner.sync(path))

    def put_atomic(self, path: str, data: bytes) -> None:
        self._with_faults(lambda: self._inner.put_atomic(path, data))

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        return self._with_faults(lambda: self._inner.put_if(path, data, version))

    def delete(self, path: str) -> None:
        self._with_faults(lambda: self._inner.delete(path))


def faulty(storage: Storage, faults: Faults) -> Any:
    """Return a storage for a Penguin that may die at any request."""
    return Dying(storage, faults)

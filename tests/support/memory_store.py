"""An object store in memory, and a wrapper that dies at a chosen operation.

`MemoryStorage` behaves like S3 behind `Storage`: ordered listings in pages,
whole-object writes, rename as copy and delete. `Dying` counts the operations
that change something and raises `Died` before or after the chosen one, which
is what a ``kill -9`` between two requests looks like to the store.
"""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeVar

from blizzard_core.errors import Conflict, NotFound
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, order_key

# A world with the stores ``sink`` and ``dlq``.
W = TypeVar("W", bound=Any)


class Died(BaseException):
    """Death of the process. Not an Exception, so that nothing handles it."""


class MemoryStorage:
    def __init__(self, uri: str = "mem://bucket", clock: Callable[[], float] = lambda: 0.0) -> None:
        self.uri = uri
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.clock = clock
        # The tags of `tag_if`, each with the object that it was put on.
        self.tags: dict[str, tuple[object, str]] = {}
        self.page_keys = 3
        # Tests put objects into the dictionary as well, so a version is counted
        # up when the value is another one than when it was last looked at.
        self._versions: dict[str, tuple[object, int]] = {}
        self._condition = threading.Lock()
        self.between_pages: Callable[[], None] = lambda: None
        self.before_mutation: Callable[[str, str], None] = lambda _op, _path: None
        self.after_mutation: Callable[[str, str], None] = lambda _op, _path: None

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        low, high = order_key(after), None if until is None else order_key(until)
        while True:
            # Threads of a process that died may still write.
            there = dict(self.objects)
            keys = sorted((k for k in there if order_key(k) > low), key=order_key)
            page = keys[: self.page_keys]
            kept = [k for k in page if high is None or order_key(k) < high]
            yield ListingPage(
                tuple(self._entry(k, there[k]) for k in kept),
                1,
                len(page),
            )
            if len(keys) <= self.page_keys or len(kept) < len(page):
                return
            low = order_key(page[-1])
            self.between_pages()

    def list_ranges(self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None) -> None:
        """Return None: a listing begins at any key."""

    def stat(self, path: str) -> Entry | None:
        found = self.objects.get(path)
        if found is None:
            return None
        return self._entry(path, found)

    def _entry(self, path: str, found: tuple[bytes, float]) -> Entry:
        version = str(self._version(path))
        return Entry(path, len(found[0]), found[1], version=version)

    def read(self, path: str) -> bytes:
        try:
            return self.objects[path][0]
        except KeyError:
            raise NotFound(f"{self.uri}/{path}: not found") from None

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self.read(path)[start:end]

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def open_output(self, path: str) -> BinaryIO:
        storage = self

        class Upload(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    storage.put_atomic(path, self.getvalue())
                super().close()

        return Upload()

    def put_atomic(self, path: str, data: bytes) -> None:
        self.before_mutation("put", path)
        self.objects[path] = (data, self.clock())
        self.after_mutation("put", path)

    def _version(self, path: str) -> str | None:
        found = self.objects.get(path)
        if found is None:
            return None
        known, count = self._versions.get(path, (None, 0))
        if known is not found:
            count += 1
            self._versions[path] = (found, count)
        return str(count)

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        data = self.read(path)
        return data, str(self._version(path))

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        self.before_mutation("put_if", path)
        with self._condition:
            if self._version(path) != version:
                raise Conflict(f"{self.uri}/{path}: changed by another writer")
            self.objects[path] = (data, self.clock())
            made = str(self._version(path))
        self.after_mutation("put_if", path)
        return made

    def rename(self, source: str, target: str) -> None:
        data = self.read(source)
        self.before_mutation("copy", source)
        self.objects[target] = (data, self.clock())
        self.after_mutation("copy", source)
        del self.objects[source]
        self.after_mutation("remove", source)

    def rename_if_absent(self, source: str, target: str) -> None:
        if target in self.objects:
            raise Conflict(f"{self.uri}/{target}: written by another writer")
        self.rename(source, target)

    def sync(self, path: str) -> None:
        self.read(path)

    def delete(self, path: str) -> None:
        if path in self.objects:
            self.before_mutation("delete", path)
            del self.objects[path]
            self.after_mutation("delete", path)

    def delete_if(self, path: str, version: str) -> bool:
        if path not in self.objects:
            return False
        self.before_mutation("delete_if", path)
        with self._condition:
            if self._version(path) != version:
                raise Conflict(f"{self.uri}/{path}: changed by another writer")
            del self.objects[path]
        self.after_mutation("delete_if", path)
        return True

    def tag_if(self, path: str, version: str, tag: str) -> bool:
        if path not in self.objects:
            return False
        self.before_mutation("tag_if", path)
        with self._condition:
            if self._version(path) != version:
                self.tags.pop(path, None)
                raise Conflict(f"{self.uri}/{path}: changed by another writer")
            self.tags[path] = (self.objects[path], tag)
        self.after_mutation("tag_if", path)
        return True

    def tagged(self) -> list[str]:
        """Return the names of the objects that have a tag now."""
        return [path for path, (held, _) in self.tags.items() if self.objects.get(path) is held]

    def delete_tree(self, prefix: str) -> int:
        doomed = [k for k in list(self.objects) if k.startswith(f"{prefix}/")]
        for path in doomed:
            self.delete(path)
        return len(doomed)


class Dying:
    """Arms storages to die at the n-th change (counted over all of them), then disarms."""

    def __init__(self, *storages: MemoryStorage) -> None:
        self.storages = storages
        self.countdown = -1
        self.count = 0
        for storage in storages:
            storage.before_mutation = storage.after_mutation = lambda _op, _path: self.step()

    def arm(self, at: int) -> None:
        """Die at step ``at`` from now: even before, odd after the (at // 2)-th change."""
        self.countdown = at

    def dies(self, at: int, deed: Callable[[], object]) -> bool:
        """Do something and die at its step ``at``; return whether it came to that."""
        self.arm(at)
        try:
            deed()
        except Died:
            return True
        finally:
            self.arm(-1)
        return False

    def step(self) -> None:
        self.count += 1
        if self.countdown == 0:
            self.countdown = -1
            raise Died
        if self.countdown > 0:
            self.countdown -= 1


def each_death(
    prepared: Callable[[], W], deed: Callable[[W], object]
) -> Iterator[tuple[int, W, bool]]:
    """Yield a world after a death at each step of a deed, and last one without.

    With each comes the number of the step, and whether it died there.
    """
    for at in itertools.count():
        world = prepared()
        died = Dying(world.sink, world.dlq).dies(at, partial(deed, world))
        yield at, world, died
        if not died:
            return

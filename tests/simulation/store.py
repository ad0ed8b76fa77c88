"""Object store: buckets that all processes share, and each process's own client.

A bucket is what is true. A client is how a process of the simulation gets at it, one
request at a time: between any two effects of a process others may go on, and the fault
that is armed for a request happens (`faults`). Listings come in pages, each a request of its
own that sees the bucket as it is then.
"""

from __future__ import annotations

import io
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from blizzard_core.errors import Conflict, NotFound, Unavailable
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range, order_key
from tests.simulation.faults import Faults, Shot
from tests.simulation.scheduler import Scheduler

WRITES = frozenset({"put", "put_if", "copy", "delete"})


@dataclass(slots=True)
class Object:
    """Content of a key. ``modified`` in whole seconds, as in real stores."""

    data: bytes
    modified: float
    version: int


class Bucket:
    """The objects below one root, and the order of their keys."""

    def __init__(self, uri: str, clock: Callable[[], float]) -> None:
        self.uri = uri
        self.objects: dict[str, Object] = {}
        self.page_keys = 5
        # What was ever written to the log, since entries are cleaned up.
        self.written: dict[str, bytes] = {}
        self._clock = clock
        self._order: list[tuple[bytes, str]] = []
        self._versions = 0

    def put(self, path: str, data: bytes, modified: float | None = None) -> str:
        self._versions += 1
        at = float(math.floor(self._clock())) if modified is None else modified
        if path not in self.objects:
            insort(self._order, (order_key(path), path))
        self.objects[path] = Object(data, at, self._versions)
        if path.startswith("_delta_log/"):
            self.written[path] = data
        return str(self._versions)

    def fill(self, objects: Mapping[str, bytes]) -> None:
        """Put objects into an empty bucket."""
        at = float(math.floor(self._clock()))
        self.objects = {p: Object(data, at, n) for n, (p, data) in enumerate(objects.items(), 1)}
        self._versions = len(objects)
        self._order = sorted((order_key(path), path) for path in objects)

    def put_back(self, path: str, held: Object) -> None:
        """Put an object there as it was: the same bytes have the same version, as in S3."""
        self.put(path, held.data, held.modified)
        self.objects[path] = held

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        held = self.objects.get(path)
        if (None if held is None else str(held.version)) != version:
            raise Conflict(f"{self.uri}/{path}: changed by another writer")
        return self.put(path, data)

    def delete(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            key = (order_key(path), path)
            del self._order[bisect_left(self._order, key)]

    def forget(self, path: str) -> None:
        """Remove every trace of the path."""
        self.delete(path)
        self.written.pop(path, None)

    def get(self, path: str) -> Object:
        try:
            return self.objects[path]
        except KeyError:
            raise NotFound(f"{self.uri}/{path}: not found") from None

    def entry(self, path: str) -> Entry:
        held = self.objects[path]
        return Entry(path, len(held.data), held.modified, version=str(held.version))

    def after(self, low: bytes, count: int) -> list[tuple[bytes, str]]:
        """Return the next keys above ``low``, in order, each as bytes and as text."""
        # No key is as high as the second of the pair.
        at = bisect_right(self._order, (low, "\U0010ffff" * 2))
        return self._order[at : at + count]


class Client:
    """A process's `Storage`. ``faults`` are those of the process."""

    def __init__(self, bucket: Bucket, scheduler: Scheduler, faults: Faults) -> None:
        self.bucket = bucket
        self.uri = bucket.uri
        self._scheduler = scheduler
        self._faults = faults

    # -- one request ------------------------------------------------------------------

    def _request(self, op: str, path: str, effect: Callable[[], Any]) -> Any:
        scheduler, faults = self._scheduler, self._faults
        scheduler.io()
        faults.requests[op] = faults.requests.get(op, 0) + 1
        shot = faults.due(op, path) if faults.armed else None
        if shot is None:
            return effect()
        return self._shot(shot, op, path, effect)

    def _shot(  # noqa: C901  # a case for each kind of fault
        self, shot: Shot, op: str, path: str, effect: Callable[[], Any]
    ) -> Any:
        faults, where = self._faults, f"{self.uri}/{path}"
        match shot.kind:
            case "dies_before":
                faults.die()
            case "pauses_before":
                faults.pause(shot.secs)
            case "refused":
                raise Unavailable(f"{where}: no answer")
            case "hangs":
                self._scheduler.sleep(shot.secs)
            case "lands_late" if op in WRITES:
                faults.later(shot.secs, effect, f"{op} {where}")
                raise Unavailable(f"{where}: timed out")
        found = effect()
        match shot.kind:
            case "dies_after":
                faults.die()
            case "pauses_after":
                faults.pause(shot.secs)
            case "answers_late":
                self._scheduler.sleep(shot.secs)
            case "answer_lost":
                raise Unavailable(f"{where}: the answer was lost")
            case "repeated":  # by the client, since the answer was lost
                self._scheduler.io()
                found = effect()
        return found

    # -- the protocol -----------------------------------------------------------------

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        low, high = order_key(after), None if until is None else order_key(until)
        seen: tuple[Entry, ...] = ()
        while True:
            page, low, ended = self._request("list", after, lambda: self._page(low, high))  # noqa: B023  # called at once
            repeat = self._faults.due("page", after) if self._faults.armed else None
            if repeat is not None and repeat.kind == "repeats_key" and seen:
                page = ListingPage(seen[-1:] + page.entries, page.requests, page.keys + 1)
            seen = page.entries or seen
            yield page
            if ended:
                return

    def list_ranges(self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None) -> None:
        """Return None: a listing begins at any key."""

    def _page(self, low: bytes, high: bytes | None) -> tuple[ListingPage, bytes, bool]:
        count = self.bucket.page_keys
        short = self._faults.due("page_size", "") if self._faults.armed else None
        if short is not None:
            count = 1  # fewer keys than asked for, and more to come
        keys = self.bucket.after(low, count)
        entry = self.bucket.entry
        kept = tuple(entry(path) for key, path in keys if high is None or key < high)
        ended = len(keys) < count or len(kept) < len(keys)
        return ListingPage(kept, 1, len(keys)), keys[-1][0] if keys else low, ended

    def stat(self, path: str) -> Entry | None:
        def effect() -> Entry | None:
            return self.bucket.entry(path) if path in self.bucket.objects else None

        return self._request("stat", path, effect)

    def read(self, path: str) -> bytes:
        return self._request("read", path, lambda: self.bucket.get(path).data)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._request("read", path, lambda: self.bucket.get(path).data[start:end])

    def open_input(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def open_output(self, path: str) -> BinaryIO:
        storage = self

        class Upload(io.BytesIO):
            def close(self) -> None:
                if not self.closed:
                    storage.put_atomic(path, self.getvalue())
                super().close()

            def __del__(self) -> None:
                """Do nothing: a dead process's open file is never written when memory is freed."""

        return Upload()

    def put_atomic(self, path: str, data: bytes) -> None:
        self._request("put", path, lambda: self.bucket.put(path, data))

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        def effect() -> tuple[bytes, str]:
            held = self.bucket.get(path)
            return held.data, str(held.version)

        return self._request("read", path, effect)

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        return self._request("put_if", path, lambda: self.bucket.put_if(path, data, version))

    def rename(self, source: str, target: str) -> None:
        """Copy, then delete: between the two both are there."""
        self._request("copy", target, lambda: self.bucket.put(target, self.bucket.get(source).data))
        self._request("delete", source, lambda: self.bucket.delete(source))

    def rename_if_absent(self, source: str, target: str) -> None:
        if self.stat(target) is not None:
            raise Conflict(f"{self.uri}/{target}: written by another writer")
        self.rename(source, target)

    def sync(self, path: str) -> None:
        self.read(path)

    def delete(self, path: str) -> None:
        self._request("delete", path, lambda: self.bucket.delete(path))

    def delete_if(self, path: str, version: str) -> bool:
        def effect() -> bool:
            held = self.bucket.objects.get(path)
            if held is not None and str(held.version) != version:
                raise Conflict(f"{self.uri}/{path}: changed by another writer")
            self.bucket.delete(path)
            return held is not None

        return self._request("delete", path, effect)

    def delete_tree(self, prefix: str) -> int:
        doomed = [
            e.path for page in self.list_range(f"{prefix}/", f"{prefix}0") for e in page.entries
        ]
        for path in doomed:
            self.delete(path)
        return len(doomed)

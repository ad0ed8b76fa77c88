"""Objects that `doctor` writes below a store, to try what the daemons need of it.

They lie in ``_doctor-ID/`` with an id of their own for each run, so two runs meet neither each
other nor a daemon: both daemons take no name that begins with an underscore for data. They are
deleted at the end. If a run was killed, a later one deletes what it left.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from blizzard_core.doctor.findings import Result
from blizzard_core.errors import AccessDenied, Conflict, StorageError, Unavailable
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.objects import ObjectStorage
from blizzard_core.storage.protocol import Storage, listed

PREFIX = "_doctor-"
# Runs take seconds; what is older was left by one that was killed.
ABANDONED_SECS = 3600.0

# In the order of their bytes. A server that sorts names of folders without their slash lists `a/`
# before `a-b/`, and one that ignores case lists `B` behind `a`.
_NAMES = ("B/1", "a-b/1", "a/1", "a/2", "b/1")
_ROUNDS = 2


class Step(NamedTuple):
    """One tried ability: its name, and what came out."""

    check: str
    result: Result
    text: str


class StoreProbe:
    """Probe objects of one run below one store; ``open_below`` opens a folder of it."""

    def __init__(self, storage: Storage, open_below: Callable[[str], Storage]) -> None:
        self._storage = storage
        self._open_below = open_below
        self._folder = f"{PREFIX}{uuid.uuid4().hex}"
        self._object = f"{self._folder}/object"
        self._written: set[str] = set()

    def basics(self) -> Iterator[Step]:
        """Write, read, move and delete an object. Stops at the first that fails."""
        data = b"a probe of `doctor`; it may be deleted\n"
        steps: tuple[tuple[str, Callable[[], str | None], str], ...] = (
            ("write", lambda: self._put(self._object, data), "an object is written"),
            ("read", lambda: self._read(data), "it is read as it was written"),
            ("move", self._move, "it is copied to another name"),
            ("delete", self._delete, "it is deleted"),
        )
        for check, action, text in steps:
            try:
                wrong = action()
            except StorageError as error:
                yield Step(check, "failed", str(error))
                return
            yield Step(check, "failed" if wrong else "ok", wrong or text)

    def written_at(self) -> float:
        """Write an object and return its time, by the store's clock. Raises `StorageError`."""
        self._put(self._object, b"")
        written = self._storage.stat(self._object)
        return 0.0 if written is None else written.modified

    def conditions(self) -> Iterator[Step]:
        """Write under conditions: one after the other, then two writers at the same moment."""
        path = f"{self._folder}/conditional"
        self._written.add(path)
        try:
            first = self._storage.put_if(path, b"1", None)
            second = self._storage.put_if(path, b"2", first)
            for condition, version in (("If-None-Match", None), ("If-Match", first)):
                if not self._is_refused(path, version):
                    yield Step("conditions", "failed", f"{condition} is ignored; {_REMEDY}")
                    return
            yield Step("conditions", "ok", "If-None-Match and If-Match are honoured")
            yield self._races(path, second)
        except StorageError as error:
            yield Step("conditions", "failed", str(error))

    def removal(self, *, must_write: bool) -> Iterator[Step]:
        """Remove an object on condition of its version, as `clean` does; first of a wrong one.

        ``must_write``: the cleaning itself writes such an object, so it needs the right to.
        """
        path = f"{self._folder}/cleaned"
        try:
            self._put(path, b"1")
        except AccessDenied as error:
            yield Step("clean", "failed" if must_write else "note", f"was not tried: {error}")
            return
        try:
            old = self._version_of(path)
            self._put(path, b"22")
            keeps_versions = isinstance(
                self._storage, ObjectStorage
            ) and self._storage.keeps_versions(path)
            try:
                self._storage.delete_if(path, old)
            except Conflict:
                self._storage.delete_if(path, self._version_of(path))
            else:
                text = "an object is removed although it has changed; update the server"
                yield Step("clean", "failed", text)
                return
        except StorageError as error:
            yield Step("clean", "failed", str(error))
            return
        yield Step("clean", "ok", "an object is removed only if it has not changed")
        if keeps_versions:
            text = "the bucket keeps a version of each removed file; a lifecycle rule removes it"
            yield Step("versions", "note", text)

    def tagging(self, tag: str) -> Iterator[Step]:
        """Tag an object and take the tag off, as `clean` with ``mode: tag`` does."""
        path = f"{self._folder}/tagged"
        try:
            self._put(path, b"1")
        except AccessDenied as error:  # the cleaning writes no object
            yield Step("clean", "note", f"was not tried: {error}")
            return
        try:
            self._storage.tag_if(path, self._version_of(path), tag)
            try:
                self._storage.tag_if(path, "", tag)
            except Conflict:
                yield Step("clean", "ok", "an object is tagged, and its tag taken off")
            else:
                yield Step("clean", "failed", "the object is gone; another program removed it")
        except StorageError as error:
            yield Step("clean", "failed", str(error))

    def order(self) -> Iterator[Step]:
        """List names whose order servers differ in, from the first one and from a later one."""
        folder = f"{self._folder}/order"
        try:
            for name in _NAMES:
                self._put(f"{folder}/{name}", b"")
            below = self._open_below(folder)
        except StorageError as error:
            yield Step("order", "failed", str(error))
            return
        for check, after, wanted, text in (
            ("order", "", _NAMES, "names are listed in the order of their bytes"),
            ("start_after", _NAMES[1], _NAMES[2:], "a listing begins behind a given name"),
        ):
            try:
                found = tuple(entry.path for entry in listed(below, after, None))
            except StorageError as error:
                yield Step(check, "failed", str(error))
                return
            if found != wanted:
                wrong = f"lists {', '.join(found)} and not {', '.join(wanted)}; {_LISTING_REMEDY}"
                yield Step(check, "failed", wrong)
                return
            yield Step(check, "ok", text)

    def clean_up(self) -> Step | None:
        """Delete the objects of this run; the first step that failed, if any.

        By name: a store that lists in another order would not list them. One that cannot be deleted
        does not keep the others, unless the store does not answer twice.
        """
        problem: StorageError | None = None
        unanswered = 0
        for path in sorted(self._written):
            try:
                self._storage.delete(path)
            except StorageError as error:
                problem = problem or error
                unanswered += isinstance(error, Unavailable)
                if unanswered > 1:
                    break
        try:
            if isinstance(self._storage, LocalStorage):
                self._storage.delete_tree(self._folder)  # with its locks and directories
        except StorageError as error:
            problem = problem or error
        if problem is None:
            return None
        where = f"{self._storage.uri}/{self._folder}/"
        return Step("delete", "failed", f"{where} could not be deleted: {problem}")

    def clear_abandoned(self, now: float) -> int:
        """Delete what killed runs left an hour ago or earlier; returns how many objects."""
        newest: dict[str, float] = {}
        for entry in listed(self._storage, PREFIX, f"{PREFIX[:-1]}."):
            folder = entry.path.partition("/")[0]
            newest[folder] = max(entry.modified, newest.get(folder, 0.0))
        old = [folder for folder, modified in newest.items() if modified < now - ABANDONED_SECS]
        return sum(self._storage.delete_tree(folder) for folder in old)

    def _put(self, path: str, data: bytes) -> None:
        self._written.add(path)
        try:
            self._storage.put_atomic(path, data)
        except AccessDenied:
            self._written.discard(path)  # there is nothing to delete
            raise

    def _version_of(self, path: str) -> str:
        found = self._storage.stat(path)
        return "" if found is None else found.version

    def _read(self, data: bytes) -> str | None:
        whole, part = self._storage.read(self._object), self._storage.read_range(self._object, 2, 7)
        if whole == data and part == data[2:7]:
            return None
        return "other bytes come back than were written; see that no proxy changes bodies"

    def _move(self) -> str | None:
        target = f"{self._folder}/moved"
        self._written.add(target)
        self._storage.rename(self._object, target)
        if self._storage.stat(self._object) is not None or self._storage.stat(target) is None:
            return "the object is still at its old name, or not at the new one"
        self._object = target
        return None

    def _delete(self) -> str | None:
        self._storage.delete(self._object)
        return None if self._storage.stat(self._object) is None else "the object is still there"

    def _is_refused(self, path: str, version: str | None) -> bool:
        try:
            self._storage.put_if(path, b"3", version)
        except Conflict:
            return True
        return False

    def _races(self, path: str, version: str) -> Step:
        for turn in range(_ROUNDS):
            new = f"{path}-{turn}"
            self._written.add(new)
            for where, found in ((new, None), (path, version)):
                winners = self._race(where, found)
                if winners > 1:
                    text = f"two writers at the same moment both won; {_REMEDY}"
                    return Step("race", "failed", text)
            _, version = self._storage.read_versioned(path)
        text = f"of two writers at the same moment never both won, {2 * _ROUNDS} times"
        return Step("race", "ok", text)

    def _race(self, path: str, version: str | None) -> int:
        """Return how many of two writers at the same moment were told that they won."""
        start = threading.Barrier(2)

        def write(data: bytes) -> bool:
            start.wait()
            try:
                self._storage.put_if(path, data, version)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(write, (uuid.uuid4().bytes, uuid.uuid4().bytes)))


_REMEDY = (
    "daemons and commits would overwrite each other; update the server to a version that honours"
    " conditional writes, or use another store"
)
_LISTING_REMEDY = (
    "new files would never be found; use a store or a server version that lists keys in the order"
    " of their bytes (docs/reference/guarantees.md)"
)

"""A narrow protocol over object stores and local disks.

Every path is relative to the storage's root and uses ``/``. Keys are compared
as **UTF-8 bytes of the path**, which is the order S3 and GCS list in; local
directories are read in the same order (``name + "/"`` for directories).

Failures come as `StorageError` and its subclasses, always with the URI, never
with credentials. A listing either yields everything in its range or raises;
it is never silently short.

`open_storage` is the one place that picks an implementation: S3 lists with
``StartAfter``, GCS with ``startOffset`` and ``endOffset``, Azure and local
disks directory by directory leaving out those beside the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

from blizzard_core.errors import NotFound, StorageError
from blizzard_core.threads import ThreadPool

# Returns False for a path of which nobody wants to know.
NameTest: TypeAlias = Callable[[str], bool]


class Range(NamedTuple):
    """The paths of one listing: ``after < path < until``, both exclusive; no ``until``: no end."""

    after: str
    until: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing.

    ``path`` is relative to the storage's root, with ``/`` between components;
    ``size`` is in bytes as stored; ``modified`` in seconds since the epoch.

    ``version`` is for `Storage.delete_if` and `Storage.tag_if`: an ETag with the time, a
    generation, or inode, size and times of a local file. It is empty if the store has none, and in
    listings of a store that was opened without ``versions``. Entries are equal whatever their
    versions.
    """

    path: str
    size: int
    modified: float
    version: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ListingPage:
    """A piece of a listing: entries in order, and the requests it cost.

    A request is one LIST call on an object store, one directory read on a
    local disk. ``keys`` counts what the store sent, directories included.
    """

    entries: tuple[Entry, ...]
    requests: int
    keys: int


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts of a server: its time, and the regions of the bucket and of our requests.

    ``checks_region``: it refuses requests that were signed for another region.
    """

    now: float | None = None
    region: str | None = None
    asked_region: str | None = None
    checks_region: bool = False


class Listing(Protocol):
    """A store, or a part of one, whose files can be listed."""

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        """List all files with ``after < path < until`` in UTF-8 byte order.

        Both bounds are exclusive; ``until=None`` means no upper bound and
        ``after=""`` no lower one. Where a listing can start at a key, the first
        page is small (100 keys), because most polls find little. The caller may
        stop early. A missing local
        root or bucket raises `NotFound`; an empty prefix yields nothing.
        """

    def list_ranges(
        self, ranges: Sequence[Range], may_be_wanted: NameTest | None = None
    ) -> Iterator[ListingPage] | None:
        """List several ranges in one pass, each directory once. None: list each alone.

        For stores on which each listing reads the directories above, or everything. The ranges are
        as for `list_range`, and the order is the same. None where a listing begins at any key.
        A file for which ``may_be_wanted`` is False may be left out: disks need not be asked for its
        size.
        """


class Storage(Listing, Protocol):
    """A store as the daemons need it, below one root."""

    @property
    def uri(self) -> str:
        """The root as a URI without credentials and without a trailing slash."""

    def stat(self, path: str) -> Entry | None:
        """Return the object at ``path``, or None if there is none."""

    def read(self, path: str) -> bytes:
        """Return the whole object. Raises `NotFound`."""

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes ``start`` to ``end`` (exclusive) in one request. Raises `NotFound`."""

    def open_input(self, path: str) -> BinaryIO:
        """Open a stream over the object, read forward. Raises `NotFound`."""

    def open_output(self, path: str) -> BinaryIO:
        """Open a stream to a new object. Closing it is not a promise that it is durable."""

    def put_atomic(self, path: str, data: bytes) -> None:
        """Replace the object: readers see the old bytes or the new, whole.

        Durable on return: local disks are fsynced, file and directory.
        """

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """Return the whole object and its version, for `put_if`. Raises `NotFound`.

        A version is an opaque token: an ETag, a generation, a hash. The same
        bytes written again may have the same version, so what writers compete
        for must hold something of its own (a writer id, an epoch).
        """

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        """Replace the object if ``version`` is the one it has; returns its new version.

        ``None`` means that there must be no object. Raises `Conflict` if the
        condition does not hold, and then has changed nothing. A write whose
        answer was lost may be repeated by the client and conflict with itself:
        after a `Conflict`, read back before concluding that someone else wrote.
        Excludes other `put_if` calls only; whole and durable as `put_atomic`.
        """

    def rename(self, source: str, target: str) -> None:
        """Move an object; ``target`` appears whole or not at all.

        Atomic on local disks. On object stores it is copy and delete, so after
        a crash both may exist. Raises `NotFound` if ``source`` is missing.
        """

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object as `rename` does, to a name that no object has.

        Raises `Conflict` if one has it, and then has changed nothing. Local disks check and move in
        one step. Object stores check first, so a writer in the moment of the copy is not seen.
        """

    def sync(self, path: str) -> None:
        """Make an object written through `open_output` durable (no-op on object stores)."""

    def delete(self, path: str) -> None:
        """Remove the object; it is no error if there is none."""

    def delete_if(self, path: str, version: str) -> bool:
        """Remove the object if ``version`` is the one that a listing or `stat` had.

        False: there was no object. Where the store does not say so, that is True as well. Raises
        `Conflict` if it has another version, and then it is still there, as it was. So an object
        that was written meanwhile is never lost. Raises `StorageError` if the store has no such
        condition, or ignores it. Works again after a call that was cut off. An empty version is
        that of no object: such a call only undoes one that was cut off.
        """

    def tag_if(self, path: str, version: str, tag: str) -> bool:
        """Put the tag ``name=value`` on the object if ``version`` is the one that it was listed in.

        False: there was no object. Raises `Conflict` if it has another version, and then it does
        not have the tag: one that a call that was cut off has left there is taken off. Works again
        after such a call. Other tags stay; raises `TagsFull` if there is no room. An empty version
        is that of no object: such a call only takes the tag off.

        Google Cloud Storage has no tags, and gets ``customTime``: now, unless it is later. That
        cannot be taken off; the store itself checks the condition. Raises `StorageError` if the
        store has neither.
        """

    def delete_tree(self, prefix: str) -> int:
        """Remove everything below the directory ``prefix``; returns how many objects."""


StorageOptions = Mapping[str, str]


def join(*parts: str) -> str:
    """Join path components with ``/``, leaving out the empty ones."""
    return "/".join(p for p in (part.strip("/") for part in parts) if p)


def root_exists(storage: Storage, path: str) -> bool:
    """Return whether a place without ``path`` is really there and not an unmounted disk.

    A bare mount point does not count as there.
    """
    try:
        next(iter(storage.list_range(path, f"{path}\0")), None)
        return not is_bare(storage)
    except StorageError:
        return False


def is_bare(storage: Storage) -> bool:
    """Return whether the place is entirely empty, without even a directory. One request.

    A place that lost all files looks so, and so does an unmounted disk.
    """
    first = next(iter(storage.list_range("", None)), None)
    return first is None or not first.keys


def order_key(path: str) -> bytes:
    """Return the bytes that paths are compared by, also for undecodable local names."""
    return path.encode("utf-8", "surrogateescape")


def is_hidden(path: str) -> bool:
    """Return whether a component starts with ``_`` or ``.``: never data, for both daemons."""
    return path.startswith(("_", ".")) or "/_" in path or "/." in path


def listed(storage: Storage, after: str, until: str | None) -> Iterator[Entry]:
    """Yield the objects in a range; none if nothing was written yet."""
    try:
        for page in storage.list_range(after, until):
            yield from page.entries
    except NotFound:
        return  # a local directory that nothing was written to yet


def listed_below(storage: Storage, folder: str) -> Iterator[Entry]:
    """Yield the objects below a folder; none if nothing was written yet."""
    return listed(storage, f"{folder}/", f"{folder}0")  # "0" follows "/"


def read_each(
    storage: Storage, paths: Iterable[str], concurrency: int
) -> Iterator[tuple[str, bytes]]:
    """Yield URI and content of each object in order; removed objects are left out."""

    def read(path: str) -> tuple[str, bytes] | None:
        try:
            return f"{storage.uri}/{path}", storage.read(path)
        except NotFound:
            return None

    remaining = iter(paths)
    with ThreadPool(max_workers=concurrency) as pool:
        while chunk := list(islice(remaining, concurrency)):
            for found in pool.map(read, chunk):
                if found is not None:
                    yield found

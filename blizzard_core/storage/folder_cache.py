"""Names in local directories, from memory while nothing was added.

**Contract.** A directory is listed from memory only if it cannot have got a name since. Creating,
renaming and removing set the time of a directory's last change (``ctime``), which no program can
choose. So a listing is stored with the directory's identity and times, which are read before it,
and serves as long as they are the same.

- Two changes within a tick of the clock have the same time. A listing is stored only if it began
  `_QUIET_SECS` after the last change.
- Not all file systems have true times: on a network another machine sets them, and caches hide
  them. Only those in `_TRUE_TIMES` are trusted. An overlay merges directories, ZFS has virtual
  ones, and an encrypted directory shows other names once its key is there.
- A link may lead to a file or to a directory, and its directory does not change with that. A
  directory with links is not stored.
- A clock that was set back may give a time a second time. Then everything is dropped.

Sizes and times of files change without their directory, so wanted files are asked each time.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from blizzard_core.limits import CACHED_NAMES
from blizzard_core.storage.local_entries import listed_name
from blizzard_core.storage.protocol import order_key

if TYPE_CHECKING:
    import ctypes

# A path as a store lists it, and its entry; None for a name from memory, which is no link.
Child: TypeAlias = tuple[str, os.DirEntry[str] | None]

# Ticks are a few milliseconds long, and a whole second on ext3 and on ext4 with small inodes.
_QUIET_SECS = 2.0
# The kernel's numbers of ext2 to ext4, XFS, Btrfs and tmpfs.
_TRUE_TIMES = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994})
# Of the kernel's interface: paths from the working directory, and the mark of encryption.
_AT_FDCWD, _ENCRYPTED = -100, 0x800

# Device, inode, and the times of the last change of names and of anything.
_Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Listing:
    """The ascending names of a directory from ``start`` on."""

    stamp: _Stamp
    start: bytes
    names: tuple[str, ...]


class FolderCache:
    """Names in directories, each with its path below one root. Safe for several threads.

    Only names from the start of a listing on are stored, and of files at the end of a directory
    only: it is a sweep or a first poll that lists files from the beginning. The least recently
    used directories make room for others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin empty. ``clock`` is the machine's, in epoch seconds, as file systems use it."""
        self._clock = clock
        self._listings: dict[str, _Listing] = {}
        self._names = 0
        self._latest = 0.0
        self._untrusted: set[int] = set()
        self._lock = Lock()

    def children(self, place: str, folder: str, start: bytes) -> list[Child]:
        """Return the children of ``folder`` in order; those below ``start`` may be missing.

        ``place`` is its local path. Raises `OSError`.
        """
        began = self._now()
        status = os.stat(place)  # noqa: PTH116  # a `Path` takes as long as the call
        listing = self._recall(folder, _stamp_of(status), start)
        if listing is not None:
            at = bisect_left(listing.names, start, key=order_key)
            return [(name, None) for name in listing.names[at:]]
        has_links = False
        children: list[Child] = []
        with os.scandir(place) as found:
            for entry in found:
                has_links = has_links or entry.is_symlink()
                children.append((listed_name(folder, entry), entry))
        children.sort(key=lambda child: order_key(child[0]))
        if began - status.st_ctime >= _QUIET_SECS and not has_links:
            at = bisect_left(children, start, key=lambda child: order_key(child[0]))
            names = tuple(name for name, _ in children[at:])
            self._store(place, folder, _Listing(_stamp_of(status), start, names))
        return children

    def _now(self) -> float:
        with self._lock:
            now = self._clock()
            if now < self._latest:
                self._listings.clear()
                self._names = 0
            self._latest = now
            return now

    def _recall(self, folder: str, stamp: _Stamp, start: bytes) -> _Listing | None:
        with self._lock:
            listing = self._listings.pop(folder, None)
            if listing is None:
                return None
            if listing.stamp != stamp or start < listing.start:
                self._names -= _size_of(listing)
                return None
            self._listings[folder] = listing  # the most recently used is the last
            return listing

    def _store(self, place: str, folder: str, listing: _Listing) -> None:
        is_whole = listing.start == order_key(folder)
        if is_whole and any(not name.endswith("/") for name in listing.names):
            return
        device, *_ = listing.stamp
        if device in self._untrusted or _size_of(listing) > CACHED_NAMES:
            return
        # Something may be mounted there while it is listed, also by the listing itself.
        if _stamp_of(os.stat(place)) != listing.stamp:  # noqa: PTH116  # see above
            return
        if not has_true_times(place):
            self._untrusted.add(device)  # asking costs a request on a network
            return
        with self._lock:
            replaced = self._listings.pop(folder, None)
            self._names += _size_of(listing) - (0 if replaced is None else _size_of(replaced))
            self._listings[folder] = listing
            while self._names > CACHED_NAMES:
                self._names -= _size_of(self._listings.pop(next(iter(self._listings))))


def _size_of(listing: _Listing) -> int:
    """Return the size in names; a directory takes as much memory as four of its names."""
    return 4 + len(listing.names)


def _stamp_of(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def has_true_times(place: str) -> bool:
    """Return whether each change of a directory gets its time, at once, and nothing else shows."""
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415  # most commands list no directory that was quiet

    # Both structures have less than 256 bytes. The first word of one is the kernel's number of the
    # file system, bytes 8 to 15 of the other are attributes.
    path, system = os.fsencode(place), (ctypes.c_ulong * 64)()
    status = (ctypes.c_uint64 * 32)()
    calls = _calls()
    return (
        calls.statfs(path, system) == 0
        and system[0] in _TRUE_TIMES
        and calls.statx(_AT_FDCWD, path, 0, 0, status) == 0
        and not status[1] & _ENCRYPTED
    )


@cache
def _calls() -> ctypes.CDLL:
    import ctypes  # noqa: PLC0415  # see above

    return ctypes.CDLL(None)

"""The set of files done, for sources whose names do not sort (``use_watermark: false``).

What is kept of a path is 16 bytes: its BLAKE2b digest. So a million names are
16 MB, on disk and in memory alike, however long they are, and are loaded by
reading them: there is nothing to parse. (The paths themselves, sorted and
compressed with zstd, come to more than that as soon as a random UUID is in
them, take seconds to load, and would be digests in memory all the same.) The
price is that names cannot be listed from the set, only looked up.

Two paths with one digest would mean a file that is skipped. With n files done
the chance that any two agree is n²/2¹²⁹: 10⁻²⁵ for ten million, 10⁻²¹ for a
thousand million, far below that of an undetected error on disk. To bring it
about on purpose takes 2⁶⁴ digests, and hits only the files of whoever does it.

**On disk** the set is a few immutable segments, ``{folder}/{epoch}~{uuidv7}.digests``: the
magic, the count, a checksum over name and content, then the digests, sorted. Which
segments make the set stands in the source's checkpoint, so a new one counts from the
save that names it. The order is: `write` the addition, save the checkpoint with
`ProcessedSet.segments` of what it returns, `discard` what it replaced. A crash in
between leaves a segment that nothing names; `sweep` removes it. A segment's name
begins with the epoch of its writer, and only what older epochs wrote is removed: a
daemon that was replaced and does not know it yet takes nothing away from its
successor. A segment that is named and missing, damaged, or of another count is a
`StateError`, never an empty set.

**Compaction** keeps every segment but the last at least `TAIL` digests and
twice as long as the next, so that there are at most log₂(n / `TAIL`) + 2. A
digest is rewritten only into a segment half as long again (or within the tail),
so at most log₁.₅(n / `TAIL`) + 1 times beyond the tail's 64 KB per addition.

**Forgetting.** Files vanish from sources, and the set should follow; but a
listing that lacks files may also be a disk that is not mounted, and what is
forgotten will be ingested again. So names are dropped only if they were missing
in two full listings `FORGET_SECS` apart, with the set more than twice as long as
the source in every listing between. Segments with ``missing_since`` hold the
names missed the first time; they are no part of the set.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from uuid_utils import uuid7

from blizzard_core.checkpoint.digests import WIDTH, Digests, among, digested, from_bytes
from blizzard_core.errors import NotFound, StateError
from blizzard_core.storage.protocol import Page, Storage, join, order_key

TAIL = 4096
FORGET_SECS = 7 * 86_400.0

_MAGIC = b"blzdone1"
_HEADER = struct.Struct("<8sQ16s")  # magic, count, checksum
_SUFFIX = ".digests"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment as the checkpoint lists it; ``missing_since`` in epoch seconds."""

    name: str
    count: int
    missing_since: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    segment: Segment
    digests: Digests = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What follows from a set, not yet written: segments to keep and one to write, if any.

    ``replaced`` are the names that the checkpoint will no longer list.
    """

    kept: tuple[_Loaded, ...]
    digests: Digests = field(repr=False)
    missing_since: float | None
    replaced: tuple[str, ...]


class ProcessedSet:
    """The paths done. Immutable: a change yields another set. 16 bytes per path."""

    def __init__(self, loaded: Iterable[_Loaded] = ()) -> None:
        self._loaded = tuple(sorted(loaded, key=lambda one: -one.segment.count))
        self._parts = tuple(one for one in self._loaded if one.segment.missing_since is None)
        self._missing = next((o for o in self._loaded if o.segment.missing_since is not None), None)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What the checkpoint has to list for this set, longest first."""
        return tuple(one.segment for one in self._loaded)

    def __len__(self) -> int:
        return sum(one.segment.count for one in self._parts)

    def __contains__(self, path: str) -> bool:
        return bool(self._holds(digests_of([path]))[0])

    def unseen(self, paths: Sequence[str]) -> list[str]:
        """The paths that are not in the set, in the order given.

        One pass for all: about a second per million, most of it hashing.
        """
        held = self._holds(digests_of(paths))
        return [path for path, known in zip(paths, held, strict=True) if not known]

    def _holds(self, digests: Digests) -> npt.NDArray[np.bool_]:
        order = np.argsort(digests)  # looked up in order is four times as fast
        held = np.zeros(len(digests), dtype=np.bool_)
        for one in self._parts:
            held[order] |= among(digests[order], one.digests)
        return held

    def adding(self, paths: Iterable[str]) -> Change | None:
        """The change that adds ``paths``; None if all are in the set already."""
        found = np.unique(digests_of(paths))
        fresh = found[~self._holds(found)]
        if not len(fresh):
            return None
        kept = list(self._parts)
        merged = [fresh]
        count = len(fresh)
        while kept and kept[-1].segment.count < max(2 * count, TAIL):
            last = kept.pop()
            merged.append(last.digests)
            count += last.segment.count
        replaced = tuple(one.segment.name for one in self._parts[len(kept) :])
        marks = () if self._missing is None else (self._missing,)
        return Change((*kept, *marks), np.sort(np.concatenate(merged)), None, replaced)

    def forgetting(self, listed: Digests, now: float) -> Change | None:
        """The change that follows from a full listing; None while there is nothing to do.

        ``listed`` are all paths at the source, as digests, ``now`` epoch seconds. Call it with
        every complete listing and never with a part of one; an empty one is rather a
        disk that is not there, and forgets nothing. While the set is
        not much longer than the listing this costs nothing. After it is, the
        names missed are noted, and dropped if they are still missing
        `FORGET_SECS` later; a file that comes back after that is a new file.
        """
        mark = self._missing
        if not len(listed) or len(self) <= 2 * len(listed) + TAIL:
            return self.sparing()
        if mark is None:
            return Change(self._parts, self._absent(listed), now, ())
        if now - (mark.segment.missing_since or 0.0) < FORGET_SECS:
            return None
        everything = np.sort(np.concatenate([one.digests for one in self._parts]))
        gone = among(everything, self._absent(listed)) & among(everything, mark.digests)
        if not gone.any():
            return self.sparing()
        replaced = (*(one.segment.name for one in self._parts), mark.segment.name)
        return Change((), everything[~gone], None, replaced)

    def sparing(self) -> Change | None:
        """The change that follows where no name is to be dropped: those missed are not noted."""
        if self._missing is None:
            return None
        return Change(self._parts, _NONE, None, (self._missing.segment.name,))

    def _absent(self, listed: Digests) -> Digests:
        there = np.sort(listed)
        absent = [one.digests[~among(one.digests, there)] for one in self._parts]
        return np.sort(np.concatenate(absent))


def digests_of(paths: Iterable[str]) -> Digests:
    """What is kept of the paths, in their order: 16 bytes each."""
    return digested(map(order_key, paths))


_NONE = digests_of(())


# -- storage --------------------------------------------------------------------


def write(storage: Storage, folder: str, change: Change, epoch: int) -> ProcessedSet:
    """The changed set, with its new segment durable. It counts once the checkpoint lists it.

    ``folder`` is relative to the storage's root, ``epoch`` the writer's. Raises
    `StorageError`; then, as after a crash, the set is what it was.
    """
    if not len(change.digests):
        return ProcessedSet(change.kept)
    segment = Segment(f"{epoch:08d}~{uuid7()}", len(change.digests), change.missing_since)
    content = change.digests.tobytes()
    header = _HEADER.pack(_MAGIC, segment.count, _checksum(segment.name, content))
    storage.put_atomic(path_of(folder, segment.name), header + content)
    return ProcessedSet((*change.kept, _Loaded(segment, change.digests)))


def written_again(
    storage: Storage, folder: str, segments: Iterable[Segment], named: Iterable[Segment], epoch: int
) -> tuple[Segment, ...]:
    """The segments, of which those that are not ``named`` lie under new names of this epoch.

    Raises as `load` and `write`.
    """
    kept = {segment.name for segment in named}
    found: list[Segment] = []
    for segment in segments:
        if segment.name in kept:
            found.append(segment)
            continue
        one = _load(storage, folder, segment)
        change = Change((), one.digests, segment.missing_since, ())
        found += write(storage, folder, change, epoch).segments
    return tuple(found)


def discard(storage: Storage, folder: str, change: Change) -> None:
    """Remove what ``change`` replaced. Only once the checkpoint lists the new set."""
    for name in change.replaced:
        storage.delete(path_of(folder, name))


def load(storage: Storage, folder: str, segments: Iterable[Segment]) -> ProcessedSet:
    """The set that the checkpoint lists as ``segments``.

    Raises `StateError` naming the file if one is missing, damaged or of another
    count, `StorageError` if the store does not answer.
    """
    return ProcessedSet(_load(storage, folder, segment) for segment in segments)


_REMEDY = (
    "restore it, or the newest checkpoint; `blizzard checkpoint rebuild` makes one of what is there"
)


def _load(storage: Storage, folder: str, segment: Segment) -> _Loaded:
    count, content = _read(storage, folder, segment.name)
    if count != segment.count:
        raise StateError(
            f"{storage.uri}/{path_of(folder, segment.name)}: holds {count} names and the checkpoint"
            f" says {segment.count}; {_REMEDY}"
        )
    return _Loaded(segment, from_bytes(content))


def _read(storage: Storage, folder: str, name: str) -> tuple[int, bytes]:
    """How many digests a segment has, and the digests."""
    path = path_of(folder, name)
    where = f"{storage.uri}/{path}"
    remedy = _REMEDY
    try:
        raw = storage.read(path)
    except NotFound as error:
        raise StateError(f"{where}: the checkpoint lists it and it is missing; {remedy}") from error
    content = raw[_HEADER.size :]
    if len(raw) < _HEADER.size or len(content) % WIDTH:
        raise StateError(f"{where}: is cut short; {remedy}")
    magic, count, checksum = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise StateError(f"{where}: is not a segment of processed names; {remedy}")
    if checksum != _checksum(name, content) or count * WIDTH != len(content):
        raise StateError(f"{where}: is damaged, its checksum does not match; {remedy}")
    return count, content


def content_of(storage: Storage, path: str) -> bytes:
    """The digests of the segment at ``path``, end to end, whatever its count is.

    Raises `StateError` if it is missing, damaged or none.
    """
    name = path.rpartition("/")[2].removesuffix(_SUFFIX)
    folder = path.rpartition("/")[0]
    return _read(storage, folder, name)[1]


def found(storage: Storage, folder: str) -> tuple[Segment, ...]:
    """All segments that lie in ``folder``, whether a checkpoint lists them or not.

    Each holds names that were done when it was written, so together they hold no other.
    Raises `StorageError`.
    """
    segments = []
    for page in _pages(storage, folder):
        for entry in page.entries:
            name = entry.path.rpartition("/")[2]
            if name.endswith(_SUFFIX) and entry.size > _HEADER.size:
                count = (entry.size - _HEADER.size) // WIDTH
                segments.append(Segment(name.removesuffix(_SUFFIX), count))
    return tuple(segments)


def lost(named: Sequence[Segment], there: Sequence[Segment]) -> list[Segment]:
    """Return the segments that a checkpoint has ``named`` and that are gone, but for merged ones.

    A later segment that is as long was made of it: beside one that stays, later ones have at
    most half its names (see *Compaction* above). Names are only added, so there are as many.
    """
    names = {segment.name for segment in there}
    is_whole = sum(one.count for one in there) >= sum(one.count for one in named)

    def is_merged(gone: Segment) -> bool:
        later = (one for one in there if _made(one) > _made(gone))
        return is_whole and any(one.count >= gone.count for one in later)

    return [one for one in named if one.name not in names and not is_merged(one)]


def _made(segment: Segment) -> str:
    """Return the part of a segment's name that sorts by the time of writing."""
    return segment.name.rpartition("~")[2]


def _pages(storage: Storage, folder: str) -> Iterator[Page]:
    try:
        yield from storage.list_range(f"{folder}/", f"{folder}0")  # "0" follows "/"
    except NotFound:  # a local table that nothing was written to yet
        return


def sweep(storage: Storage, folder: str, segments: Iterable[Segment], epoch: int) -> int:
    """Remove what crashes left in ``folder``; returns how many objects.

    That is what is not listed and was written in an older epoch than this writer's.
    """
    listed = {path_of(folder, segment.name) for segment in segments}
    orphans = [
        entry.path
        for page in _pages(storage, folder)
        for entry in page.entries
        if entry.path not in listed and epoch_of(entry.path) < epoch
    ]
    for path in orphans:
        storage.delete(path)
    return len(orphans)


def epoch_of(path: str) -> int:
    """The epoch in a segment's name; 0 for what is no segment."""
    digits, mark, _ = path.rpartition("/")[2].partition("~")
    return int(digits) if mark and digits.isdigit() else 0


def path_of(folder: str, name: str) -> str:
    """Where a segment is."""
    return join(folder, f"{name}{_SUFFIX}")


def _checksum(name: str, content: bytes) -> bytes:
    """Over the name too, so that one segment cannot stand in for another."""
    digest = hashlib.blake2b(name.encode(), digest_size=WIDTH)
    digest.update(content)
    return digest.digest()


# -- the checkpoint's list --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SegmentDocument:
    """A segment as the checkpoint lists it: the name of a file in the folder, and its count."""

    segment: Annotated[str, msgspec.Meta(pattern="^[^/]+$")]
    count: Annotated[int, msgspec.Meta(ge=1)]
    missing_since: float | None = None


def segments_to_json(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """The checkpoint's ``processed`` key: ``[{"segment": name, "count": n}, …]``."""
    return [
        {"segment": s.name, "count": s.count}
        | ({} if s.missing_since is None else {"missing_since": s.missing_since})
        for s in segments
    ]


def segments_of(listed: Iterable[SegmentDocument]) -> tuple[Segment, ...]:
    """The segments that a checkpoint lists."""
    return tuple(Segment(one.segment, one.count, one.missing_since) for one in listed)

"""The set of files done, for sources whose names do not sort (``use_watermark: false``).

The set has 16 bytes for each path, so names can be looked up and not listed. (The paths
themselves, sorted and compressed with zstd, are larger than that if they contain a random UUID.
They take seconds to load, and would be digests in memory anyway.) Two paths with the same digest
would mean a skipped file. With ten million files the probability of that is 10⁻²⁵, far below that
of an undetected error on disk. To cause it on purpose takes 2⁶⁴ digests, and affects only the
attacker's own files.

**On disk** the set is segments ``{folder}/{epoch}~{uuidv7}.digests``
(`blizzard_core.checkpoint.digests`). The source's checkpoint lists the segments of the set, so a
new one counts from the save that names it. The order is: `write` the addition, save the checkpoint
with the returned `ProcessedSet.segments`, `discard` the replaced ones. A crash in between leaves a
segment that no checkpoint names; `sweep` deletes it. A segment's name begins with the epoch of its
writer, and only segments of older epochs are deleted. So a daemon that was replaced, and does not
know it yet, deletes nothing of its successor. A listed segment that is missing, damaged, or of
another count is a `StateError`, never an empty set.

**Forgetting.** Files vanish from sources, and the set should follow. But a listing without files
may also be a disk that is not mounted, and a forgotten file is ingested again. So a name is dropped
only if it was missing in two full listings `FORGET_SECS` apart. In every listing between them the
set must be more than twice as long as the source. Segments with ``missing_since`` hold the names
that were missing the first time; they are no part of the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec
from uuid_utils import uuid7

from blizzard_core.checkpoint.digests import (
    SUFFIX,
    TAIL,
    Digests,
    among,
    count_in,
    digested,
    np,
    read_segment,
    segments_in,
    staying,
    write_segment,
)
from blizzard_core.errors import NotFound, StateError
from blizzard_core.storage.protocol import Storage, join, listed, order_key

if TYPE_CHECKING:
    import numpy.typing as npt

FORGET_SECS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment as the checkpoint lists it, by its file's name; times in epoch seconds."""

    segment: Annotated[str, msgspec.Meta(pattern="^[^/]+$")]
    count: Annotated[int, msgspec.Meta(ge=1)]
    missing_since: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    listed: Segment
    digests: Digests = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class SetChange:
    """A change of a set, not yet written: segments to keep and one to write, if any.

    ``replaced`` are the names that the checkpoint will no longer list.
    """

    segments: tuple[_Loaded, ...]
    digests: Digests = field(repr=False)
    missing_since: float | None
    replaced: tuple[str, ...]


class ProcessedSet:
    """The paths done. Immutable: a change yields another set. 16 bytes per path."""

    def __init__(self, loaded: Iterable[_Loaded] = ()) -> None:
        self._loaded = tuple(sorted(loaded, key=lambda one: -one.listed.count))
        self._parts = tuple(one for one in self._loaded if one.listed.missing_since is None)
        self._missing = next((o for o in self._loaded if o.listed.missing_since is not None), None)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Return what the checkpoint has to list for this set, longest first."""
        return tuple(one.listed for one in self._loaded)

    def __len__(self) -> int:
        return sum(one.listed.count for one in self._parts)

    def __contains__(self, path: str) -> bool:
        return bool(self._holds(digests_of([path]))[0])

    def unseen(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that are not in the set, in the given order.

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

    def adding(self, paths: Iterable[str]) -> SetChange | None:
        """Return the change that adds ``paths``; None if all of them are in the set."""
        found = np.unique(digests_of(paths))
        fresh = found[~self._holds(found)]
        if not len(fresh):
            return None
        place = staying([one.listed.count for one in self._parts], len(fresh), TAIL)
        merged = self._parts[place:]
        digests = np.sort(np.concatenate([fresh, *(one.digests for one in merged)]))
        marks = () if self._missing is None else (self._missing,)
        replaced = tuple(one.listed.segment for one in merged)
        return SetChange((*self._parts[:place], *marks), digests, None, replaced)

    def forgetting(self, listed: Digests, now: float) -> SetChange | None:
        """Return the change that follows from a full listing; None if there is none.

        ``listed`` are the digests of all paths at the source, ``now`` epoch seconds. Call it with
        every complete listing and never with a part of one. An empty listing forgets nothing: it
        is more likely a disk that is not mounted. This costs nothing while the set is not much
        longer than the listing. Otherwise missing names are noted, and dropped if they are still
        missing `FORGET_SECS` later. A file that comes back after that is a new file.
        """
        mark = self._missing
        if not len(listed) or len(self) <= 2 * len(listed) + TAIL:
            return self.sparing()
        if mark is None:
            return SetChange(self._parts, self._absent(listed), now, ())
        if now - (mark.listed.missing_since or 0.0) < FORGET_SECS:
            return None
        everything = np.sort(np.concatenate([one.digests for one in self._parts]))
        absent = among(everything, self._absent(listed)) & among(everything, mark.digests)
        if not absent.any():
            return self.sparing()
        replaced = (*(one.listed.segment for one in self._parts), mark.listed.segment)
        return SetChange((), everything[~absent], None, replaced)

    def sparing(self) -> SetChange | None:
        """Return the change that cancels forgetting: it drops the list of missing names."""
        if self._missing is None:
            return None
        return SetChange(self._parts, digests_of(()), None, (self._missing.listed.segment,))

    def _absent(self, listed: Digests) -> Digests:
        there = np.sort(listed)
        absent = [one.digests[~among(one.digests, there)] for one in self._parts]
        return np.sort(np.concatenate(absent))


def digests_of(paths: Iterable[str]) -> Digests:
    """Return the digests of the paths in their order, 16 bytes each."""
    return digested(map(order_key, paths))


# -- storage --------------------------------------------------------------------


def write(storage: Storage, folder: str, change: SetChange, epoch: int) -> ProcessedSet:
    """Write the change's new segment. Return the changed set, valid once the checkpoint lists it.

    ``folder`` is relative to the storage's root, ``epoch`` the writer's. Raises
    `StorageError`; then, as after a crash, the set is unchanged.
    """
    if not len(change.digests):
        return ProcessedSet(change.segments)
    segment = Segment(f"{epoch:08d}~{uuid7()}", len(change.digests), change.missing_since)
    write_segment(storage, path_of(folder, segment.segment), change.digests)
    return ProcessedSet((*change.segments, _Loaded(segment, change.digests)))


def copy_segments(
    storage: Storage, folder: str, segments: Iterable[Segment], named: Iterable[Segment], epoch: int
) -> tuple[Segment, ...]:
    """Return the segments, with those not ``named`` copied to new names of this epoch.

    Raises as `load` and `write`.
    """
    remaining = {segment.segment for segment in named}
    found: list[Segment] = []
    for segment in segments:
        if segment.segment in remaining:
            found.append(segment)
            continue
        one = _load(storage, folder, segment)
        change = SetChange((), one.digests, segment.missing_since, ())
        found += write(storage, folder, change, epoch).segments
    return tuple(found)


def discard(storage: Storage, folder: str, change: SetChange) -> None:
    """Delete the segments that ``change`` replaced, once the checkpoint lists the new set."""
    for name in change.replaced:
        storage.delete(path_of(folder, name))


def load(storage: Storage, folder: str, segments: Iterable[Segment]) -> ProcessedSet:
    """Return the set of the ``segments`` that the checkpoint lists.

    Raises `StateError` naming the file if one is missing, damaged or of another
    count, `StorageError` if the store does not answer.
    """
    return ProcessedSet(_load(storage, folder, segment) for segment in segments)


_REMEDY = (
    "restore it, or the newest checkpoint; `blizzard checkpoint rebuild` makes one of what is there"
)


def _load(storage: Storage, folder: str, segment: Segment) -> _Loaded:
    digests = digests_at(storage, path_of(folder, segment.segment))
    if len(digests) != segment.count:
        raise StateError(
            f"{storage.uri}/{path_of(folder, segment.segment)}: holds {len(digests)} names and the"
            f" checkpoint says {segment.count}; {_REMEDY}"
        )
    return _Loaded(segment, digests)


def digests_at(storage: Storage, path: str) -> Digests:
    """Return the digests of a segment that the checkpoint lists, whatever its count is.

    Raises `StateError` if it is missing, damaged or none.
    """
    try:
        return read_segment(storage, path, _REMEDY)
    except NotFound as error:
        where = f"{storage.uri}/{path}"
        raise StateError(
            f"{where}: the checkpoint lists it and it is missing; {_REMEDY}"
        ) from error


def list_segments(storage: Storage, folder: str) -> tuple[Segment, ...]:
    """Return all segments in ``folder``, whether a checkpoint lists them or not.

    Each holds names that were done when it was written, so together they hold no other.
    Raises `StorageError`.
    """
    return tuple(
        Segment(entry.path.rpartition("/")[2].removesuffix(SUFFIX), count)
        for entry in segments_in(storage, folder)
        if (count := count_in(entry))
    )


def missing_segments(named: Sequence[Segment], there: Sequence[Segment]) -> list[Segment]:
    """Return the segments that a checkpoint has ``named`` and that are missing, except merged ones.

    A later segment that is at least as long contains it: beside a segment that stays, later ones
    have at most half its names (`staying`). Names are only added, so their number does not fall.
    """
    names = {segment.segment for segment in there}
    is_whole = sum(one.count for one in there) >= sum(one.count for one in named)

    def is_merged(segment: Segment) -> bool:
        later = (one for one in there if _made(one) > _made(segment))
        return is_whole and any(one.count >= segment.count for one in later)

    return [one for one in named if one.segment not in names and not is_merged(one)]


def _made(segment: Segment) -> str:
    """Return the part of a segment's name that sorts by the time of writing."""
    return segment.segment.rpartition("~")[2]


def sweep(storage: Storage, folder: str, segments: Iterable[Segment], epoch: int) -> int:
    """Delete the segments that crashes left in ``folder``. Return their number.

    These are segments that are not listed and were written in an older epoch than this writer's.
    """
    named = {path_of(folder, segment.segment) for segment in segments}
    orphans = [
        entry.path
        for entry in listed(storage, f"{folder}/", f"{folder}0")  # "0" follows "/"
        if entry.path not in named and epoch_of(entry.path) < epoch
    ]
    for path in orphans:
        storage.delete(path)
    return len(orphans)


def epoch_of(path: str) -> int:
    """Return the epoch in a segment's name; 0 if it is no segment."""
    digits, mark, _ = path.rpartition("/")[2].partition("~")
    return int(digits) if mark and digits.isdigit() else 0


def path_of(folder: str, name: str) -> str:
    """Return where a segment is."""
    return join(folder, f"{name}{SUFFIX}")

"""The set of files done, for sources whose names do not sort (``use_watermark: false``).

The set has 16 bytes for each path, so names can be looked up and not listed. Two paths with the
same digest would mean a skipped file. With ten million files the probability of that is 10⁻²⁵, far
below that of an undetected error on disk. To cause it on purpose takes 2⁶⁴ digests, and affects
only the attacker's own files.

**On disk** the set is segments ``{folder}/{epoch}~{uuidv7}.digests``
(`blizzard_core.checkpoint.digests`). The source's checkpoint lists the segments of the set, so a
new one counts from the save that names it. The order is: write the addition, save the checkpoint
with the segments, delete the replaced ones (`ProcessedSet.clean_up`). A crash in between leaves a
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
from blizzard_core.errors import BlizzardError, NotFound, StateError
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


class ProcessedSet:
    """The paths done, in step with the checkpoint that lists the segments in ``folder``.

    Methods that change it write a segment and return the segments to save, None if nothing changes.
    Call `clean_up` after the save. If they raise, the set is unchanged.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self.epoch = 0  # of the writer, for the names of segments
        self._storage = storage
        self._folder = folder
        self._segments: tuple[_Loaded, ...] | None = None
        self._replaced: list[str] = []

    def load(self, segments: Iterable[Segment], epoch: int = 0) -> None:
        """Read the set that a checkpoint lists.

        The writer of the checkpoint gives its epoch. Then segments that no checkpoint names are
        deleted. Raises `StateError` naming the file if one is missing, damaged or of another
        count, `StorageError` if the store does not answer.
        """
        loaded = [_load(self._storage, self._folder, segment) for segment in segments]
        self._segments = _longest_first(loaded)
        self.epoch = epoch
        self._replaced.clear()
        if epoch and loaded:
            sweep(self._storage, self._folder, self.segments, epoch)

    def unload(self) -> None:
        """Free the memory. Call `load` before the next question."""
        self._segments = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Return what the checkpoint has to list for this set, longest first."""
        return tuple(one.listed for one in self._loaded)

    def __len__(self) -> int:
        return sum(one.listed.count for one in self._parts)

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

    def adding(self, paths: Iterable[str]) -> tuple[Segment, ...] | None:
        """Add processed ``paths``."""
        found = np.unique(digests_of(paths))
        fresh = found[~self._holds(found)]
        if not len(fresh):
            return None
        parts = self._parts
        place = staying([one.listed.count for one in parts], len(fresh), TAIL)
        digests = np.sort(np.concatenate([fresh, *(one.digests for one in parts[place:])]))
        return self._change([*parts[:place], *self._missing], digests)

    def forgetting(self, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        """Forget what a full listing lacks.

        ``listed`` are the digests of all paths at the source, ``now`` epoch seconds. Call it with
        every complete listing and never with a part of one. An empty listing forgets nothing: it
        is more likely a disk that is not mounted. This costs nothing while the set is not much
        longer than the listing. Otherwise missing names are noted, and dropped if they are still
        missing `FORGET_SECS` later. A file that comes back after that is a new file.
        """
        if not len(listed) or len(self) <= 2 * len(listed) + TAIL:
            return self.sparing()
        if not self._missing:
            return self._change(self._parts, self._absent(listed), now)
        [mark] = self._missing
        if now - (mark.listed.missing_since or 0.0) < FORGET_SECS:
            return None
        everything = np.sort(np.concatenate([one.digests for one in self._parts]))
        absent = among(everything, self._absent(listed)) & among(everything, mark.digests)
        return self._change((), everything[~absent]) if absent.any() else self.sparing()

    def sparing(self) -> tuple[Segment, ...] | None:
        """Cancel forgetting: drop the list of missing names."""
        return self._change(self._parts, digests_of(())) if self._missing else None

    def clean_up(self) -> None:
        """Delete replaced segments, once the checkpoint lists the new ones."""
        while self._replaced:
            self._storage.delete(path_of(self._folder, self._replaced.pop()))

    def _absent(self, listed: Digests) -> Digests:
        there = np.sort(listed)
        absent = [one.digests[~among(one.digests, there)] for one in self._parts]
        return np.sort(np.concatenate(absent))

    def _change(
        self, kept: Iterable[_Loaded], digests: Digests, missing_since: float | None = None
    ) -> tuple[Segment, ...]:
        """Write ``digests`` as a segment, if there are any, beside those that are kept."""
        found = list(kept)
        if len(digests):
            segment = write(self._storage, self._folder, digests, self.epoch, missing_since)
            found.append(_Loaded(segment, digests))
        before, self._segments = self.segments, _longest_first(found)
        names = {segment.segment for segment in self.segments}
        self._replaced += (each.segment for each in before if each.segment not in names)
        return self.segments

    @property
    def _loaded(self) -> tuple[_Loaded, ...]:
        if self._segments is None:
            raise BlizzardError("the set of names was used before it was loaded")
        return self._segments

    @property
    def _parts(self) -> tuple[_Loaded, ...]:
        """The segments with names of the set."""
        return tuple(one for one in self._loaded if one.listed.missing_since is None)

    @property
    def _missing(self) -> tuple[_Loaded, ...]:
        """The segment with names that were missing in a listing, if there is one."""
        return tuple(one for one in self._loaded if one.listed.missing_since is not None)


def _longest_first(loaded: Iterable[_Loaded]) -> tuple[_Loaded, ...]:
    return tuple(sorted(loaded, key=lambda one: -one.listed.count))


def digests_of(paths: Iterable[str]) -> Digests:
    """Return the digests of the paths in their order, 16 bytes each."""
    return digested(map(order_key, paths))


# -- storage --------------------------------------------------------------------


def write(
    storage: Storage,
    folder: str,
    digests: Digests,
    epoch: int,
    missing_since: float | None = None,
) -> Segment:
    """Write a segment of sorted digests. It counts once a checkpoint lists it.

    ``folder`` is relative to the storage's root, ``epoch`` the writer's. Raises `StorageError`.
    """
    segment = Segment(f"{epoch:08d}~{uuid7()}", len(digests), missing_since)
    write_segment(storage, path_of(folder, segment.segment), digests)
    return segment


def copy_segments(
    storage: Storage, folder: str, segments: Iterable[Segment], named: Iterable[Segment], epoch: int
) -> tuple[Segment, ...]:
    """Return the segments, with those not ``named`` copied to new names of this epoch.

    Raises as `ProcessedSet.load` and `write`.
    """
    remaining = {segment.segment for segment in named}
    return tuple(
        segment
        if segment.segment in remaining
        else write(
            storage, folder, _load(storage, folder, segment).digests, epoch, segment.missing_since
        )
        for segment in segments
    )


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

"""A set of names done, kept in step with the checkpoint that lists its segments.

The order keeps both whole: a segment is written, then the checkpoint that names
it is saved, then what it replaced is removed. Death in between leaves a segment
that nothing names, and `load` on a later start sweeps it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blizzard_core.checkpoint.digests import Digests
from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import Storage
from blizzard_py.state import processed_set
from blizzard_py.state.processed_set import ProcessedSet, Segment, SetChange


class ProcessedTracker:
    """The set in one folder. What changes it returns the segments to save, None for no change."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._epoch = 0
        self._done: ProcessedSet | None = None
        self._replaced: list[SetChange] = []

    def load(self, segments: Sequence[Segment], epoch: int = 0) -> None:
        """Read the set that a checkpoint lists.

        The writer of the checkpoint gives its epoch, and segments that nothing
        names are removed. Raises `StateError`.
        """
        self._done = processed_set.load(self._storage, self._folder, segments)
        self._epoch = epoch
        self._replaced.clear()
        if epoch and segments:
            processed_set.sweep(self._storage, self._folder, segments, epoch)

    def unload(self) -> None:
        """Let go of the memory; `load` it before it is asked again."""
        self._done = None

    def __len__(self) -> int:
        return len(self._loaded())

    def unseen(self, paths: Sequence[str]) -> list[str]:
        """The paths that are not in the set, in the order given."""
        return self._loaded().unseen(paths)

    def adding(self, paths: Iterable[str]) -> tuple[Segment, ...] | None:
        """``paths`` are done, their segment is written; save it, then call `saved`."""
        return self._applied(self._loaded().adding(paths))

    def forgetting(self, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        """Names that have vanished from the source for good are let go of; then `saved`."""
        return self._applied(self._loaded().forgetting(listed, now))

    def sparing(self) -> tuple[Segment, ...] | None:
        """A listing shows that no name is to be dropped; then `saved`."""
        return self._applied(self._loaded().sparing())

    def saved(self) -> None:
        """The segments are in the checkpoint: remove those it no longer names."""
        while self._replaced:
            processed_set.discard(self._storage, self._folder, self._replaced.pop())

    def _applied(self, change: SetChange | None) -> tuple[Segment, ...] | None:
        if change is None:
            return None
        self._done = processed_set.write(self._storage, self._folder, change, self._epoch)
        self._replaced.append(change)
        return self._done.segments

    def _loaded(self) -> ProcessedSet:
        if self._done is None:
            raise BlizzardError("the set of names was used before it was loaded")
        return self._done

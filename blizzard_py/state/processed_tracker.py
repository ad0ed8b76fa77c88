"""A set of processed names, in step with the checkpoint that lists its segments.

The order keeps both complete: write a segment, save the checkpoint that names it, delete the
replaced segments. A crash in between leaves a segment that no checkpoint names. `load` removes it
on a later start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blizzard_core.checkpoint.digests import Digests
from blizzard_core.errors import BlizzardError
from blizzard_core.storage.protocol import Storage
from blizzard_py.state import processed_set
from blizzard_py.state.processed_set import ProcessedSet, Segment, SetChange


class ProcessedTracker:
    """The set in one folder. Methods that change it return the segments to save, or None."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._epoch = 0
        self._done: ProcessedSet | None = None
        self._replaced: list[SetChange] = []

    def load(self, segments: Sequence[Segment], epoch: int = 0) -> None:
        """Read the set that a checkpoint lists.

        The writer of the checkpoint gives its epoch. Then segments that no checkpoint names are
        deleted. Raises `StateError`.
        """
        self._done = processed_set.load(self._storage, self._folder, segments)
        self._epoch = epoch
        self._replaced.clear()
        if epoch and segments:
            processed_set.sweep(self._storage, self._folder, segments, epoch)

    def unload(self) -> None:
        """Free the memory. Call `load` before the next question."""
        self._done = None

    def __len__(self) -> int:
        return len(self._loaded())

    def unseen(self, paths: Sequence[str]) -> list[str]:
        """Return the paths that are not in the set, in the given order."""
        return self._loaded().unseen(paths)

    def adding(self, paths: Iterable[str]) -> tuple[Segment, ...] | None:
        """Write a segment with processed ``paths``. Save the segments, then call `clean_up`."""
        return self._applied(self._loaded().adding(paths))

    def forgetting(self, listed: Digests, now: float) -> tuple[Segment, ...] | None:
        """Forget names that have left the source for good. Save the segments, call `clean_up`."""
        return self._applied(self._loaded().forgetting(listed, now))

    def sparing(self) -> tuple[Segment, ...] | None:
        """Cancel forgetting, because no name is to be dropped. Save, then call `clean_up`."""
        return self._applied(self._loaded().sparing())

    def clean_up(self) -> None:
        """Delete replaced segments, once the checkpoint lists the new ones."""
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

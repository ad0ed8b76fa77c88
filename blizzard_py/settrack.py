"""Set-based tracking of one source: the processed set in step with its checkpoint.

The order keeps both whole: a segment is written, then the checkpoint that names
it is saved, then what it replaced is removed. Death in between leaves a segment
that nothing names, and `load` on the next start sweeps it away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from blizzard_py import processed
from blizzard_py.core.errors import BlizzardError
from blizzard_py.core.model import Entry
from blizzard_py.core.storage import Storage
from blizzard_py.processed import Change, ProcessedSet
from blizzard_py.state import STATE_FOLDER, SourceState


class SetTracker:
    """The processed set of one source; ``source_id`` is ``{pipeline}_{source}``."""

    def __init__(self, storage: Storage, source_id: str) -> None:
        self._storage = storage
        self._folder = f"{STATE_FOLDER}/{source_id}_processed"
        self._done: ProcessedSet | None = None
        self._replaced: list[Change] = []

    def load(self, state: SourceState, *, sweep: bool) -> None:
        """Read the set that ``state`` names; with ``sweep`` remove segments nothing names.

        Only the writer of the checkpoint may sweep. Raises `StateError`.
        """
        segments = state.processed or ()
        self._done = processed.load(self._storage, self._folder, segments)
        self._replaced.clear()
        if sweep and segments:
            processed.sweep(self._storage, self._folder, segments)

    def unseen(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """The entries that are not done, in the order given."""
        return self._loaded().unseen(entries)

    def adding(self, state: SourceState, paths: Iterable[str]) -> SourceState:
        """The state with ``paths`` done, their segment written; save it, then call `saved`."""
        return self._applied(state, self._loaded().adding(paths))

    def forgetting(self, state: SourceState, listed: Collection[str], now: float) -> SourceState:
        """The state without names that have vanished from the source for good; then `saved`."""
        return self._applied(state, self._loaded().forgetting(listed, now))

    def saved(self) -> None:
        """The state is in storage: remove the segments it no longer names."""
        while self._replaced:
            processed.discard(self._storage, self._folder, self._replaced.pop())

    def _applied(self, state: SourceState, change: Change | None) -> SourceState:
        if change is None:
            return state
        self._done = processed.write(self._storage, self._folder, change)
        self._replaced.append(change)
        return replace(state, processed=self._done.segments)

    def _loaded(self) -> ProcessedSet:
        if self._done is None:
            raise BlizzardError("the processed set was used before it was loaded")
        return self._done

"""The tasks of a window, in the order in which batches take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry
from blizzard_py.planning.batches import BatchLimits, next_count


@dataclass
class TaskWork:
    """A `Work`: ``files`` are all tasks that are to be read now."""

    files: Sequence[Entry]
    _taken: int = 0

    def __len__(self) -> int:
        return len(self.files) - self._taken

    @property
    def size(self) -> int:
        """What is left, in bytes as they were estimated."""
        return sum(entry.size for entry in self.files[self._taken :])

    def take(self, limits: BatchLimits, bytes_per_sec: float | None) -> tuple[Entry, ...]:
        """The next batch's: all of them, as a source's limits are (`Parts.limits`)."""
        count = next_count(self.files, self._taken, limits, bytes_per_sec)
        self._taken += count
        return tuple(self.files[self._taken - count : self._taken])

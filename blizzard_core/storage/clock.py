"""The one clock by which files wait: the store's, read at the start, and time that passed since.

Clocks of machines differ and jump; a grace period that goes by them ends early or
never. The modification time of an object that was just written (Blizzard's checkpoint,
Penguin's probe) is the store's own time, the same for every process that ever works here;
from there on a monotonic clock counts, which no correction of the machine's clock moves.
Penguin's sweeps, which compare it with times of files, ask the store again (`put_right`).
On a local disk the store's clock is the machine's: for Blizzard as of the start, for
Penguin, which compares it with times of files, at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def elapsed() -> float:
    """Return seconds since an arbitrary moment, including sleep where the machine counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux has the former
    return time.clock_gettime(clock)


class StoreClock:
    """A clock in epoch seconds: the store's once `set`, ``wall`` before that."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset: float | None = None

    def set(self, store_now: float) -> None:
        """Set the clock to the store's time; later calls change nothing."""
        if self._offset is None:
            self._offset = store_now - self._monotonic()

    def correct(self, store_now: float, slack: float) -> None:
        """Correct the clock if it is more than ``slack`` seconds off the store's time."""
        if self._offset is None or abs(store_now - self()) > slack:
            self._offset = store_now - self._monotonic()

    def __call__(self) -> float:
        """Return the current time in epoch seconds."""
        return self._wall() if self._offset is None else self._monotonic() + self._offset

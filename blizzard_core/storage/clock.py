"""The clock for grace periods: the store's time at the start plus elapsed time.

Clocks of machines differ and jump, so a grace period based on them may end early or never. The
modification time of a fresh object (Blizzard's checkpoint, Penguin's probe) is the store's own
time, the same for every process. From then on a monotonic clock counts, which no correction of
the machine's clock moves.

Penguin's sweeps compare the clock with times of files, so they ask the store again (`correct`). On
a local disk the store's clock is the machine's: Blizzard reads it at the start, Penguin at any
moment.
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

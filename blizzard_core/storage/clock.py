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
    """Seconds that passed since some moment, those asleep included where the machine can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux has the former
    return time.clock_gettime(clock)


class StoreClock:
    """Epoch seconds by the store's clock, once `set`; before that by ``wall``."""

    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset: float | None = None

    def set(self, store_now: float) -> None:
        """It is ``store_now`` at the store. Counts once: later readings move nothing."""
        if self._offset is None:
            self._offset = store_now - self._monotonic()

    def put_right(self, store_now: float, slack: float) -> None:
        """It is ``store_now`` at the store; counts if it was more than ``slack`` seconds off."""
        if self._offset is None or abs(store_now - self()) > slack:
            self._offset = store_now - self._monotonic()

    def __call__(self) -> float:
        """Now, in epoch seconds."""
        return self._wall() if self._offset is None else self._monotonic() + self._offset

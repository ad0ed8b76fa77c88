"""Small limited histories: amounts per minute, and the files that still wait.

Plain data without a clock, and not thread-safe: `Activity` holds the lock.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping

MINUTE_SECS = 60.0


class Minutes:
    """Amounts per minute over the last ``span`` minutes, the current one included."""

    def __init__(self, span: int = 60) -> None:
        self._span = span
        self._minutes: dict[int, dict[str, float]] = {}

    def add(self, now: float, amounts: Mapping[str, float]) -> None:
        """Count ``amounts`` in the minute of ``now``."""
        current = int(now // MINUTE_SECS)
        bucket = self._minutes.get(current)
        if bucket is None:
            bucket = self._minutes[current] = defaultdict(float)
            for old in [m for m in self._minutes if m <= current - self._span]:
                del self._minutes[old]
        for name, amount in amounts.items():
            bucket[name] += amount

    def add_interval(self, name: str, start: float, end: float) -> None:
        """Count the seconds from ``start`` to ``end`` in the minutes they lie in."""
        start = max(start, end - self._span * MINUTE_SECS)
        while start < end:
            edge = min(end, (start // MINUTE_SECS + 1) * MINUTE_SECS)
            self.add(start, {name: edge - start})
            start = edge

    def series(self, now: float, name: str) -> list[float]:
        """One amount per minute, oldest first, the last one being the minute of ``now``."""
        current = int(now // MINUTE_SECS)
        return [
            self._minutes.get(minute, {}).get(name, 0.0)
            for minute in range(current - self._span + 1, current + 1)
        ]


class WaitingFiles:
    """The number of waiting files and the time of the oldest one, in any order of completion.

    It keeps modification times only: a heap of all waiting files and a heap of the finished ones.
    Equal tops cancel out.
    """

    def __init__(self, modified: Iterable[float] = ()) -> None:
        self._waiting = list(modified)
        heapq.heapify(self._waiting)
        self._done: list[float] = []

    def __len__(self) -> int:
        return len(self._waiting) - len(self._done)

    def remove(self, modified: Iterable[float]) -> None:
        """Remove finished files; times older than all waiting ones are ignored."""
        for moment in modified:
            heapq.heappush(self._done, moment)
        while self._done and (not self._waiting or self._done[0] <= self._waiting[0]):
            if self._waiting and self._done[0] == self._waiting[0]:
                heapq.heappop(self._waiting)
            heapq.heappop(self._done)

    @property
    def oldest(self) -> float | None:
        """The modification time of the oldest file that waits, None if none does."""
        return self._waiting[0] if len(self) > 0 else None

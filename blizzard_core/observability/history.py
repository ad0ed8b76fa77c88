"""Small limited histories: amounts over time, and the files that still wait.

Plain data without a clock, and not thread-safe: `Activity` holds the lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

MINUTE_SECS = 60.0
HOUR_SECS = 3600.0
# Folders in which files wait, as far as they are counted.
FOLDERS = 240
# A week by hours.
HOURS = 168
# What a restored bucket may have; anybody who writes to the table may have written it.
_DIGITS, _NAMES, _LARGEST = 12, 8, 2**53


class TimeBuckets:
    """Amounts per bucket of ``secs`` over the last ``span`` buckets, the current one included."""

    def __init__(self, secs: float = MINUTE_SECS, span: int = 60) -> None:
        self._secs = secs
        self._span = span
        self._buckets: dict[int, dict[str, float]] = {}

    def add(self, now: float, amounts: Mapping[str, float]) -> None:
        """Count ``amounts`` in the bucket of ``now``."""
        self._add(int(now // self._secs), amounts)

    def _add(self, current: int, amounts: Mapping[str, float]) -> None:
        bucket = self._buckets.get(current)
        if bucket is None:
            bucket = self._buckets[current] = defaultdict(float)
            for old in [m for m in self._buckets if m <= current - self._span]:
                del self._buckets[old]
        for name, amount in amounts.items():
            bucket[name] += amount

    def add_interval(self, name: str, start: float, end: float) -> None:
        """Count the seconds from ``start`` to ``end`` in the buckets they lie in."""
        start = max(start, end - self._span * self._secs)
        while start < end:
            edge = min(end, (start // self._secs + 1) * self._secs)
            self.add(start, {name: edge - start})
            start = edge

    def series(self, now: float, name: str) -> list[float]:
        """One amount per bucket, oldest first, the last one being the bucket of ``now``."""
        current = int(now // self._secs)
        return [
            self._buckets.get(bucket, {}).get(name, 0.0)
            for bucket in range(current - self._span + 1, current + 1)
        ]

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the buckets that hold anything, by their number."""
        return {str(number): dict(amounts) for number, amounts in self._buckets.items()}

    def restore(self, document: Mapping[str, Mapping[str, float]], now: float) -> None:
        """Add the buckets of `to_json` that lie in the span; others, and odd ones, are left out."""
        current = int(now // self._secs)
        for text, amounts in document.items():
            number = int(text) if text.isdecimal() and len(text) < _DIGITS else 0
            sound = all(0 <= amount < _LARGEST for amount in amounts.values())
            if current - self._span < number <= current and sound:
                names = dict(list(amounts.items())[:_NAMES])
                self._add(number, names)


class WaitingFiles:
    """The number of waiting files and the time of the oldest one, in any order of completion.

    It keeps modification times only.
    """

    def __init__(self, modified: Iterable[float] = ()) -> None:
        self._waiting = Counter(modified)

    def __len__(self) -> int:
        return self._waiting.total()

    def remove(self, modified: Iterable[float]) -> None:
        """Remove finished files; unknown times are ignored."""
        for moment in modified:
            if self._waiting[moment] > 1:
                self._waiting[moment] -= 1
            else:
                del self._waiting[moment]

    @property
    def oldest(self) -> float | None:
        """The modification time of the oldest file that waits, None if none does."""
        return min(self._waiting, default=None)


class WaitingFolders:
    """The number of waiting files of each folder, and one of them; of a bounded number."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._folders: dict[str, tuple[int, str]] = {}
        for path in paths:
            folder = path.rpartition("/")[0]
            count, first = self._folders.get(folder, (0, path))
            if count or len(self._folders) < FOLDERS:
                self._folders[folder] = (count + 1, first)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove finished files; unknown ones are ignored."""
        for path in paths:
            folder = path.rpartition("/")[0]
            count, first = self._folders.get(folder, (0, ""))
            if count > 1:
                self._folders[folder] = (count - 1, first)
            elif count:
                del self._folders[folder]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the folders by name."""
        return [
            {"name": name, "files": count, "first": first}
            for name, (count, first) in sorted(self._folders.items())
        ]

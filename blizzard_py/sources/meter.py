"""Progress of a source's work, and the size of its next batch that follows from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from blizzard_core.storage.protocol import Entry

Progress = Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Counts since the source was last idle; ``secs`` since then, or until it was idle again.

    ``files`` and ``rows`` are published; ``bytes`` are stored bytes, which are known before a
    file is read, and count as soon as they are read.
    """

    found_files: int = 0
    found_bytes: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    secs: float = 0.0

    @property
    def working(self) -> bool:
        """Return whether something was found that is not done."""
        return self.files < self.found_files

    @property
    def bytes_per_sec(self) -> float:
        """0 until the first of it is read."""
        return self.bytes / self.secs if self.secs > 0 else 0.0

    @property
    def remaining_secs(self) -> float | None:
        """Return how long the rest takes at the speed so far; None until there is one."""
        if not self.working:
            return 0.0
        remaining = self.found_bytes - self.bytes
        return remaining / self.bytes_per_sec if self.bytes_per_sec else None


class Meter:
    """Counts of one source. Written by its pipeline's thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._reading = MeterReading()
        self._running: tuple[int, Progress] | None = None
        self._unpublished = 0  # bytes that were read by jobs that have ended

    def start_poll(self, files: int, size: int) -> None:
        """Start counting from zero, as a poll found work."""
        with self._lock:
            self._started = self._clock()
            self._reading = MeterReading(files, size)
            self._running, self._unpublished = None, 0

    def start_job(self, size: int, progress: Progress) -> None:
        """Record a job that reads ``size`` bytes; ``progress`` returns the share that is done.

        One job at a time: it takes the place of one that has failed.
        """
        with self._lock:
            self._running = size, progress

    def end_job(self) -> None:
        """Record that the job has read its batch, which is not published yet."""
        with self._lock:
            if self._running is not None:
                self._unpublished += self._running[0]
            self._running = None

    def add_published(self, files: int, size: int, rows: int) -> None:
        """Count a published batch, with the files that wait for another attempt."""
        with self._lock:
            was = self._reading
            self._unpublished = max(0, self._unpublished - size)
            self._reading = replace(
                was,
                files=was.files + files,
                bytes=was.bytes + size,
                rows=was.rows + rows,
                secs=self._clock() - self._started,
            )

    def read(self) -> MeterReading:
        """Return the counts as they are now."""
        with self._lock:
            reading, running, ahead = self._reading, self._running, self._unpublished
            if not reading.working:
                return reading
            secs = self._clock() - self._started
        if running is not None:
            size, progress = running
            ahead += round(size * (progress() or 0))
        return replace(reading, bytes=reading.bytes + ahead, secs=secs)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """No batch exceeds any of these, except that it always holds one file."""

    files: int
    bytes: int
    secs: float


def next_count(
    files: Sequence[Entry], start: int, limits: BatchLimits, bytes_per_sec: float | None
) -> int:
    """Return how many of the files from ``start`` on, the oldest first, the limits allow.

    ``bytes_per_sec`` is what the batch before achieved (stored bytes); it turns
    the limit in seconds into one in bytes. None: not known yet.
    """
    budget = float(limits.bytes)
    if bytes_per_sec is not None:
        budget = min(budget, bytes_per_sec * limits.secs)
    count = 0
    for place in range(start, min(start + limits.files, len(files))):
        budget -= files[place].size
        if count and budget < 0:
            break
        count += 1
    return count

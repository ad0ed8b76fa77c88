"""Which files of a scan make the next batch, and what waits beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_core.storage.protocol import Entry


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """No batch exceeds any of these, except that it always holds one file."""

    files: int
    bytes: int
    secs: float


def next_count(
    files: Sequence[Entry], start: int, limits: BatchLimits, bytes_per_sec: float | None
) -> int:
    """How many of the files from ``start`` on, the oldest first, the limits allow.

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

"""Statistics of the event times of a batch's rows, late ones among them. Pure.

Rows ahead of time are not counted: they do not move the watermark. ``behind`` counts rows by their
distance behind the newest time of earlier batches, which a delay has to cover. It has one count
for each bucket of `BEHIND_SECS`, and a last one for rows beyond.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Upper ends in seconds. Newer rows, and all rows of the first batch, count as 0 seconds behind.
BEHIND_SECS = (0, 1, 5, 15, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 604_800)


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Count, minimum, maximum and average, in milliseconds since 1970, and the buckets."""

    count: int
    min_ms: int
    max_ms: int
    avg_ms: float
    behind: tuple[int, ...]


def merge_times(found: Iterable[EventTimes | None]) -> EventTimes | None:
    """Return the statistics of all rows together, None if there are none."""
    some = [each for each in found if each is not None]
    if not some:
        return None
    count = sum(each.count for each in some)
    return EventTimes(
        count,
        min(each.min_ms for each in some),
        max(each.max_ms for each in some),
        round(sum(each.avg_ms * each.count for each in some) / count, 3),
        merge_buckets(some),
    )


def merge_buckets(found: Iterable[EventTimes]) -> tuple[int, ...]:
    """Return the sum of each bucket."""
    rows = [each.behind for each in found]
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * (len(BEHIND_SECS) + 1)

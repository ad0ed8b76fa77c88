"""Statistics of the event times of a batch's rows, late ones among them. Pure.

Rows ahead of time are not counted: they move nothing. ``behind`` says how far rows lie behind the
newest time of the batches before, which is what a delay has to cover: so many rows in each bucket
of `BEHIND_SECS`, and in the last one those beyond.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Up to how many seconds behind; of the first batch, and of rows that are newer, up to none.
BEHIND_SECS = (0, 1, 5, 15, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 604_800)


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Count, minimum, maximum and average, in milliseconds since 1970, and the buckets."""

    count: int
    min_ms: int
    max_ms: int
    avg_ms: float
    behind: tuple[int, ...]


def merged_times(found: Iterable[EventTimes | None]) -> EventTimes | None:
    """Give the statistics of all rows together, None if there are none."""
    some = [each for each in found if each is not None]
    if not some:
        return None
    count = sum(each.count for each in some)
    return EventTimes(
        count,
        min(each.min_ms for each in some),
        max(each.max_ms for each in some),
        round(sum(each.avg_ms * each.count for each in some) / count, 3),
        merged_behind(some),
    )


def merged_behind(found: Iterable[EventTimes]) -> tuple[int, ...]:
    """Give the sum of each bucket."""
    rows = [each.behind for each in found]
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * (len(BEHIND_SECS) + 1)

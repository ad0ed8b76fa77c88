"""The cover of a scan: the part of a source that it lists. Pure.

A scan is complete if it has no cover. With a cover it lists these ranges only, and is judged for
them alone. A partition is covered if everything above its scan start lies in one range. What a scan
found in other partitions proves nothing about them, so it is left to a complete scan.
"""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.storage.protocol import Range
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.paths import joined


def range_of(ranges: Ranges, partition: str, before: str | None) -> Range | None:
    """Return the range that holds all of a partition above its scan start, if one does."""
    # "0" follows "/".
    return ranges.range_over(
        joined(partition, before or ""), f"{partition}0" if partition else None
    )


def covers(cover: Ranges | None, partition: str, before: str | None) -> bool:
    """Return whether a scan lists all of a partition above its scan start."""
    return cover is None or range_of(cover, partition, before) is not None


def choose_ranges(gaps: Iterable[Range], partitions: Iterable[tuple[str, str | None]]) -> Ranges:
    """Return the gaps that hold these partitions, each given with its scan start."""
    every = Ranges(gaps)
    found = {range_of(every, partition, before) for partition, before in partitions}
    return Ranges(gap for gap in every.ranges if gap in found)

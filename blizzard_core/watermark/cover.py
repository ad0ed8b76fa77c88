"""The cover of a scan: the part of a source that it lists. Pure.

A scan is complete if it has no cover. With a cover it lists these ranges only, and is judged for
them alone. A partition is covered if everything above its scan start lies in one range. What a scan
found in other partitions proves nothing about them, so it is left to a complete scan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.paths import joined


@dataclass(frozen=True, slots=True)
class Gap:
    """One ordered listing: ``after < path < until``, both exclusive."""

    after: str
    until: str | None


@dataclass(frozen=True, slots=True)
class Cover:
    """Ascending ranges that do not overlap."""

    ranges: tuple[Gap, ...]
    _begins: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        begins = tuple(order_key(each.after) for each in self.ranges)
        object.__setattr__(self, "_begins", begins)

    def range_over(self, low: str, high: str | None) -> Gap | None:
        """Return the range that holds all paths above ``low`` and below ``high``, if one does."""
        at = bisect_right(self._begins, order_key(low)) - 1
        if at < 0:
            return None
        found = self.ranges[at]
        if found.until is None:
            return found
        holds = high is not None and order_key(high) <= order_key(found.until)
        return found if holds else None

    def holds(self, path: str) -> bool:
        """Return whether a path lies in one of the ranges."""
        key = order_key(path)
        at = bisect_left(self._begins, key) - 1
        until = None if at < 0 else self.ranges[at].until
        return at >= 0 and (until is None or key < order_key(until))

    def range_of(self, partition: str, before: str | None) -> Gap | None:
        """Return the range that holds all of a partition above its scan start, if one does."""
        # "0" follows "/".
        return self.range_over(
            joined(partition, before or ""), f"{partition}0" if partition else None
        )

    def within(self, gaps: Iterable[Gap]) -> tuple[Gap, ...]:
        """Return the parts of ascending gaps that lie in the cover."""
        return tuple(part for gap in gaps for part in self._parts(gap))

    def _parts(self, gap: Gap) -> Iterable[Gap]:
        first = max(0, bisect_right(self._begins, order_key(gap.after)) - 1)
        for each in self.ranges[first:]:
            if gap.until is not None and order_key(gap.until) <= order_key(each.after):
                return
            after = max(gap.after, each.after, key=order_key)
            until = _lower(gap.until, each.until)
            if until is None or order_key(after) < order_key(until):
                yield Gap(after, until)


def _lower(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other, key=order_key)


def covers(cover: Cover | None, partition: str, before: str | None) -> bool:
    """Return whether a scan lists all of a partition above its scan start."""
    return cover is None or cover.range_of(partition, before) is not None


def choose_ranges(gaps: Sequence[Gap], partitions: Iterable[tuple[str, str | None]]) -> Cover:
    """Return the gaps that hold these partitions, each given with its scan start."""
    every = Cover(tuple(gaps))
    found = {every.range_of(partition, before) for partition, before in partitions}
    return Cover(tuple(gap for gap in gaps if gap in found))

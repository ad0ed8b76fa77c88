"""The schedule of scans of a source with notifications. Pure.

A scan of a part lists the partitions that hints named, and those in which earlier scans found a
file that is still to be done: no further hint will come for it. A complete scan is due

* at each start, take-over and error, because nothing of a hint is in the checkpoint;
* every ``full_scan_interval``, because notifications may be lost;
* once when no hint has come for much longer than usual (silence);
* with each poll while the queue fails, and while hints do not come though files do;
* for a hint above the partitions, or for very many, at most one each ``poll_interval``;
* if twice as many partitions are tracked as before, because only it raises floors.

Two scans begin at least the pause apart. Times are of a clock that never jumps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from blizzard_core.limits import HINTED_PARTITIONS
from blizzard_core.storage.protocol import Range
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.paths import joined
from blizzard_core.watermark.progress import Progress

# No hint for so many mean gaps between two is silence, but never a shorter time than this.
_SILENT_GAPS = 8.0
_SILENT_SECS = 300.0
# The share of the newest gap in their mean.
_GAP_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class HintLimits:
    """The settings: least time between scans, time between complete ones and between polls.

    A source tracks ``tracked`` partitions.
    """

    pause: float
    complete: float
    poll: float
    tracked: int


@dataclass(frozen=True, slots=True)
class HintSchedule:
    """The scans and hints of this process.

    ``complete`` and ``latest`` are the beginnings of the last complete scan (None: it is due) and
    of the last one. ``is_cut``: it stopped at a limit. ``tracked`` partitions were tracked after
    the last complete one. ``hinted`` is when the last hint came, at first the start; ``gap`` is the
    mean time between two, None until there were two. ``is_asleep``: hints do not come though files
    do.
    """

    hinted: float
    complete: float | None = None
    latest: float = -math.inf
    is_cut: bool = False
    tracked: int = 0
    gap: float | None = None
    hints: int = 0
    is_asleep: bool = False

    def started_over(self) -> HintSchedule:
        """Return the schedule after a start, a take-over or an error: a complete scan is due."""
        return replace(self, complete=None, is_cut=False)

    def with_hint(self, at: float) -> HintSchedule:
        """Return the schedule after a hint of a new file."""
        gap = self.gap
        if self.hints:
            new = max(0.0, at - self.hinted)
            gap = new if gap is None else gap + _GAP_SHARE * (new - gap)
        return replace(self, hinted=at, gap=gap, hints=self.hints + 1, is_asleep=False)

    @property
    def silent_at(self) -> float:
        """The time at which there is silence, unless a hint comes before."""
        return self.hinted + max(_SILENT_SECS, _SILENT_GAPS * (self.gap or 0.0))


@dataclass(frozen=True, slots=True)
class Wishes:
    """The parts to scan, by hints and by files that scans have found.

    ``hinted`` parts may be scanned at once; the ``untracked`` of them are limited. ``open`` parts
    have the time at which a file of theirs can be done, and from ``odd_at`` on only a complete scan
    finds one. With ``everything`` a hint needs that. Without ``is_up`` the queue fails.
    """

    hinted: frozenset[str] = frozenset()
    untracked: frozenset[str] = frozenset()
    open: Mapping[str, float] = field(default_factory=dict)
    odd_at: float = math.inf
    everything: bool = False
    is_up: bool = True


def cover_of(progress: Progress, partitions: Iterable[str]) -> Ranges:
    """Return the ranges of these partitions, each from its scan start to its end."""
    found = []
    for partition in partitions:
        known = progress.partitions.get(partition)
        before = "" if known is None or known.before is None else known.before
        # "0" follows "/".
        found.append(Range(joined(partition, before), f"{partition}0"))
    return Ranges(found)


@dataclass(frozen=True, slots=True)
class HintedScan:
    """The next scan: its time, and the parts that it lists (None: everything).

    A part is a partition; without a watermark it is a file.
    """

    at: float
    parts: frozenset[str] | None = None

    def cover_in(self, progress: Progress) -> Ranges | None:
        """Return the ranges of its partitions, each from its scan start to its end."""
        return None if self.parts is None else cover_of(progress, self.parts)


def complete_interval(schedule: HintSchedule, limits: HintLimits, *, is_up: bool) -> float:
    """Return the time between complete scans: as without notifications while none come."""
    return limits.complete if is_up and not schedule.is_asleep else limits.poll


def next_scan(
    schedule: HintSchedule, limits: HintLimits, progress: Progress, wishes: Wishes, now: float
) -> HintedScan:
    """Return the next scan, and when it may begin."""
    has_grown = len(progress.partitions) > 2 * max(limits.tracked, schedule.tracked)
    if schedule.complete is None or has_grown:
        return HintedScan(now)
    earliest = now if schedule.is_cut else schedule.latest + limits.pause
    is_flood = len(wishes.untracked) > HINTED_PARTITIONS
    parts = wishes.hinted - wishes.untracked if is_flood else wishes.hinted
    complete_at = schedule.complete + complete_interval(schedule, limits, is_up=wishes.is_up)
    if schedule.complete < schedule.silent_at:
        complete_at = min(complete_at, schedule.silent_at)
    if wishes.everything or is_flood:
        # Without partitions a complete scan is one range.
        is_cheap = not is_flood and not progress.depth
        complete_at = min(complete_at, now if is_cheap else schedule.complete + limits.poll)
    complete_at = max(earliest, min(complete_at, wishes.odd_at))
    part_at = max(earliest, min([now if parts else math.inf, *wishes.open.values()]))
    if complete_at <= max(part_at, now):
        return HintedScan(complete_at)
    ripe = {part for part, at in wishes.open.items() if at <= max(part_at, now)}
    return HintedScan(part_at, parts | ripe)

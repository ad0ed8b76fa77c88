"""The schedule of scans: which part of a source is scanned next, and when. Pure.

A scan costs at least one LIST for each range (`blizzard_core.watermark.progress.gaps`). Most files
come to few ranges, so these *hot* ranges are scanned often, and everything seldom:

* the newest partition of each line of partitions, with the open end behind it;
* each range in which a scan of the last hour, or the last scan of the range, found something: what
  is too young or waits for another try is looked for again.

**Budget.** With B requests an hour, K ranges and H hot ones, hot ranges are scanned every
``3600 H / 0.7 B`` seconds and everything every ``3600 K / 0.3 B`` seconds. A scan that costs more
or less than a request a range delays or hastens the next of its kind as much. K + H requests an
hour are left over, because one scan of each kind may begin at the end of any hour. So no hour
exceeds the budget.

**Debt.** Scans at a start, after an error and behind a limit are due at once. They go into debt.
While it is more than scans make, and while a sweep for late files runs, scans get half of the
budget. No scan begins while the debt is more than the budget of an hour.

**Above the depth.** Only complete scans list partitions above the tracked depth, such as the root.
While the last one found something there, the configured time between complete scans does not count.

**Complete scans** are due at each start, take-over and error, because the checkpoint does not say
which part was scanned; while no partition is tracked; and if twice as many are tracked as
after the last one, because only a complete scan raises floors.

Times are of a clock that never jumps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from blizzard_core.settings.store_use import HOT_SHARE
from blizzard_core.storage.protocol import Range
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.partition_time import family_of, head_of, is_timed
from blizzard_core.watermark.paths import choose_ranges, covers, partition_key
from blizzard_core.watermark.progress import Progress, gaps

HOUR_SECS = 3600.0
# How long a range is hot after a scan found something in it.
HOT_SECS = 3600.0
# The share of scans while a sweep runs or a debt is paid back; the other one gets as much.
BESIDE_SHARE = 0.5
# A slice of a sweep lists so many pages at most, as a part of an hour's budget.
_SLICES_PER_HOUR = 20


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The settings of a schedule.

    ``budget`` is the LIST requests of an hour, None if they are not limited. ``pause`` is the least
    time between the beginnings of two scans, ``complete`` the configured time between complete
    ones. A source tracks ``tracked`` partitions. Only what lies in ``selected`` is listed, None if
    that is everything.
    """

    budget: float | None
    pause: float
    complete: float | None
    tracked: int
    selected: Ranges | None = None

    def lists(self, ranges: Sequence[Range]) -> int:
        """Return the requests that a listing of ascending ranges takes at least."""
        return len(ranges if self.selected is None else self.selected.within(ranges))

    def may_select(self, partition: str) -> bool:
        """Return whether names of a partition may be selected."""
        return not partition or self.lists([Range(f"{partition}/", f"{partition}0")]) > 0

    @property
    def pages(self) -> int | None:
        """The most pages of a slice of a sweep; None: not limited."""
        return None if self.budget is None else max(1, int(self.budget / _SLICES_PER_HOUR))


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds between scans of hot ranges, and of everything.

    Without ``hot`` all scans are complete.
    """

    hot: float | None
    complete: float


def intervals(limits: ScanLimits, ranges: int, hot: int, share: float = 1.0) -> Intervals:
    """Return the intervals for so many ranges, with a ``share`` of the budget."""
    is_split = 0 < hot < ranges
    if limits.budget is None:
        complete = limits.pause if hot == ranges or limits.complete is None else limits.complete
        return Intervals(limits.pause if is_split else None, complete)
    spent = max(limits.budget - ranges - hot, limits.budget / 2) * share
    if not is_split:
        return Intervals(None, max(limits.pause, HOUR_SECS * ranges / spent))
    complete = HOUR_SECS * ranges / (spent * (1 - HOT_SHARE))
    left = spent * HOT_SHARE
    if limits.complete is not None:
        complete = max(limits.complete, HOUR_SECS * ranges / (spent * HOT_SHARE))
        left = spent - HOUR_SECS * ranges / complete
    return Intervals(max(limits.pause, HOUR_SECS * hot / left), max(limits.pause, complete))


@dataclass(frozen=True, slots=True)
class PastScan:
    """The beginning of a scan, and its requests; None: one for each range."""

    began: float
    requests: int | None = None

    def times(self, ranges: int) -> float:
        """Return its cost as a multiple of a request for each of so many ranges.

        Neighbours may share one. Many new names cost more once, however few ranges there were.
        """
        return 1.0 if self.requests is None else max(1, self.requests) / max(1, ranges)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The scans of this process: ``complete`` and ``hot`` are the last ones.

    A complete scan counts as one of the hot ranges, too. Without a ``complete`` one it is due.
    ``is_cut``: the last scan stopped at a limit. ``debt`` is as of ``at``. ``found`` has the time
    at which something was last found in a partition; ``waiting`` are those in which the last scan
    of them found something. ``tracked`` partitions were tracked after the last complete scan.
    """

    complete: PastScan | None = None
    hot: PastScan = PastScan(-math.inf)
    is_cut: bool = False
    debt: float = 0.0
    at: float = 0.0
    found: Mapping[str, float] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    tracked: int = 0

    def hot_at(self, now: float) -> dict[str, float]:
        """Return the partitions that are hot because of what was found, with the time of that."""
        return {
            partition: at
            for partition, at in self.found.items()
            if now - at < HOT_SECS or partition in self.waiting
        }

    def debt_at(self, limits: ScanLimits, now: float) -> float:
        """Return the requests made beyond what the budget allowed until now."""
        paid = 0.0 if limits.budget is None else (now - self.at) * limits.budget / HOUR_SECS
        return max(0.0, self.debt - paid)

    def charged(self, limits: ScanLimits, requests: int, now: float) -> Schedule:
        """Return the schedule after requests. The debt is at most two hours' worth."""
        debt = self.debt_at(limits, now) + requests
        return replace(self, debt=min(debt, 2 * (limits.budget or 0.0)), at=now)

    def started_over(self) -> Schedule:
        """Return the schedule after a start, a take-over or an error: a complete scan is due."""
        return replace(self, complete=None, is_cut=False)


@dataclass(frozen=True, slots=True)
class NextScan:
    """The next scan: its time, and its part (None: everything).

    ``is_late``: it is due, and waits until the debt is paid. ``intervals`` are those that hold now.
    """

    at: float
    cover: Ranges | None
    intervals: Intervals
    is_late: bool = False

    def cover_in(self, _progress: Progress) -> Ranges | None:
        """Return its part, whatever partitions are tracked by now."""
        return self.cover


def hot_partitions(
    limits: ScanLimits, progress: Progress, found: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the partitions whose ranges are hot: ``found`` ones with the time of the last find.

    None: it is the newest one of its line. A partition above the tracked depth has no range of its
    own, so only complete scans cover it. Those of an earlier selection are tracked for some time,
    and are never hot.
    """
    newest: dict[tuple[str, str], str] = {}
    for partition in progress.partitions:
        line = _line_of(partition, progress.depth)
        if line is not None:
            known = newest.setdefault(line, partition)
            newest[line] = max(known, partition, key=partition_key)
    hot = {**found, **dict.fromkeys(newest.values())}
    return {partition: at for partition, at in hot.items() if limits.may_select(partition)}


@lru_cache(maxsize=10_000)
def _line_of(partition: str, depth: int | None) -> tuple[str, str] | None:
    """Return the line of a partition: those follow one another in time. None without a time."""
    if not _has_depth(partition, depth) or not is_timed(partition):
        return None
    return head_of(partition), family_of(partition)


def _has_depth(partition: str, depth: int | None) -> bool:
    return bool(partition) and partition.count("/") + 1 == depth


def hot_cover(limits: ScanLimits, progress: Progress, found: Mapping[str, float]) -> Ranges:
    """Return the hot ranges: all while no partition of the full depth is tracked."""
    known, depth = progress.partitions, progress.depth
    if not depth or not any(_has_depth(partition, depth) for partition in known):
        return Ranges(gaps(progress))
    starts = (
        (partition, known[partition].before if partition in known else None)
        for partition in hot_partitions(limits, progress, found)
    )
    return choose_ranges(gaps(progress), starts)


def next_scan(
    schedule: Schedule, limits: ScanLimits, progress: Progress, now: float, *, is_sweeping: bool
) -> NextScan:
    """Return the next scan, and when it may begin."""
    ranges = limits.lists(gaps(progress))
    hot = hot_cover(limits, progress, schedule.hot_at(now))
    hot_ranges = limits.lists(hot.ranges)
    debt = schedule.debt_at(limits, now)
    usual = ranges + hot_ranges + (limits.pages or 0)
    share = BESIDE_SHARE if is_sweeping or debt > usual else 1.0
    if any(not _has_depth(partition, progress.depth) for partition in schedule.waiting):
        limits = replace(limits, complete=None)
    every = intervals(limits, ranges, hot_ranges, share)
    complete_at, hot_at = _due(schedule, limits, progress, every, ranges, hot_ranges, now)
    cover, at = (None, complete_at) if complete_at <= max(hot_at, now) else (hot, hot_at)
    count = ranges if cover is None else hot_ranges
    wait = 0.0
    if limits.budget is not None:
        wait = (debt - max(0.0, limits.budget - count)) * HOUR_SECS / limits.budget
    is_late = wait > 0 and now + wait > at
    return NextScan(max(at, now + wait) if is_late else at, cover, every, is_late)


def _due(
    schedule: Schedule,
    limits: ScanLimits,
    progress: Progress,
    every: Intervals,
    ranges: int,
    hot_ranges: int,
    now: float,
) -> tuple[float, float]:
    """Return when a complete scan and one of hot ranges are due, whatever the debt."""
    complete, hot = schedule.complete, schedule.hot
    has_grown = len(progress.partitions) > 2 * max(limits.tracked, schedule.tracked)
    if complete is None or has_grown:
        return now, math.inf
    earliest = max(complete.began, hot.began) + limits.pause
    complete_at = max(earliest, complete.began + every.complete * complete.times(ranges))
    if every.hot is None:
        return complete_at, math.inf
    if schedule.is_cut:
        return complete_at, now
    return complete_at, max(earliest, hot.began + every.hot * hot.times(hot_ranges))


@dataclass(frozen=True, slots=True)
class ScanFindings:
    """The requests of a scan, the partitions in which it found anything, and its progress.

    ``is_cut``: it stopped at a limit.
    """

    requests: int
    is_cut: bool
    partitions: Iterable[str]
    progress: Progress


def after_scan(schedule: Schedule, scan: NextScan, result: ScanFindings, now: float) -> Schedule:
    """Return the schedule after a scan that began at its time; its requests are charged."""
    fresh = frozenset(result.partitions)
    found = {**schedule.hot_at(now), **dict.fromkeys(fresh, now)}
    waiting = fresh | {p for p in schedule.waiting if not _lists(scan.cover, p, result.progress)}
    past = PastScan(scan.at, result.requests)
    after = replace(schedule, is_cut=result.is_cut, found=found, waiting=waiting)
    if scan.cover is not None:
        return replace(after, hot=past)
    complete = None if result.is_cut else past
    hot, tracked = PastScan(scan.at), len(result.progress.partitions)
    return replace(after, complete=complete, hot=hot, tracked=tracked)


def _lists(cover: Ranges | None, partition: str, progress: Progress) -> bool:
    known = progress.partitions.get(partition)
    return covers(cover, partition, None if known is None else known.before)

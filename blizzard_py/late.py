"""Files that appear too late: below the scan start, where no poll looks any more. Pure.

A late file must be told from one that was ingested long ago, without a list of
everything ingested. So the checkpoint keeps, per partition, a short timeline of
when scans passed which names: an entry ``(name, at)`` says that names up to
``name`` were listed for the last time by the scan that ended at ``at``. A file
modified after the scan that passed its name was not there to be found: it is
late, for certain. (Modified before it and not found is impossible for stores
that list what they have acknowledged.) A file that is rewritten after it was ingested
looks the same; files must not be.

Two things keep the verdict certain, since `ingest` would double rows if it were
not: timelines are thinned only towards later times, and the store's clock is
allowed to run ahead of ours by as much as it was ever seen to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from blizzard_py.core.model import Entry, FinishedFile
from blizzard_py.core.storage import order_key
from blizzard_py.core.watermark import Progress, is_new, partition_key, split

# A partition's timeline is thinned to half when it grows past this.
TIMELINE_ENTRIES = 16
# What is allowed for clocks even if the store's was never seen ahead of ours.
CLOCK_SLACK_SECS = 5.0
# Lateness is remembered for this many days to size `grace_period_secs: auto` …
LATENESS_DAYS = 7
# … as twice the worst of them, between these bounds; the first is the default.
AUTO_GRACE_SECS = (60.0, 300.0, 3600.0)

Timeline = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class LateFile:
    """A file that no poll will find.

    ``late_secs`` is how long after the scan that passed its name it was
    modified, ``behind`` the name that scan had reached.
    """

    entry: Entry
    behind: str
    late_secs: float


@dataclass(frozen=True, slots=True)
class Passed:
    """What scans have passed, and what is known of lateness.

    ``partitions`` holds a timeline of names per partition, ``floors`` one of
    floors. ``listed`` is when the last scan ended, ``ahead`` how far the store's
    clock was seen ahead of ours. ``swept`` is when the last sweep began. ``known``
    are late files already dealt with, with their modification times; ``queue``
    those to be ingested.
    ``lateness`` holds the worst lateness in seconds per day (days since 1970).
    """

    partitions: Mapping[str, Timeline] = field(default_factory=dict)
    floors: Timeline = ()
    listed: float = 0.0
    ahead: float = 0.0
    swept: float = 0.0
    known: Mapping[str, float] = field(default_factory=dict)
    queue: tuple[Entry, ...] = ()
    lateness: tuple[tuple[int, float], ...] = ()


def recorded(passed: Passed, old: Progress, new: Progress) -> Passed:
    """The timelines after scan starts or the floor moved, as of the scan at ``listed``."""
    partitions = dict(passed.partitions)
    for partition, known in new.partitions.items():
        before = known.before
        earlier = old.partitions.get(partition)
        if before is not None and (earlier is None or earlier.before != before):
            timeline = (*partitions.get(partition, ()), (before, passed.listed))
            partitions[partition] = _thinned(timeline)
    floors = passed.floors
    if new.floor is not None and (not floors or floors[-1][0] != new.floor):
        floors = _thinned((*floors, (new.floor, passed.listed)))
    return replace(passed, partitions=partitions, floors=floors)


def _thinned(timeline: Timeline) -> Timeline:
    """Every second entry, the newest among them: names of a dropped one get the next one's time."""
    if len(timeline) <= TIMELINE_ENTRIES:
        return timeline
    return timeline[(len(timeline) - 1) % 2 :: 2]


def passed_at(passed: Passed, progress: Progress, path: str) -> tuple[str, float] | None:
    """What passed ``path`` and when: a name or a floor; None if that is not known."""
    partition, name = split(path, progress.depth or 0)
    key = order_key(name)
    for reached, at in passed.partitions.get(partition, ()):
        if order_key(reached) >= key:
            return reached, at
    low = partition_key(partition)
    for floor, at in passed.floors:
        if partition_key(floor) > low:
            return floor, at
    return None


def find_late(passed: Passed, progress: Progress, listed: Iterable[Entry]) -> tuple[LateFile, ...]:
    """The late files of a full listing that are not known yet."""
    slack = passed.ahead + CLOCK_SLACK_SECS
    found = []
    for entry in listed:
        if entry.modified <= passed.swept - slack or entry.path in passed.known:
            continue
        partition, name = split(entry.path, progress.depth or 0)
        tracked = progress.partitions.get(partition)
        if is_new(progress, entry.path) or (tracked is not None and name in tracked.done):
            continue
        reached = passed_at(passed, progress, entry.path)
        if reached is not None and entry.modified > reached[1] + slack:
            found.append(LateFile(entry, reached[0], entry.modified - reached[1]))
    return tuple(found)


def swept(
    passed: Passed, progress: Progress, late: Iterable[LateFile], began: float, *, ingest: bool
) -> Passed:
    """After a sweep: its findings are known (or queued), and what it settled is dropped.

    Timelines of closed partitions are no longer needed once the floor's own
    timeline covers them, which it does for every file modified from now on.
    """
    files = [found.entry for found in late]
    slack = passed.ahead + CLOCK_SLACK_SECS
    known = {path: at for path, at in passed.known.items() if at > began - slack}
    return replace(
        passed,
        partitions={p: t for p, t in passed.partitions.items() if p in progress.partitions},
        swept=began,
        known=known | {entry.path: entry.modified for entry in files},
        queue=(*passed.queue, *files) if ingest else passed.queue,
    )


def observed(
    passed: Passed, progress: Progress, found: Iterable[Entry], scanned_at: float
) -> Passed:
    """After a scan that ended at ``scanned_at``: what new files tell of clocks and lateness.

    A new name below one that is done arrived late by the time between the two.
    """
    passed = replace(passed, listed=scanned_at)
    ahead, worst = passed.ahead, 0.0
    for entry in found:
        ahead = max(ahead, entry.modified - scanned_at)
        worst = max(worst, lateness_of(progress, entry))
    if ahead == passed.ahead and worst == 0:
        return passed
    return replace(passed, ahead=ahead, lateness=_worst(passed, worst, scanned_at))


def lateness_of(progress: Progress, entry: Entry) -> float:
    """How many seconds after a higher name was done this new file was modified; 0 if none was."""
    partition, name = split(entry.path, progress.depth or 0)
    known = progress.partitions.get(partition)
    if known is None:
        return 0.0
    key = order_key(name)
    above = [at for other, at in known.done.items() if at and order_key(other) > key]
    return max(0.0, entry.modified - min(above)) if above else 0.0


def _worst(passed: Passed, secs: float, now: float) -> tuple[tuple[int, float], ...]:
    today = int(now // 86_400)
    days = {day: worst for day, worst in passed.lateness if day > today - LATENESS_DAYS}
    if secs > 0:
        days[today] = max(days.get(today, 0.0), secs)
    return tuple(sorted(days.items()))


def late_by(passed: Passed, late: Iterable[LateFile], now: float) -> Passed:
    """Late files count for the grace period as well: it was too short for them."""
    return replace(
        passed, lateness=_worst(passed, max((f.late_secs for f in late), default=0.0), now)
    )


def partitions_behind(progress: Progress, late: LateFile) -> int:
    """How many tracked partitions sort above the late file's."""
    low = partition_key(split(late.entry.path, progress.depth or 0)[0])
    return sum(partition_key(partition) > low for partition in progress.partitions)


def quarantined_late(late: LateFile) -> FinishedFile:
    """The late file as a dead letter."""
    error = f"appeared {late.late_secs:.0f} s after {late.behind!r} was passed"
    return FinishedFile(late.entry.path, "quarantined", error=error, stage="late")


def auto_grace(passed: Passed) -> float:
    """The grace period that lateness asks for: twice its worst, within bounds, in seconds."""
    low, first, high = AUTO_GRACE_SECS
    if not passed.lateness:
        return first
    return min(high, max(low, 2 * max(secs for _, secs in passed.lateness)))

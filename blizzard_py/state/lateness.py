"""The lateness of files, measured between scans, to size ``grace_period: auto``. Pure.

A new name below a processed one came late. It appeared between the beginning of the previous
scan, which did not see it, and the end of the scan that did. Its modification time counts only
within these bounds. Its lateness is the time since the scan that first saw a higher name, because
grace begins there.

The previous scan is the last one that covered the file's partition. The first scan of a process
has none, so it measures nothing: a file found after a downtime need not have been late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from blizzard_core.storage.protocol import Entry, order_key
from blizzard_core.watermark.paths import covers, split
from blizzard_core.watermark.progress import Progress, ScanTimes

# Lateness is remembered for this many days to size `grace_period: auto` …
LATENESS_DAYS = 7
# … as twice the worst of them, between these bounds; the middle one is the default.
AUTO_GRACE_SECS = (60.0, 300.0, 3600.0)

# The worst lateness in seconds by day (days since 1970).
Lateness = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class EarlierScans:
    """The beginnings of the last complete scan, and of later ones by covered partition."""

    complete: float | None = None
    since: Mapping[str, float] = field(default_factory=dict)

    def of(self, partition: str) -> float | None:
        """Return when the last scan that covered the partition began; None if none did."""
        return self.since.get(partition, self.complete)

    def plus(self, scanned: ScanTimes, progress: Progress) -> EarlierScans:
        """Return these with one more scan, of partitions that ``progress`` tracks."""
        if scanned.cover is None:
            return EarlierScans(scanned.began)
        covered = {
            partition: scanned.began
            for partition, known in progress.partitions.items()
            if covers(scanned.cover, partition, known.before)
        }
        return EarlierScans(self.complete, {**self.since, **covered})


def measure_lateness(
    known: Lateness,
    progress: Progress,
    found: Iterable[Entry],
    before: EarlierScans,
    scanned: ScanTimes,
) -> Lateness:
    """Return the lateness known after a scan. ``progress`` is from before its findings."""
    worst = 0.0
    tops: dict[str, list[tuple[float, bytes]]] = {}
    for entry in found:
        partition, name = split(entry.path, progress.depth or 0)
        done = progress.partitions.get(partition)
        began = before.of(partition)
        if done is None or not done.done or began is None:
            continue
        if partition not in tops:
            tops[partition] = _tops(done.done)
        appeared = min(max(entry.modified, began), scanned.ended)
        key = order_key(name)
        above = min((seen for seen, top in tops[partition] if top > key), default=appeared)
        worst = max(worst, appeared - above)
    return with_worst(known, worst, scanned.ended) if worst > 0 else known


def _tops(done: Mapping[str, float]) -> list[tuple[float, bytes]]:
    """Return the highest name that each scan saw first: scans are few, names are many."""
    highest: dict[float, str] = {}
    for name, seen in done.items():
        if name > highest.get(seen, ""):
            highest[seen] = name
    return [(seen, order_key(name)) for seen, name in highest.items()]


def with_worst(known: Lateness, secs: float, now: float) -> Lateness:
    """Return the record with one more measurement, without days that are too old."""
    today = int(now // 86_400)
    days = {day: worst for day, worst in known if day > today - LATENESS_DAYS}
    days[today] = max(days.get(today, 0.0), secs)
    return tuple(sorted(days.items()))


def auto_grace(known: Lateness, now: float) -> float:
    """Return the measured grace period in seconds: twice the worst lateness, within bounds.

    Days in the future, which a wrong clock recorded, do not count.
    """
    low, first, high = AUTO_GRACE_SECS
    today = now // 86_400
    recent = [secs for day, secs in known if today - LATENESS_DAYS < day <= today]
    if not recent:
        return first
    return min(high, max(low, 2 * max(recent)))

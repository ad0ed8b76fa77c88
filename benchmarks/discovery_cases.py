"""Cases of the discovery benchmark: histories, arrivals, and the daemon's state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from blizzard_core.storage.protocol import Entry
from blizzard_core.watermark.progress import Progress, ScanTimes, expire_grace, mark_done

FILES_PER_PARTITION = 500
GRACE_SECS = 300.0
# Names per active partition that were done within the grace period and are listed again.
IN_GRACE = 5
NEWEST_HOUR = datetime(2024, 12, 31, 23, tzinfo=UTC)
NOW = NEWEST_HOUR.timestamp() + 3600


@dataclass(frozen=True, slots=True)
class BucketHistory:
    """Old files in hourly partitions, of which the newest ``active`` are tracked."""

    old: int
    active: int

    @property
    def partitions(self) -> list[str]:
        """Oldest first: as many as ``old`` fills, and at least the active ones."""
        count = max(self.active, self.old // FILES_PER_PARTITION)
        hours = (NEWEST_HOUR - timedelta(hours=back) for back in reversed(range(count)))
        return [hour.strftime("date=%Y-%m-%d/hour=%H") for hour in hours]

    @property
    def has_large_partitions(self) -> bool:
        """Return whether no page reaches over a partition and the next one."""
        return self.old >= self.active * FILES_PER_PARTITION

    def old_files(self) -> list[Entry]:
        partitions = self.partitions
        share, rest = divmod(self.old, len(partitions))
        return [
            Entry(file_of(partition, number), 0, NOW - 7200)
            for index, partition in enumerate(partitions)
            for number in range(share + (index < rest))
        ]

    def new_files(self, count: int) -> list[str]:
        """``count`` files, dealt out to the active partitions, above what is there."""
        active = self.partitions[-self.active :]
        return [file_of(active[number % self.active], self.old + number) for number in range(count)]

    def progress(self, old: Sequence[Entry], in_grace: int = IN_GRACE) -> Progress:
        """Return an up-to-date daemon's progress: the newest partitions, the lowest as the floor.

        All but the last ``in_grace`` names of a partition were done longer ago than the
        grace period.
        """
        active = self.partitions[-self.active :]
        old_names: list[str] = []
        recent: list[str] = []
        for _, files in itertools.groupby(
            (e for e in old if e.path.rpartition("/")[0] >= active[0]),
            key=lambda e: e.path.rpartition("/")[0],
        ):
            names = [entry.path for entry in files]
            cut = max(0, len(names) - in_grace)
            old_names += names[:cut]
            recent += names[cut:]
        known = all_done(Progress(depth=2, floor=active[0]), old_names)
        return mark_done(known, recent, NOW, _none_waits)


def all_done(progress: Progress, paths: Sequence[str]) -> Progress:
    """Return the progress with these files done longer ago than the grace period."""
    done = mark_done(progress, paths, NOW - 3600, _none_waits)
    return expire_grace(done, ScanTimes(NOW, NOW), GRACE_SECS, _none_waits)


def _none_waits(_partition: str) -> None:
    """Every path is done."""


def file_of(partition: str, number: int) -> str:
    return f"{partition}/part-{number:09d}.ndjson.gz"


EDGE_HISTORY = BucketHistory(5_000, 8)


@dataclass(frozen=True, slots=True)
class EdgeCase:
    label: str
    progress: Progress
    new: Sequence[str]


def edge_cases(world: BucketHistory, old: Sequence[Entry]) -> list[EdgeCase]:
    """Return polls around the one case with a second page: 100 names within a gap."""
    quiet = world.progress(old, in_grace=0)
    active = world.partitions[-world.active :]

    def fill(partitions: Sequence[str], each: int) -> list[str]:
        return [file_of(p, world.old + number) for p in partitions for number in range(each)]

    return [
        EdgeCase("nothing new, nothing within grace", quiet, []),
        EdgeCase("99 names of each partition within grace", world.progress(old, 99), []),
        EdgeCase("100 names of each partition within grace", world.progress(old, 100), []),
        EdgeCase("100 new in the newest partition", quiet, fill(active[-1:], 100)),
        EdgeCase("5,000 new in the newest partition", quiet, fill(active[-1:], 5000)),
        EdgeCase("5,000 new in the oldest partition", quiet, fill(active[:1], 5000)),
        EdgeCase("99 new in every partition", quiet, fill(active, 99)),
        EdgeCase("100 new in every partition", quiet, fill(active, 100)),
    ]

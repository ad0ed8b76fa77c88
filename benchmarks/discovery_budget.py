"""Scans under a budget of LIST requests, beside polls of everything at equal cost.

The whole pipeline runs in memory, by a clock of its own, over hourly partitions of which 24 are
tracked. A file comes each minute on average: nine of ten to the newest hour, the others to the
hours before it, each hour back half as many. A wait is the time from a file to its rows.
"""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from blizzard_core.limits import FIRST_PAGE_KEYS
from blizzard_core.log import configure
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.settings.store_use import budget_of
from blizzard_core.storage.protocol import ListingPage
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness

TRACKED = 24
# In each partition at the start: so many that no page reaches over a partition.
OLD_FILES = 150
PRICE = 0.005
HEADER = ["USD a month", "budget", "most in an hour", "LIST an hour", "mean wait", "p95"]
HEADER += ["polls each", "LIST an hour", "mean wait", "p95", "mean/ours"]
# The least by which the mean wait is shorter than that of polls.
GOAL = 3.0
_HOUR = 3600.0


class CountingStore(MemoryStorage):
    """A source that notes when it was listed."""

    def __init__(self, now: Any) -> None:
        super().__init__("mem://raw", now)
        self.page_keys = FIRST_PAGE_KEYS
        self.lists: list[float] = []
        self._now = now

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:
        for page in super().list_range(after, until):
            self.lists.append(self._now())
            yield page


class Arrivals(PipelineHarness):
    """A source to which files come for some hours."""

    def __init__(self, **source: Any) -> None:
        limits = CheckpointSettings(interval_files=1000)
        super().__init__(
            max_tracked_partitions=TRACKED, partition_depth=2, checkpoint=limits, **source
        )
        self.store = CountingStore(lambda: self.now)
        self.source = self.store
        self.engine.source = self.store
        self.came: dict[str, float] = {}
        self.chance = random.Random(1)

    def hour(self, back: int) -> str:
        """Return the partition of so many hours ago."""
        return f"{datetime.fromtimestamp(self.now - back * _HOUR, UTC):date=%Y-%m-%d/hour=%H}"

    def arrive(self, at: float) -> None:
        """Put one file."""
        back = 0
        if self.chance.random() >= 0.9:
            back = 1
            while back < TRACKED - 2 and self.chance.random() < 0.5:
                back += 1
        path = f"{self.hour(back)}/{at:017.6f}.ndjson"
        self.came[path] = at
        self.put(path, path)

    def play(self, hours: float) -> list[float]:
        """Return the waits of the files that came after the first hour."""
        waits: list[float] = []
        for back in range(TRACKED):
            for number in range(OLD_FILES):
                self.put(f"{self.hour(back)}/{number}.ndjson", "x")
        begin, worker = self.now, self.pipeline()
        following = self.now + self.chance.expovariate(1 / 60)
        while self.now < begin + hours * _HOUR:
            busy = worker.cycle(threading.Event())
            waits += self._published(begin)
            until = self.now if busy else self.now + worker.poll_interval_secs
            while following <= until:
                self.now = following
                self.arrive(following)
                following += self.chance.expovariate(1 / 60)
            self.now = until
        return waits

    def _published(self, begin: float) -> Iterator[float]:
        for rows in self.published().values():
            for path in rows:
                if path in self.came and (at := self.came.pop(path)) > begin + _HOUR:
                    yield self.now - at
        for path in [path for path in self.sink.objects if path.endswith(".parquet")]:
            self.sink.delete(path)


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget and what it bought, beside polls at its cost."""

    cost: float
    budget: float
    most: int
    lists: float
    waits: Sequence[float]
    poll_secs: float
    poll_lists: float
    poll_waits: Sequence[float]

    @property
    def ratio(self) -> float:
        """Return the mean wait for polls as a multiple of ours."""
        return statistics.mean(self.poll_waits) / statistics.mean(self.waits)

    def cells(self) -> list[str]:
        """Return the cells of a table."""
        return [
            f"{self.cost:.2f}",
            f"{self.budget:,.0f}",
            f"{self.most:,}",
            f"{self.lists:,.0f}",
            *_waits(self.waits),
            f"{self.poll_secs:.0f} s",
            f"{self.poll_lists:,.0f}",
            *_waits(self.poll_waits),
            f"{self.ratio:.1f}",
        ]

    def problems(self) -> Iterator[str]:
        """Yield what breaks the promise."""
        if self.most > self.budget:
            yield f"{self.cost} USD: {self.most:,} LISTs in an hour, {self.budget:,.0f} allowed"
        if self.ratio < GOAL:
            yield f"{self.cost} USD: waits are {self.ratio:.1f} times shorter, not {GOAL:g}"


def _waits(waits: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.mean(waits):.1f} s", f"{sorted(waits)[len(waits) * 95 // 100]:.0f} s"


def measure_budgets(costs: Sequence[float], hours: float) -> Iterator[BudgetRow]:
    """Measure each budget, and polls whose idle cost is the same."""
    configure("ERROR")
    for cost in costs:
        budget = budget_of(f"{cost} USD/month", PRICE)
        paced = Arrivals(max_list_cost=f"{cost} USD/month")
        begin = paced.now
        waits = paced.play(hours)
        secs = _HOUR * TRACKED / budget
        polled = Arrivals(poll_interval=f"{secs:.3f}s")
        poll_waits = polled.play(hours)
        yield BudgetRow(
            cost,
            budget,
            _most_in_an_hour([at for at in paced.store.lists if at > begin + 60]),
            len(paced.store.lists) / hours,
            waits,
            secs,
            len(polled.store.lists) / hours,
            poll_waits,
        )


def _most_in_an_hour(times: Sequence[float]) -> int:
    """Return the most requests of any hour, wherever it begins."""
    most = first = 0
    for number, at in enumerate(times):
        while times[first] <= at - _HOUR:
            first += 1
        most = max(most, number - first + 1)
    return most

"""Schedules of scans: no hour costs more than its budget, and no range waits for longer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from blizzard_core.settings.store_use import LONGEST_SECS, least_budget
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.progress import Progress, gaps
from blizzard_py.sources.files.scan_schedule import (
    HOUR_SECS,
    NextScan,
    ScanFindings,
    ScanLimits,
    Schedule,
    after_scan,
    hot_partitions,
    intervals,
    next_scan,
)
from tests.support.watermarks import passed

HOURS = [f"date=2024-06-01/hour={hour:02}" for hour in range(24)]
KNOWN = passed(Progress(depth=2, floor=HOURS[0]), [f"{hour}/1" for hour in HOURS])
NEWEST = HOURS[-1]


def limits(budget: float | None, complete: float | None = None, pause: float = 1.0) -> ScanLimits:
    return ScanLimits(budget, pause, complete, 64)


def ranges_of(scan: NextScan) -> int:
    return len(gaps(KNOWN)) if scan.cover is None else len(scan.cover.ranges)


@dataclass
class History:
    """Scans of a source for some hours: their times, costs and kinds."""

    limits: ScanLimits
    seed: int = 0
    # How often a scan finds something in a random partition, needs more pages, or fails.
    finds: float = 0.0
    pages: float = 0.0
    errors: float = 0.0
    scans: list[tuple[float, int, bool]] = field(default_factory=list)

    def play(self, secs: float) -> None:
        chance = random.Random(self.seed)
        schedule, now = Schedule(), 0.0
        while now < secs:
            scan = next_scan(schedule, self.limits, KNOWN, now, is_sweeping=False)
            if scan.at > now:
                now = scan.at
                continue
            more = chance.random() < self.pages
            requests = ranges_of(scan) + (chance.randrange(60) if more else 0)
            self.scans.append((now, requests, scan.cover is None))
            schedule = schedule.charged(self.limits, requests, now)
            if chance.random() < self.errors:
                schedule = schedule.started_over()
                now += 1
                continue
            found = {NEWEST, *([chance.choice(HOURS)] if chance.random() < self.finds else ())}
            result = ScanFindings(requests, is_cut=False, partitions=found, progress=KNOWN)
            schedule = after_scan(schedule, scan, result, now)

    def most_in_an_hour(self) -> int:
        """Return the most requests of any hour, wherever it begins."""
        most = total = first = 0
        for at, requests, _ in self.scans:
            total += requests
            while self.scans[first][0] <= at - HOUR_SECS:
                total -= self.scans[first][1]
                first += 1
            most = max(most, total)
        return most


@pytest.mark.promise("G-221")
@pytest.mark.parametrize(("budget", "finds"), [(200, 0.05), (278, 0.0), (1389, 0.02)])
def test_no_hour_costs_more_than_the_budget(budget: int, finds: float) -> None:
    history = History(limits(budget), finds=finds)
    history.play(3 * HOUR_SECS)
    # The complete scan of the start is paid on top.
    assert 0.7 * budget < history.most_in_an_hour() <= budget + 24


@pytest.mark.promise("G-221")
@pytest.mark.parametrize("seed", range(3))
def test_errors_and_pages_cost_a_debt_at_most(seed: int) -> None:
    history = History(limits(500), seed, finds=0.05, pages=0.2, errors=0.1 * seed)
    history.play(5 * HOUR_SECS)
    # The debt is an hour's budget, and what the last scan has cost.
    assert history.most_in_an_hour() <= 2 * 500 + 24 + 60
    later = [requests for at, requests, _ in history.scans if at > HOUR_SECS]
    assert sum(later) <= 500 * 5 + 24 + 60


def test_each_range_is_scanned_within_its_interval() -> None:
    history = History(limits(1389))
    history.play(HOUR_SECS)
    every = intervals(history.limits, 24, 1)
    assert every.hot is not None
    complete = [at for at, _, is_complete in history.scans if is_complete]
    assert longest(complete) == pytest.approx(every.complete, rel=0.05)
    assert longest([at for at, _, _ in history.scans]) == pytest.approx(every.hot, rel=0.05)


def longest(times: Sequence[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times))


def test_hot_are_the_newest_of_each_line_and_finds() -> None:
    known = passed(
        Progress(depth=2),
        [f"region={r}/date=2024-06-0{d}/1" for r in ("eu", "us") for d in (1, 2, 3)] + ["x/y/1"],
    )
    hot = hot_partitions(limits(None), known, {"x/y": 1000.0, "root": 990.0})
    newest = ["region=eu/date=2024-06-03", "region=us/date=2024-06-03"]
    assert hot == {"x/y": 1000.0, "root": 990.0, **dict.fromkeys(newest)}


def test_range_is_hot_for_an_hour_or_while_something_waits() -> None:
    schedule = first_scan()
    scan = next_scan(schedule, limits(1389), KNOWN, 10.0, is_sweeping=False)
    both = ScanFindings(2, is_cut=False, partitions=HOURS[:2], progress=KNOWN)
    schedule = after_scan(schedule, scan, both, 10.0)
    assert schedule.hot_at(20.0).keys() == set(HOURS[:2])
    # The last scan that covered them found something, if it was an hour ago or not.
    assert schedule.hot_at(8000.0).keys() == set(HOURS[:2])
    again = next_scan(schedule, limits(1389), KNOWN, 8000.0, is_sweeping=False)
    one = ScanFindings(2, is_cut=False, partitions=HOURS[:1], progress=KNOWN)
    schedule = after_scan(schedule, replace(again, cover=Ranges(gaps(KNOWN))), one, 8000.0)
    assert schedule.hot_at(8001.0).keys() == {HOURS[0]}


@pytest.mark.parametrize("known", [Progress(), Progress(depth=0), Progress(depth=2)])
def test_without_partitions_every_scan_is_complete(known: Progress) -> None:
    scan = next_scan(Schedule(), limits(None, 3600.0, 60.0), known, 0.0, is_sweeping=False)
    assert scan.cover is None
    result = ScanFindings(1, is_cut=False, partitions=(), progress=known)
    after = after_scan(Schedule(), scan, result, 1.0)
    again = next_scan(after, limits(None, 3600.0, 60.0), known, 1.0, is_sweeping=False)
    assert (again.cover, again.at) == (None, 60.0)


def first_scan(known: Progress = KNOWN, *, is_cut: bool = False) -> Schedule:
    scan = next_scan(Schedule(), limits(1389), KNOWN, 0.0, is_sweeping=False)
    result = ScanFindings(24, is_cut=is_cut, partitions=(), progress=known)
    return after_scan(Schedule(), scan, result, 1.0)


@pytest.mark.parametrize(
    "schedule", [Schedule(), first_scan().started_over(), first_scan(is_cut=True)]
)
def test_complete_scan_is_due_at_starts_errors_and_limits(schedule: Schedule) -> None:
    scan = next_scan(schedule, limits(1389), KNOWN, 2.0, is_sweeping=False)
    assert (scan.at, scan.cover) == (2.0, None)


def test_complete_scan_is_due_once_twice_as_many_are_tracked() -> None:
    few = ScanLimits(1389, 1.0, None, 5)
    eleven, twelve = (
        Progress(partitions=dict(list(KNOWN.partitions.items())[:n])) for n in (11, 12)
    )
    assert next_scan(first_scan(eleven), few, KNOWN, 2.0, is_sweeping=False).cover is None
    scan = next_scan(first_scan(twelve), few, KNOWN, 2.0, is_sweeping=False)
    assert scan.cover is not None
    assert scan.at > 2.0


def test_scans_wait_while_the_debt_is_an_hours_budget() -> None:
    one = limits(100)
    schedule = Schedule().charged(one, 150, 0.0).started_over()
    scan = next_scan(schedule, one, KNOWN, 0.0, is_sweeping=False)
    # 150 must fall to 76, so that 24 more are an hour's.
    assert (scan.at, scan.is_late) == (pytest.approx(74 * 36), True)
    assert not next_scan(schedule, one, KNOWN, scan.at + 1, is_sweeping=False).is_late


def test_many_names_of_a_first_scan_are_paid_once() -> None:
    cold = next_scan(Schedule(), limits(1389), Progress(), 0.0, is_sweeping=False)
    pages = ScanFindings(240, is_cut=False, partitions=(), progress=KNOWN)
    schedule = after_scan(Schedule(), cold, pages, 1.0)
    usual = intervals(limits(1389), 24, 1).complete
    waits = [now for now in range(1, 20_000, 20) if is_complete(schedule, float(now))]
    assert waits[0] == pytest.approx(10 * usual, rel=0.05)


def is_complete(schedule: Schedule, now: float) -> bool:
    scan = next_scan(schedule, limits(1389), KNOWN, now, is_sweeping=False)
    return scan.cover is None and scan.at <= now


def test_sweep_takes_half_of_the_budget() -> None:
    alone = next_scan(first_scan(), limits(1389), KNOWN, 2.0, is_sweeping=False).intervals
    beside = next_scan(first_scan(), limits(1389), KNOWN, 2.0, is_sweeping=True).intervals
    assert beside.hot == pytest.approx(2 * alone.hot)
    assert beside.complete == pytest.approx(2 * alone.complete)


def test_scan_with_more_pages_delays_the_next() -> None:
    schedule = first_scan()
    scan = next_scan(schedule, limits(1389), KNOWN, 100.0, is_sweeping=False)
    once, thrice = (
        next_scan(
            after_scan(
                schedule, scan, ScanFindings(pages, is_cut=False, partitions=(), progress=KNOWN), 0
            ),
            limits(1389),
            KNOWN,
            101.0,
            is_sweeping=False,
        ).at
        for pages in (1, 3)
    )
    assert thrice - scan.at == pytest.approx(3 * (once - scan.at))


@pytest.mark.parametrize("ranges", [2, 24, 65, 2000])
@pytest.mark.parametrize("interval", [None, 600.0])
def test_least_budget_pays_complete_scans_in_time(ranges: int, interval: float | None) -> None:
    least = least_budget(ranges, interval)
    longest_secs = LONGEST_SECS if interval is None else interval
    assert intervals(limits(least, interval), ranges, 1).complete <= longest_secs


@pytest.mark.promise("G-221")
@pytest.mark.parametrize("interval", [None, 600.0, 3600.0, 86_400.0])
def test_no_hour_costs_more_than_the_least_budget(interval: float | None) -> None:
    budget = least_budget(24, interval)
    history = History(limits(budget, interval))
    history.play(9 * HOUR_SECS)
    assert history.most_in_an_hour() <= budget


def test_interval_without_budget_scans_hot_ranges_at_each_poll() -> None:
    assert intervals(limits(None, 3600.0, 10.0), 24, 2).hot == 10.0
    assert intervals(limits(None, 3600.0, 10.0), 24, 2).complete == 3600.0
    # All are hot, or none is known.
    assert intervals(limits(None, 3600.0, 10.0), 24, 24).complete == 10.0

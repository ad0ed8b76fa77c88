"""The schedule of scans of a source with notifications, as values."""

from __future__ import annotations

import math
from dataclasses import replace

from blizzard_core.limits import HINTED_PARTITIONS
from blizzard_core.storage.protocol import Range
from blizzard_core.watermark.paths import covers
from blizzard_core.watermark.progress import PartitionProgress, Progress
from blizzard_py.sources.files.hint_schedule import (
    HintedScan,
    HintLimits,
    HintSchedule,
    Wishes,
    cover_of,
    next_scan,
)

LIMITS = HintLimits(pause=10, complete=3600, poll=60, tracked=4)
PROGRESS = Progress(
    partitions={"a": PartitionProgress("9", "5"), "b": PartitionProgress("9")}, depth=1
)
# Complete scan at 1000, a hint then: silence begins at 1300.
SCHEDULE = HintSchedule(hinted=1000, complete=1000, latest=1000, tracked=2)


def following(schedule: HintSchedule, now: float, wishes: Wishes | None = None) -> HintedScan:
    return next_scan(schedule, LIMITS, PROGRESS, wishes or Wishes(), now)


def test_start_and_growth_are_scanned_at_once() -> None:
    assert following(SCHEDULE.started_over(), 1001) == HintedScan(1001)
    grown = {str(number): PartitionProgress() for number in range(9)}
    found = next_scan(SCHEDULE, LIMITS, Progress(partitions=grown, depth=1), Wishes(), 1001)
    assert found == HintedScan(1001)


def test_hint_is_followed_after_the_pause() -> None:
    wishes = Wishes(frozenset("a"))
    assert following(SCHEDULE, 1003, wishes) == HintedScan(1010, frozenset("a"))
    assert following(SCHEDULE, 1200, wishes).parts == frozenset("a")


def test_open_files_wait_until_they_can_be_done() -> None:
    wishes = Wishes(open={"a": 1100.0, "b": 1050.0})
    assert following(SCHEDULE, 1003, wishes) == HintedScan(1050, frozenset("b"))
    assert following(SCHEDULE, 1100, wishes).parts == frozenset("ab")
    assert following(SCHEDULE, 1003, Wishes(odd_at=1050)) == HintedScan(1050)


def test_complete_scan_is_due_in_its_interval() -> None:
    awake = replace(SCHEDULE, hinted=4500)
    assert following(awake, 4100) == HintedScan(4600)
    assert following(awake, 4700, Wishes(frozenset("a"))).parts is None


def test_silence_is_scanned_once() -> None:
    assert following(SCHEDULE, 1003) == HintedScan(1300)
    assert following(replace(SCHEDULE, complete=1300, latest=1300), 1310) == HintedScan(4900)
    rare = SCHEDULE.with_hint(1000).with_hint(1200)
    assert rare.gap == 200
    assert rare.silent_at == 1200 + 8 * 200


def test_gap_follows_the_hints() -> None:
    found = HintSchedule(hinted=0.0)
    for second in range(100, 1100, 10):
        found = found.with_hint(second)
    assert found.gap == 10
    assert not replace(found, is_asleep=True).with_hint(2000).is_asleep


def test_polls_go_on_while_hints_do_not_come() -> None:
    assert following(SCHEDULE, 1003, Wishes(is_up=False)) == HintedScan(1060)
    assert following(replace(SCHEDULE, is_asleep=True), 1003) == HintedScan(1060)


def test_shallow_hint_makes_one_scan_a_poll() -> None:
    assert following(SCHEDULE, 1003, Wishes(everything=True)) == HintedScan(1060)
    flat = next_scan(SCHEDULE, LIMITS, Progress(depth=0), Wishes(everything=True), 1003)
    assert flat == HintedScan(1010)


def test_many_untracked_partitions_make_one_scan() -> None:
    forged = frozenset(f"x{number}" for number in range(HINTED_PARTITIONS + 1))
    wishes = Wishes(forged | {"a"}, forged)
    assert following(SCHEDULE, 1020, wishes).parts == frozenset("a")
    assert following(SCHEDULE, 1060, wishes) == HintedScan(1060)
    few = frozenset(list(forged)[1:])
    assert following(SCHEDULE, 1020, Wishes(few, few)).parts == few


def test_cut_scan_goes_on_without_a_pause() -> None:
    cut = replace(SCHEDULE, is_cut=True)
    assert following(cut, 1003, Wishes(open={"a": 1000.0})) == HintedScan(1003, frozenset("a"))


def test_cover_begins_at_scan_starts() -> None:
    cover = cover_of(PROGRESS, {"b", "a", "c"})
    assert cover.ranges == (Range("a/5", "a0"), Range("b/", "b0"), Range("c/", "c0"))
    assert all(
        covers(cover, partition, known.before) for partition, known in PROGRESS.partitions.items()
    )
    assert not covers(cover, "d", None)


def test_nothing_is_due_without_wishes_before_silence() -> None:
    assert following(replace(SCHEDULE, hinted=math.inf), 1003) == HintedScan(4600)

"""Counts of partitions and completions: when a partition is complete, and what revokes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.handover.complete import (
    NO_DIGEST,
    Completion,
    add_digest,
    file_text,
    partitions_of,
)
from blizzard_core.storage.protocol import Entry, Range
from blizzard_core.storage.ranges import Ranges
from blizzard_core.watermark.progress import PartitionProgress, Progress, ScanTimes
from blizzard_py.job import FinishedFile
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.completeness import (
    COMPLETE_KEPT,
    COMPLETE_SECS,
    UNCOUNTED_KEPT,
    UNCOUNTED_SECS,
    Completeness,
    completeness_notes,
    completions_of,
    resumed,
    why_open,
    with_completions,
    with_ended,
    with_started,
)
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import clamp_times

DAY = "date=2024-01-28"
OVER = 1_706_486_400.0  # the end of that day
HOUR = 3600.0


def batch(*paths: str, number: int = 1, request: str = "", **outcome: Any) -> Batch:
    files = tuple(Entry(path, 10, OVER) for path in paths)
    finished = tuple(FinishedFile(path, **{"outcome": "ingested", **outcome}) for path in paths)
    name = f"00000000-0000-7000-8000-{number:012d}"
    output = PlannedOutput("s", "f.parquet", 1, 1, f"events/main/{name}/1/0")
    results = BatchResults(outputs=(output,), finished=finished)
    return Batch(name, 1, "publishing", OVER, files, OVER, results, request)


def done(known: Completeness, progress: Progress, each: Batch) -> Completeness:
    return with_ended(with_started(known, each, progress, ()), each, progress.depth or 0)


def at_rest(*partitions: str) -> Progress:
    tracked = {name: PartitionProgress("z", "z") for name in partitions}
    return Progress("Active", "z", tracked, depth=1)


def is_complete(known: Completeness, progress: Progress, **scan: Any) -> bool:
    times: Any = {"began": OVER + HOUR, "ended": OVER + HOUR + 1, **scan}
    pending = times.pop("pending", ())
    waiting = partitions_of(pending, 1)
    found = with_completions(known, progress, waiting, ScanTimes(**times), HOUR)
    return bool(found.partitions) and all(each.is_complete for each in found.partitions.values())


ONE = done(Completeness("1"), Progress(depth=1), batch(f"{DAY}/a", f"{DAY}/b", rows=3))


class TestCounts:
    def test_batch_adds_files_rows_and_outputs(self) -> None:
        found = ONE.partitions[DAY].completion
        texts = [file_text(f"{DAY}/b", 10), file_text(f"{DAY}/a", 10)]
        assert (found.contents.files, found.contents.rows, found.contents.bytes) == (2, 6, 20)
        assert found.contents.digest == add_digest(NO_DIGEST, *texts)
        assert found.contents.outputs == 1
        assert found.first == found.last == batch().batch

    def test_retried_file_is_not_counted(self) -> None:
        found = done(Completeness("1"), Progress(depth=1), batch(f"{DAY}/a", outcome="retry"))
        assert found.partitions[DAY].completion.contents.files == 0

    def test_replayed_file_is_no_longer_dead_lettered(self) -> None:
        bad = done(Completeness("1"), Progress(depth=1), batch(f"{DAY}/a", outcome="quarantined"))
        assert bad.partitions[DAY].completion.contents.quarantined == 1
        other = done(bad, at_rest(DAY), batch(f"{DAY}/b", number=2, request="r"))
        assert other.partitions[DAY].completion.contents.quarantined == 1
        again = done(other, at_rest(DAY), batch(f"{DAY}/a", number=3, request="r"))
        contents = again.partitions[DAY].completion.contents
        assert (contents.quarantined, contents.files, contents.requested) == (0, 1, 2)
        assert contents.digest == add_digest(NO_DIGEST, file_text(f"{DAY}/a", 10))

    def test_replayed_records_are_no_longer_bad(self) -> None:
        bad = done(Completeness("1"), Progress(depth=1), batch(f"{DAY}/a", rows=3, bad_rows=2))
        records = f"//records/{DAY}/a.{batch().batch}.0.ndjson"
        found = done(bad, at_rest(DAY), batch(records, number=2, request="r", rows=2))
        contents = found.partitions[DAY].completion.contents
        assert (contents.rows, contents.bad_rows, contents.files) == (5, 0, 1)

    @pytest.mark.parametrize(
        ("progress", "ahead"),
        [
            (at_rest(DAY), ()),
            (Progress(depth=1, floor="date=2024-02-01"), ()),
            (Progress(depth=1), (f"{DAY}/z",)),
        ],
        ids=["tracked", "closed", "requested"],
    )
    def test_counts_begin_with_the_first_file(self, progress: Progress, ahead: Any) -> None:
        found = with_started(Completeness("1"), batch(f"{DAY}/a"), progress, ahead)
        assert not found.partitions[DAY].is_exact
        assert not is_complete(found, at_rest(DAY))

    def test_files_outside_of_partitions_are_left_out(self) -> None:
        assert partitions_of(["a", "x/b", "x/y/c", "x/y/z/d"], 2) == {"x/y"}
        assert partitions_of(["a", "x/b"], 0) == set()

    def test_other_commit_points_begin_a_new_era(self) -> None:
        assert resumed(ONE, 1, 0, "2") is ONE
        assert resumed(ONE, 2, 1, "2") is ONE
        assert resumed(ONE, 2, 0, "2") == Completeness("2", 2)
        assert resumed(None, 3, 1, "2") == Completeness("2", 2)


class TestCompletions:
    def test_partition_at_rest_is_completed(self) -> None:
        assert is_complete(ONE, at_rest(DAY))

    @pytest.mark.parametrize(
        "scan",
        [
            {"began": OVER + HOUR - 1},
            {"cover": Ranges((Range("date=2024-02-01/", None),))},
            {"until": f"{DAY}/m"},
            {"pending": (f"{DAY}/c",)},
        ],
        ids=["too early", "not covered", "cut off", "pending"],
    )
    def test_scan_must_show_that_nothing_waits(self, scan: dict[str, Any]) -> None:
        assert not is_complete(ONE, at_rest(DAY), **scan)

    @pytest.mark.parametrize("name", ["k=a.revoked", "k=\udcff", "..", ".", "", f"k={'ü' * 100}"])
    def test_name_must_be_one_of_a_marker(self, name: str) -> None:
        known = done(Completeness("1"), Progress(depth=1), batch(f"{name}/x"))
        assert not is_complete(known, at_rest(name))

    def test_names_in_grace_keep_a_partition_open(self) -> None:
        known = PartitionProgress("b", "a", {"b": OVER})
        assert not is_complete(ONE, Progress("Active", "z", {DAY: known}, depth=1))

    def test_name_without_time_is_over_after_the_last_file(self) -> None:
        known = done(Completeness("1"), Progress(depth=1), batch("tenant=a/x"))
        assert not is_complete(known, at_rest("tenant=a"), began=OVER + HOUR - 1)
        assert is_complete(known, at_rest("tenant=a"))

    def test_wrong_clock_does_not_keep_it_open(self) -> None:
        known = done(Completeness("1"), Progress(depth=1), batch("tenant=a/x"))
        state = clamp_times(SourceState(complete=known), OVER - HOUR)
        assert is_complete(state.complete or known, at_rest("tenant=a"), began=OVER)

    def test_closed_partition_is_complete_only_again(self) -> None:
        closed = Progress("Active", "z", {}, 1, "date=2024-02-01")
        assert not is_complete(ONE, closed)
        scanned = ScanTimes(OVER + HOUR, OVER + HOUR)
        before = with_completions(ONE, at_rest(DAY), (), scanned, HOUR)
        late = done(before, closed, batch(f"{DAY}/late", number=2))
        assert not late.partitions[DAY].is_complete
        found = with_completions(late, closed, (), scanned, HOUR).partitions[DAY]
        assert (found.is_complete, found.completion.seq, found.completion.contents.files) == (
            True,
            2,
            3,
        )

    def test_batch_that_begins_ends_the_completion(self) -> None:
        scanned = ScanTimes(OVER + HOUR, OVER + HOUR)
        known = with_completions(ONE, at_rest(DAY), (), scanned, HOUR)
        assert completions_of(known, 5).partitions[DAY].contents.files == 2
        begun = with_started(known, batch(f"{DAY}/d", f"{DAY}/c", number=2), at_rest(DAY), ())
        mirrored = completions_of(begun, 5).partitions[DAY]
        assert (mirrored.complete_ts, mirrored.revoked_by, mirrored.seq) == (0, f"{DAY}/c", 1)

    def test_open_partition_is_mirrored_as_never_complete(self) -> None:
        assert completions_of(ONE, 5).partitions == {DAY: Completion()}

    def test_uncounted_partition_is_mirrored_as_open(self) -> None:
        found = with_started(Completeness("1"), batch(f"{DAY}/a"), at_rest(DAY), ())
        assert completions_of(found, 5).partitions[DAY].revoked_by == f"{DAY}/a"

    def test_oldest_completions_leave_the_checkpoint_after_a_day(self) -> None:
        one = ONE.partitions[DAY]
        many = {f"date=2023-{n:04d}": one for n in range(COMPLETE_KEPT + 2)}
        known = replace(ONE, partitions=many)
        found = with_completions(known, at_rest(*many), (), ScanTimes(2e9, 2e9), HOUR)
        assert len(found.partitions) == COMPLETE_KEPT + 2
        later = ScanTimes(2e9 + COMPLETE_SECS + 1, 2e9 + COMPLETE_SECS + 1)
        found = with_completions(found, at_rest(*many), (), later, HOUR)
        assert len(found.partitions) == COMPLETE_KEPT

    def test_partition_closed_too_early_leaves_the_checkpoint(self) -> None:
        closed = Progress("Active", "z", {}, 1, "date=2024-02-01")
        scanned = ScanTimes(OVER, OVER)
        assert with_completions(ONE, closed, {DAY}, scanned, HOUR).partitions
        assert not with_completions(ONE, closed, (), scanned, HOUR).partitions

    def test_uncounted_partition_stays_for_a_month(self) -> None:
        closed = Progress("Active", "z", {}, 1, "date=2024-02-01")
        known = with_started(Completeness("1"), batch(f"{DAY}/a"), closed, ())
        scanned = ScanTimes(OVER + UNCOUNTED_SECS, OVER + UNCOUNTED_SECS)
        assert with_completions(known, closed, (), scanned, HOUR) == known
        scanned = replace(scanned, began=scanned.began + 1)
        assert not with_completions(known, closed, (), scanned, HOUR).partitions

    def test_too_many_uncounted_partitions_begin_a_new_era(self) -> None:
        paths = [f"date=2023-{n:05d}/a" for n in range(UNCOUNTED_KEPT + 1)]
        many = with_started(ONE, batch(*paths), Progress(depth=1), ())
        assert len(many.partitions) == UNCOUNTED_KEPT + 2
        closed = Progress("Active", "z", {}, 1, "date=2024-02-01")
        found = with_started(ONE, batch(*paths), closed, ())
        assert (found.era, found.partitions) == (batch().batch, {})

    def test_reason_names_the_time(self) -> None:
        why = why_open(DAY, ONE.partitions[DAY], at_rest(DAY), set(), ScanTimes(OVER, OVER), HOUR)
        assert why == "it is over at 2024-01-29T01:00:00Z"

    def test_notes_name_complete_and_revoked_partitions(self) -> None:
        known = with_completions(ONE, at_rest(DAY), (), ScanTimes(OVER + HOUR, OVER + HOUR), HOUR)
        assert completeness_notes(known) == [f"1 partition complete, the highest is {DAY}"]
        late = with_started(known, batch(f"{DAY}/c", number=2), at_rest(DAY), ())
        (note,) = completeness_notes(late)
        assert note.endswith(f"such as {DAY}: {DAY}/c came later")
        assert completeness_notes(ONE) == completeness_notes(None) == []

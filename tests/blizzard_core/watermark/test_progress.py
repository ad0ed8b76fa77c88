"""The watermark arithmetic against a brute-force model, and its documented corners."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.storage.protocol import Range, is_hidden, order_key
from blizzard_core.watermark.closed_partitions import raise_floors
from blizzard_core.watermark.partition_time import span_of
from blizzard_core.watermark.paths import depth_of, joined, split
from blizzard_core.watermark.progress import (
    CLOCK_STEP_SECS,
    PartitionProgress,
    Progress,
    ScanTimes,
    clamp_progress,
    expire_grace,
    gaps,
    is_new,
    mark_done,
    mark_idle,
)
from blizzard_core.watermark.scan import scan
from blizzard_py.sources.files.advance import with_waiting
from tests.support.grace_model import GRACE, NOW, Model, Rounds, check_promise, rounds
from tests.support.memory_store import MemoryStorage
from tests.support.watermarks import nothing_waits, passed


def done(progress: Progress, *paths: str, seen: float = NOW, waits: Iterable[str] = ()) -> Progress:
    """These files are done, which a scan that ended at ``seen`` found; ``waits`` are not."""
    return mark_done(progress, paths, seen, with_waiting(waits, progress.depth, nothing_waits))


def scanned(
    progress: Progress, began: float, *waits: str, until: str | None = None, ended: float = 0.0
) -> Progress:
    """A scan is over that found ``waits``."""
    lowest = with_waiting(waits, progress.depth, nothing_waits)
    return expire_grace(progress, ScanTimes(began, max(began, ended), until), GRACE, lowest)


PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def test_joined_is_the_inverse_of_split() -> None:
    assert split("date=1/hour=2/f.json", 2) == ("date=1/hour=2", "f.json")
    assert split("date=1/hour=2/sub/f.json", 2) == ("date=1/hour=2", "sub/f.json")
    assert split("date=1/f.json", 2) == ("date=1", "f.json")
    assert split("f.json", 2) == ("", "f.json")
    assert split("a/b", 0) == ("", "a/b")
    assert split("a//b", 2) == ("a", "/b")
    assert split("/a", 1) == ("", "/a")


@given(
    paths=st.sets(st.lists(PLAIN, min_size=1, max_size=5).map("/".join).filter(bool), min_size=2),
    depth=st.integers(0, 4),
)
def test_no_two_paths_have_partition_and_name_in_common(paths: set[str], depth: int) -> None:
    """Keys with ``//`` and a leading or trailing ``/`` among them."""
    for path in paths:
        partition, name = split(path, depth)
        assert joined(partition, name) == path
        assert not partition.endswith("/")
        assert partition.count("/") + bool(partition) <= depth
    assert len({split(path, depth) for path in paths}) == len(paths)


def test_the_state_goes_from_initial_to_active_to_idle_and_back() -> None:
    cold = Progress(depth=1)
    assert cold.state == "Initial"
    assert mark_idle(cold).state == "Initial"  # an empty source is not an idle one
    active = done(cold, "d=1/a")
    assert (active.state, active.value) == ("Active", "d=1/a")
    idle = mark_idle(active)
    assert (idle.state, idle.value) == ("Idle", "d=1/a")
    assert done(idle, "d=1/b").state == "Active"


def test_partitions_advance_alone_and_the_highest_path_is_global() -> None:
    progress = done(Progress(depth=1), "d=2/a", "d=1/z", "d=1/b")
    assert progress.value == "d=2/a"
    assert {p: k.watermark for p, k in progress.partitions.items()} == {"d=1": "z", "d=2": "a"}
    assert is_new(progress, "d=1/zz")
    assert not is_new(progress, "d=1/b")


def test_a_partition_without_a_watermark_is_entirely_new() -> None:
    progress = done(Progress(depth=1), "d=5/a")
    assert is_new(progress, "d=4/a")
    assert is_new(progress, "d=6/a")


def test_partitions_below_the_floor_are_closed() -> None:
    progress = Progress(depth=1, floor="d=3")
    assert not is_new(progress, "d=2/a")
    assert is_new(progress, "d=3/a")
    # `-` sorts before `/`, so this partition sorts before d=3 in every listing.
    assert not is_new(progress, "d=3-late/a")


def test_a_shallow_file_below_the_floor_is_closed() -> None:
    """Its directory is tracked, and no listing comes there."""
    progress = done(Progress(depth=2, floor="d=3/h=1"), "d=3/x")
    assert not is_new(progress, "d=3/a")
    assert is_new(progress, "d=3/i")


def test_every_directory_is_new_while_only_root_files_are_known() -> None:
    progress = passed(Progress(), ["x.json"])
    assert progress.depth is None
    assert is_new(progress, "d=1/a")
    assert not is_new(progress, "w.json")
    assert is_new(progress, "y.json")


# -- grace -------------------------------------------------------------------------


def test_a_file_below_the_watermark_is_new_once_within_grace() -> None:
    progress = done(Progress(depth=1), "d=1/m")
    assert is_new(progress, "d=1/c")
    progress = done(progress, "d=1/c", seen=NOW + 1)
    assert not is_new(progress, "d=1/c")
    assert progress.partitions["d=1"].watermark == "m"  # never goes back


def test_scan_that_starts_after_grace_moves_the_scan_start() -> None:
    progress = done(Progress(depth=1), "d=1/m")
    progress = scanned(progress, NOW + GRACE + CLOCK_STEP_SECS)
    assert progress.partitions["d=1"] == PartitionProgress("m", "m", {})
    assert not is_new(progress, "d=1/c")
    assert progress.state == "Active"  # nothing was done, so nothing changes


def test_scan_that_starts_within_grace_changes_nothing() -> None:
    progress = done(Progress(depth=1), "d=1/m")
    began = NOW + GRACE + CLOCK_STEP_SECS - 0.01
    assert scanned(progress, began, ended=NOW + 99 * GRACE) == progress


def test_batches_never_move_the_scan_start() -> None:
    progress = done(Progress(depth=1), "d=1/m")
    for number in range(3):
        progress = done(progress, f"d=1/{number}", seen=NOW + 10 * GRACE * number)
    assert progress.partitions["d=1"].before is None
    assert is_new(progress, "d=1/c")


def test_names_seen_later_stay_in_grace_longer() -> None:
    progress = done(Progress(depth=1), "d=1/m", "d=1/c")
    progress = done(progress, "d=1/d", "d=1/z", seen=NOW + 10)
    progress = scanned(progress, NOW + GRACE + CLOCK_STEP_SECS)
    # "d" lies below "m", whose grace is over: scans start behind it, and it need not be kept.
    assert progress.partitions["d=1"] == PartitionProgress("z", "m", {"z": NOW + 10})


def test_a_clock_that_was_ahead_restarts_the_grace_period() -> None:
    progress = done(done(Progress(depth=1), "d=1/a"), "d=1/b", seen=NOW + 1e6)
    assert clamp_progress(progress, NOW + 2e6) is progress
    assert clamp_progress(progress, NOW + 5).partitions["d=1"].done == {"a": NOW, "b": NOW + 5}


def test_a_pending_file_holds_watermark_and_scan_start() -> None:
    progress = done(Progress(depth=1), "d=1/a", "d=1/c", waits=["d=1/b"])
    assert progress.partitions["d=1"].watermark == "a"
    later = scanned(progress, NOW + 10 * GRACE, "d=1/b")
    assert later.partitions["d=1"].before == "a"
    assert is_new(later, "d=1/b")
    assert not is_new(later, "d=1/c")
    seen = NOW + 10 * GRACE
    tried = done(later, "d=1/b", seen=seen)
    settled_ = scanned(tried, seen + 1)
    assert settled_.partitions["d=1"] == PartitionProgress("c", "c", {})


def test_an_incomplete_scan_moves_scan_starts_up_to_its_end() -> None:
    progress = done(Progress(depth=1), "d=1/a", "d=2/a", "d=2/m", "d=3/a")
    cut = scanned(progress, NOW + 10 * GRACE, until="d=2/k")
    assert {p: k.before for p, k in cut.partitions.items()} == {"d=1": "a", "d=2": "a", "d=3": None}
    assert is_new(cut, "d=2/l")
    assert not is_new(cut, "d=2/m")
    assert is_new(cut, "d=3/0")


# -- the floor -----------------------------------------------------------------------


def three_days(seen: float = NOW) -> Progress:
    return done(Progress(depth=1), "d=1/a", "d=2/a", "d=3/a", seen=seen)


def test_the_floor_rises_to_the_tracked_partitions() -> None:
    days = [f"d=1970-01-0{day}" for day in (1, 2, 3)]
    three = done(Progress(depth=1), *(f"{day}/a" for day in days), seen=NOW)
    progress = raise_floors(scanned(three, NOW + 10 * GRACE), 2, None, (), NOW)
    assert progress.floor == days[1]
    assert set(progress.partitions) == set(days[1:])
    assert raise_floors(progress, 1, days[0], (), NOW).floor == days[2]  # never back
    assert raise_floors(scanned(three, NOW + 10 * GRACE), 3, None, (), NOW).floor is None


@pytest.mark.promise("G-121")
def test_the_limit_closes_no_partition_that_tells_no_time() -> None:
    numbers = [f"partition={number}" for number in range(100)]
    progress = passed(Progress(depth=1), [f"{partition}/a" for partition in numbers])
    after = raise_floors(progress, 2, None, (), NOW)
    assert after == progress
    assert all(is_new(after, f"{partition}/b") for partition in numbers)
    # A lookback says which names are old.
    assert raise_floors(progress, 2, "partition=50", (), NOW).floor == "partition=50"


@pytest.mark.promise("G-121")
@pytest.mark.parametrize("head", ["", "region=eu/"])
def test_partitions_without_a_date_stay_open_below_a_floor(head: str) -> None:
    depth = 1 + bool(head)
    days = [f"{head}date=1970-01-0{day}/b" for day in (1, 2, 3)]
    odd = [f"{head}{name}/b" for name in ("backfill", "date=again", "zz")]
    progress = passed(Progress(depth=depth), [*days, *odd])
    after = raise_floors(progress, 1, None, (), NOW)
    assert (after.floors.get("region=eu") if head else after.floor) == f"{head}date=1970-01-03"
    assert set(after.partitions) == {f"{head}{n}" for n in ("backfill", "date=again", "zz")} | {
        f"{head}date=1970-01-03"
    }
    for name in ("backfill", "date=again", "zz", "date=1970-01-03"):
        assert is_new(after, f"{head}{name}/c")
        assert not is_new(after, f"{head}{name}/b")
        assert not is_new(after, f"{head}{name}/a")
    assert not is_new(after, f"{head}date=1970-01-02/c")
    assert not is_new(after, f"{head}cc/c")  # nothing of it was there: it is found late
    assert [gap.after for gap in gaps(after)] == sorted(
        (gap.after for gap in gaps(after)), key=order_key
    )
    storage = MemoryStorage()
    names = ("backfill", "date=again", "zz", "date=1970-01-02", "date=1970-01-03")
    storage.objects = {f"{head}{name}/{file}": (b"", 0) for name in names for file in "abc"}
    found = scan(storage, after, lambda _file: True, 1)
    assert [entry.path for entry in found.entries] == sorted(
        f"{head}{name}/c" for name in names if name != "date=1970-01-02"
    )
    # One that is always in grace keeps no old date open.
    busy = passed(done(after, f"{head}backfill/c"), [f"{head}date=1970-01-0{n}/b" for n in (4, 5)])
    assert busy.partitions[f"{head}backfill"].done
    later = raise_floors(busy, 1, None, (), NOW)
    assert (later.floors.get("region=eu") if head else later.floor) == f"{head}date=1970-01-05"


def test_the_floor_follows_the_lookback() -> None:
    over = scanned(three_days(), NOW + 10 * GRACE)
    assert raise_floors(over, 9, "d=2", (), NOW).floor == "d=2"
    assert raise_floors(over, 9, "d=7", (), NOW).floor == "d=3"


def test_nothing_closes_while_its_grace_lasts() -> None:
    assert raise_floors(three_days(), 1, "d=9", (), NOW) == three_days()
    mixed = done(scanned(three_days(), NOW + 10 * GRACE), "d=2/b", seen=NOW + 10 * GRACE)
    assert raise_floors(mixed, 1, "d=9", (), NOW).floor == "d=2"
    fresh = done(scanned(three_days(), NOW + 10 * GRACE), "d=4/a", seen=NOW + 10 * GRACE)
    assert raise_floors(fresh, 1, "d=9", (), NOW).floor == "d=3"


@pytest.mark.parametrize(
    ("pending", "floor"),
    [("d=2/b", "d=2"), ("d=0/b", None), ("d=2", "d=1"), ("root", "d=3"), ("a-root", None)],
)
def test_the_floor_rises_over_nothing_that_is_not_done(pending: str, floor: str | None) -> None:
    over = scanned(three_days(), NOW + 10 * GRACE)
    assert raise_floors(over, 1, "d=9", [pending], NOW).floor == floor


def test_odd_partitions_do_not_count_with_timed_ones() -> None:
    days = [f"date=2024-01-{day:02}/a" for day in (1, 2, 3)]
    odd = [f"zz-{number}/a" for number in range(9)]
    progress = passed(Progress(depth=1), [*days, *odd])
    assert raise_floors(progress, 2, None, (), NOW).floor == "date=2024-01-02"
    assert raise_floors(passed(Progress(depth=1), odd), 2, None, (), NOW).floor is None


@pytest.mark.parametrize(
    ("partition", "seconds"),
    [
        ("date=1970-01-02", 86_400),
        ("dt=19700102", 86_400),
        ("date=1970-01-01/hour=03", 10_800),
        ("date=1970-01-01T03", 10_800),
        ("1970/01/02/03", 97_200),
        ("year=1970/month=1/day=2", 86_400),
        ("region=eu/date=1970-01-02/part=7", 86_400),
        ("month=1970-02", 31 * 86_400),
        ("1971", 365 * 86_400),
        ("date=9999-12-31", 253_402_214_400),
        ("date=2024-02-30", None),
        ("date=1969-12-31", None),
        ("tenant=12345678", None),
        ("late", None),
        ("", None),
    ],
)
def test_the_time_that_a_partition_is_named_by(partition: str, seconds: float | None) -> None:
    span = span_of(partition)
    assert (None if span is None else span.begin) == seconds


@pytest.mark.parametrize(
    "others",
    [
        [f"zz{i:02}=2001-09-09" for i in range(66)],
        [f"zz{i:02}=1999-01-01" for i in range(66)],
        [f"date=2001-09-09T23-59-{i:02}" for i in range(60)],
    ],
)
def test_another_family_does_not_close_partitions_in_use(
    others: list[str],
) -> None:
    now = 1_000_000_000.0  # 2001-09-09
    home = "date=2001-09-09"
    paths = [f"{partition}/1.json" for partition in (home, *others)]
    progress = passed(Progress(depth=1), paths)
    floor = raise_floors(progress, 2, None, (), now).floor
    assert floor is None or order_key(floor) <= order_key(home)
    # Once nobody has written there for long, it is closed like any other.
    later = raise_floors(progress, 2, None, (), now + 30 * 86_400).floor
    assert later is not None
    assert order_key(later) > order_key(home)


# -- listing -------------------------------------------------------------------------


def test_gaps_surround_the_tracked_partitions() -> None:
    progress = Progress(
        "Active",
        "d=3/x",
        {
            "d=3": PartitionProgress("x", "x"),
            "d=1": PartitionProgress("b", "b"),
            "d=1-late": PartitionProgress("q", "q"),
        },
        1,
        "d=0",
    )
    assert gaps(progress) == (
        Range("d=0/", "d=1-late/"),
        Range("d=1-late/q", "d=1/"),
        Range("d=1/b", "d=3/"),
        Range("d=3/x", None),
    )


def test_a_partition_without_a_scan_start_needs_no_gap() -> None:
    progress = done(passed(Progress(depth=1), ["d=1/b", "d=3/x"]), "d=2/a", "d=4/a")
    assert gaps(progress) == (Range("", "d=1/"), Range("d=1/b", "d=3/"), Range("d=3/x", None))
    assert gaps(three_days()) == (Range("", None),)


def test_a_flat_source_is_one_gap_above_the_global_watermark() -> None:
    progress = passed(Progress(depth=0), ["a", "b"])
    assert gaps(progress) == (Range("b", None),)


def test_depth_is_that_of_the_first_file_in_a_directory() -> None:
    assert depth_of(["f", "a/b/f", "c/f"]) == 2
    assert depth_of(["f"]) is None


@pytest.mark.parametrize("odd", ["a//f", "a//b/f", "/f", "//f", "a/b//c/d/f"])
def test_an_empty_component_does_not_decide_the_depth(odd: str) -> None:
    assert depth_of([odd, "a/b/f"]) == 2
    # Where nothing else is there it does: these files are tracked below what is before it.
    assert depth_of(["f", odd]) == (split(odd, 9)[0].count("/") + 1 if split(odd, 9)[0] else None)


def test_hidden_is_decided_by_every_component() -> None:
    assert is_hidden("_delta_log/x")
    assert is_hidden("d=1/.tmp")
    assert is_hidden("d=1/_temporary/0/x")
    assert not is_hidden("d=1/x_y")


# -- the promise ---------------------------------------------------------------------


NAMES = st.sampled_from(["a", "b", "b-", "b0", "c d", "é", "%41", "z=1", "A", "\U0001f427"])
PARTS = st.sampled_from(["d=1", "d=1-late", "d=10", "d=2", "_x", "d=2 ", "ü", ".", ""])
PATHS = st.builds(lambda parts, name: "/".join([*parts, name]), st.lists(PARTS, max_size=3), NAMES)


@pytest.mark.promise("G-001")
@settings(max_examples=300, deadline=None)
@given(
    story=rounds(PATHS),
    batch=st.integers(1, 4),
    pages=st.integers(1, 5),
    page_secs=st.sampled_from([0.0, 7.0, GRACE / 2]),
    depth=st.sampled_from([None, 1, 2]),
    tracked=st.sampled_from([None, 1, 2]),
    limit=st.sampled_from([None, 1, 4]),
)
def test_a_name_within_grace_of_a_higher_one_is_done_once(
    story: Rounds,
    batch: int,
    pages: int,
    page_secs: float,
    depth: int | None,
    tracked: int | None,
    limit: int | None,
) -> None:
    """Files appear in any order anywhere, between pages too; tries fail; scans are cut."""
    model = Model(page_secs, pages, Progress(depth=depth), tracked, limit)
    check_promise(model, story, batch)


# Some that the limit closes, and one that stays open below them.
PLACES = ("d=1970-01-01", "d=1970-01-02", "d=1970-01-03", "d=1")


@settings(max_examples=600, deadline=None)
@given(
    story=rounds(st.builds("{}/{}".format, st.sampled_from(PLACES), st.sampled_from("abcd"))),
    tracked=st.sampled_from([None, 1]),
    limit=st.sampled_from([None, None, 1]),
)
def test_names_behind_the_cursor_of_a_scan_are_not_lost(
    story: Rounds, tracked: int | None, limit: int | None
) -> None:
    """Few places, one name a page, and scans that take as long as the grace period."""
    check_promise(Model(GRACE / 2, 1, Progress(depth=1), tracked, limit), story, 2)


def test_a_poll_costs_tracked_partitions_plus_one() -> None:
    costs = []
    for old in (10, 400):
        storage = MemoryStorage()
        storage.page_keys = 100
        for number in range(old):
            storage.objects[f"d=1/{number:05d}"] = (b"", 0)
            storage.objects[f"d=2/{number:05d}"] = (b"", 0)
        progress = passed(Progress(depth=1), [f"d={day}/{old - 1:05d}" for day in (1, 2)])
        found = scan(storage, progress, lambda _file: True, 4)
        assert found.entries == ()
        costs.append((found.requests, found.keys))
    assert costs[0][0] == costs[1][0] == 3


def test_a_listing_jumps_over_hidden_directories() -> None:
    storage = MemoryStorage()
    for number in range(300):
        storage.objects[f"_delta_log/{number:05d}.json"] = (b"", 0)
        storage.objects[f".git/{number:05d}"] = (b"", 0)
    storage.objects["date=1/a"] = (b"", 0)
    storage.objects["A/a"] = (b"", 0)
    found = scan(storage, Progress(), lambda _file: True, 1)
    assert [e.path for e in found.entries] == ["A/a", "date=1/a"]
    assert found.requests <= 6


def test_clamped_future_times_retain_their_order() -> None:
    done = {"a": NOW - 1, "b": NOW + 9, "c": NOW + 7, "d": NOW + 7, "e": NOW + 1e6}
    progress = Progress(depth=1, partitions={"d=1": PartitionProgress("e", None, done)})
    found = clamp_progress(progress, NOW).partitions["d=1"].done
    assert found["a"] == NOW - 1
    assert NOW - 0.001 < found["c"] == found["d"] < found["b"] < found["e"] == NOW

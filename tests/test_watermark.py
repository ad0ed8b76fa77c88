"""The watermark arithmetic against a brute-force model, and its documented corners."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_py.core.model import Entry
from blizzard_py.core.scan import scan
from blizzard_py.core.watermark import (
    SETTLED_SECS,
    Gap,
    PartitionProgress,
    Progress,
    advance,
    depth_of,
    gaps,
    is_hidden,
    is_new,
    joined,
    mark_idle,
    split,
    with_depth,
)
from tests.memory_store import MemoryStorage

NOW = 1_000_000.0
GRACE = 300.0


def entry(path: str, modified: float = NOW) -> Entry:
    return Entry(path, 1, modified)


def entries(*paths: str) -> list[Entry]:
    return [entry(path) for path in paths]


def test_split_takes_leading_components_and_joined_puts_them_back() -> None:
    assert split("date=1/hour=2/f.json", 2) == ("date=1/hour=2", "f.json")
    assert split("date=1/hour=2/sub/f.json", 2) == ("date=1/hour=2", "sub/f.json")
    assert split("date=1/f.json", 2) == ("date=1", "f.json")
    assert split("f.json", 2) == ("", "f.json")
    assert split("a/b", 0) == ("", "a/b")
    for path in ("a/b/c", "c", "a/c"):
        for depth in range(4):
            assert joined(*split(path, depth)) == path


def test_the_state_goes_from_initial_to_active_to_idle_and_back() -> None:
    cold = Progress(depth=1)
    assert cold.state == "Initial"
    assert mark_idle(cold).state == "Initial"  # an empty source is not an idle one
    active = advance(cold, entries("d=1/a"), (), NOW, GRACE)
    assert (active.state, active.value) == ("Active", "d=1/a")
    idle = mark_idle(active)
    assert (idle.state, idle.value) == ("Idle", "d=1/a")
    assert advance(idle, entries("d=1/b"), (), NOW, GRACE).state == "Active"


def test_partitions_advance_on_their_own_and_the_global_watermark_is_the_highest_path() -> None:
    progress = advance(Progress(depth=1), entries("d=2/a", "d=1/z", "d=1/b"), (), NOW, GRACE)
    assert progress.value == "d=2/a"
    assert {p: k.watermark for p, k in progress.partitions.items()} == {"d=1": "z", "d=2": "a"}
    assert is_new(progress, "d=1/zz")
    assert not is_new(progress, "d=1/b")


def test_a_partition_without_a_watermark_is_new_as_a_whole_also_below_the_tracked_ones() -> None:
    progress = advance(Progress(depth=1), entries("d=5/a"), (), NOW, GRACE)
    assert is_new(progress, "d=4/a")
    assert is_new(progress, "d=6/a")


def test_partitions_below_the_floor_are_closed() -> None:
    progress = Progress(depth=1, floor="d=3")
    assert not is_new(progress, "d=2/a")
    assert is_new(progress, "d=3/a")
    # `-` sorts before `/`, so this partition sorts before d=3 in every listing.
    assert not is_new(progress, "d=3-late/a")


def test_within_the_grace_period_a_file_below_the_watermark_is_new_once() -> None:
    progress = advance(Progress(depth=1), entries("d=1/m"), (), NOW, GRACE)
    assert is_new(progress, "d=1/c")
    progress = advance(progress, entries("d=1/c"), (), NOW + 1, GRACE)
    assert not is_new(progress, "d=1/c")
    assert progress.partitions["d=1"].watermark == "m"  # never goes back


def test_after_the_grace_period_the_scan_starts_at_the_watermark() -> None:
    progress = advance(Progress(depth=1), entries("d=1/m"), (), NOW, GRACE)
    progress = advance(progress, (), (), NOW + GRACE, GRACE)
    assert progress.partitions["d=1"] == PartitionProgress("m", "m", {})
    assert not is_new(progress, "d=1/c")
    assert progress.state == "Active"  # nothing was done, so nothing changes


def test_a_file_of_long_ago_needs_no_grace() -> None:
    old = entry("d=1/a", NOW - SETTLED_SECS - 1)
    progress = advance(Progress(depth=1), [old], (), NOW, GRACE)
    assert progress.partitions["d=1"] == PartitionProgress("a", "a", {})


def test_a_pending_file_holds_the_watermark_and_the_scan_start_below_itself() -> None:
    progress = advance(Progress(depth=1), entries("d=1/a", "d=1/c"), ["d=1/b"], NOW, GRACE)
    assert progress.partitions["d=1"].watermark == "a"
    later = advance(progress, (), ["d=1/b"], NOW + 10 * GRACE, GRACE)
    assert later.partitions["d=1"].before == "a"
    assert is_new(later, "d=1/b")
    assert not is_new(later, "d=1/c")
    done = advance(later, entries("d=1/b"), (), NOW + 11 * GRACE, GRACE)
    assert done.partitions["d=1"].watermark == "c"


def test_gaps_lie_before_between_and_behind_the_tracked_partitions() -> None:
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
        Gap("d=0/", "d=1-late/"),
        Gap("d=1-late/q", "d=1/"),
        Gap("d=1/b", "d=3/"),
        Gap("d=3/x", None),
    )


def test_a_flat_source_is_one_gap_above_the_global_watermark() -> None:
    progress = advance(Progress(depth=0), entries("a", "b"), (), NOW, 0)
    assert gaps(progress) == (Gap("b", None),)


def test_depth_is_that_of_the_first_file_in_a_directory() -> None:
    assert depth_of(["f", "a/b/f", "c/f"]) == 2
    assert depth_of(["f"]) == 0
    assert with_depth(Progress(depth=1), ["a/b/c"]).depth == 1


def test_hidden_is_decided_by_every_component() -> None:
    assert is_hidden("_delta_log/x")
    assert is_hidden("d=1/.tmp")
    assert is_hidden("d=1/_temporary/0/x")
    assert not is_hidden("d=1/x_y")


NAMES = st.sampled_from(["a", "b", "b-", "b0", "c d", "é", "%41", "z=1", "A", "\U0001f427"])
PARTS = st.sampled_from(["d=1", "d=1-late", "d=10", "d=2", "_x", "d=2 ", "ü", "."])
PATHS = st.builds(lambda parts, name: "/".join([*parts, name]), st.lists(PARTS, max_size=3), NAMES)


@settings(max_examples=400, deadline=None)
@given(
    arrivals=st.lists(st.lists(PATHS, max_size=8), min_size=1, max_size=6),
    batch=st.integers(1, 4),
    fail=st.sets(st.integers(0, 20)),
    pages=st.integers(1, 5),
    depth=st.sampled_from([None, 1, 2]),
)
def test_every_file_that_arrives_within_the_grace_period_is_done_exactly_once(
    arrivals: list[list[str]], batch: int, fail: set[int], pages: int, depth: int | None
) -> None:
    """Files appear in any order anywhere; tries fail now and then; nothing is lost or doubled."""
    storage = MemoryStorage(clock=lambda: now)
    storage.page_keys = pages
    progress = Progress(depth=depth)
    done: list[str] = []
    now = NOW
    tries = 0
    # One more round with nothing new and no failures works off what is left.
    for number, round_ in enumerate([*arrivals, []]):
        now += GRACE / (len(arrivals) + 2)
        for path in round_:
            if path not in storage.objects:
                storage.objects[path] = (b"", now)
        found = scan(storage, progress, lambda _path: True, 2)
        progress = found.progress
        todo = list(found.entries)
        held: list[str] = []
        while todo:
            chosen, todo = todo[:batch], todo[batch:]
            tries += 1
            failed = number < len(arrivals) and tries in fail
            if failed:
                held += [e.path for e in chosen]
            else:
                done += [e.path for e in chosen]
            progress = advance(
                progress,
                [] if failed else chosen,
                [*held, *(e.path for e in todo)],
                now,
                GRACE,
            )
    if depth is None and progress.depth == 0:
        # Without directories at the start there are no partitions: by the
        # specification only what sorts above the watermark counts then.
        assert len(set(done)) == len(done)
        return
    visible = sorted(p for p in storage.objects if not is_hidden(p))
    assert sorted(done) == visible


def test_a_poll_costs_tracked_partitions_plus_one_whatever_is_stored() -> None:
    costs = []
    for old in (10, 400):
        storage = MemoryStorage()
        storage.page_keys = 100
        for number in range(old):
            storage.objects[f"d=1/{number:05d}"] = (b"", 0)
            storage.objects[f"d=2/{number:05d}"] = (b"", 0)
        progress = advance(
            Progress(depth=1),
            entries(f"d=1/{old - 1:05d}", f"d=2/{old - 1:05d}"),
            (),
            NOW,
            0,
        )
        found = scan(storage, progress, lambda _path: True, 4)
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
    found = scan(storage, Progress(), lambda _path: True, 1)
    assert [e.path for e in found.entries] == ["A/a", "date=1/a"]
    assert found.requests <= 6

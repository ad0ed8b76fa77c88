"""Floors below heads: ``region=eu/date=2024-01-28`` and the like cost what is new, too.

Partitions with another key before their time lie one region behind the other in the order
of names. Each region's old partitions close by themselves, and what lies between stays open.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.checkpoint.document import FLOORS_VERSION, progress_to_json
from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Range, order_key
from blizzard_core.watermark.closed_partitions import IN_USE_SECS, raise_floors
from blizzard_core.watermark.partition_time import head_of
from blizzard_core.watermark.paths import split
from blizzard_core.watermark.progress import Progress, closed_by, gaps, is_new, mark_done
from blizzard_core.watermark.scan import scan
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.source_state import Position, SourceState
from tests.support.grace_model import GRACE, Model, Rounds, check_promise, rounds
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.stored_progress import progress_from_json
from tests.support.watermarks import nothing_waits, passed

WEEK = IN_USE_SECS
TODAY = 1_706_443_200.0


def day(number: int) -> str:
    """The partition name of a day, counted from the one that `TODAY` is in."""
    return f"{dt.datetime.fromtimestamp(TODAY, dt.UTC) + dt.timedelta(days=number):date=%Y-%m-%d}"


def files(regions: Iterable[str], days: Iterable[int], name: str = "a") -> list[str]:
    days = list(days)
    return [f"region={region}/{day(number)}/{name}" for region in regions for number in days]


def closed(progress: Progress, limit: int, now: float = TODAY, **more: Any) -> Progress:
    return raise_floors(progress, limit, None, more.pop("pending", ()), now, **more)


@pytest.mark.promise("G-123")
def test_unused_heads_above_a_used_one_keep_one_partition() -> None:
    dead = [f"{number:03d}" for number in range(1, 101)]
    paths = [*files(dead, range(-30, -20)), *files(["000"], range(-9, 1))]
    progress = closed(passed(Progress(depth=2), paths), 4)
    # Four of the one that lives, and of as many at rest as may be followed.
    assert len(progress.partitions) == 4 + 3 * 4 + 97
    assert {p for p in progress.partitions if "region=050" in p} == {f"region=050/{day(-21)}"}
    # Whoever starts again is found, and goes on.
    assert is_new(progress, f"region=050/{day(0)}/a")
    assert is_new(progress, f"region=050/{day(-21)}/b")
    assert not is_new(progress, f"region=050/{day(-22)}/b")
    # As long as they are not too many they keep what may be tracked.
    few = closed(passed(Progress(depth=2), paths), 200)
    assert len(few.partitions) == 101 * 10


# -- which partitions close ----------------------------------------------------------


@pytest.mark.parametrize(
    ("partition", "head"),
    [
        ("date=2024-01-28", ""),
        ("date=2024-01-28/region=eu", ""),
        ("region=eu/date=2024-01-28", "region=eu"),
        ("tenant=17/2024/01/28/14", "tenant=17"),
        ("a/tenant=17/year=2024/month=01", "a/tenant=17"),
        ("region=eu", ""),
        ("region=eu/late", ""),
        ("", ""),
    ],
)
def test_the_head_of_a_partition_is_what_lies_before_its_time(partition: str, head: str) -> None:
    assert head_of(partition) == head


def test_old_partitions_close_per_head_without_a_source_floor() -> None:
    progress = closed(passed(Progress(depth=2), files(("ap", "eu", "us"), range(-9, 1))), 2)
    assert progress.floor is None
    assert progress.floors == {f"region={r}": f"region={r}/{day(-1)}" for r in ("ap", "eu", "us")}
    assert len(progress.partitions) == 6
    assert not is_new(progress, f"region=eu/{day(-2)}/late")
    assert closed_by(progress, f"region=eu/{day(-2)}/late") == f"region=eu/{day(-1)}"
    assert is_new(progress, f"region=eu/{day(-1)}/b")
    assert closed(progress, 2) == progress  # and never back
    assert closed(progress, 9) == progress


@pytest.mark.promise("G-122")
def test_poll_cost_is_independent_of_closed_partitions() -> None:
    costs = []
    for days in (3, 30, 60):
        paths = files(("ap", "eu", "us"), range(1 - days, 1))
        progress = closed(passed(Progress(depth=2), paths), 2)
        storage = MemoryStorage()
        storage.objects = dict.fromkeys(paths, (b"", 0.0))
        found = scan(storage, progress, lambda _file: True, 1)
        assert found.entries == ()
        costs.append((found.requests, found.keys))
    assert costs[0] <= costs[1]  # neighbours share pages while little is closed
    assert costs[1] == costs[2]
    assert costs[1][0] == 7


def test_closed_ranges_are_skipped_and_gaps_between_heads_listed() -> None:
    progress = closed(passed(Progress(depth=2), files(("ap", "eu"), range(-2, 1))), 1)
    assert gaps(progress) == (
        Range("", "region=ap/"),
        Range(f"region=ap/{day(0)}/a", "region=eu/"),
        Range(f"region=eu/{day(0)}/a", None),
    )
    for path in files(("aa", "ca", "us"), (-30, 0)):  # regions that come later, with their history
        assert is_new(progress, path)
    # `-` sorts before `/`: another region, and not below the one with the floor.
    assert is_new(progress, f"region=eu-1/{day(-30)}/a")


def test_numbered_heads_are_heads_of_their_own() -> None:
    paths = [f"tenant={tenant}/{day(number)}/a" for tenant in (1, 2, 10) for number in (-2, -1, 0)]
    progress = closed(passed(Progress(depth=2), paths), 1)
    assert progress.floors == {f"tenant={t}": f"tenant={t}/{day(0)}" for t in (1, 2, 10)}
    assert progress.floor is None  # although the newest of the family is each tenant's


def test_an_unused_head_can_be_written_again() -> None:
    paths = [*files(("ap",), range(-90, -80)), *files(("eu", "us"), range(-9, 1))]
    progress = closed(passed(Progress(depth=2), paths), 3)
    assert progress.floor is None
    assert progress.floors["region=ap"] == f"region=ap/{day(-83)}"
    assert is_new(progress, f"region=ap/{day(0)}/a")


def test_excess_heads_close_the_lowest_unused_one() -> None:
    rest = files((f"a{number}" for number in range(5)), (-30, -29))
    progress = passed(Progress(depth=2), [*rest, *files(("eu", "us"), range(-9, 1))])
    found = closed(progress, 3)
    assert found.floor == f"region=a4/{day(-30)}"
    assert f"region=a4/{day(-30)}" in found.partitions
    assert set(found.floors) == {"region=eu", "region=us"}
    # A head that is written to is never closed, however many there are.
    assert closed(progress, 1).floor == f"region=eu/{day(-9)}"


def test_a_floor_of_the_source_above_a_head_takes_its_place() -> None:
    progress = closed(passed(Progress(depth=2), files(("ap", "eu"), range(-9, 1))), 1)
    later = raise_floors(progress, 1, f"region=eu/{day(0)}", (), TODAY + 30 * 86_400)
    assert later.floor == f"region=eu/{day(0)}"
    assert later.floors == {}


def test_a_head_inside_another_is_held_while_it_is_written_to() -> None:
    outer = [f"x/{day(number)}/part=1/a" for number in range(-3, 1)]
    inner = [f"x/a=1/{day(number)}/a" for number in range(-3, 1)]
    progress = passed(Progress(depth=3), [*outer, *inner])
    assert closed(progress, 1).floors == {"x/a=1": f"x/a=1/{day(0)}"}
    later = closed(progress, 1, now=TODAY + 2 * WEEK)
    assert later.floors == {"x": f"x/{day(0)}/part=1"}


# -- over what floors never rise -----------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "floor"),
    [
        (f"region=eu/{day(-2)}/b", -2),
        (f"region=ap/{day(-2)}/b", 0),  # another head's
        (f"region=us/{day(-2)}/b", 0),
        ("root", 0),
        ("region=eu/a", None),
        ("region=eu/zz", 0),
    ],
)
def test_a_heads_floor_rises_over_nothing_of_it_that_is_not_done(
    pending: str, floor: int | None
) -> None:
    progress = passed(Progress(depth=2), files(("ap", "eu", "us"), range(-3, 1)))
    found = closed(progress, 1, pending=[pending]).floors.get("region=eu")
    assert found == (None if floor is None else f"region=eu/{day(floor)}")


def test_a_scan_that_was_cut_below_a_head_closes_nothing_of_it() -> None:
    progress = passed(Progress(depth=2), files(("ap", "eu", "us"), range(-3, 1)))
    found = closed(progress, 1, until=f"region=eu/{day(-1)}/b")
    assert found.floors == {
        "region=ap": f"region=ap/{day(0)}",
        "region=eu": f"region=eu/{day(-1)}",
    }


def test_names_in_grace_hold_the_floor_of_their_head_only() -> None:
    progress = passed(Progress(depth=2), files(("ap", "eu"), range(-3, 1)))
    young = files(("eu",), (-2,), "b")
    progress = mark_done(progress, young, TODAY, nothing_waits)
    assert closed(progress, 1).floors == {
        "region=ap": f"region=ap/{day(0)}",
        "region=eu": f"region=eu/{day(-2)}",
    }


def test_files_above_the_partition_depth_hold_the_floor() -> None:
    progress = passed(Progress(depth=2), [*files(("eu",), range(-3, 1)), "region=eu/a"])
    found = closed(progress, 1)
    assert found.floors == {}  # "region=eu/a" sorts below the days
    progress = passed(Progress(depth=2), [*files(("eu",), range(-3, 1)), "region=eu/z"])
    found = closed(progress, 1)
    assert found.floors == {"region=eu": f"region=eu/{day(0)}"}
    assert "region=eu" in found.partitions


# -- the checkpoint ------------------------------------------------------------------


def test_releases_without_floors_refuse_a_checkpoint_with_them() -> None:
    progress = closed(passed(Progress(depth=2), files(("ap", "eu"), range(-3, 1))), 1)
    document = progress_to_json(progress, TODAY)
    assert document["schema_version"] == FLOORS_VERSION
    assert progress_from_json(document, "x") == progress
    state = state_to_json(SourceState(position=Position(progress)), TODAY)
    assert state["schema_version"] == FLOORS_VERSION
    assert state_from_json(state, "x").position.progress == progress


def test_a_checkpoint_without_floors_is_as_it_was() -> None:
    progress = passed(Progress(depth=2), files(("ap", "eu"), range(-3, 1)))
    document = progress_to_json(progress, TODAY)
    assert document["schema_version"] == 1
    assert "floors" not in document


@pytest.mark.parametrize("floors", [{"region=eu": 3}, {"region=eu": "region=us/date=1"}])
def test_floors_that_are_not_understood_are_refused(floors: dict[str, Any]) -> None:
    progress = passed(Progress(depth=2), files(("eu",), range(-3, 1)))
    document = {**progress_to_json(progress, TODAY), "floors": floors}
    with pytest.raises(StateError, match="region=eu"):
        progress_from_json(document, "x")


# -- the promise ---------------------------------------------------------------------


class HeadModel(Model):
    """Only names of one head count while the number of heads is within the limit."""

    def promised(self, path: str) -> bool:
        depth = self.progress.depth or 0
        head, key = head_of(split(path, depth)[0]), order_key(path)
        return all(
            self.appeared[path] <= seen + GRACE
            for other, seen in self.seen.items()
            if order_key(other) > key and head_of(split(other, depth)[0]) == head
        )


HEADS = ("region=ap", "region=eu", "tenant=1", "tenant=2")
PATHS = st.builds(
    "{}/{}/{}".format, st.sampled_from(HEADS), st.integers(-12, 0).map(day), st.sampled_from("abc")
)


@pytest.mark.promise("G-010")
@settings(max_examples=600, deadline=None)
@given(
    story=rounds(PATHS),
    batch=st.integers(1, 4),
    page_secs=st.sampled_from([0.0, 7.0, GRACE / 2]),
    limit=st.sampled_from([None, None, 1, 4]),
)
def test_files_within_grace_of_their_head_are_done_exactly_once(
    story: Rounds, batch: int, page_secs: float, limit: int | None
) -> None:
    model = HeadModel(page_secs, 2, Progress(depth=2), len(HEADS), limit, TODAY)
    check_promise(model, story, batch)


ODD = st.sampled_from(["{}/a", "{}/x", "{}/late/a", "{}/date=2024/a", "late/{}/b", "zz/zz/a"])


@settings(max_examples=600, deadline=None)
@given(
    story=rounds(PATHS | st.builds(str.format, ODD, st.sampled_from(HEADS))),
    batch=st.integers(1, 4),
    tracked=st.integers(1, 3),
    limit=st.sampled_from([None, None, 1, 4]),
)
def test_with_excess_heads_the_order_of_names_counts(
    story: Rounds, batch: int, tracked: int, limit: int | None
) -> None:
    """Files above the depth and in odd partitions among them."""
    check_promise(Model(0.0, 3, Progress(depth=2), tracked, limit, TODAY), story, batch)


@settings(max_examples=300, deadline=None)
@given(
    paths=st.sets(PATHS | st.builds(str.format, ODD, st.sampled_from(HEADS)), min_size=1),
    more=st.sets(PATHS | st.builds(str.format, ODD, st.sampled_from(HEADS))),
    tracked=st.integers(1, 3),
)
def test_listing_the_gaps_finds_what_looks_new_in_a_full_listing(
    paths: set[str], more: set[str], tracked: int
) -> None:
    progress = closed(passed(Progress(depth=2), paths), tracked)
    storage = MemoryStorage()
    storage.objects = dict.fromkeys(paths | more, (b"", 0.0))
    found = scan(storage, progress, lambda _file: True, 1)
    new = {path for path in storage.objects if is_new(progress, path)}
    assert {entry.path for entry in found.entries} == new
    assert found.requests <= len(progress.partitions) + 1 + len(new)


# -- in the pipeline -----------------------------------------------------------------


def region_world(**more: Any) -> PipelineHarness:
    world = PipelineHarness(partition_depth=2, max_tracked_partitions=3, grace_period="5m", **more)
    world.now = TODAY
    return world


def fill(world: PipelineHarness, paths: Iterable[str]) -> None:
    for path in paths:
        world.put(f"{path}.json", path)


@pytest.mark.promise("G-010")
def test_new_and_resumed_regions_are_ingested() -> None:
    world = region_world()
    first = [*files(("ap", "us"), range(-30, 1)), *files(("old",), range(-90, -80))]
    fill(world, first)
    pipeline = world.drain()
    world.now += 302
    first += files(("ap",), (0,), "b")
    fill(world, first[-1:])
    world.drain(pipeline)
    assert world.checkpoint()["floors"] == {
        "region=ap": f"region=ap/{day(-2)}",
        "region=old": f"region=old/{day(-83)}",
        "region=us": f"region=us/{day(-2)}",
    }
    assert len(world.checkpoint()["partition_watermarks"]) == 9
    world.now += 9 * 86_400
    more = [*files(("eu",), range(-3, 1)), *files(("old",), (0,)), *files(("ap", "us"), (1,))]
    fill(world, more)
    world.drain(pipeline)
    world.drain()  # and after a restart
    assert world.rows() == sorted([*first, *more])
    assert world.letters() == []


def test_a_file_below_a_heads_floor_becomes_a_dead_letter() -> None:
    world = region_world(late_sweep_interval="1000s")
    first = files(("ap", "us"), range(-30, 1))
    fill(world, first)
    pipeline = world.drain()
    world.now += 302
    world.drain(pipeline)
    fill(world, files(("ap",), (-20,), "late"))
    world.now += 1000
    world.drain(pipeline)
    world.drain(pipeline)
    assert world.rows() == sorted(first)
    assert [letter["stage"] for letter in world.letters()] == ["late"]

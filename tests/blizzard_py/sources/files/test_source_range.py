"""A source with a range: it finds what lies in it, lists nothing else, and tells of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.storage.protocol import ListingPage, order_key
from blizzard_core.watermark.name_range import NameRange
from blizzard_core.watermark.selection import NameSelection
from blizzard_py.app.workers import source_pipeline
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rename import Rename
from blizzard_py.sources.files.listing import listing_within
from tests.support.memory_store import MemoryStorage, each_death
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import poll, polls, sweeps
from tests.support.request_harness import (
    explained,
    ingest_files,
    preview_files,
)

DAYS = ("date=2022-12-31", "date=2023-01-01", "date=2023-06-01", "date=2023-12-31")
YEAR = {"from": "date=2023-01-01", "to": "date=2023-12-31"}
TRACKINGS = pytest.mark.parametrize("use_watermark", [True, False])


def year_world(**source: Any) -> PipelineHarness:
    """Files of a year, and of days before and behind it."""
    world = PipelineHarness(range=YEAR, grace_period="1s", **source)
    for day in (*DAYS, "date=2024-01-01"):
        world.put(f"{day}/1.json", day[5:])
    return world


def listed(world: PipelineHarness) -> list[tuple[str, str | None]]:
    """Record what is listed of the source from now on."""
    calls: list[tuple[str, str | None]] = []
    list_range = world.source.list_range

    def recorded(after: str, until: str | None) -> Iterator[ListingPage]:
        calls.append((after, until))
        yield from list_range(after, until)

    world.source.list_range = recorded  # type: ignore[method-assign]
    return calls


@TRACKINGS
def test_source_ends_idle_with_the_files_of_its_range(use_watermark: bool) -> None:
    world = year_world(use_watermark=use_watermark)
    world.drain()
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31"]
    assert world.pipeline().load().position.progress.state == "Idle"
    assert world.checkpoint()["source"]["range"] == {
        "first": "date=2023-01-01",
        "last": "date=2023-12-31",
    }
    world.put("date=2022-12-31/2.json", "before")
    world.put("date=2023-06-02/1.json", "new day")
    world.put("date=2024-01-02/1.json", "behind")
    world.now += 60
    world.drain()
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31", "new day"]


@pytest.mark.promise("G-034")
@TRACKINGS
def test_nothing_outside_of_the_range_is_listed(use_watermark: bool) -> None:
    world = year_world(use_watermark=use_watermark, late_sweep_interval="1d")
    for number in range(300):
        world.put(f"date=2021-01-{number:03d}/1.json", "old")
        world.put(f"date=2024-02-{number:03d}/1.json", "new")
    world.source.page_keys = 1000
    calls = listed(world)
    worker = world.drain()
    sweeps(world, worker)
    worker.backlog(worker.load())
    worker.discover(worker.load(), full=True)
    looks = [each for each in calls if each != ("", None)]  # whether the store shows anything
    assert len(looks) > 5
    for after, until in looks:
        assert order_key(after) >= order_key(YEAR["from"])
        assert order_key(until) <= order_key(f"{YEAR['to']}\U0010ffff")
    assert world.letters() == []


def test_poll_costs_no_more_than_without_a_range() -> None:
    costs = []
    for ends in (YEAR, None):
        world = PipelineHarness(range=ends, grace_period="1s")
        for day in DAYS[1:]:
            world.put(f"{day}/1.json", day)
        worker = polls(world, poll(world), 3)
        costs.append(worker.discover(worker.load()).requests)
    assert costs[0] <= costs[1]


@TRACKINGS
def test_ends_may_be_files_and_are_read(use_watermark: bool) -> None:
    ends = {"from": "d=1/3.json", "to": "d=2/2.json"}
    world = PipelineHarness(range=ends, use_watermark=use_watermark)
    for path in (
        "d=1/2.json",
        "d=1/3.json",
        "d=1/4.json",
        "d=2/1.json",
        "d=2/2.json",
        "d=2/3.json",
    ):
        world.put(path, path)
    world.drain()
    assert world.rows() == ["d=1/3.json", "d=1/4.json", "d=2/1.json", "d=2/2.json"]


def test_ends_are_prefixes_of_partitions_and_files() -> None:
    world = PipelineHarness(range={"from": "d=1/2", "to": "d=1"})
    for path in ("a.json", "d=1/1.json", "d=1/2.json", "d=1/20.json", "d=10/1.json", "d=2/1.json"):
        world.put(path, path)
    world.drain()
    assert world.rows() == ["d=1/2.json", "d=1/20.json", "d=10/1.json"]


def is_file(path: str) -> bool:
    return path.endswith(".json")


def test_listing_clamps_each_request_to_the_range() -> None:
    store = MemoryStorage()
    for path in ("a.json", "b.json", "b.jsonx", "c.json", "d.json"):
        store.put_atomic(path, b"")
    listing = listing_within(store, NameRange("b.json", "c"), NameSelection(), is_file)

    def names(after: str, until: str | None) -> list[str]:
        return [entry.path for page in listing.list_range(after, until) for entry in page.entries]

    assert names("", None) == ["b.json", "b.jsonx", "c.json"]
    assert names("b.json", None) == ["b.jsonx", "c.json"]
    assert names("", "c") == ["b.json", "b.jsonx"]
    assert names("", "b.json") == names("a", "b") == names("c.json", None) == names("d", None) == []


def test_gaps_outside_the_range_need_no_listing() -> None:
    store = MemoryStorage()
    listing = listing_within(store, NameRange("b", "c"), NameSelection(), is_file)
    assert list(listing.list_range("", "a")) == list(listing.list_range("d", None)) == []


@TRACKINGS
def test_restart_goes_on_where_it_was(use_watermark: bool) -> None:
    world = year_world(use_watermark=use_watermark, checkpoint=CheckpointSettings(interval_files=1))
    for _ in range(4):
        poll(world)
        world.now += 60
    assert len(world.rows()) == 3


@pytest.mark.promise("G-034")
@TRACKINGS
def test_death_at_any_change_brings_each_row_once(use_watermark: bool) -> None:
    for step, world, _ in each_death(
        lambda: year_world(use_watermark=use_watermark), PipelineHarness.drain
    ):
        world.drain()
        assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31"], step
    assert step > 10


def test_late_file_gets_a_dead_letter_only_inside_the_range() -> None:
    world = year_world(late_sweep_interval="1d")
    worker = polls(world, poll(world), 3)
    world.put("date=2023-06-01/3.json", "x")
    worker = polls(world, worker, 3)
    world.put("date=2023-06-01/2.json", "late")
    world.put("date=2022-12-31/2.json", "outside")
    sweeps(world, worker)
    assert [letter["path"] for letter in world.letters()] == ["mem://raw/date=2023-06-01/2.json"]


@TRACKINGS
def test_explain_says_that_a_file_lies_outside(use_watermark: bool) -> None:
    world = year_world(use_watermark=use_watermark)
    world.drain()
    for day in ("date=2022-12-31", "date=2024-01-01"):
        found = explained(world, f"{day}/1.json")
        assert found.verdict == "ignored"
        assert found.reason == (
            "it lies outside of the source's range (from date=2023-01-01 to date=2023-12-31)"
        )
    assert explained(world, "date=2023-06-01/1.json").verdict == "ingested"


@TRACKINGS
@pytest.mark.parametrize("mode", ["add", "again"])
def test_requests_leave_files_outside_with_the_reason(use_watermark: bool, mode: str) -> None:
    world = year_world(use_watermark=use_watermark)
    world.drain()
    outside = "date=2022-12-31/1.json"
    assert preview_files(world.parts(), outside, mode=mode) == ["left"]
    assert ingest_files(world.parts(), outside, mode=mode) == ["left"]
    world.drain()
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31"]


@TRACKINGS
def test_rebuild_finds_what_lies_in_the_range_alone(use_watermark: bool) -> None:
    world = year_world(use_watermark=use_watermark)
    world.drain()
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    calls = listed(world)
    rebuild = Rebuild(world.parts())
    found = rebuild.plan(None)
    assert (found.listed, found.new) == (3, ())
    assert [after for after, _ in calls] == ["date=2023-01-01"]
    rebuild.write(found)
    world.put("date=2023-12-31/2.json", "more")
    polls(world, None, 3)
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31", "more"]


def with_range(world: PipelineHarness, ends: dict[str, str] | None) -> PipelineHarness:
    world.settings["range"] = ends
    return world


@pytest.mark.promise("G-034")
@TRACKINGS
@pytest.mark.parametrize(
    "ends",
    [
        {"from": "date=2022-12-31", "to": "date=2023-12-31"},
        {"from": "date=2023-06-01", "to": "date=2023-12-31"},
        {"to": "date=2023-12-31"},
        {"from": "date=2023-01-01"},
        {"from": "date=2023-01-01", "to": "date=2024"},
        {"from": "date=2023-01-01", "to": "date=2023-06"},
        None,
    ],
)
def test_another_range_is_refused_after_the_first_start(
    use_watermark: bool, ends: dict[str, str] | None
) -> None:
    world = year_world(use_watermark=use_watermark)
    world.drain()
    with_range(world, ends)
    begun = "reads from date=2023-01-01 to date=2023-12-31 since its first.*`advanced.range` back"
    with pytest.raises(StateError, match=begun):
        world.drain()
    with pytest.raises(StateError, match=begun):
        world.pipeline().discover(world.pipeline().load())
    with_range(world, YEAR).drain()
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31"]


def test_rename_keeps_the_range_that_was_read() -> None:
    world = year_world()
    world.drain()
    with_range(world, {"from": "date=2022-12-31", "to": "date=2023-12-31"})
    renamed = replace(world.parts(), pipeline="clicks")
    Rename(renamed, "events_main").run()
    with pytest.raises(StateError, match="reads from date=2023-01-01"):
        world.drain(source_pipeline(renamed))


def test_rebuild_of_a_lost_checkpoint_wants_the_range_it_read() -> None:
    world = year_world()
    world.drain()
    world.sink.delete("_blizzard/events_main_checkpoint.json")
    with_range(world, {"from": "date=2023-02", "to": "date=2023-12-31"})
    with pytest.raises(EditRefused, match=r"has read from date=2023-01-01.*`advanced.range` back"):
        Rebuild(world.parts()).plan(None)
    with_range(world, YEAR)
    job = Rebuild(world.parts())
    job.write(job.plan(None))
    world.drain()
    assert world.rows() == ["2023-01-01", "2023-06-01", "2023-12-31"]


def test_range_may_change_before_anything_was_done() -> None:
    world = PipelineHarness(range={"from": "date=2025"})
    world.put("date=2023-01-01/1.json", "1")
    world.drain()
    with_range(world, YEAR)
    world.drain()
    assert world.rows() == ["1"]


def test_range_is_refused_for_a_source_that_began_without() -> None:
    world = year_world()
    with_range(world, None).drain()
    with pytest.raises(StateError, match="reads all names since its first start"):
        with_range(world, YEAR).drain()
    with_range(world, None).drain()
    assert len(world.rows()) == 5

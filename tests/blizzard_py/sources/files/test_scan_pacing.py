"""Sources with limits for their scans: what is scanned when, and what that proves."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from blizzard_core.errors import Unavailable, Unfinished
from blizzard_core.log import configure
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.protocol import ListingPage
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.files.late_file_sweep import LateSweep
from tests.support.pipeline_harness import PipelineHarness

OLD, NEWEST = "date=2025-06-14", "date=2025-06-15"


class PacedHarness(PipelineHarness):
    """A source whose hot ranges are scanned each minute, and everything each hour."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**{"full_scan_interval": "1h", "partition_depth": 1, **source})
        self.put(f"{OLD}/1.ndjson", "o1")
        self.put(f"{NEWEST}/1.ndjson", "n1")

    def poll(self, worker: SourcePipeline) -> None:
        """Poll as the daemon does: go on while there is work."""
        with contextlib.suppress(Unfinished):
            while worker.cycle(threading.Event()):
                pass

    def started(self) -> SourcePipeline:
        """Return a pipeline whose finds are an hour old, so that only the newest is hot."""
        worker = source_pipeline(self.parts())
        self.poll(worker)
        for _ in range(2):
            self.now += 3700
            self.poll(worker)
        return worker


def test_file_in_a_cold_partition_waits_for_a_complete_scan() -> None:
    world = PacedHarness()
    worker = world.started()
    world.put(f"{OLD}/2.ndjson", "o2")
    world.put(f"{NEWEST}/2.ndjson", "n2")
    world.now += 60
    world.poll(worker)
    assert world.rows() == ["n1", "n2", "o1"]
    world.now += 3600
    world.poll(worker)
    assert world.rows() == ["n1", "n2", "o1", "o2"]
    # It is hot now.
    world.put(f"{OLD}/3.ndjson", "o3")
    world.now += 60
    world.poll(worker)
    assert "o3" in world.rows()


def test_start_scans_everything() -> None:
    world = PacedHarness()
    world.started()
    world.put(f"{OLD}/2.ndjson", "o2")
    world.poll(world.pipeline())
    assert "o2" in world.rows()


def test_error_is_followed_by_a_complete_scan() -> None:
    world = PacedHarness()
    worker = world.started()
    world.put(f"{OLD}/2.ndjson", "o2")
    world.put(f"{NEWEST}/2.ndjson", "n2")
    world.engine.flaky[f"{NEWEST}/2.ndjson"] = 1
    world.now += 60
    with pytest.raises(Unavailable):
        world.poll(worker)
    world.poll(worker)
    assert "o2" in world.rows()


def test_new_partition_behind_the_newest_is_found_at_once() -> None:
    world = PacedHarness()
    worker = world.started()
    world.put("date=2025-06-16/1.ndjson", "next")
    world.now += 60
    world.poll(worker)
    assert "next" in world.rows()


def test_no_scan_before_it_is_due() -> None:
    world = PacedHarness()
    worker = world.started()
    assert worker.is_paced
    assert worker.poll_interval_secs == pytest.approx(60)
    world.now += 20
    world.put(f"{NEWEST}/2.ndjson", "n2")
    world.poll(worker)
    assert "n2" not in world.rows()
    assert worker.poll_interval_secs == pytest.approx(40)


def test_once_scans_everything_each_time() -> None:
    world = PacedHarness()
    worker = source_pipeline(replace(world.parts(), once=True))
    world.poll(worker)
    world.put(f"{OLD}/2.ndjson", "o2")
    world.poll(worker)
    assert "o2" in world.rows()
    assert not worker.is_paced


def test_names_in_grace_end_by_scans_of_their_partition() -> None:
    world = PacedHarness(grace_period="30s")
    worker = source_pipeline(world.parts())
    world.poll(worker)
    # Both are hot for an hour.
    for _ in range(3):
        world.now += 60
        world.poll(worker)
    world.put(f"{NEWEST}/2.ndjson", "n2")  # for a save
    world.now += 60
    world.poll(worker)
    document = world.checkpoint()
    # Only the newest name is in grace; the others are below scan starts.
    assert [block["done"].keys() for block in document["recent"].values()] == [{"2.ndjson"}]
    assert document["partition_watermarks"] == {OLD: "1.ndjson", NEWEST: "2.ndjson"}


def test_waiting_files_outside_of_a_scan_are_still_counted() -> None:
    world = PacedHarness(min_age="2h")
    activity = SourceActivity("events/main", "mem://raw", lambda: world.now)
    worker = source_pipeline(replace(world.parts(), activity=activity))
    world.poll(worker)
    assert activity.pending() == 2
    world.now += 60
    world.poll(worker)
    assert activity.pending() == 2
    world.now += 7300
    world.poll(worker)
    assert activity.pending() == 0


def test_retry_outside_of_a_scan_still_holds_its_partition() -> None:
    world = PacedHarness(grace_period="10s")
    worker = world.started()
    # One file is read, so the batch is no error, and the other one waits.
    world.put(f"{OLD}/2.ndjson", "o2")
    world.put(f"{OLD}/3.ndjson", "o3")
    world.engine.flaky[f"{OLD}/2.ndjson"] = 1
    world.now += 3600
    world.poll(worker)
    assert "o3" in world.rows()
    world.now += 120
    world.poll(worker)
    assert "o2" in world.rows()


def test_file_waiting_for_a_retry_causes_no_complete_scan() -> None:
    world = PacedHarness()
    worker = world.started()
    world.put(f"{NEWEST}/2.ndjson", "n2")
    world.put(f"{NEWEST}/3.ndjson", "n3")
    world.engine.flaky[f"{NEWEST}/2.ndjson"] = 1
    world.now += 60
    world.poll(worker)
    owner = world.checkpoint()["writer"]
    world.put(f"{OLD}/2.ndjson", "o2")
    for _ in range(2):
        world.now += 5
        with pytest.raises(Unfinished):
            worker.cycle(threading.Event())
    assert world.rows() == ["n1", "n3", "o1"]
    world.now += 60
    world.poll(worker)
    assert world.rows() == ["n1", "n2", "n3", "o1"]
    # Nor is the checkpoint taken over again.
    assert world.checkpoint()["writer"]["epoch"] == owner["epoch"]


def test_sweep_that_rests_leaves_the_pauses_of_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: Any) -> None:
        raise Unavailable("no page")

    world = PacedHarness(full_scan_interval=None, max_list_cost="0.288 USD/month")
    worker = world.started()
    world.now += 86_400
    with monkeypatch.context() as broken:
        broken.setattr(LateSweep, "next_slice", fails)
        world.poll(worker)
    assert worker.poll_interval_secs >= 60
    assert world.checkpoint()["sweep"]["cursor"] is None
    # It goes on once its rest is over.
    world.now += 3700
    world.put(f"{OLD}/0.ndjson", "late")
    world.poll(worker)
    assert [letter["path"] for letter in world.letters()] == [f"mem://raw/{OLD}/0.ndjson"]


def test_empty_source_with_a_lookback_is_polled_with_pauses() -> None:
    world = PipelineHarness(
        max_list_cost="0.288 USD/month",
        partition_filter=PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=3),
    )
    worker = world.drain()
    assert worker.poll_interval_secs > 10


def test_slice_of_a_sweep_lists_no_page_twice() -> None:
    world = PacedHarness(
        full_scan_interval=None, max_list_cost="0.145 USD/month", grace_period="10s"
    )
    for number in range(250):
        world.put(f"{NEWEST}/{number + 1000}.ndjson", "x")
    worker = world.started()
    world.source.page_keys = 100
    listings: list[list[ListingPage]] = []
    real = world.source.list_range

    def list_range(after: str, until: str | None) -> Iterator[ListingPage]:
        listings.append([])
        for page in real(after, until):
            listings[-1].append(page)
            yield page

    world.source.list_range = list_range  # type: ignore[method-assign]
    world.now += 86_400
    world.poll(worker)
    cursor = world.checkpoint()["sweep"]["cursor"]
    # Two pages are a slice at this budget.
    assert len(listings[-1]) == 2
    assert cursor == listings[-1][-1].entries[-1].path


def test_slices_of_a_sweep_come_with_scans_without_a_budget() -> None:
    world = PacedHarness(grace_period="10s")
    world.source.page_keys = 1
    for number in range(60):
        world.put(f"{NEWEST}/{number + 10}.ndjson", f"x{number}")
    worker = world.started()
    world.now += 86_400
    world.poll(worker)
    assert world.checkpoint()["sweep"]["cursor"]
    assert worker.poll_interval_secs == pytest.approx(60)


def test_young_file_above_the_depth_needs_no_full_interval() -> None:
    world = PacedHarness(min_age="30s", full_scan_interval="1d")
    worker = world.started()
    world.now += 86_400
    world.put("at_the_root.ndjson", "root")
    world.poll(worker)
    assert "root" not in world.rows()
    for _ in range(3):
        world.now += 60
        world.poll(worker)
    assert "root" in world.rows()
    # Nothing waits there any more.
    world.put(f"{OLD}/2.ndjson", "o2")
    world.now += 3600
    world.poll(worker)
    assert "o2" not in world.rows()


def test_exhausted_budget_is_logged_once_an_hour() -> None:
    text = io.StringIO()
    configure("WARNING", text)
    world = PacedHarness(full_scan_interval=None, max_list_cost="0.288 USD/month")
    activity = SourceActivity("events/main", "mem://raw", lambda: world.now)
    world.source.page_keys = 1
    for number in range(200):
        world.put(f"{NEWEST}/{number + 10}.ndjson", f"x{number}")
    worker = source_pipeline(replace(world.parts(), activity=activity))
    world.poll(worker)
    notices: list[str] = []
    for _ in range(30):
        assert worker.poll_interval_secs > 0
        world.now += worker.poll_interval_secs
        world.poll(worker)
        notices += [notice["text"] for notice in activity.to_json()["notices"]]
    told = [json.loads(line) for line in text.getvalue().splitlines()]
    events = [line for line in told if line["event"] == "list_budget_exhausted"]
    assert 1 <= len(events) <= 4
    assert events[0]["budget"] == 80
    assert len(world.rows()) == 202
    assert notices == ["The budget of LIST requests is used up: the next scan waits 61 min"]


def test_without_limits_nothing_is_paced() -> None:
    world = PipelineHarness()
    world.put(f"{OLD}/1.ndjson", "o1")
    worker = world.drain()
    assert not worker.is_paced
    assert worker.poll_interval_secs == 60

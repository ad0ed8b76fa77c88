"""Owner of a state, identity of a file, and start from another loader's checkpoint.

Each of these doubled rows, lost them or mixed them up with an earlier release.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.errors import StateError
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.time_formats import PartitionFilter
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import ListingPage
from blizzard_py.app.workers import source_pipeline
from tests.support.flat_settings import settings_of
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import DAY, letter_paths, one_cycle, poll, polls, sweeps
from tests.support.s3_server import S3Server

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
HOURS = "date=%Y-%m-%d/hour=%H"


def test_depth_other_than_the_templates_is_refused() -> None:
    # Files of an hour that is half closed would come again and again.
    hours = PartitionFilter(prefix_template=HOURS, lookback=2)
    with pytest.raises(ValidationError, match="partition_depth"):
        settings_of(
            SourceSettings, source_uri="mem://raw", partition_depth=1, partition_filter=hours
        )


def test_hours_below_a_lookback_come_once() -> None:
    # A template of two components, a lookback of two hours, and six hours of files.
    world = PipelineHarness(partition_filter=PartitionFilter(prefix_template=HOURS, lookback=2))
    world.now = dt.datetime(2024, 1, 28, 10, tzinfo=dt.UTC).timestamp()
    pipeline = None
    for hour in range(10, 16):
        world.put(f"date=2024-01-28/hour={hour}/a.ndjson", f"h{hour}")
        pipeline = poll(world, pipeline)
        world.now += 3600
    sweeps(world, pipeline)
    assert world.rows() == [f"h{hour}" for hour in range(10, 16)]


def test_other_location_under_same_checkpoint_is_refused() -> None:
    # The URI of a source is changed between two starts; its watermarks are of the old place.
    world = PipelineHarness()
    world.put("d=2024-01-28/5.ndjson", "old")
    poll(world)
    before = world.sink.read(CHECKPOINT)
    old = world.source
    world.source = MemoryStorage("mem://raw-new", lambda: world.now)
    world.engine.source = world.source
    world.settings["source_uri"] = "mem://raw-new"
    for name in ("1", "7"):
        world.put(f"d=2024-01-28/{name}.ndjson", f"new {name}")
    with pytest.raises(StateError, match="mem://raw-new"):
        one_cycle(world.pipeline())
    assert world.sink.read(CHECKPOINT) == before
    world.source = world.engine.source = old
    world.settings["source_uri"] = "mem://raw"
    world.put("d=2024-01-28/6.ndjson", "goes on")
    polls(world)
    assert world.rows() == ["goes on", "old"]


@pytest.mark.parametrize("names", [("events", "eu_raw"), ("events_eu", "raw")])
def test_two_sources_whose_names_make_one_state_do_not_share_it(names: tuple[str, str]) -> None:
    # `events/eu_raw` and `events_eu/raw`, in two files of two teams.
    world = PipelineHarness()
    live = world.parts()
    first = replace(live, pipeline="events", source_name="eu_raw")
    second = replace(live, pipeline=names[0], source_name=names[1])
    world.put("d=1/1.ndjson", "r1")
    poll(world, source_pipeline(first))
    world.put("d=1/2.ndjson", "r2")
    if names == ("events", "eu_raw"):
        poll(world, source_pipeline(second))
        assert world.rows() == ["r1", "r2"]
        return
    with pytest.raises(StateError, match="belongs to events/eu_raw"):
        one_cycle(source_pipeline(second))
    assert world.rows() == ["r1"]


def test_tracking_cannot_change_while_a_file_waits() -> None:
    # No watermark is shown yet, but a file is done.
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    world.put("d=1/2.ndjson", "r2")
    world.engine.flaky["d=1/1.ndjson"] = 2
    one_cycle(world.pipeline())
    assert world.rows() == ["r2"]
    world.settings["use_watermark"] = False
    with pytest.raises(StateError, match="use_watermark"):
        one_cycle(world.pipeline())
    world.settings["use_watermark"] = True
    polls(world)
    assert world.rows() == ["r1", "r2"]


@pytest.mark.parametrize("tracking", [True, False])
def test_repeated_key_of_a_listing_comes_once(*, tracking: bool) -> None:
    # Pages of a store overlap by one key.
    world = PipelineHarness(use_watermark=tracking)
    for number in range(1, 8):
        world.put(f"d=1/{number}.ndjson", f"r{number}")
    real = world.source.list_range

    def overlapping(after: str, until: str | None) -> Iterator[ListingPage]:
        last: tuple[Any, ...] = ()
        for page in real(after, until):
            yield replace(page, entries=last + page.entries)
            last = page.entries[-1:]

    world.source.list_range = overlapping
    sweeps(world, polls(world))
    assert world.rows() == [f"r{number}" for number in range(1, 8)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("depth", [None, 0, 1, 2])
def test_a_key_with_an_empty_component_is_a_file_of_its_own(
    depth: int | None, *, together: bool
) -> None:
    # `//x.json` beside `x.json`, `d=1//x.json` beside `d=1/x.json`, at once or in turn.
    keys = [
        "x.json",
        "/x.json",
        "//x.json",
        "d=1/x.json",
        "d=1//x.json",
        "/d=1/x.json",
        "d=1/a.json",
    ]
    world = PipelineHarness(partition_depth=depth)
    pipeline = None
    for key in keys:
        world.put(key, key)
        if not together:
            pipeline = poll(world, pipeline)
            world.now += 10
    sweeps(world, polls(world, pipeline))
    assert world.rows() == sorted(keys)


def test_closed_partitions_keep_keys_with_empty_components() -> None:
    # One partition is tracked, and a key with an empty component comes before and after.
    world = PipelineHarness(partition_depth=1, max_tracked_partitions=1, grace_period="1s")
    world.put("/a.json", "slash a")
    pipeline = None
    for number in range(5):
        world.put(f"y={1970 + number}/1.json", f"d{number}")
        pipeline = poll(world, pipeline)
        world.now += 10
    world.put("/b.json", "slash b")
    world.put("y=1974/2.json", "d4b")
    polls(world, pipeline)
    assert world.rows() == ["d0", "d1", "d2", "d3", "d4", "d4b", "slash a", "slash b"]


def test_version_like_key_is_read_as_itself(s3: S3Server) -> None:
    # S3 clients cut a key at `?versionId=` and would read another object in its place.
    world = PipelineHarness()
    source = open_storage(f"s3://{s3.new_bucket()}/raw", s3.options)
    keys = ["d=1/a.ndjson", "d=1/a.ndjson?versionId=1.ndjson", "d=1/b.ndjson?versionId=null.ndjson"]
    for key in keys:
        source.put_atomic(key, key.encode())
    for key in keys:
        with source.open_input(key) as stream:
            assert stream.read() == key.encode()
    world.source = world.engine.source = source
    poll(world)
    assert world.rows() == keys


ROOT_ONLY = {
    "schema_version": 1,
    "watermark": {"state": "Active", "value": "app.json"},
    "partition_watermarks": {"": "app.json"},
    "last_update_ts": 1,
}


def test_checkpoint_of_the_original_with_root_files_continues() -> None:
    # The only partition of it is the root.
    world = PipelineHarness()
    world.put("aaa.json", "done before")
    world.put("app.json", "done before, too")
    world.put("new.json", "new")
    world.sink.put_atomic(CHECKPOINT, json.dumps(ROOT_ONLY).encode())
    polls(world)
    assert world.rows() == ["new"]


def originals(world: PipelineHarness, *days: str) -> None:
    """Write a checkpoint as the original does: watermarks of some partitions, no floor."""
    document = {
        "schema_version": 1,
        "watermark": {"state": "Active", "value": f"date={days[-1]}/5.json"},
        "partition_watermarks": {f"date={day}": "5.json" for day in days},
        "last_update_ts": int(world.now) - 60,
    }
    world.sink.put_atomic(CHECKPOINT, json.dumps(document).encode())


@pytest.mark.parametrize("sweeps_secs", [0, DAY])
@pytest.mark.parametrize("state", ["Active", "Idle"])
def test_checkpoint_of_the_original_keeps_partition_filter(state: str, sweeps_secs: float) -> None:
    # The original looked at the days of its lookback only; old days hold what it did long ago.
    world = PipelineHarness(
        partition_filter=PartitionFilter(prefix_template="date=%Y-%m-%d", lookback=2),
        late_sweep_interval=f"{sweeps_secs}s",
    )
    world.now = dt.datetime(2024, 1, 28, 12, tzinfo=dt.UTC).timestamp()
    world.source.page_keys = 1000
    for back in range(3, 300):
        day = dt.datetime.fromtimestamp(world.now - back * DAY, dt.UTC)
        for number in range(20):
            world.put(f"date={day:%Y-%m-%d}/{number}.json", "old")
    for day in ("26", "27", "28"):
        world.put(f"date=2024-01-{day}/5.json", "old")
        world.put(f"date=2024-01-{day}/6.json", f"new {day}")
    originals(world, "2024-01-27", "2024-01-28")
    document = {
        **world.checkpoint(),
        "watermark": {"state": state, "value": "date=2024-01-28/5.json"},
    }
    world.sink.put_atomic(CHECKPOINT, json.dumps(document).encode())
    requests: list[int] = []
    real = world.source.list_range

    def counted(after: str, until: str | None) -> Iterator[ListingPage]:
        for page in real(after, until):
            requests.append(page.keys)
            yield page

    world.source.list_range = counted
    pipeline = poll(world)
    # The 26th has no watermark: within the lookback the original would take all of it.
    assert world.rows() == ["new 26", "new 27", "new 28", "old"]
    # A sweep notes once what there is; polls do not list it.
    assert sum(requests) < (6500 if sweeps_secs else 100)
    requests.clear()
    polls(world, pipeline)
    assert sum(requests) < 100
    sweeps(world, pipeline)
    assert len(world.rows()) == 4
    assert letter_paths(world) == []


def test_checkpoint_of_the_original_without_filter_continues() -> None:
    # Without a lookback the original looked everywhere above its watermarks.
    world = PipelineHarness()
    for day in ("26", "27", "28"):
        world.put(f"date=2024-01-{day}/5.json", f"done {day}")
        world.put(f"date=2024-01-{day}/6.json", f"new {day}")
    originals(world, "2024-01-26", "2024-01-27", "2024-01-28")
    sweeps(world, polls(world))
    assert world.rows() == ["new 26", "new 27", "new 28"]

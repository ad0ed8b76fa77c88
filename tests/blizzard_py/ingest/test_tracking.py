"""Sources without a watermark, and the guard that says when one is needed."""

from __future__ import annotations

import io
import json
import threading
import uuid

import pytest

from blizzard_core.errors import OrderError, StateError
from blizzard_core.log import configure
from blizzard_py.ingest import batch_loop
from blizzard_py.ingest.publish import OutputIdGenerator
from blizzard_py.sources.files import late_file_outcomes
from blizzard_py.state import ledger, processed_set
from tests.support.memory_store import Dying
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import preview_files


def random_names(world: PipelineHarness, count: int, seed: int = 0) -> list[str]:
    """Files with random names, written a minute apart; returns their rows."""
    for number in range(count):
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{seed}-{number}")
        world.put(f"d=1/{name}.ndjson", f"r{seed}-{number}")
        world.now += 60
    return [f"r{seed}-{number}" for number in range(count)]


def set_world(**source: object) -> PipelineHarness:
    return PipelineHarness(use_watermark=False, **source)


def test_random_names_are_all_ingested_once_without_a_watermark() -> None:
    world = set_world()
    expected = random_names(world, 7)
    world.drain()
    assert world.rows() == sorted(expected)
    document = world.checkpoint()
    assert document["watermark"]["state"] == "Idle"
    assert document["partition_watermarks"] == {}
    assert sum(segment["count"] for segment in document["processed"]) == 7
    expected += random_names(world, 5, seed=1)
    world.now += 1_000_000
    world.drain()
    world.drain()
    assert world.rows() == sorted(expected)


def test_a_missing_segment_stops_the_pipeline() -> None:
    world = set_world()
    random_names(world, 3)
    world.drain()
    [segment] = [path for path in world.sink.objects if "_processed/" in path]
    world.sink.delete(segment)
    with pytest.raises(StateError, match="_processed/"):
        world.drain()


@pytest.mark.parametrize("before", [True, False])
def test_tracking_cannot_be_switched_on_a_state(before: bool) -> None:
    world = PipelineHarness(use_watermark=before)
    world.put("d=1/1.ndjson", "r1")
    world.drain()
    world.settings["use_watermark"] = not before
    with pytest.raises(StateError, match="give the source another id"):
        world.drain()
    with pytest.raises(StateError, match="give the source another id"):
        world.pipeline().discover(world.pipeline().load())


@pytest.mark.parametrize("before", [True, False])
def test_tracking_can_be_switched_until_something_is_done(before: bool) -> None:
    world = PipelineHarness(use_watermark=before)
    world.drain()
    world.settings["use_watermark"] = not before
    world.drain()
    world.settings["use_watermark"] = before
    world.put("d=1/1.ndjson", "r1")
    world.drain()
    world.drain()
    assert world.rows() == ["r1"]


def test_tracking_cannot_be_switched_under_a_batch() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    dying = Dying(world.sink, world.dlq)
    for at in range(60):
        dying.dies(at, world.drain)
        if world.pipeline().load().work.in_flight:
            break
    world.settings["use_watermark"] = False
    with pytest.raises(StateError, match="was kept with a watermark"):
        world.drain()
    world.settings["use_watermark"] = True
    world.drain()
    assert world.rows() == ["r1"]


def test_a_plan_without_a_watermark_writes_nothing() -> None:
    world = set_world()
    random_names(world, 3)
    world.drain()
    world.put("d=1/new.ndjson", "new")
    before = dict(world.sink.objects)
    pipeline = world.pipeline()
    found = pipeline.discover(pipeline.load())
    assert [f.path for f in found.files] == ["d=1/new.ndjson"]
    assert world.sink.objects == before


# -- the order guard -----------------------------------------------------------


@pytest.mark.promise("G-014")
def test_random_names_stop_a_guarded_source() -> None:
    world = PipelineHarness(order_guard="fail")
    random_names(world, 40)
    with pytest.raises(OrderError, match="use_watermark: false"):
        world.pipeline().cycle(threading.Event())
    assert world.published() == {}
    assert world.checkpoint()["watermark"] == {"state": "Initial"}


@pytest.mark.parametrize("guard", ["warn", "off"])
def test_a_warning_lets_the_source_go_on(guard: str) -> None:
    world = PipelineHarness(order_guard=guard)
    expected = random_names(world, 40)
    lines = io.StringIO()
    configure("WARNING", lines)
    world.drain()
    assert world.rows() == sorted(expected)
    logs = map(json.loads, lines.getvalue().splitlines())
    told = {line["kind"] for line in logs if line["event"] == "order_guard"}
    assert told == ({"random_names"} if guard == "warn" else set())


def test_names_that_sort_are_no_problem() -> None:
    world = PipelineHarness(order_guard="fail")
    for number in range(40):
        world.put(f"d=1/{int(world.now)}-{uuid.uuid4()}.ndjson", f"r{number}")
        world.now += 60
    world.drain()
    assert len(world.rows()) == 40


def test_unpadded_hours_are_named() -> None:
    world = PipelineHarness(order_guard="fail")
    for hour in (8, 9, 10, 11):
        world.put(f"date=2024-01-01/hour={hour}/1.ndjson", f"r{hour}")
    with pytest.raises(OrderError, match=r"hour=8, .*hour=11"):
        world.pipeline().cycle(threading.Event())


@pytest.mark.promise("G-124")
def test_a_ledger_without_a_watermark_follows_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files come and are removed for months; what is there stays known."""
    for folded in (processed_set, ledger):
        monkeypatch.setattr(folded, "TAIL", 8)
    names = OutputIdGenerator()
    for made in (batch_loop, late_file_outcomes):
        monkeypatch.setattr(made, "uuid7", lambda: names.fresh(1, world.now)[0])
    world = set_world()
    world.put("d=1/stays.ndjson", "stays")
    pipeline, counts = world.pipeline(), []
    for day in range(150):
        for path in [path for path in world.source.objects if "stays" not in path]:
            world.source.delete(path)
        for number in range(4):
            world.put(f"d=1/{day}-{number}.ndjson", f"{day}-{number}")
        world.now += 86_401
        world.drain(pipeline)
        counts.append(sum(one["count"] for one in world.checkpoint().get("ledger", [])))
    assert max(counts[75:]) <= max(counts[:75]) + 8 < 400
    assert len(world.rows()) == len(set(world.rows())) == 601
    assert preview_files(world.parts(), "d=1/stays.ndjson") == ["present"]

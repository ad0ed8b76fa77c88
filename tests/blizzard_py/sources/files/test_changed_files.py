"""Files that change after they were ingested: reported once, and never read twice."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from blizzard_core.log import configure
from tests.support.offered_files import OfferedFilesHarness
from tests.support.pipeline_harness import PipelineHarness

INTERVAL = 1000.0
PATH = "date=2024-01-01/1.json"


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    configure("info", stream)
    return stream


def changed_paths(log: io.StringIO) -> list[str]:
    lines = map(json.loads, log.getvalue().splitlines())
    return [line["path"] for line in lines if line["event"] == "file_changed"]


def swept(world: PipelineHarness, times: int = 1) -> None:
    for _ in range(times):
        world.now += INTERVAL + 1
        world.drain()


def changing_world(**source: Any) -> PipelineHarness:
    world = PipelineHarness(late_sweep_interval=f"{INTERVAL}s", grace_period="10s", **source)
    world.put(PATH, "1", "2")
    world.put("date=2024-01-01/2.json", "x")
    world.drain()
    world.now += 60
    return world


@pytest.mark.promise("G-003")
@pytest.mark.parametrize("late_files", ["quarantine", "report", "ingest"])
def test_growing_file_is_reported_once_per_change(log: io.StringIO, late_files: str) -> None:
    world = changing_world(late_files=late_files)
    swept(world, 2)
    assert changed_paths(log) == []
    world.put(PATH, "1", "2", "3")
    swept(world, 3)
    assert changed_paths(log) == [PATH]
    assert world.rows() == ["1", "2", "x"]
    assert world.letters() == []
    worker = world.pipeline()
    [note] = worker.source.status_fields(worker.load())["notes"]
    assert note.startswith(
        f"1 change of files after they were ingested, the last that was found of {PATH}"
    )
    world.put(PATH, "1", "2", "3", "4")
    swept(world, 2)
    assert worker.source.status_fields(worker.load())["notes"][0].startswith("2 changes of files")


def test_change_of_size_is_reported_whatever_the_file_time(log: io.StringIO) -> None:
    world = changing_world()
    world.source.objects[PATH] = (b"9", 1e9)
    swept(world, 2)
    assert changed_paths(log) == [PATH]


@pytest.mark.promise("G-003")
def test_change_is_reported_after_the_journal_is_deleted(log: io.StringIO) -> None:
    world = changing_world()
    swept(world, 2)
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        world.sink.delete(path)  # as thirty days later
    swept(world, 2)
    assert changed_paths(log) == []
    world.put(PATH, "1", "2", "3")
    swept(world, 2)
    assert changed_paths(log) == [PATH]


def test_a_restart_or_a_time_ahead_tells_of_no_change(log: io.StringIO) -> None:
    world = changing_world()
    path = "date=2024-01-01/3.json"
    world.source.objects[path] = (b"ahead", world.now + 3000)
    world.drain()
    for _ in range(8):
        world.now += INTERVAL / 2
        world.drain()
    assert changed_paths(log) == []
    assert "ahead" in world.rows()


def test_change_of_a_file_without_rows_is_not_reported(log: io.StringIO) -> None:
    world = changing_world()
    path = "date=2024-01-01/3.json"
    world.put(path, "bad")
    world.drain()
    assert len(world.letters()) == 1
    world.put(path, "mended")
    swept(world, 2)
    assert changed_paths(log) == []


def test_change_is_reported_without_a_watermark(log: io.StringIO) -> None:
    world = changing_world(use_watermark=False)
    for _ in range(2):
        world.now += 86_401
        world.drain()
    world.put(PATH, "1", "2", "3")
    world.now += 86_401
    world.drain()
    assert changed_paths(log) == [PATH]
    assert world.rows() == ["1", "2", "x"]


def test_offered_file_is_read_again_and_not_reported(log: io.StringIO) -> None:
    world = OfferedFilesHarness(days=0)
    world.now += 86_401
    world.drain()
    world.mend("b", "1")
    world.now += 86_401
    world.drain()
    assert changed_paths(log) == []
    assert world.table() == ["1:b", "1:b+", "5", "52"]

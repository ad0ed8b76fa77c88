"""Batches that are published by manifests: each once, under its own number, whatever dies."""

from __future__ import annotations

import pytest

from blizzard_core.handover.groups import Group, encode_group, group_path
from blizzard_py.ingest.group_publishing import GroupManifests
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.state.batch import Batch, BatchResults, PlannedGroup, PlannedOutput, Replaced
from tests.support.hourly_files import ROWS, source_with_hours
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.published_groups import ID, groups_of

WHOLE = Replaced((("main/", "main0"),))


def grouping(world: PipelineHarness, replaced: Replaced = WHOLE) -> SourcePipeline:
    """A pipeline of which every batch replaces."""
    pipeline = world.pipeline()
    pipeline.source.replacement = lambda *_: replaced  # type: ignore[method-assign]  # of this one
    return pipeline


def check_groups(world: PipelineHarness, first: int = 1) -> None:
    """Numbers without a gap; every output in one manifest, where it lies and as it is."""
    groups = groups_of(world.sink)
    assert [g.seq for g in groups] == list(range(first, first + len(groups)))
    assert len({g.batch for g in groups}) == len(groups)
    assert {g.replace for g in groups} == {WHOLE.ranges}
    named = [file for g in groups for file in g.files]
    assert len({file.output_id for file in named}) == len(named)
    rows = [row for file in named for row in world.sink.read(file.path).decode().splitlines()]
    assert sorted(rows) == ROWS
    for file in named:
        assert file.path.rpartition("/")[2].startswith("unit-")
        assert file.size == len(world.sink.read(file.path))
    assert world.checkpoint()["group_seq"] == first + len(groups) - 1


def test_each_batch_is_a_group_also_one_without_rows() -> None:
    world = source_with_hours()
    world.drain(grouping(world))
    check_groups(world)
    assert [len(g.files) for g in groups_of(world.sink)] == [1, 1, 0]
    assert "in_flight" not in world.checkpoint()


def test_a_source_that_replaces_nothing_has_no_groups() -> None:
    world = source_with_hours()
    world.drain()
    assert groups_of(world.sink) == []
    assert "group_seq" not in world.checkpoint()


def test_a_number_that_another_run_took_is_left_to_it() -> None:
    world = source_with_hours()
    other = encode_group(Group(ID, 2, 9, "a backfill", (), WHOLE.ranges))

    def interferes(_operation: str, path: str) -> None:
        if path == group_path(ID, 2) and path not in world.sink.objects:
            world.sink.objects[path] = (other, 0.0)

    world.sink.before_mutation = interferes
    world.drain(grouping(world))
    groups = groups_of(world.sink)
    assert [g.seq for g in groups] == [1, 2, 3, 4]
    assert groups[1].batch == "a backfill"
    assert world.checkpoint()["group_seq"] == 4


def test_numbers_continue_without_state_and_older_manifests() -> None:
    world = source_with_hours()
    world.sink.put_atomic(group_path(ID, 17), encode_group(Group(ID, 17, 9, "before", ())))
    world.drain(grouping(world))
    assert [g.seq for g in groups_of(world.sink)] == [17, 18, 19, 20]


def test_neighbours_whose_ids_begin_alike_do_not_count() -> None:
    world = source_with_hours()
    neighbours = [group_path(name, 30) for name in (f"{ID}2", f"{ID}/x", ID[:-1])]
    for path in neighbours:
        world.sink.put_atomic(path, b"{}")
    world.drain(grouping(world))
    for path in neighbours:
        del world.sink.objects[path]
    check_groups(world)


def batch(**output: object) -> Batch:
    planned = PlannedOutput("s/1.parquet", "unit-2.parquet", 1, 1, "o", **output)  # type: ignore[arg-type]  # by the cases
    return Batch(
        "b",
        1,
        "publishing",
        0.0,
        (),
        0.0,
        results=BatchResults(outputs=(planned,), group=PlannedGroup(1, WHOLE)),
    )


def test_existing_manifest_of_the_same_batch_stays_unchanged() -> None:
    sink = MemoryStorage()
    assert GroupManifests(sink, ID).put(batch(), 3) is None
    before = dict(sink.objects)
    assert GroupManifests(sink, ID).put(batch(), 4) is None
    assert sink.objects == before


@pytest.mark.parametrize("there", ["unit-1.parquet", "unit-2.parquet"])
def test_an_output_of_a_replaced_daemon_is_named_in_place(there: str) -> None:
    sink = MemoryStorage()
    sink.put_atomic(there, b".")
    assert GroupManifests(sink, ID).put(batch(earlier=("unit-1.parquet",)), 3) is None
    assert groups_of(sink)[0].files[0].path == there


def test_a_lost_manifest_keeps_its_number() -> None:
    world = source_with_hours()
    world.drain(grouping(world))
    for seq in (1, 2, 3):
        del world.sink.objects[group_path(ID, seq)]
    world.put("date=2024-01-02/9.json", "9")
    world.drain(grouping(world))
    assert [group.seq for group in groups_of(world.sink)] == [4]

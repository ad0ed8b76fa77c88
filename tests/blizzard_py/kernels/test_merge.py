"""Few small files: what is merged, what it becomes, and what a failed merge costs."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.errors import BlizzardError, StorageError
from blizzard_core.storage.local import LocalStorage
from blizzard_core.table.schema_fit import SchemaMismatch
from blizzard_py.job import IngestResult, PartitionRule, SortKey, StagedOutput
from blizzard_py.kernels import merge, packing
from blizzard_py.kernels.merge import (
    SMALL_SHARE,
    is_joinable,
    merge_groups,
    merge_tasks,
    run_merge,
    with_merged,
)
from blizzard_py.kernels.packing import pack, tasks_of
from blizzard_py.kernels.report import TaskReport, merged
from blizzard_py.kernels.task import run_task
from blizzard_py.kernels.write.joined_file import JoinedFile
from tests.support.direct_engine import DirectEngine
from tests.support.ingest_job_harness import PREFIX, IngestJobHarness, lines, specs

DAYS = tuple(f"date=2024-01-0{day}" for day in range(1, 5))


def output(number: int, size: int, partition: str = "", rows: int = 1) -> StagedOutput:
    return StagedOutput(f"s/{number:05d}", partition, rows, size, f"id/{number}")


outputs_of_a_job = st.lists(
    st.tuples(st.integers(1, 2000), st.sampled_from(["", "d=1", "d=2"])), max_size=40
).map(lambda items: [output(i, size, where) for i, (size, where) in enumerate(items)])


# --- which ------------------------------------------------------------------------------


@given(outputs_of_a_job)
def test_groups_are_small_files_of_one_directory_for_one_file(
    outputs: list[StagedOutput],
) -> None:
    groups = merge_groups(outputs, 1000)
    members = [member for group in groups for member in group]
    assert len(set(members)) == len(members)
    for group in groups:
        assert len(group) > 1
        assert len({member.partition for member in group}) == 1
        assert sum(member.size for member in group) <= 1000
        assert all(member.size * SMALL_SHARE < 1000 for member in group)
        assert list(group) == sorted(group, key=lambda member: member.staged)


@given(outputs_of_a_job)
def test_few_small_files_are_left(outputs: list[StagedOutput]) -> None:
    groups = merge_groups(outputs, 1000)
    gone = {member.staged for group in groups for member in group}
    for directory in {output.partition for output in outputs}:
        mine = [output for output in outputs if output.partition == directory]
        small = [output for output in mine if output.size * SMALL_SHARE < 1000]
        left = [output for output in small if output.staged not in gone]
        new = sum(group[0].partition == directory for group in groups)
        total = sum(output.size for output in small)
        assert len(left) <= 1
        # Every file but the last is at least seven eighths full.
        assert len(left) + new <= total * SMALL_SHARE // (7 * 1000) + 1


def test_a_batch_with_one_file_per_directory_is_not_merged() -> None:
    assert merge_groups([output(0, 5, "d=1"), output(1, 5, "d=2"), output(2, 999)], 1000) == []


# --- the whole way ------------------------------------------------------------------------


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny files are worth tasks of their own."""
    monkeypatch.setattr(packing, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(merge, "MIN_TASK_BYTES", 1)


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("days", [0, 4])
def test_a_thousand_tiny_inputs_make_one_output_a_directory(tmp_path: Path, days: int) -> None:
    world = IngestJobHarness(tmp_path)
    for number in range(1000):
        name = f"{number:04d}.gz"
        world.put(name, gzip.compress(lines(number)))
        if days:
            world.partitions = {**world.partitions, name: DAYS[number % days]}
    result = world.ingest(engine=DirectEngine(parallelism=8))
    assert result.tasks > 4
    assert len(result.outputs) == max(1, days)
    assert {file.rows for file in result.files} == {1}
    for number, found in enumerate(sorted(result.outputs, key=lambda o: o.partition)):
        ids = pq.read_table(world.table / found.staged)["id"].to_pylist()
        # Path order, since tasks follow each other in it.
        assert ids == list(range(number, 1000, max(1, days)))
        assert found.rows == len(ids)
        assert found.size == (world.table / found.staged).stat().st_size
        footer = pq.read_metadata(world.table / found.staged)
        assert footer.metadata[b"blizzard.output_id"].decode() == found.output_id


@pytest.fixture
def worth_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little an output has, it is worth row groups of its own."""
    monkeypatch.setattr(merge, "MIN_JOINED_BYTES", 1)
    monkeypatch.setattr(merge, "JOINED_SHARE", 1 << 30)


@pytest.mark.parametrize(
    ("sizes", "order", "joinable"),
    [
        ([4 << 20, 9 << 20], (), True),
        ([4 << 20, 9 << 20], (SortKey("id"),), False),
        ([4 << 20, (4 << 20) - 1], (), False),
    ],
)
def test_outputs_are_joined_unless_they_are_tiny_or_sorted(
    tmp_path: Path, sizes: list[int], order: tuple[SortKey, ...], joinable: bool
) -> None:
    layout = IngestJobHarness(tmp_path, sort_by=order).job().settings.layout
    group = [output(number, size) for number, size in enumerate(sizes)]
    assert is_joinable(group, layout) == joinable
    least = replace(layout, file_bytes=1)  # and a megabyte is worth it, at least
    assert is_joinable([output(1, 1 << 20), output(2, (1 << 20) - 1)], least) is False
    assert is_joinable([output(1, 1 << 20), output(2, 1 << 20)], replace(least, sort_by=())) is True


@pytest.mark.usefixtures("many_tasks", "worth_joining")
@pytest.mark.parametrize("days", [0, 2])
def test_joined_files_have_all_rows_in_their_order(tmp_path: Path, days: int) -> None:
    world = IngestJobHarness(tmp_path)
    for number in range(80):
        world.put(f"{number:04d}", lines(*range(number * 10, number * 10 + 10)))
        if days:
            world.partitions = {**world.partitions, f"{number:04d}": DAYS[number % days]}
    result = world.ingest(engine=DirectEngine(parallelism=4))
    assert len(result.outputs) == max(1, days)
    assert world.ids(result) == list(range(800))
    for found in result.outputs:
        path = world.table / found.staged
        footer = pq.read_metadata(path)
        assert footer.num_row_groups > 1  # nothing was written again
        assert (found.rows, found.size) == (footer.num_rows, path.stat().st_size)
        assert footer.metadata[b"blizzard.output_id"].decode() == found.output_id
        ids = pq.read_table(path, partitioning=None)["id"].to_pylist()
        assert ids == sorted(ids)


@pytest.mark.usefixtures("worth_joining")
def test_merge_rewrites_files_it_cannot_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = IngestJobHarness(tmp_path)
    for number in range(8):
        world.put(f"{number}", lines(number))
    job, result = staged_result(world)
    before = world.staged()
    [task] = merge_tasks(job, result, 2)
    added: list[bytes] = []
    add = JoinedFile.add

    def refusing(self: JoinedFile, data: bytes) -> None:
        added.append(data)
        if len(added) == 3:
            raise SchemaMismatch("has what nobody knows")
        add(self, data)

    monkeypatch.setattr(JoinedFile, "add", refusing)
    final = with_merged(
        result, [task], [run_merge(task, LocalStorage(str(world.table)), attempt_id=10)]
    )
    [found] = final.outputs
    assert len(added) == 3
    assert world.ids(final) == list(range(8))
    assert pq.read_metadata(world.table / found.staged).num_row_groups == 1
    assert world.staged() == before | {found.staged}


@pytest.mark.usefixtures("many_tasks")
def test_outputs_near_their_size_are_left_alone(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, file_bytes=4000, row_group_bytes=4000)
    for number in range(40):
        world.put(f"{number:02d}", lines(*range(number * 100, number * 100 + 100)))
    result = world.ingest(engine=DirectEngine(parallelism=1))
    assert not any("/m" in found.staged for found in result.outputs)
    assert world.ids(result) == list(range(4000))


@pytest.mark.usefixtures("many_tasks")
def test_merged_files_keep_order_partition_and_compression(tmp_path: Path) -> None:
    world = IngestJobHarness(
        tmp_path,
        fields=specs(id="int64", country="string"),
        rules=(PartitionRule("country", key="country"),),
        sort_by=(SortKey("id", descending=True),),
        parquet="zstd",
    )
    for number in range(60):
        world.put(
            f"{number:02d}",
            b"".join(
                b'{"id":%d,"country":"%s"}\n' % (number * 7919 % 1000 + i * 1000, country)
                for i, country in enumerate([b"DE", b"a/b", b""])
            ),
        )
    result = world.ingest(engine=DirectEngine(parallelism=4))
    assert sorted(found.partition for found in result.outputs) == [
        "country=DE",
        "country=__HIVE_DEFAULT_PARTITION__",
        "country=a%2Fb",
    ]
    for found in result.outputs:
        table = pq.read_table(world.table / found.staged, partitioning=None)
        assert table.column_names == ["id"]
        ids = table["id"].to_pylist()
        assert len(ids) == 60
        assert ids == sorted(ids, reverse=True)
        group = pq.read_metadata(world.table / found.staged).row_group(0)
        assert group.column(0).compression == "ZSTD"
        assert group.sorting_columns[0].descending


def staged_result(world: IngestJobHarness, tasks: int = 4) -> tuple[Any, IngestResult]:
    job = world.job()
    source, sink = LocalStorage(str(world.source)), LocalStorage(str(world.table))
    reports = [
        run_task(task, source, sink, number)
        for number, task in enumerate(tasks_of(job, pack(job.files, tasks)))
    ]
    return job, merged(reports)


def test_two_attempts_never_share_a_name_or_an_id(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    for number in range(8):
        world.put(f"{number}", lines(number))
    job, result = staged_result(world)
    [task] = merge_tasks(job, result, 2)
    sink = LocalStorage(str(world.table))
    first, second = run_merge(task, sink, 10), run_merge(task, sink, 11)
    names = [o.staged for o in (*result.outputs, *first.outputs, *second.outputs)]
    ids = [o.output_id for o in (*result.outputs, *first.outputs, *second.outputs)]
    assert len(set(names)) == len(names)
    assert len(set(ids)) == len(ids)
    assert all(one.startswith(f"{PREFIX}/") for one in ids)
    # Only the attempt that is reported counts.
    final = with_merged(result, [task], [second])
    assert world.ids(final) == list(range(8))
    assert TaskReport.from_json(first.to_json()) == first


def test_a_merge_that_loses_rows_is_never_used(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    for number in range(8):
        world.put(f"{number}", lines(number))
    job, result = staged_result(world)
    tasks = merge_tasks(job, result, 2)
    report = run_merge(tasks[0], LocalStorage(str(world.table)), 10)
    short = replace(report, outputs=(replace(report.outputs[0], rows=7),))
    with pytest.raises(BlizzardError, match="changed the number of rows"):
        with_merged(result, tasks, [short])
    with pytest.raises(BlizzardError, match="changed the number of rows"):
        with_merged(result, tasks, [])


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_a_merge_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(merge, "MIN_JOINED_BYTES", least)
    monkeypatch.setattr(merge, "JOINED_SHARE", 1 << 30)
    world = IngestJobHarness(tmp_path)
    for number in range(8):
        world.put(f"{number}", lines(number))
    job, result = staged_result(world)
    [task] = merge_tasks(job, result, 2)
    before = world.staged()
    (world.table / result.outputs[-1].staged).unlink()
    with pytest.raises(StorageError):
        run_merge(task, LocalStorage(str(world.table)), 10)
    assert world.staged() == before - {result.outputs[-1].staged}


def test_work_is_divided_when_there_is_much(tmp_path: Path) -> None:
    job = IngestJobHarness(tmp_path).job()
    layout = replace(job.settings.layout, file_bytes=128 << 20)
    job = replace(job, settings=replace(job.settings, layout=layout))
    outputs = tuple(
        output(number, 1 << 20, f"d={number % 100:03d}", rows=5) for number in range(400)
    )
    result = IngestResult(outputs, (), 4)
    tasks = merge_tasks(job, result, 2)
    assert [len(task.groups) for task in tasks] == [25, 25, 25, 25]
    assert [task.index for task in tasks] == [0, 1, 2, 3]
    assert {len(group) for task in tasks for group in task.groups} == {4}
    assert merge_tasks(job, replace(result, outputs=outputs[:100]), 2) == []

"""The second job's kernels without Spark: what is read is what was accepted, in its order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.storage.local import LocalStorage
from blizzard_py.engines.spark.transform import record_schema, staged_columns
from blizzard_py.job import IngestJob, JobFile, PartitionRule
from blizzard_py.kernels.packing import IngestTask
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.sql_stage import PARTITION, RowRefused, SqlStage, read_records, write_rows
from blizzard_py.kernels.task import run_task
from tests.support.ingest_job_harness import PREFIX, STAGING, IngestJobHarness, lines


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def first(world: IngestJobHarness) -> tuple[IngestJob, TaskReport]:
    """The job and what its one task staged, with directories by file."""
    job = world.job()
    files = tuple(dataclasses.replace(file, partition=f"d={n}") for n, file in enumerate(job.files))
    source, sink = LocalStorage(str(world.source)), LocalStorage(str(world.table))
    staged = dataclasses.replace(
        job, staging=f"{STAGING}/first", output_prefix=f"{PREFIX}/first", files=files
    )
    return job, run_task(IngestTask(0, staged), source, sink, attempt_id=1)


def staged(report: TaskReport) -> list[JobFile]:
    return [JobFile(o.staged, o.size, o.partition) for o in report.outputs]


def second(world: IngestJobHarness, schema: pa.Schema, *directories: str) -> SqlStage:
    return SqlStage(world.job(), schema, frozenset(directories))


def test_records_come_with_their_place_in_the_source(world: IngestJobHarness) -> None:
    big = b"".join(lines(n) for n in range(100_000))  # a file of its own, in several chunks
    world.put("a.ndjson", lines(1, 2) + b"\n" + lines(3))
    world.put("b.ndjson", big)
    world.put("c.ndjson", lines(4))
    world.deduplicate_by = ("id",)
    world.template, world.metadata = "date=%Y-%m-%d", ("_ingested_at",)
    settings = world.job().settings
    world.metadata = staged_columns(settings.added_columns, settings.sql).metadata
    _, report = first(world)
    schema = record_schema(settings)
    assert schema.names == ["id", "_ingested_at", "_source_file", "_source_line", PARTITION]
    batches = list(read_records(LocalStorage(str(world.table)), staged(report), schema))
    assert all(batch.schema == schema for batch in batches)
    assert max(batch.num_rows for batch in batches) <= 10_000
    order = [("_source_file", "ascending"), ("_source_line", "ascending")]
    rows = pa.Table.from_batches(batches).sort_by(order)
    assert rows.column("id").to_pylist() == [1, 2, 3, *range(100_000), 4]
    assert rows.column("_source_line").to_pylist() == [1, 2, 4, *range(1, 100_001), 1]
    assert rows.column(PARTITION).to_pylist() == ["d=0"] * 3 + ["d=1"] * 100_000 + ["d=2"]


def test_a_column_with_a_dot_is_read_without_a_like_named_field(
    tmp_path: Path,
) -> None:
    table = pa.table({"seen": [{"at": 1, "by": 2}], "seen.at": [3], "n": [4]})
    pq.write_table(table, tmp_path / "part.parquet")
    file = JobFile("part.parquet", (tmp_path / "part.parquet").stat().st_size)
    for names in (["seen.at"], ["n", "seen.at"], ["seen"], ["seen.at", "seen"]):
        wanted = pa.schema([table.schema.field(name) for name in names])
        [found] = read_records(LocalStorage(str(tmp_path)), [file], wanted)
        assert found.to_pylist() == table.select(names).to_pylist()


def test_a_field_may_have_the_name_of_a_records_directory(world: IngestJobHarness) -> None:
    table = pa.table({"n": [1, 2], PARTITION: ["x", "y"], "page": ["p", "q"]})
    world.table.mkdir(exist_ok=True)
    pq.write_table(table, world.table / "part.parquet")
    file = JobFile("part.parquet", (world.table / "part.parquet").stat().st_size)
    sink = LocalStorage(str(world.table))
    batches = list(read_records(sink, [file], table.schema))
    assert pa.Table.from_batches(batches).to_pylist() == table.to_pylist()
    report = write_rows(second(world, table.schema), 5, 9, batches, sink)
    assert [o.partition for o in report.outputs] == [""]
    assert world.rows(report) == table.to_pylist()


def test_rows_are_written_as_by_the_first_job(world: IngestJobHarness) -> None:
    world.template = "d=%Y"
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    batches = [
        pa.RecordBatch.from_pydict({PARTITION: ["d=1", "d=2", "d=1"], "n": [1, 2, 3]}),
        pa.RecordBatch.from_pydict({PARTITION: ["d=1"], "n": [4]}),
    ]
    sink = LocalStorage(str(world.table))
    report = write_rows(second(world, schema, "d=1", "d=2"), 5, 9, batches, sink)
    assert [(o.partition, o.rows) for o in report.outputs] == [("d=1", 3), ("d=2", 1)]
    assert [o.output_id for o in report.outputs] == [f"{PREFIX}/00005-9/{n}" for n in (0, 1)]
    assert [row["n"] for row in world.rows(report)] == [1, 3, 4, 2]
    assert report.files == ()


def test_a_directory_that_no_file_has_is_refused(
    world: IngestJobHarness,
) -> None:
    world.template = "d=%Y"
    schema = pa.schema([pa.field("n", pa.int64())])
    batches = [pa.RecordBatch.from_pydict({PARTITION: ["d=1", "../out"], "n": [1, 2]})]
    sink = LocalStorage(str(world.table))
    with pytest.raises(ValueError, match="changes _partition"):
        write_rows(second(world, schema, "d=1"), 0, 1, batches, sink)
    assert world.staged() == set()


def test_a_time_that_no_calendar_has_is_the_rows_fault(world: IngestJobHarness) -> None:
    world.rules = (PartitionRule("at", template="date=%Y-%m-%d"),)
    kind = pa.timestamp("us", tz="UTC")
    schema = pa.schema([pa.field("at", kind)])
    batch = pa.RecordBatch.from_arrays([pa.array([1 << 61], pa.int64()).cast(kind)], schema=schema)
    with pytest.raises(RowRefused, match="outside the years"):
        write_rows(second(world, schema), 0, 1, [batch], LocalStorage(str(world.table)))

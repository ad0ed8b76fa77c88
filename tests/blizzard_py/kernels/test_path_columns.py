"""Columns of the path in a task: in each format, in each way that rows go, and in the table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from blizzard_core.settings.formats import FormatSettings, ParquetOptions
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.job import PartitionRule, SortKey
from tests.support.ingest_job_harness import IngestJobHarness, by_path, lines, specs

PATH = specs(region="string", tenant="int32")


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path, path=PATH)


def parquet(**columns: list[Any]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


DATA = {
    "ndjson": lines(1, 2),
    "json": b'[{"id":1},{"id":2}]',
    "csv": b"id\n1\n2\n",
    "xml": b"<r><row><id>1</id></row><row><id>2</id></row></r>",
    "parquet": parquet(id=[1, 2]),
}


def test_rows_get_the_values_of_their_path(world: IngestJobHarness) -> None:
    world.put("region=eu/tenant=7/a.ndjson", lines(1, 2))
    world.put("region=%C3%A4/tenant=8/b.ndjson", lines(3))
    world.put("region=__HIVE_DEFAULT_PARTITION__/tenant=9/c.ndjson", lines(4))
    world.put("region=eu/tenant=7/empty.ndjson", b"")
    world.put("region=eu/tenant=10/big.ndjson", lines(*range(100, 100_100)))
    world.metadata = ("_source_line",)
    for attempt in (0, 2):
        report = world.run_task(attempt=attempt)
        rows = {row["id"]: row for row in world.rows(report)}
        assert len(rows) == 100_004
        assert rows[2] == {"id": 2, "region": "eu", "tenant": 7, "_source_line": 2}
        found = {i: (rows[i]["region"], rows[i]["tenant"]) for i in (3, 4, 100_099)}
        assert found == {3: ("ä", 8), 4: (None, 9), 100_099: ("eu", 10)}


def test_file_without_the_values_is_left_out_alone(world: IngestJobHarness) -> None:
    world.put("region=eu/tenant=7/a.ndjson", lines(1))
    world.put("region=eu/tenant=seven/b.ndjson", lines(2))
    world.put("region=eu/c.ndjson", lines(3))
    report = world.run_task()
    assert world.ids(report) == [1]
    lost = {p: f for p, f in by_path(report).items() if f.outcome != "ingested"}
    assert [(f.outcome, f.stage) for f in lost.values()] == [("quarantined", "partition")] * 2
    assert "no folder tenant=" in lost["region=eu/c.ndjson"].error
    assert "'seven'" in lost["region=eu/tenant=seven/b.ndjson"].error


@pytest.mark.parametrize("name", DATA)
def test_path_columns_are_in_rows_of_each_format(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {"row_tag": "row"} if name == "xml" else {}
    form = TypeAdapter(FormatSettings).validate_python({"type": name, **options})
    world = IngestJobHarness(tmp_path, path=PATH, format=form)
    world.put(f"region=eu/tenant=7/a.{name}", DATA[name])
    rows = world.rows(world.run_task())
    assert rows == [{"id": n, "region": "eu", "tenant": 7} for n in (1, 2)]


def test_copies_of_row_groups_give_way_to_path_columns(world: IngestJobHarness) -> None:
    world.format = ParquetOptions(type="parquet", row_groups="copy")
    world.put("region=eu/tenant=7/a.parquet", parquet(id=[1]))
    report = world.run_task()
    assert world.rows(report) == [{"id": 1, "region": "eu", "tenant": 7}]
    [file] = report.files
    assert "rows get the columns of path_columns" in file.row_groups


def test_path_columns_decide_directories_and_order(world: IngestJobHarness) -> None:
    world.rules = (PartitionRule("region", key="region"),)
    world.sort_by = (SortKey("tenant", descending=True),)
    world.put("region=eu/tenant=1/a.ndjson", lines(1))
    world.put("region=eu/tenant=2/b.ndjson", lines(2))
    world.put("region=__HIVE_DEFAULT_PARTITION__/tenant=3/c.ndjson", lines(3, 4))
    report = world.run_task()
    found = {o.partition: pq.read_table(world.table / o.staged).to_pylist() for o in report.outputs}
    assert found == {
        "region=eu": [{"id": 2, "tenant": 2}, {"id": 1, "tenant": 1}],
        "region=__HIVE_DEFAULT_PARTITION__": [{"id": 3, "tenant": 3}, {"id": 4, "tenant": 3}],
    }
    assert sorted(world.rows(world.run_task(attempt=2)), key=str) == sorted(
        [row for rows in found.values() for row in rows], key=str
    )


def test_spark_deduplicates_and_transforms_path_columns(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.deduplicate_by = ("tenant", "id")
    world.transform = "SELECT id * 10 AS id, upper(region) AS region, tenant + 1 AS t FROM source"
    world.put("region=eu/tenant=1/a.ndjson", lines(1, 1, 2))
    world.put("region=us/tenant=1/b.ndjson", lines(1))
    world.put("region=us/tenant=2/c.ndjson", lines(1))
    result = world.ingest(engine=spark_engine)
    assert sorted(tuple(row.values()) for row in world.rows(result)) == [
        (10, "EU", 2),
        (10, "US", 3),
        (20, "EU", 2),
    ]

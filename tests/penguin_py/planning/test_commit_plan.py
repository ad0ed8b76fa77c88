"""The pure decisions: partition values, schema, and what a commit holds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.settings.document import Config
from blizzard_core.settings.tables import TableSettings
from blizzard_core.storage.opening import delta_options
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.schema_fit import SchemaMismatch, SchemaRules, delta_schema, merge
from penguin_py.intake.footers import accepts
from penguin_py.model import Footer, TableState
from penguin_py.planning.commit_plan import make_plan
from penguin_py.planning.partition_values import check_addressable, partition_values
from penguin_py.settings import tables_of
from tests.support.table_harness import parquet

MERGE = SchemaRules(None, "merge")


def footer(path: str, data: pa.Table, output_id: str | None = None) -> Footer:
    metadata = pq.read_metadata(io.BytesIO(parquet(data)))
    return Footer(Entry(path, 1, 0.0), metadata.schema.to_arrow_schema(), metadata, output_id)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.string(), "a%2Fb c", "a/b c"),
        (pa.string(), "__HIVE_DEFAULT_PARTITION__", None),
        (pa.string(), "50%", "50%"),
        (pa.int32(), "07", "7"),
        (pa.int32(), "-2147483648", "-2147483648"),
        (pa.int8(), "127", "127"),
        (pa.int64(), "9223372036854775807", "9223372036854775807"),
        (pa.date32(), "2024-02-29", "2024-02-29"),
        (pa.date32(), "__HIVE_DEFAULT_PARTITION__", None),
        (pa.bool_(), "True", "true"),
        (pa.timestamp("us", tz="UTC"), "2024-01-02 03%3A04%3A05.5", "2024-01-02T03:04:05.500000Z"),
        (pa.timestamp("us"), "2024-01-02 03:04:05", "2024-01-02 03:04:05.000000"),
        (pa.string(), "a%3Db%2A", "a=b*"),
    ],
)
def test_partition_values(kind: pa.DataType, text: str, expected: str | None) -> None:
    assert partition_values(f"p={text}/x.parquet", {"p": kind}) == {"p": expected}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "abc"),
        (pa.int32(), "2147483648"),
        (pa.int32(), "1_000"),
        (pa.int32(), "1.0"),
        (pa.int32(), "\u0661"),
        (pa.int8(), "128"),
        (pa.date32(), "junk"),
        (pa.date32(), "20240102"),
        (pa.date32(), "2024-W01-1"),
        (pa.date32(), "2023-02-29"),
        (pa.date32(), "2024-01-02 "),
        (pa.date32(), "0000-01-01"),
        (pa.bool_(), "1"),
        (pa.timestamp("us"), "2024-01-02"),
        (pa.timestamp("us"), "2024-01-02 25:00:00"),
        (pa.timestamp("us"), "2024-01-02 00:00:00Z"),
        (pa.timestamp("us", tz="UTC"), "2024-01-02T00:00:00Z"),
        (pa.string(), ""),
        (pa.string(), "a=b"),
        (pa.string(), "a*b"),
        (pa.float64(), "1.5"),
        (pa.string(), "%FF"),
    ],
)
def test_bad_partition_values_are_refused(kind: pa.DataType, text: str) -> None:
    with pytest.raises(SchemaMismatch):
        partition_values(f"p={text}/x.parquet", {"p": kind})


@given(st.text(max_size=12), st.sampled_from([pa.int32(), pa.date32(), pa.string()]))
def test_whatever_a_partition_value_is_it_is_typed_or_refused(text: str, kind: pa.DataType) -> None:
    try:
        values = partition_values(f"p={text.replace('/', '')}/x.parquet", {"p": kind})
    except SchemaMismatch:
        return
    value = values["p"]
    if value is not None:
        pa.array([value]).cast(kind)


@pytest.mark.parametrize("path", ["a\tb.parquet", "a//b.parquet", "a:b.parquet", "./a", "x/../a"])
def test_names_that_readers_cannot_open_are_refused(path: str) -> None:
    with pytest.raises(SchemaMismatch):
        check_addressable(path)


@pytest.mark.parametrize(
    ("table", "file"),
    [
        (pa.int64(), pa.int32()),
        (pa.int16(), pa.int8()),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string())),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="Europe/Berlin")),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.struct([("a", pa.int32())])),
        (pa.list_(pa.int64()), pa.large_list(pa.int32())),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
        (pa.decimal128(10, 2), pa.decimal128(10, 2)),
    ],
)
def test_merge_accepts_types_that_fit_the_table(table: pa.DataType, file: pa.DataType) -> None:
    before = pa.schema([("c", table)])
    assert merge(before, delta_schema(pa.schema([("c", file)])), (), "strict") == before


@pytest.mark.parametrize(
    ("table", "file"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.int64(), pa.float32()),
        (pa.float64(), pa.int32()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
        (pa.struct([("a", pa.int32())]), pa.struct([("A", pa.int32())])),
        (pa.struct([("a", pa.int32())]), pa.int32()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.struct([("b", pa.int32())]))),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.int64(), pa.uint32()),
        (pa.string(), pa.null()),
        (pa.int64(), pa.time64("us")),
    ],
)
def test_merge_refuses_types_that_do_not_fit(table: pa.DataType, file: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="'c"):
        merge(pa.schema([("c", table)]), delta_schema(pa.schema([("c", file)])), (), "merge")


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ([("x", pa.int32()), ("X", pa.int32())], "'x' and 'X'"),
        ([("x", pa.int32()), ("x", pa.int32())], "'x' and 'x'"),
        ([("c", pa.struct([("a", pa.int32()), ("A", pa.int32())]))], "'c.a' and 'c.A'"),
        ([("n", pa.struct([("a", pa.int32()), ("A", pa.int32())]))], "'n.a' and 'n.A'"),
        ([("n", pa.list_(pa.struct([("x", pa.int8()), ("X", pa.int8())])))], "'n.x' and 'n.X'"),
        ([("Day", pa.string())], "'Day', which is a partition column"),
    ],
)
def test_names_within_a_file_differ_by_more_than_case(
    columns: list[tuple[str, pa.DataType]], named: str, mode: str
) -> None:
    before = pa.schema([("c", pa.struct([("a", pa.int32())])), ("day", pa.string())])
    with pytest.raises(SchemaMismatch, match=named):
        merge(before, delta_schema(pa.schema(columns)), ("day",), mode)


def test_one_bad_file_does_not_decide_for_the_others() -> None:
    plan = make_plan(
        TableState(3, 1, pa.schema([("id", pa.int64())]), ()),
        [
            footer("a.parquet", pa.table({"id": [1], "x": [1]})),
            footer("b.parquet", pa.table({"id": [2], "x": ["text"]})),
            footer("c.parquet", pa.table({"id": [3], "X": [3]})),
            footer("d.parquet", pa.table({"x": [4]})),
        ],
        (),
        MERGE,
    )
    assert [add.entry.path for add in plan.adds] == ["a.parquet", "d.parquet"]
    assert [r.entry.path for r in plan.rejections] == ["b.parquet", "c.parquet"]
    assert plan.schema == pa.schema([("id", pa.int64()), ("x", pa.int64())])
    assert plan.changed == ("x",)


def test_new_columns_are_nullable_whatever_the_file_says() -> None:
    required = pa.schema([("id", pa.int64()), pa.field("x", pa.int64(), nullable=False)])
    plan = make_plan(
        TableState(0, 1, pa.schema([("id", pa.int64())]), ()),
        [footer("a.parquet", pa.table({"id": [1], "x": [1]}, schema=required))],
        (),
        MERGE,
    )
    assert plan.schema.field("x").nullable


def test_an_output_id_is_committed_once() -> None:
    data = pa.table({"id": [1]})
    plan = make_plan(
        None,
        [
            footer("a.parquet", data, "old"),
            footer("b.parquet", pa.table({"id": ["x"]}), "new"),
            footer("c.parquet", data, "new"),
            footer("d.parquet", data, None),
            footer("e.parquet", pa.table({"id": ["y"]}), "new"),
        ],
        {"old"},
        MERGE,
    )
    # a is a repeat, b starts the table, c and d do not fit b's column, e carries b's id.
    assert [add.entry.path for add in plan.adds] == ["b.parquet"]
    assert [(r.entry.path, r.stage) for r in plan.rejections] == [
        ("a.parquet", "output_id"),
        ("c.parquet", "schema"),
        ("d.parquet", "schema"),
        ("e.parquet", "output_id"),
    ]


def test_a_file_without_rows_is_refused() -> None:
    empty = footer("a.parquet", pa.table({"id": pa.array([], pa.int64())}))
    plan = make_plan(None, [empty], (), MERGE)
    assert not plan.adds
    assert [r.reason for r in plan.rejections] == ["has no rows"]


def test_an_uncommitted_compaction_is_left_to_its_writer(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    [path] = tmp_path.glob("*.parquet")
    metadata = pq.read_metadata(path)
    table = TableState(0, 1, pa.schema([("id", pa.int64())]), (), created=1000.0)
    for modified, taken in ((1000.0, False), (999.0, True)):
        found = Footer(
            Entry("a.parquet", 1, modified), metadata.schema.to_arrow_schema(), metadata, None
        )
        plan = make_plan(table, [found], (), MERGE)
        assert bool(plan.adds) is taken
        assert [r.stage for r in plan.rejections] == ([] if taken else ["writer"])


def test_a_rejected_file_does_not_use_up_its_output_id() -> None:
    plan = make_plan(
        TableState(0, 1, pa.schema([("id", pa.int64())]), ()),
        [
            footer("a.parquet", pa.table({"id": ["x"]}), "one"),
            footer("b.parquet", pa.table({"id": [1]}), "one"),
        ],
        (),
        MERGE,
    )
    assert [add.entry.path for add in plan.adds] == ["b.parquet"]


def test_a_file_that_holds_a_partition_column_is_refused() -> None:
    plan = make_plan(None, [footer("p=1/a.parquet", pa.table({"P": [1]}))], (), MERGE)
    assert "partition column" in plan.rejections[0].reason


def test_the_default_pattern_skips_files_of_other_engines() -> None:
    take = accepts(TableSettings(table_uri="/lake").advanced.file_pattern)
    assert take("date=2024-01-01/0190-x.parquet")
    assert not take("part-00000-x.zstd.parquet")
    assert not take("d=1/_x.parquet")
    assert not take("d=1/x.parquet.tmp")


PIPELINE: dict[str, Any] = {
    "sources": {"main": {"source_uri": "/raw"}},
    "sink": {
        "table_uri": "s3://lake/events/",
        "partition_by": {"prefix_template": "date=%Y-%m-%d/hour=%H"},
        "storage_options": {
            "aws_endpoint_url": "http://localhost:9",
            "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        },
    },
    "schema": {"fields": [{"name": "id", "type": "int64"}]},
}


def test_without_tables_every_sink_is_one() -> None:
    (table,) = tables_of(Config.model_validate({"pipelines": {"events": PIPELINE}}))
    assert (table.name, table.uri, table.app_id) == ("events", "s3://lake/events", "penguin-events")
    assert table.partition_types == {"date": "date", "hour": "string"}
    assert "s3cr3t" not in repr(table)
    options = delta_options(table.uri, table.storage_options, {})
    assert options["AWS_ALLOW_HTTP"] == "true"
    assert "AWS_ALLOW_HTTP" in delta_options("s3://b", {}, {"AWS_ENDPOINT_URL": "http://x"})
    assert "AWS_ALLOW_HTTP" not in delta_options("s3://b", {}, {"AWS_ENDPOINT_URL": "https://x"})


def test_a_table_inherits_from_the_sink_at_its_place() -> None:
    tables = {
        "mine": {"table_uri": "s3a://lake//events"},
        "other": {"table_uri": "s3://lake/other", "storage_options": {"AWS_REGION": "x"}},
    }
    mine, other = tables_of(
        Config.model_validate({"pipelines": {"events": PIPELINE}, "tables": tables})
    )
    assert mine.partition_types == {"date": "date", "hour": "string"}
    assert mine.storage_options["AWS_SECRET_ACCESS_KEY"] == "s3cr3t"
    assert other.partition_types is None
    assert other.storage_options == {"AWS_REGION": "x"}

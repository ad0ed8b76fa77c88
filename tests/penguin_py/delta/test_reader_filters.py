"""Filters of every reader find what they find in memory, whatever the type and the values."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from blizzard_core.handover.outputs import NAN_COLUMNS_KEY
from penguin_py.intake.file_statistics import file_statistics
from tests.support.filter_bench import COLUMN, differences, filters_of
from tests.support.table_harness import TableHarness, parquet

INF, NAN = float("inf"), float("nan")
TOP = "\U0010ffff"
UTC = dt.UTC
EARLY = dt.datetime(1, 1, 1, tzinfo=UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
MOMENTS = [
    EARLY,
    dt.datetime(1899, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
    LAST - dt.timedelta(microseconds=999),
    LAST,
]
# Those of a kind as it is stored, and values that filters fail by first.
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int32": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 0, 2**53 + 1, 2**63 - 1]),
    "float32": (pa.float32(), [-INF, -1.5, -0.0, 0.0, 0.25, 3.4028234663852886e38, INF]),
    "float64": (pa.float64(), [-INF, -1.7976931348623157e308, -0.0, 0.0, 5e-324, 0.1, INF]),
    "decimal(9,2)": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00")]),
    "decimal(18,2)": (
        pa.decimal128(18, 2),
        [Decimal("-9999999999999999.99"), Decimal("0.01"), Decimal("9999999999999999.99")],
    ),
    "decimal(38,6)": (
        pa.decimal128(38, 6),
        [Decimal("9" * 32 + ".999999"), Decimal("-" + "9" * 32 + ".999998"), Decimal("1.000000")],
    ),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), MOMENTS),
    "timestamp_ntz": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in MOMENTS]),
    "string": (
        pa.string(),
        ["", "a", "a" * 33, "z\u07ff", "\ue000", "é'", TOP * 31, TOP * 40, "q" * 5000],
    ),
    "binary": (pa.binary(), [b"", b"a", b"\xff" * 40]),
}


def stored(rows: pa.Table, nan: str | None = "") -> bytes:
    """A file whose writer says which columns hold NaN; None: does not say."""
    told = {} if nan is None else {NAN_COLUMNS_KEY: nan}
    return parquet(rows.replace_schema_metadata(told), row_group_size=2)


def table_of(
    world: TableHarness, kind: pa.DataType, files: list[list[Any]], nan: str | None = ""
) -> pa.Table:
    """A table of these files; returns all rows."""
    found = []
    for number, values in enumerate(files):
        ids = [10 * number + place for place in range(len(values))]
        rows = {"id": pa.array(ids, pa.int64()), COLUMN: pa.array(values, kind)}
        rows["nothing"] = pa.nulls(len(values), pa.float64())
        found.append(pa.table(rows))
        world.put(f"{number}.parquet", stored(found[-1], nan))
    world.run(max_files_per_commit=2)
    assert not world.quarantined()
    return pa.concat_tables(found)


def stats_of(world: TableHarness, version: int = 0) -> dict[str, Any]:
    """The statistics of the one file that this version added."""
    (add,) = [action["add"] for action in world.actions(version) if "add" in action]
    return json.loads(add["stats"])


@pytest.mark.promise("G-174")
@pytest.mark.parametrize("name", KINDS)
def test_filters_of_every_reader_find_every_row(world: TableHarness, name: str) -> None:
    kind, edges = KINDS[name]
    chance = random.Random(name)
    files = [[value] for value in edges]
    files += [[*chance.choices([*edges, None], k=3), None], [None, None], edges]
    rows = table_of(world, kind, files)
    if chance.random() < 0.5:
        world.delta().create_checkpoint()
    asked = list(filters_of(chance.sample(edges, min(3, len(edges)))))
    assert differences(world.delta(), rows, asked) == []


@pytest.mark.promise("G-174")
def test_filters_find_rows_when_floats_are_not_numbers(world: TableHarness) -> None:
    """NaN sorts above everything for some readers and matches nothing for others."""
    files = [[1.5, NAN], [NAN], [2.5, None], [0.5, INF]]
    for number, values in enumerate(files):
        rows = pa.table(
            {
                "id": pa.array([10 * number, 10 * number + 1][: len(values)]),
                COLUMN: pa.array(values, pa.float64()),
            }
        )
        # Without bounds in the footer, by which Arrow's own reader overlooks NaN.
        world.put(f"{number}.parquet", parquet(rows, write_statistics=["id"]))
    world.run()
    rows = world.delta().to_pyarrow_table()
    assert differences(world.delta(), rows, list(filters_of([1.5, 2.0, 2.5, INF, NAN]))) == []


@pytest.mark.parametrize("nan", ["1", "0,1", None, "?"])
def test_floats_have_no_bounds_when_any_may_be_nan(world: TableHarness, nan: str | None) -> None:
    table_of(world, pa.float64(), [[1.5, 2.5]], nan)
    stats = stats_of(world)
    assert (stats["numRecords"], stats["nullCount"]) == (2, {"id": 0, COLUMN: 0, "nothing": 2})
    assert "minValues" not in stats
    assert "maxValues" not in stats


def test_floats_have_bounds_when_none_is_nan(world: TableHarness) -> None:
    table_of(world, pa.float32(), [[1.5, -0.0, 0.0]], "7")
    stats = stats_of(world)
    assert stats["minValues"] == {"id": 0, COLUMN: 0.0}
    assert stats["maxValues"] == {"id": 2, COLUMN: 1.5}
    assert str(stats["minValues"][COLUMN]) == "-0.0"


@pytest.mark.promise("G-174")
def test_filters_find_rows_of_files_without_the_column(world: TableHarness) -> None:
    """The file came after the column did; its rows are null there."""
    world.put("0.parquet", stored(pa.table({"id": [1, 2], COLUMN: [0.5, None]})))
    world.run()
    world.put("1.parquet", stored(pa.table({"id": [3]})))
    world.run()
    rows = pa.table({"id": [1, 2, 3], COLUMN: pa.array([0.5, None, None], pa.float64())})
    assert differences(world.delta(), rows, list(filters_of([0.5, 1.0]))) == []


def test_filters_find_rows_when_a_struct_is_null(world: TableHarness) -> None:
    kind = pa.struct([("x", pa.float64()), ("deep", pa.struct([("y", pa.bool_())]))])
    values = [{"x": 1.5, "deep": {"y": True}}, {"x": None, "deep": None}, None]
    rows = table_of(world, kind, [values, [None], [{"x": 2.5, "deep": {"y": None}}]])
    scanned = world.delta().to_pyarrow_dataset()
    for asked in (
        ds.field(COLUMN).is_null(),
        ds.field(COLUMN).is_valid(),
        ds.field(COLUMN, "x") > 1.0,
        ds.field(COLUMN, "deep", "y").is_null(),
        ds.field(COLUMN, "deep", "y") == True,  # noqa: E712  # an expression, not a comparison
    ):
        found = scanned.to_table(filter=asked)["id"].to_pylist()
        assert sorted(found) == rows.filter(asked)["id"].to_pylist(), asked


@pytest.mark.promise("G-174")
@pytest.mark.parametrize(
    "properties",
    [
        {"delta.dataSkippingNumIndexedCols": "-1"},
        {"delta.dataSkippingNumIndexedCols": "40"},
        {"delta.dataSkippingNumIndexedCols": "0"},
        {"delta.dataSkippingStatsColumns": f"id, {COLUMN}"},
        {"delta.dataSkippingStatsColumns": f"`{COLUMN}`"},
    ],
)
def test_filters_find_rows_when_other_columns_are_indexed(
    world: TableHarness, properties: dict[str, str]
) -> None:
    """Readers look for the bounds of columns that the table's properties name."""
    wide = {f"f{number}": pa.array([1, 2]) for number in range(34)}
    rows = pa.table({"id": [1, 2], **wide, COLUMN: pa.array([0.5, 1.5])})
    DeltaTable.create(world.uri, rows.schema, configuration=properties)
    world.put("0.parquet", stored(rows))
    world.run()
    assert differences(world.delta(), rows, list(filters_of([0.5, 1.5]))) == []


@pytest.mark.unreadable_tables
@pytest.mark.parametrize(
    ("kind", "raw"),
    [(pa.date32(), 10**9), (pa.timestamp("us", "UTC"), 2**62), (pa.timestamp("us"), -(2**62))],
)
def test_a_file_has_no_bounds_when_one_cannot_be_written(
    world: TableHarness, kind: pa.DataType, raw: int
) -> None:
    """Years that readers write in different ways, if at all."""
    whole = pa.int32() if kind == pa.date32() else pa.int64()
    table_of(world, kind, [pa.array([0, raw], whole).cast(kind)])
    assert "minValues" not in stats_of(world)
    found = world.delta().to_pyarrow_dataset().to_table(filter=ds.field(COLUMN).is_valid())
    assert found.num_rows == 2


def test_spark_reads_no_aggregates_that_are_not_so() -> None:
    """Spark answers min and max of numbers and dates by bounds, so these are exact."""
    values = {"i": [3, 7], "f": [0.1, 2.5], "d": [dt.date(2024, 1, 1), dt.date(2024, 2, 1)]}
    data = pa.table(values).replace_schema_metadata({NAN_COLUMNS_KEY: ""})
    metadata = pq.read_metadata(io.BytesIO(parquet(data)))
    stats = json.loads(file_statistics(metadata, metadata.schema.to_arrow_schema(), data.schema))
    assert stats["minValues"] == {"i": 3, "f": 0.1, "d": "2024-01-01"}
    assert stats["maxValues"] == {"i": 7, "f": 2.5, "d": "2024-02-01"}

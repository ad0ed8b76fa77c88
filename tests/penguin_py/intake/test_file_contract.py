"""The file contract: what readers would read differently is on record and not committed."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.limits import FOOTER_BYTES
from tests.support.penguin_readers import assert_all_read
from tests.support.table_harness import TableHarness, parquet
from tests.support.thrift_footer import column, footer, group, parquet_file, root

NANOS = pa.array([1, 1000], pa.timestamp("ns"))
ZONED = pa.array([1, 1000], pa.timestamp("us", tz="UTC"))


def int96() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": ZONED}), sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pa.table({"t": NANOS}), "nanoseconds"),
        (pa.table({"t": pa.StructArray.from_arrays([NANOS], ["n"])}), "nanoseconds"),
        (pa.table({"t": pa.ListArray.from_arrays([0, 1, 2], NANOS)}), "nanoseconds"),
        (int96(), "INT96"),
        (pa.table({"t": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}), "fixed size"),
        (pa.table({"t": pa.array([[[1, 2]]], pa.list_(pa.list_(pa.int64(), 2)))}), "fixed size"),
        (pa.table({"t": pa.array([86_400_000], pa.date64())}), "date64"),
        (pa.table({"": [1]}), "without a name"),
        (pa.table({"t": pa.array([{"": 1}])}), "without a name"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_files_that_readers_disagree_on_are_rejected_by_reason(
    world: TableHarness, data: pa.Table | bytes, why: str, first: bool
) -> None:
    if not first:
        world.put("a.parquet", {"id": [1]})
        world.run()
    world.put("b.parquet", data)
    world.put("c.parquet", {"id": [2]})
    world.run()
    assert why in world.quarantined()["b.parquet"]
    assert world.paths() == {"c.parquet"} | (set() if first else {"a.parquet"})
    assert_all_read(world)


def test_timestamps_that_the_writer_truncated_are_committed(world: TableHarness) -> None:
    """The advice of the refusal: pandas still notes nanoseconds in the Arrow schema."""
    world.put(
        "a.parquet",
        pa.table({"id": [1, 2], "t": NANOS}),
        coerce_timestamps="us",
        allow_truncated_timestamps=True,
    )
    world.run()
    assert world.paths() == {"a.parquet"}
    assert_all_read(world)


def required(kind: pa.DataType) -> pa.Field:
    return pa.field("x", kind, nullable=False)


def handmade(world: TableHarness, fields: list[dict[str, Any]]) -> None:
    """A table as Spark's DDL makes it."""
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {
        "id": "5f9c7f3e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    actions = [
        {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "CREATE TABLE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    text = "".join(f"{json.dumps(action)}\n" for action in actions)
    world.storage.put_atomic(f"_delta_log/{0:020d}.json", text.encode())


def named(kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": "c", "type": kind, "nullable": nullable, "metadata": {}}


STRUCT = {"type": "struct", "fields": [{**named("long", nullable=False), "name": "x"}]}
LIST = {"type": "array", "elementType": "long", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}
DEEP = {"type": "array", "elementType": STRUCT, "containsNull": True}
IN_STRUCT = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (STRUCT, pa.array([{"x": 1}], IN_STRUCT), pa.array([{"x": None}], IN_STRUCT)),
        (STRUCT, pa.array([None, {"x": 1}], pa.struct([required(pa.int64())])), None),
        (LIST, pa.array([[1, 2]]), pa.array([[1, None]])),
        (
            MAP,
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
        ),
        (
            DEEP,
            pa.array([[{"x": 1}]], pa.list_(IN_STRUCT)),
            pa.array([[{"x": 1}, {"x": None}]], pa.list_(IN_STRUCT)),
        ),
    ],
)
def test_nulls_that_the_table_forbids_are_found_at_every_depth(
    world: TableHarness, kind: dict[str, Any], good: pa.Array, bad: pa.Array | None
) -> None:
    Path(world.uri).mkdir()
    world.now = Path(world.uri).stat().st_mtime
    handmade(world, [named(kind), {**named("long"), "name": "id"}])
    world.put("good.parquet", pa.table({"c": good, "id": [1] * len(good)}))
    if bad is not None:
        world.put("worse.parquet", pa.table({"c": bad, "id": [2] * len(bad)}))
    world.run()
    assert world.paths() == {"good.parquet"}
    if bad is not None:
        assert "nulls, which the table forbids" in world.quarantined()["worse.parquet"]
    assert_all_read(world)


def test_a_new_column_leaves_required_ones_unchanged(world: TableHarness) -> None:
    Path(world.uri).mkdir()
    world.now = Path(world.uri).stat().st_mtime
    handmade(world, [named(LIST), {**named("long"), "name": "id"}])
    world.put("a.parquet", {"c": [[1]], "id": [1], "new": [1]})
    world.run()
    [changed] = [a["metaData"] for a in world.actions(1) if "metaData" in a]
    assert json.loads(changed["schemaString"])["fields"][0]["type"] == LIST
    assert_all_read(world)


@pytest.mark.parametrize(
    "first",
    [
        pa.array([{"id": 1}]),
        pa.array([[1]]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_nested_first_column_stops_nothing(world: TableHarness, first: pa.Array) -> None:
    world.put("a.parquet", pa.table({"user": first, "v": [1]}))
    penguin = world.penguin()
    world.run(penguin)
    world.put("b.parquet", pa.table({"user": first, "v": [2], "new": [1]}))
    world.put("c.parquet", pa.table({"user": first, "v": [3]}))
    assert world.run(penguin) == 1
    assert sorted(row["v"] for row in world.rows()) == [1, 2, 3]
    assert_all_read(world)


def test_a_table_of_nested_columns_refuses_a_schema_change(
    world: TableHarness,
) -> None:
    user = pa.array([{"id": 1}])
    world.put("a.parquet", pa.table({"user": user}))
    world.run()
    world.put("b.parquet", pa.table({"user": user, "new": [1]}))
    world.put("c.parquet", pa.table({"user": user}))
    world.run()
    assert world.paths() == {"a.parquet", "c.parquet"}
    assert "ALTER TABLE" in world.quarantined()["b.parquet"]


@pytest.mark.parametrize(
    ("table", "file", "why"),
    [
        (
            pa.array(
                [[("k", {"a": 1, "b": 1})]],
                pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
            ),
            pa.array([[("k", {"a": 1})]], pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
            "lacks field",
        ),
        (
            pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64())),
            pa.array([[(1, 1)]], pa.map_(pa.int32(), pa.int64())),
            "narrower",
        ),
    ],
)
def test_maps_are_of_the_tables_own_form(
    world: TableHarness, table: pa.Array, file: pa.Array, why: str
) -> None:
    world.put("a.parquet", pa.table({"c": table, "id": [1]}))
    world.put("b.parquet", pa.table({"c": file, "id": [2]}))
    world.run()
    assert world.paths() == {"a.parquet"}
    assert why in world.quarantined()["b.parquet"]
    assert_all_read(world)


def test_files_with_narrower_types_are_committed(world: TableHarness) -> None:
    world.put("a.parquet", {"i": [1], "f": [1.0]})
    narrow = pa.table({"i": pa.array([2], pa.int32()), "f": pa.array([2.0], pa.float32())})
    world.put("b.parquet", narrow)
    world.run()
    assert_all_read(world, [(1, 1.0), (2, 2.0)])
    assert world.paths() == {"a.parquet", "b.parquet"}


def test_moments_in_partition_values_carry_their_zone(world: TableHarness) -> None:
    by: dict[str, Any] = {"partition_by": {"prefix_template": "p=%Y", "types": {"p": "timestamp"}}}
    world.put("p=2024-01-01 10%3A00%3A00/a.parquet", {"x": [1]})
    world.put("p=2024-01-01T11%3A00%3A00Z/b.parquet", {"x": [2]})
    world.run(**by)
    [value] = [a["add"]["partitionValues"]["p"] for a in world.actions(0) if "add" in a]
    assert value == "2024-01-01T10:00:00.000000Z"
    # The second spelling is one that polars, which reads paths, could not parse beside the first.
    assert list(world.quarantined()) == ["p=2024-01-01T11%3A00%3A00Z/b.parquet"]
    for zone in ("Asia/Tokyo", "America/New_York"):
        code = (
            "import sys; from deltalake import DeltaTable, QueryBuilder; import pyarrow as pa\n"
            "q = QueryBuilder().register('t', DeltaTable(sys.argv[1]))\n"
            "found = pa.table(q.execute('select p from t').read_all())\n"
            "print(found['p'].cast('int64').to_pylist())"
        )
        answer = subprocess.run(
            [sys.executable, "-c", code, world.uri],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == "[1704103200000000]"


@pytest.mark.parametrize("folder", ["p=a=b", "p=a*b", "p=", "p=1/P=2"])
def test_paths_that_readers_misread_are_refused(world: TableHarness, folder: str) -> None:
    world.put(f"{folder}/a.parquet", {"x": [1]})
    world.put("p=q/a.parquet", {"x": [2]})
    world.run()
    assert list(world.quarantined()) == [f"{folder}/a.parquet"]
    assert_all_read(world, [(2, "q")])


@pytest.mark.parametrize(
    ("rows", "counts", "why"),
    [
        (-5, [-5], "impossible row count"),
        (4 * 10**18, [4 * 10**18], "impossible row count"),
        (2**31 - 1, [2**31 - 1], "rows in"),
        (7, [3], "its row groups have 3"),
        (3, [5, -2], "impossible row count"),
    ],
)
def test_a_row_count_that_cannot_be_is_not_committed(
    world: TableHarness, rows: int, counts: list[int], why: str
) -> None:
    world.put("ok.parquet", {"v": [1, 2, 3]})
    world.run()
    schema = [root(1), column("v")]
    data = parquet_file(footer(schema, rows, [group(["v"], count) for count in counts]))
    world.put("p.parquet", data)
    world.run()
    assert why in world.quarantined()["p.parquet"]
    assert world.delta().version() == 0


def test_file_with_a_footer_of_a_gigabyte_is_rejected(world: TableHarness) -> None:
    path = Path(world.uri) / "big.parquet"
    path.parent.mkdir()
    with path.open("wb") as sparse:
        sparse.write(b"PAR1")
        sparse.truncate(1 << 30)
        sparse.seek((1 << 30) - 8)
        sparse.write(struct.pack("<I", (1 << 30) - 20) + b"PAR1")
    world.run()
    assert "has a footer of" in world.quarantined()["big.parquet"]


def long_footer(number: int) -> bytes:
    """A file whose footer is nearly as long as one may be."""
    # The note stands there twice: once by itself, and in Arrow's schema as base64.
    note = {b"padding": b"x" * (FOOTER_BYTES * 2 // 5)}
    return parquet(pa.table({"id": [number]}).replace_schema_metadata(note))


def test_long_footers_are_read_a_few_at_a_time(world: TableHarness) -> None:
    count = 4
    for number in range(count):
        world.put(f"{number}.parquet", long_footer(number))
    assert world.run() >= 2
    assert not world.quarantined()
    assert len(world.rows()) == count


@pytest.mark.parametrize(
    ("columns", "why"), [(20_000, "at most 10,000"), (5000, "max_new_columns")]
)
def test_a_small_file_cannot_bring_thousands_of_columns(
    world: TableHarness, columns: int, why: str
) -> None:
    world.put("ok.parquet", {"v": [1, 2, 3]})
    world.run()
    schema = [root(columns), *(column(f"c{n}") for n in range(columns))]
    groups = [group([[f"c{n}"] for n in range(columns)], 1)]
    world.put("p.parquet", parquet_file(footer(schema, 1, groups)))
    world.put("q.parquet", {"v": [4]})
    world.run()
    assert why in world.quarantined()["p.parquet"]
    assert len(world.delta().schema().fields) == 1
    assert len(world.rows()) == 4


def test_a_schema_too_deep_for_delta_rs_is_refused(world: TableHarness) -> None:
    kind: pa.DataType = pa.int64()
    value: Any = 1
    for _ in range(40):
        kind, value = pa.struct([("a", kind)]), {"a": value}
    world.put("a.parquet", pa.table({"c": pa.array([value], kind)}))
    world.put("b.parquet", {"id": [1]})
    world.run()
    assert "levels deep" in world.quarantined()["a.parquet"]
    assert world.paths() == {"b.parquet"}


@pytest.mark.parametrize(
    ("day", "marks", "taken"),
    [
        (dt.date(1500, 1, 10), {"org.apache.spark.legacyDateTime": ""}, False),
        (dt.date(1500, 1, 10), {"org.apache.spark.version": "2.4.8"}, False),
        (dt.date(1500, 1, 10), {"org.apache.spark.version": "3.5.0"}, True),
        (dt.date(1582, 10, 15), {"org.apache.spark.legacyDateTime": ""}, True),
    ],
)
def test_days_of_the_julian_calendar_are_refused(
    world: TableHarness, day: dt.date, marks: dict[str, str], taken: bool
) -> None:
    world.put("a.parquet", pa.table({"d": [day]}).replace_schema_metadata(marks))
    world.run()
    assert bool(world.quarantined()) is not taken

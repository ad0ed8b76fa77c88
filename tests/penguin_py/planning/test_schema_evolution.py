"""The table's schema grows with its files: in one log entry, and never past what readers read."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.s3_server import S3Server
from tests.support.table_harness import TableHarness


def kinds(world: TableHarness, version: int) -> list[str]:
    return sorted(next(iter(action)) for action in world.actions(version))


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("where", ["local", "s3"])
def test_new_columns_and_files_share_one_log_entry(
    request: pytest.FixtureRequest, tmp_path: Path, pool: Executor, where: str, partitioned: bool
) -> None:
    if where == "local":
        world = TableHarness(str(tmp_path / "table"), pool)
    else:
        s3: S3Server = request.getfixturevalue("s3")
        world = TableHarness(f"s3://{s3.new_bucket()}/t", pool, s3.options)
    folder = "date=2024-01-01/" if partitioned else ""
    world.put(f"{folder}a.parquet", {"id": [1], "s": [{"x": 1}]})
    world.run()
    world.put(f"{folder}b.parquet", {"id": [2], "tag": ["t"], "s": [{"x": 2, "y": {"z": "q"}}]})
    world.put(f"{folder}c.parquet", {"id": [3], "other": [1.5]})
    world.run()
    assert kinds(world, 1) == ["add", "add", "commitInfo", "metaData", "txn", "txn"]
    rows = world.rows()
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert [row["tag"] for row in rows] == [None, "t", None]
    assert [row["other"] for row in rows] == [None, None, 1.5]
    assert rows[0]["s"] == {"x": 1, "y": None}
    assert rows[1]["s"] == {"x": 2, "y": {"z": "q"}}
    assert kinds(world, 0).count("add") == 1


def test_every_kind_of_partition_column_survives_evolution(world: TableHarness) -> None:
    by = {
        "prefix_template": "s=%Y/i=%m/l=%d/d=%F/t=%H",
        "types": {"i": "int32", "l": "int64", "t": "timestamp"},
    }
    folder = "s=a/i=1/l=2/d=2024-01-01/t=2024-01-01 00%3A00%3A00"
    nothing = "/".join(f"{k}=__HIVE_DEFAULT_PARTITION__" for k in "sildt")
    world.put(f"{folder}/a.parquet", {"id": [1]})
    world.put(f"{nothing}/a.parquet", {"id": [2]})
    world.run(partition_by=by)
    world.put(f"{folder}/b.parquet", {"id": [3], "x": [1]})
    world.run(partition_by=by)
    assert kinds(world, 1) == ["add", "commitInfo", "metaData", "txn", "txn"]
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    one = {"s": "a", "i": 1, "l": 2, "d": moment.date(), "t": moment}
    none = dict.fromkeys(one)
    assert sorted(world.rows(), key=lambda row: int(row["id"])) == [
        {"id": 1, "x": None, **one},
        {"id": 2, "x": None, **none},
        {"id": 3, "x": 1, **one},
    ]


def test_only_a_type_that_needs_a_feature_raises_the_protocol(
    world: TableHarness,
) -> None:
    world.put("a.parquet", {"id": [1]})
    world.run()
    world.put("b.parquet", {"id": [2], "z": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]})
    world.run()
    assert world.delta().protocol().min_reader_version == 1
    assert world.delta().protocol().min_writer_version == 2
    plain = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - a timestamp without a zone is the point
    world.put("c.parquet", pa.table({"id": [3], "s": [{"deep": [plain]}]}))
    world.run()
    assert world.delta().protocol().reader_features == ["timestampNtz"]
    assert "metaData" not in kinds(world, 2)
    assert [row["s"] for row in world.rows()] == [None, None, {"deep": [plain]}]


OVERWRITE: dict[str, Any] = {"schema_evolution": "overwrite"}


def test_overwrite_takes_what_old_files_can_still_be_read_by(world: TableHarness) -> None:
    required = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("f", pa.float32()),
            pa.field("s", pa.struct([("x", pa.int16())])),
        ]
    )
    world.put("a.parquet", pa.table({"id": [1], "f": [0.5], "s": [{"x": 1}]}, schema=required))
    world.run()
    world.put("b.parquet", {"f": [0.25], "s": [{"x": 2**40, "y": "q"}], "new": ["n"]})
    world.put("c.parquet", {"id": [2**40]})
    world.put("d.parquet", {"id": ["text"]})
    world.put("e.parquet", pa.table({"id": pa.array([5], pa.int16())}))
    world.run(**OVERWRITE)
    schema = pa.schema(world.delta().schema().to_arrow())
    assert schema.field("id") == pa.field("id", pa.int64())
    assert schema.field("f").type == pa.float64()
    assert schema.field("s").type.field("x").type == pa.int64()
    assert world.quarantined() == {
        "d.parquet": "column 'id' is string, not compatible with the table's int64"
    }
    ids = sorted((row["id"] for row in world.rows()), key=str)
    assert ids == [1, 2**40, 5, None]
    assert sorted(pl.read_delta(world.uri)["id"].to_list(), key=str) == ids
    with duckdb.connect() as db:
        db.register("t", world.delta().to_pyarrow_dataset())
        assert db.sql("select count(*), sum(id), max(s.x) from t").fetchall() == [
            (4, 2**40 + 6, 2**40)
        ]


@pytest.mark.promise("G-177")
def test_nothing_is_visible_half_at_any_version(world: TableHarness) -> None:
    for number in range(4):
        world.put(f"{number}.parquet", {"id": [number], f"c{number}": [number]})
        world.run()
    for version in range(4):
        found = pa.table(DeltaTable(world.uri, version).to_pyarrow_dataset().to_table())
        assert found.num_rows == version + 1
        assert set(found.column_names) == {"id", *(f"c{n}" for n in range(version + 1))}
        for number in range(version + 1):
            assert number in found[f"c{number}"].to_pylist()

"""Data skipping, proven by hiding the files that must not be read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from concurrent.futures import Executor
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import QueryBuilder

from tests.support.table_harness import TableHarness, footer_pool

# Every column is lower in file `low` than in file `high`, and null in neither; `empty`
# has no values at all.
DAY = dt.date(2024, 3, 1)
MOMENT = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
KINDS = {
    "number": pa.int64(),
    "small": pa.int16(),
    "name": pa.string(),
    "day": pa.date32(),
    "moment": pa.timestamp("us", tz="UTC"),
    "price": pa.decimal128(10, 2),
    "big": pa.decimal128(30, 3),
    "s": pa.struct([("x", pa.int64()), ("in", pa.struct([("y", pa.string())]))]),
}


def data(step: int | None) -> pa.Table:
    if step is None:
        return pa.table({name: pa.array([None], kind) for name, kind in KINDS.items()})
    values: dict[str, Any] = {
        "number": step,
        "small": step,
        "name": "low" if step < 0 else "\U0001f427" * 40,
        "day": DAY + dt.timedelta(days=step),
        "moment": MOMENT + dt.timedelta(microseconds=step),
        "price": Decimal(step),
        "big": Decimal(step) * 10**20,
        "s": {"x": step, "in": {"y": "a" if step < 0 else "z"}},
    }
    return pa.table({name: pa.array([values[name]], kind) for name, kind in KINDS.items()})


PARTITIONS = {"i": "int32", "d": "date", "t": "timestamp", "c": "string"}
FOLDERS = {
    -7_000: "i=-1/d=2024-01-01/t=2024-01-01 00%3A00%3A00/c=a%2Fb",
    7_000: "i=1/d=2024-06-01/t=2024-06-01 12%3A30%3A00.5/c=x y",
    None: "/".join(f"{key}=__HIVE_DEFAULT_PARTITION__" for key in PARTITIONS),
}
LAYOUT = {"prefix_template": "i=%Y/d=%F/t=%H/c=%m", "types": PARTITIONS}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableHarness]:
    """A table in which only the file `low` can be read; tests only read."""
    pool: Executor
    with footer_pool() as pool:
        world = TableHarness(str(tmp_path_factory.mktemp("skipping") / "table"), pool)
        for step, folder in FOLDERS.items():
            world.put(f"{folder}/file.parquet", data(step))
        world.run(partition_by=LAYOUT)
        assert len(world.rows()) == 3
        for step in (7_000, None):
            path = Path(world.uri, FOLDERS[step], "file.parquet")
            path.rename(path.with_name("hidden"))
        with pytest.raises(Exception, match=r"file\.parquet"):
            world.rows()
        yield world


@pytest.fixture(scope="module", params=["commits", "checkpoint"])
def log(request: pytest.FixtureRequest, world: TableHarness) -> TableHarness:
    if request.param == "checkpoint":
        world.delta().create_checkpoint()
    return world


SPLITS: list[tuple[str, Any, str]] = [
    ("number", 0, "number < 0"),
    ("small", 0, "small < 0"),
    ("name", "m", "name < 'm'"),
    ("day", DAY, "day < date '2024-03-01'"),
    ("moment", MOMENT, "moment < timestamptz '2024-03-01 00:00:00+00'"),
    ("price", Decimal("0.00"), "price < 0"),
    ("big", Decimal("0.000"), "big < 0"),
    ("i", 0, "i < 0"),
    ("d", DAY, "d < date '2024-03-01'"),
    ("t", MOMENT, "t < timestamptz '2024-03-01 00:00:00+00'"),
    ("c", "b", "c < 'b'"),
]
EACH = pytest.mark.parametrize(("column", "split", "sql"), SPLITS, ids=[s[0] for s in SPLITS])


@EACH
def test_deltalake_reads_the_one_file_that_can_match(
    log: TableHarness, column: str, split: Any, sql: str
) -> None:
    found = log.delta().to_pyarrow_dataset().to_table(filter=pc.field(column) < split)
    assert found["number"].to_pylist() == [-7_000]
    # Its own engine, too.
    sql = sql.replace("timestamptz", "timestamp").replace("+00'", "Z'")
    query = QueryBuilder().register("t", log.delta())
    read = pa.table(query.execute(f"select number from t where {sql}").read_all())
    assert read["number"].to_pylist() == [-7_000]


@EACH
def test_polars_reads_the_one_file_that_can_match(
    log: TableHarness, column: str, split: Any, sql: str
) -> None:
    # polars reads a file without any bounds for every comparison, so it gets to see that one.
    empty = Path(log.uri, FOLDERS[None])
    (empty / "hidden").rename(empty / "file.parquet")
    try:
        found = pl.scan_delta(log.uri).filter(pl.col(column) < split).select("number").collect()
    finally:
        (empty / "file.parquet").rename(empty / "hidden")
    assert found["number"].to_list() == [-7_000], sql


def test_bounds_of_struct_fields_are_typed_for_readers(log: TableHarness) -> None:
    """None of the readers here skips by them, but all of them must be able to parse them."""
    found = pa.table(log.delta().get_add_actions(flatten=True)).sort_by("path")
    assert sorted(found["min.s.x"].to_pylist(), key=str) == [-7_000, 7_000, None]
    assert sorted(found["max.s.in.y"].to_pylist(), key=str) == [None, "a", "z"]
    assert sorted(found["null_count.s.in.y"].to_pylist()) == [0, 0, 1]


def test_a_file_without_nulls_is_not_read_for_them(log: TableHarness) -> None:
    """The reverse: only `empty` has nulls, so looking for them reads that file alone."""
    Path(log.uri, FOLDERS[None], "hidden").rename(Path(log.uri, FOLDERS[None], "file.parquet"))
    low = Path(log.uri, FOLDERS[-7_000], "file.parquet")
    low.rename(low.with_name("away"))
    try:
        query = QueryBuilder().register("t", log.delta())
        for column in (*KINDS, *PARTITIONS):
            if column == "s":
                continue
            sql = f"select number from t where {column} is null"
            found = pa.table(query.execute(sql).read_all())
            assert found["number"].to_pylist() == [None], column
    finally:
        low.with_name("away").rename(low)
        path = Path(log.uri, FOLDERS[None], "file.parquet")
        path.rename(path.with_name("hidden"))

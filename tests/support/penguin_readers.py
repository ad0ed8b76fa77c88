"""One table as every reader of it sees it.

The readers go different ways: delta-rs scans by the log and its statistics, pyarrow and
duckdb take its dataset, polars takes partition values from paths, and Spark's Parquet
reader gets the files that the log lists and the columns that it declares, which is what
Delta on Spark reads.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.support.table_harness import TableHarness

Rows = list[tuple[Any, ...]]


def plain(value: Any) -> Any:
    """Return a value that compares and sorts, whatever type the reader gives."""
    found = value
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        found = value.astimezone(dt.UTC).isoformat()
    elif isinstance(value, dt.datetime | dt.date):
        found = value.isoformat()
    elif isinstance(value, float) and math.isnan(value):
        found = "NaN"
    elif isinstance(value, dict):
        found = tuple(sorted((str(key), plain(inner)) for key, inner in value.items()))
    elif isinstance(value, list | tuple):
        found = tuple(plain(inner) for inner in value)
    elif isinstance(value, bytearray):
        found = bytes(value)
    return found


def rows_of(table: pa.Table, names: list[str]) -> Rows:
    """Return the rows in the order of these columns, sorted."""
    columns = [[plain(value) for value in table[name].to_pylist()] for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def by_scan(table: DeltaTable) -> pa.Table:
    return pa.table(QueryBuilder().register("t", table).execute("select * from t").read_all())


def by_dataset(table: DeltaTable) -> pa.Table:
    return pa.table(table.to_pyarrow_dataset().to_table())


@cache
def duck() -> duckdb.DuckDBPyConnection:
    """One for the whole run: to open one takes longer than to read a table."""
    found = duckdb.connect()
    found.execute("set timezone = 'UTC'")
    return found


def by_duckdb(table: DeltaTable) -> pa.Table:
    duck().register("events", table.to_pyarrow_dataset())
    try:
        found = duck().sql("select * from events").arrow()
        return found if isinstance(found, pa.Table) else found.read_all()
    finally:
        duck().unregister("events")


def by_polars(table: DeltaTable) -> pa.Table:
    return pl.scan_delta(table).collect().to_arrow()


def by_spark(table: DeltaTable, spark: SparkSession) -> pa.Table:
    """Read the columns of the files by Spark; partition values come from the log."""
    columns = json.loads(table.schema().to_json())
    partitions = table.metadata().partition_columns
    fields = [field for field in columns["fields"] if field["name"] not in partitions]
    schema = StructType.fromJson({**columns, "fields": fields})
    return pa.table(spark.read.schema(schema).parquet(*table.file_uris()).toArrow())


READERS: dict[str, Callable[[DeltaTable], pa.Table]] = {
    "delta-rs": by_scan,
    "pyarrow": by_dataset,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


def assert_all_read(world: TableHarness, expected: Rows | None = None) -> Rows:
    """Every reader sees the same rows; returns them."""
    return same_rows(world.delta(), expected)


def same_rows(table: DeltaTable, expected: Rows | None = None) -> Rows:
    """Every reader but Spark sees the same rows; returns them."""
    names = [field.name for field in table.schema().fields]
    found = {name: rows_of(read(table), names) for name, read in READERS.items()}
    first = found["pyarrow"] if expected is None else expected
    for name, rows in found.items():
        assert rows == first, f"{table.table_uri}: {name} reads {rows[:3]}, not {first[:3]}"
    return first

"""One table as every reader of it sees it, and the log as its own text says it is.

The readers go different ways: delta-rs scans by the log and its statistics, pyarrow and
duckdb take its dataset, polars takes partition values from paths, and Spark's Parquet
reader gets the files that the log lists, which is what Delta on Spark reads.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import QueryBuilder

from tests.penguin_world import World

Rows = list[tuple[Any, ...]]


def plain(value: Any) -> Any:
    """A value as something that compares and sorts, whatever the reader makes of it."""
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
    """The rows in the order of these columns, sorted."""
    columns = [[plain(value) for value in table[name].to_pylist()] for name in names]
    return sorted(zip(*columns, strict=True), key=repr)


def by_scan(world: World) -> pa.Table:
    return pa.table(
        QueryBuilder().register("t", world.delta()).execute("select * from t").read_all()
    )


def by_dataset(world: World) -> pa.Table:
    return pa.table(world.delta().to_pyarrow_dataset().to_table())


def by_duckdb(world: World) -> pa.Table:
    events = world.delta().to_pyarrow_dataset()
    with duckdb.connect() as db:
        db.execute("set timezone = 'UTC'")
        db.register("events", events)
        found = db.sql("select * from events").arrow()
        return found if isinstance(found, pa.Table) else found.read_all()


def by_polars(world: World) -> pa.Table:
    return pl.scan_delta(world.uri, storage_options=world.options or None).collect().to_arrow()


READERS: dict[str, Callable[[World], pa.Table]] = {
    "delta-rs": by_scan,
    "pyarrow": by_dataset,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


def assert_all_read(world: World, expected: Rows | None = None) -> Rows:
    """Every reader sees the same rows; returns them."""
    names = [field.name for field in world.delta().schema().fields]
    found = {name: rows_of(read(world), names) for name, read in READERS.items()}
    first = found["pyarrow"] if expected is None else expected
    for name, rows in found.items():
        assert rows == first, f"{name} reads {rows[:3]}, not {first[:3]}"
    return first

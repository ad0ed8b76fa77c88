"""The views of the guide "The current row of each key", in four engines beside a model."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.scenario import ROOT

Row = dict[str, Any]
GUIDE = ROOT / "docs/guides/current-row.md"
COLUMNS = ("id", "amount", "updated_at", "_ingested_at", "deleted_at")
SCHEMA = pa.schema([(name, pa.int64()) for name in COLUMNS])


def statements() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def versions(chance: random.Random) -> list[Row]:
    """Return rows without ties, in no order, some without a key or a sequence."""
    rows = [
        dict(zip(COLUMNS, values, strict=True))
        for number in range(300)
        for values in [
            (
                chance.choice([None, *range(40)]),
                number,
                chance.choice([None, *range(50)]),
                number,
                chance.choice([None, None, number]),
            )
        ]
    ]
    chance.shuffle(rows)
    return rows


def sequence(row: Row) -> tuple[int, int]:
    return row["updated_at"], row["_ingested_at"]


def expected(rows: list[Row]) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Return the current rows and the history."""
    now: set[tuple[Any, ...]] = set()
    past: set[tuple[Any, ...]] = set()
    sound = [row for row in rows if row["id"] is not None and row["updated_at"] is not None]
    for key in {row["id"] for row in sound}:
        ordered = sorted((row for row in sound if row["id"] == key), key=sequence)
        ends = [row["updated_at"] for row in ordered[1:]]
        for row, end in zip(ordered, [*ends, None], strict=True):
            gone = row["deleted_at"] is not None
            past.add((key, row["amount"], row["updated_at"], end, gone))
        last = ordered[-1]
        if last["deleted_at"] is None:
            now.add((key, last["amount"], last["updated_at"]))
    return now, past


def test_views_of_the_guide_equal_a_model(tmp_path: Path, spark_engine: SparkEngine) -> None:
    rows = versions(random.Random(41))
    table = pa.Table.from_pylist(rows, SCHEMA)
    folder, file = str(tmp_path / "changes"), str(tmp_path / "changes.parquet")
    write_deltalake(folder, table)
    pq.write_table(table, file)
    spark = spark_engine.session()
    spark.read.parquet(file).createOrReplaceTempView("orders_changes")
    found = statements()
    assert len(found) == 2
    for statement, wanted in zip(found, expected(rows), strict=True):
        with duckdb.connect() as db:
            db.register("orders_changes", table)
            by_duckdb = db.sql(statement).fetchall()
        scanned = pl.SQLContext(orders_changes=pl.scan_delta(folder))
        by_polars = scanned.execute(statement).collect().rows()
        engine = QueryBuilder().register("orders_changes", DeltaTable(folder))
        by_delta = [tuple(r.values()) for r in pa.table(engine.execute(statement)).to_pylist()]
        by_spark = [tuple(row) for row in spark.sql(statement).collect()]
        for answer in (by_duckdb, by_polars, by_delta, by_spark):
            assert len(answer) == len(wanted)
            assert set(answer) == wanted
    spark.catalog.dropTempView("orders_changes")

"""The readers' bench: what Penguin commits is read alike by all, filters and zones included.

Random tables of nested, null-heavy, extreme and non-ASCII data, in several files and row
groups, with a checkpoint now and then; the rows in memory are the truth.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.penguin_readers import assert_all_read, plain, rows_of
from tests.support.table_harness import TableHarness, parquet

CHARACTERS = ["a", "z", "\u07ff", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
CHARACTERS += [" ", '"', "\\", "é", "日"]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment(chance: random.Random) -> dt.datetime:
    micros = [0, -1, 1, 999, 1000, 1001, -999, -1000, -1001, chance.randrange(-(10**16), 10**16)]
    return EPOCH + dt.timedelta(microseconds=chance.choice(micros))


Maker = Callable[[random.Random], Any]
COLUMNS: dict[str, tuple[pa.DataType, Maker]] = {
    "whole": (
        pa.int64(),
        lambda c: c.choice([0, -1, 2**63 - 1, -(2**63), 2**53 + 1, c.randrange(-(10**18), 10**18)]),
    ),
    "small": (pa.int8(), lambda c: c.randrange(-128, 128)),
    "text": (
        pa.string(),
        lambda c: "".join(c.choice(CHARACTERS) for _ in range(c.choice([0, 1, 2, 31, 32, 33, 40]))),
    ),
    "day": (
        pa.date32(),
        lambda c: dt.date.fromordinal(c.choice([1, 577_000, 719_163, 3_652_059, 738_000])),
    ),
    "moment": (pa.timestamp("us", "UTC"), moment),
    "local": (pa.timestamp("us"), lambda c: moment(c).replace(tzinfo=None)),
    "price": (
        pa.decimal128(38, 6),
        lambda c: (
            decimal.Decimal(c.choice([0, 1, -1, 10**31, c.randrange(-(10**30), 10**30)])) / 10**6
        ),
    ),
    "flag": (pa.bool_(), lambda c: c.random() < 0.5),
    "share": (pa.float64(), lambda c: c.choice([0.0, 1.5, -1.5, float("inf"), float("nan")])),
}


def column(chance: random.Random, name: str, count: int) -> pa.Array:
    kind, make = COLUMNS[name]
    with decimal.localcontext() as context:
        context.prec = 40
        values = [None if chance.random() < 0.3 else make(chance) for _ in range(count)]
    return pa.array(values, kind)


def random_file(chance: random.Random) -> pa.Table:
    count = chance.choice([1, 2, 5])
    columns = {name: column(chance, name, count) for name in COLUMNS}
    gaps = pa.array([chance.random() < 0.3 for _ in range(count)])
    columns["inner"] = pa.StructArray.from_arrays(
        [columns["whole"], columns["text"]], ["whole", "text"], mask=gaps
    )
    columns["list"] = pa.array(
        [chance.choice([None, [], [1, None], [2]]) for _ in range(count)], pa.list_(pa.int64())
    )
    columns["map"] = pa.array(
        [chance.choice([None, [("k", 1)], [("ä", None)]]) for _ in range(count)],
        pa.map_(pa.string(), pa.int64()),
    )
    return pa.table(columns)


def random_table(world: TableHarness, chance: random.Random) -> pa.Table:
    """Five files, in commits of two; returns all rows."""
    files = [random_file(chance) for _ in range(5)]
    for number, file in enumerate(files):
        size, coded = chance.choice([1, 2, 100]), chance.choice([True, False])
        world.put(f"{number}.parquet", parquet(file, row_group_size=size, use_dictionary=coded))
    world.run(max_files_per_commit=2)
    assert not world.quarantined()
    if chance.random() < 0.5:
        world.delta().create_checkpoint()
    return pa.concat_tables(files)


@pytest.mark.promise("G-176")
@pytest.mark.parametrize("seed", range(4))
def test_every_reader_sees_the_rows_that_were_written(world: TableHarness, seed: int) -> None:
    rows = random_table(world, random.Random(seed))
    names = [field.name for field in world.delta().schema().fields]
    assert_all_read(world, rows_of(rows, names))


ASK = """
import json, os, sys
import duckdb, polars as pl, pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
table = DeltaTable(sys.argv[1])
where = "timestamptz '2024-03-31 01:30:00+00'"
asked = f"select id from events where moment >= {where} order by id"
events = table.to_pyarrow_dataset()
db = duckdb.connect()
db.register("events", events)
cast = "arrow_cast(timestamp '2024-03-31 01:30:00', 'Timestamp(Microsecond, Some(\\"UTC\\"))')"
query = QueryBuilder().register("t", table)
by_sql = pa.table(query.execute(f"select id from t where moment >= {cast} order by id").read_all())
import datetime as dt
at = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
print(json.dumps([
    [row[0] for row in db.sql(asked).fetchall()],
    by_sql["id"].to_pylist(),
    pl.scan_delta(sys.argv[1]).filter(pl.col("moment") >= at).sort("id").collect()["id"].to_list(),
]), flush=True)
os._exit(0)  # Arrow's threads may still want the interpreter, which would end the process with 134
"""


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/Los_Angeles", "Europe/Berlin"])
def test_moments_are_the_same_in_every_time_zone(world: TableHarness, zone: str) -> None:
    """Around an hour that Berlin does not have."""
    moments = [EPOCH.replace(year=2024, month=3, day=31, hour=h, minute=30) for h in range(4)]
    for number, at in enumerate(moments):
        world.put(f"{number}.parquet", pa.table({"id": [number], "moment": pa.array([at])}))
    world.run()
    answer = subprocess.run(
        [sys.executable, "-c", ASK, world.uri],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == [[1, 2, 3]] * 3


@pytest.mark.promise("G-176")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_sparks_parquet_reader_sees_the_same_rows(
    world: TableHarness, spark_engine: SparkEngine, zone: str
) -> None:
    """By the log's list of files, which is how Delta on Spark reads."""
    rows = random_table(world, random.Random(7))
    names = [name for name in rows.column_names if name not in ("day", "moment", "local")]
    spark = spark_engine.session()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.parquet(*[str(uri) for uri in world.delta().file_uris()])
        seconds = frame.selectExpr("unix_micros(moment) as micros", "cast(day as string) as day")
        found = [tuple(row) for row in seconds.collect()]
        plainly = [
            tuple(plain(value) for value in row.asDict(recursive=True).values())
            for row in frame.select(*names).collect()
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    expected = [{**row, "map": row["map"] and dict(row["map"])} for row in rows.to_pylist()]
    assert sorted(plainly, key=repr) == sorted(
        (tuple(plain(row[name]) for name in names) for row in expected), key=repr
    )
    micros = rows["moment"].cast(pa.int64()).to_pylist()
    days = [row["day"] and f"{row['day'].year:04d}-{row['day']:%m-%d}" for row in expected]
    assert sorted(found, key=repr) == sorted(zip(micros, days, strict=True), key=repr)

"""Rows a second of windows over files, in few batches and in many, beside Spark's own and duckdb.

Whoever computes gets the same files and has to come to the same windows. Spark's file stream
reads JSON and writes Parquet; neither commits to a table. It runs as it comes, and with the
settings that our queries have. While files wait it runs no empty micro-batch, as `next_batch` does.
"""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  # as everywhere

from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.streaming.query import SETTINGS
from tests.support.event_world import BASE, TUMBLING, EventWorld

# Rows and bytes by start of the window and page.
Windows: TypeAlias = dict[tuple[int, str], tuple[int, int]]

_SCHEMA = "ts TIMESTAMP, id BIGINT, page STRING, bytes BIGINT"
_PAGES = 20
_SECONDS = 86_400
_SETTINGS = TUMBLING | {"window": "10 minutes", "delay": "10 minutes"}
_FIELDS = [
    {"name": "ts", "type": "timestamp", "nullable": False},
    {"name": "id", "type": "int64"},
    {"name": "page", "type": "string"},
    {"name": "bytes", "type": "int64"},
]


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds that each took over the same rows; duckdb reads them all at once."""

    rows: int
    batches: int
    ours: float
    next_batch: float
    spark: float
    tuned_spark: float
    duckdb: float

    @property
    def ratio(self) -> float:
        """How many times as fast as Spark's own, as it comes, we are."""
        return self.spark / self.ours

    @property
    def same_ratio(self) -> float:
        """Likewise where we, too, give windows with the next batch only."""
        return self.spark / self.next_batch


def rates(folder: Path, engine: SparkEngine, rows: int, batches: int) -> Rates:
    """Take turns over files of which each batch gets the same number."""
    files = max(batches, 20)
    place = folder / f"rows-{batches}"
    _write(place / "raw", rows, files)
    found, ours = _ours(place, engine, files // batches, "each_batch")
    before, next_batch = _ours(place, engine, files // batches, "next_batch")
    theirs, spark = _spark(place / "plain", engine, files // batches, {})
    tuned, tuned_spark = _spark(place / "tuned", engine, files // batches, SETTINGS)
    # The last batch closes windows that come out with the next one, which there is not.
    if not found == theirs == tuned or not before.items() <= found.items():
        raise AssertionError(f"{len(found)} windows of ours are not Spark's {len(theirs)}")
    began = time.monotonic()
    total = _duckdb(place)
    took = time.monotonic() - began
    if not sum(n for n, _ in found.values()) < total == rows:
        raise AssertionError(f"duckdb has {total} rows of {rows}")
    shutil.rmtree(place)
    return Rates(rows, batches, ours, next_batch, spark, tuned_spark, took)


def _ours(place: Path, engine: SparkEngine, files: int, emit: str) -> tuple[Windows, float]:
    """What we find, and the seconds that it took."""
    schema = {"schema": {"fields": _FIELDS}}
    root = place / emit
    root.mkdir()
    (root / "raw").symlink_to(place / "raw")
    world = EventWorld(root, engine, _SETTINGS | {"emit": emit}, schema, files_per_batch=files)
    began = time.monotonic()
    world.drain()
    secs = time.monotonic() - began
    found = {
        (round(one["window_start"].timestamp()), one["page"]): (one["n"], one["bytes"])
        for one in world.table()
    }
    return found, secs


def _write(raw: Path, rows: int, files: int) -> None:
    """Rows of a day in the order of their times."""
    raw.mkdir(parents=True)
    each = rows // files
    for number in range(files):
        lines = []
        for n in range(number * each, (number + 1) * each):
            at = BASE + timedelta(seconds=n * _SECONDS / rows)
            lines.append(
                f'{{"ts":"{at.isoformat()}","id":{n},"page":"p{n * 7 % _PAGES}","bytes":{n % 997}}}'
            )
        data = gzip.compress("\n".join([*lines, ""]).encode(), 1)
        (raw / f"{number:06d}.ndjson.gz").write_bytes(data)


def _spark(
    place: Path, engine: SparkEngine, files: int, settings: Mapping[str, str]
) -> tuple[Windows, float]:
    """What Spark's own stream finds, and the seconds that it took."""
    session = engine.session().newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    began = time.monotonic()
    stream = session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files)
    frame = (
        stream.json(str(place.parent / "raw"))
        .withWatermark("ts", "10 minutes")
        .groupBy(F.window("ts", "10 minutes"), "page")
        .agg(F.count("*").alias("n"), F.sum("bytes").alias("bytes"))
        .select(F.unix_seconds("window.start").alias("start"), "page", "n", "bytes")
    )
    query = (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(place / "windows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    secs = time.monotonic() - began
    rows = pq.read_table(place / "windows").to_pylist()
    return {(one["start"], one["page"]): (one["n"], one["bytes"]) for one in rows}, secs


def _duckdb(place: Path) -> int:
    query = (
        "SELECT sum(n) FROM (SELECT time_bucket(INTERVAL 10 MINUTE, ts) AS b, page, count(*) AS n,"
        " sum(bytes) FROM read_json(?, columns={ts: 'TIMESTAMP', id: 'BIGINT', page: 'VARCHAR',"
        " bytes: 'BIGINT'}, format='newline_delimited') GROUP BY b, page)"
    )
    with duckdb.connect(config={"threads": 2}) as connection:
        found = connection.execute(query, [str(place / "raw" / "*.gz")]).fetchone()
    assert found is not None
    return int(found[0])

"""Rows a second of windows over files, in few batches and in many, beside Spark's own and duckdb.

Whoever computes gets the same files and has to come to the same windows. Spark's file stream
reads JSON and writes Parquet; neither commits to a table. It runs as it comes, and with the
settings that our queries have. While files wait it runs no empty micro-batch, as `next_batch` does;
so it also gets them batch by batch, each when the windows of the one before are out, which is what
`each_batch` does.
"""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  # as everywhere
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.streaming.query import SETTINGS
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import BASE

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
    spark_each: float
    spark: float
    tuned_spark: float
    duckdb: float

    @property
    def each_ratio(self) -> float:
        """Spark's seconds divided by ours, with each batch's windows before the next.

        Spark is as it comes, and not tuned.
        """
        return self.spark_each / self.ours

    @property
    def next_ratio(self) -> float:
        """Likewise with windows that come out with the next batch while there is one."""
        return self.spark / self.next_batch


def rates(folder: Path, engine: SparkEngine, rows: int, batches: int, rounds: int) -> Rates:
    """Take turns over files of which each batch gets the same number; medians of the rounds.

    Another one begins in each of them: whoever comes later finds more of the JVM's code compiled.
    """
    files = max(batches, 20)
    place = folder / f"rows-{batches}"
    raw = place / "raw"
    _write(raw, rows, files)
    given = (raw, engine, files // batches)
    turns: dict[str, Callable[[Path], tuple[Windows, float]]] = {
        "ours": partial(_run_blizzard, *given, "each_batch"),
        "next_batch": partial(_run_blizzard, *given, "next_batch"),
        "spark_each": partial(_spark_each, *given),
        "spark": partial(_run_spark, *given, {}),
        "tuned_spark": partial(_run_spark, *given, SETTINGS),
    }
    names = list(turns)
    secs: dict[str, list[float]] = {name: [] for name in [*names, "duckdb"]}
    for number in range(rounds):
        found: dict[str, Windows] = {}
        begins = number % len(names)
        for name in names[begins:] + names[:begins]:
            found[name], took = turns[name](place / f"{name}-{number}")
            secs[name].append(took)
        began = time.monotonic()
        total = _duckdb(raw)
        secs["duckdb"].append(time.monotonic() - began)
        _check(found, total, rows)
    shutil.rmtree(place)
    return Rates(rows, batches, **{name: statistics.median(each) for name, each in secs.items()})


def _check(found: Mapping[str, Windows], total: int, rows: int) -> None:
    """Raise `AssertionError` unless all have found the same."""
    ours = found["ours"]
    for name, windows in found.items():
        # The last batch closes windows that come out with the next one, which there is not.
        same = windows.items() <= ours.items() if name == "next_batch" else windows == ours
        if not same:
            raise AssertionError(
                f"{len(ours)} windows of ours are not the {len(windows)} of {name}"
            )
    if not sum(n for n, _ in ours.values()) < total == rows:
        raise AssertionError(f"duckdb has {total} rows of {rows}")


def _run_blizzard(
    raw: Path, engine: SparkEngine, files: int, emit: str, place: Path
) -> tuple[Windows, float]:
    """Return Blizzard's windows and the seconds for them."""
    schema = {"schema": {"fields": _FIELDS}}
    place.mkdir()
    (place / "raw").symlink_to(raw)
    world = EventTimeHarness(
        place, engine, _SETTINGS | {"emit": emit}, schema, files_per_batch=files
    )
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


def _run_spark(
    raw: Path, engine: SparkEngine, files: int, settings: Mapping[str, str], place: Path
) -> tuple[Windows, float]:
    """Return the windows of Spark's own stream over all files, and the seconds for them."""
    began = time.monotonic()
    writer = _stream(place, raw, engine, files, settings)
    writer.trigger(availableNow=True).start().awaitTermination()
    secs = time.monotonic() - began
    return _written(place), secs


def _spark_each(raw: Path, engine: SparkEngine, files: int, place: Path) -> tuple[Windows, float]:
    """Likewise over files that come batch by batch, each when the one before is settled."""
    given = place / "raw"
    given.mkdir(parents=True)
    waiting = deque(sorted(raw.iterdir()))
    began = time.monotonic()
    query: StreamingQuery | None = None
    while waiting:
        for _ in range(files):
            file = waiting.popleft()
            os.link(file, given / file.name)
        query = query or _stream(place, given, engine, files, {}).start()
        query.processAllAvailable()
    assert query is not None
    query.stop()
    secs = time.monotonic() - began
    return _written(place), secs


def _stream(
    place: Path, raw: Path, engine: SparkEngine, files: int, settings: Mapping[str, str]
) -> DataStreamWriter:
    """Spark's own stream from JSON files to Parquet files, so many files at most at a time."""
    session = engine.session().newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    stream = session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files)
    frame = (
        stream.json(str(raw))
        .withWatermark("ts", "10 minutes")
        .groupBy(F.window("ts", "10 minutes"), "page")
        .agg(F.count("*").alias("n"), F.sum("bytes").alias("bytes"))
        .select(F.unix_seconds("window.start").alias("start"), "page", "n", "bytes")
    )
    return (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(place / "windows"))
        .option("checkpointLocation", str(place / "checkpoint"))
    )


def _written(place: Path) -> Windows:
    rows = pq.read_table(place / "windows").to_pylist()
    return {(one["start"], one["page"]): (one["n"], one["bytes"]) for one in rows}


def _duckdb(raw: Path) -> int:
    query = (
        "SELECT sum(n) FROM (SELECT time_bucket(INTERVAL 10 MINUTE, ts) AS b, page, count(*) AS n,"
        " sum(bytes) FROM read_json(?, columns={ts: 'TIMESTAMP', id: 'BIGINT', page: 'VARCHAR',"
        " bytes: 'BIGINT'}, format='newline_delimited') GROUP BY b, page)"
    )
    with duckdb.connect(config={"threads": 2}) as connection:
        found = connection.execute(query, [str(raw / "*.gz")]).fetchone()
    assert found is not None
    return int(found[0])

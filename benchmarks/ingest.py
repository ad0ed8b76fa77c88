"""One batch, NDJSON to Parquet: the Spark engine against Spark's own reader and bare processes.

    python benchmarks/ingest.py                      # 100 files of 20,000 rows
    python benchmarks/ingest.py --files 10 --rows 2000

All contestants read the same files and write snappy Parquet to the same disk.
They take turns within a round, so a slow minute of the machine hits them all;
the figures are medians over the rounds, after one warm-up round.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

from blizzard_py.core.stores import open_storage
from blizzard_py.kernels.packing import pack, task_count
from blizzard_py.kernels.process import prepare_process
from blizzard_py.kernels.task import Task, run_task, tasks_of
from blizzard_py.settings import FieldSpec, IngestJob, IngestSettings, JobFile, Place
from blizzard_py.spark import SparkEngine

FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    FieldSpec("time", "timestamp", nullable=False),
    FieldSpec("user", "string", nullable=False),
    FieldSpec("event", "string", nullable=False),
    FieldSpec("url", "string", nullable=True),
    FieldSpec("country", "string", nullable=True),
    FieldSpec("duration", "float64", nullable=True),
    FieldSpec("bytes", "int64", nullable=True),
    FieldSpec("mobile", "boolean", nullable=True),
)
SPARK_SCHEMA = (
    "id long, time timestamp, user string, event string, url string, country string, "
    "duration double, bytes long, mobile boolean"
)
EVENTS = ("view", "view", "view", "click", "scroll", "search", "buy")
COUNTRIES = ("DE", "US", "FR", "IN", "BR", None)


def generate(folder: Path, files: int, rows: int) -> int:
    """Deterministic click events, ordered in time; returns the raw bytes."""
    random_ = random.Random(20150912)
    start = datetime(2024, 5, 6, tzinfo=UTC)
    total = 0
    for number in range(files):
        lines = []
        for row in range(rows):
            when = start + timedelta(milliseconds=37 * (number * rows + row))
            lines.append(
                json.dumps(
                    {
                        "id": number * rows + row,
                        "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                        "user": f"user-{random_.randrange(200_000):06d}",
                        "event": random_.choice(EVENTS),
                        "url": f"/products/{random_.randrange(50_000)}"
                        f"?ref={random_.getrandbits(32):08x}",
                        "country": random_.choice(COUNTRIES),
                        "duration": round(random_.expovariate(0.2), 3),
                        "bytes": random_.randrange(1 << 20),
                        "mobile": random_.random() < 0.6,
                        "session": f"{random_.getrandbits(64):016x}",
                    },
                    separators=(",", ":"),
                )
            )
        raw = ("\n".join(lines) + "\n").encode()
        total += len(raw)
        (folder / f"{1715000000 + number}.ndjson.gz").write_bytes(gzip.compress(raw, 6))
    return total


def make_job(source: Path, sink: Path) -> IngestJob:
    return IngestJob(
        IngestSettings(
            Place(str(source)), Place(str(sink)), FIELDS, "auto", "snappy", file_bytes=128 << 20
        ),
        "_blizzard/staging/bench/1/1",
        "bench/source/1/1",
        tuple(JobFile(p.name, p.stat().st_size) for p in sorted(source.iterdir())),
    )


def bare_task(task: Task) -> int:
    """The kernel without Spark, in a process of its own."""
    source = open_storage(task.settings.source.uri, {})
    sink = open_storage(task.settings.sink.uri, {})
    return sum(file.rows for file in run_task(task, source, sink, attempt_id=0).files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=20_000, help="rows per file")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    expected: int = options.files * options.rows

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        source = folder / "source"
        source.mkdir()
        raw = generate(source, options.files, options.rows)
        packed = sum(p.stat().st_size for p in source.iterdir())
        engine = SparkEngine(f"local[{cores}]", {"spark.local.dir": str(folder / "spark")})
        # Forked before Spark starts its threads.
        with ProcessPoolExecutor(cores, get_context("fork"), prepare_process) as pool:

            def bare(sink: Path) -> int:
                job = make_job(source, sink)
                tasks = tasks_of(job, pack(job.files, task_count(job.files, cores)))
                rows: list[int] = list(pool.map(bare_task, tasks))
                return sum(rows)

            def blizzard(sink: Path) -> int:
                return sum(file.rows for file in engine.ingest(make_job(source, sink)).files)

            def spark_json(sink: Path) -> int:
                frame = engine.session().read.schema(SPARK_SCHEMA).json(str(source))
                frame.write.parquet(str(sink))
                return expected

            contestants: dict[str, Callable[[Path], int]] = {
                f"{cores} bare processes": bare,
                "blizzard on Spark": blizzard,
                "spark.read.json": spark_json,
            }
            seconds: dict[str, list[float]] = {label: [] for label in contestants}
            for turn in range(options.rounds + 1):
                for label, run in contestants.items():
                    sink = folder / "sink"
                    start = time.perf_counter()
                    rows = run(sink)
                    elapsed = time.perf_counter() - start
                    if rows != expected:
                        sys.exit(f"{label}: {rows} rows instead of {expected}")
                    shutil.rmtree(sink)
                    if turn:
                        seconds[label].append(elapsed)
        engine.stop()

    medians = {label: statistics.median(values) for label, values in seconds.items()}
    best = medians[f"{cores} bare processes"]
    print(
        f"{options.files} files x {options.rows} rows = {expected} rows, "
        f"{packed / 1e6:.1f} MB gzip, {raw / 1e6:.1f} MB raw, {cores} cores, "
        f"medians of {options.rounds}\n"
    )
    print(f"{'':20}{'seconds':>10}{'rows/s':>14}{'x bare':>10}   each round")
    for label, median in medians.items():
        rounds = " ".join(f"{value:.2f}" for value in seconds[label])
        print(f"{label:20}{median:10.2f}{expected / median:14,.0f}{median / best:10.2f}   {rounds}")
    faster = medians["spark.read.json"] / medians["blizzard on Spark"]
    print(f"\nblizzard is {faster:.1f} times as fast as spark.read.json")


if __name__ == "__main__":
    main()

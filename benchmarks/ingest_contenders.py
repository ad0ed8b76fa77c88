"""Contenders of `benchmarks.ingest`, each as a function from a folder to another.

All read the same gzip NDJSON with the same declared schema and write snappy Parquet to the
same disk, on the same number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.ingest_limits import LIMITS, limit
from blizzard_core.storage.opening import open_storage
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.gateway import quick_start_settings
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.job import (
    FieldSpec,
    IngestJob,
    IngestResult,
    IngestSettings,
    JobFile,
    OutputLayout,
    Place,
    RowSchema,
)
from blizzard_py.kernels.merge import SMALL_SHARE, MergeTask, merge_tasks, run_merge, with_merged
from blizzard_py.kernels.packing import IngestTask, pack, task_count, tasks_of
from blizzard_py.kernels.report import TaskReport, merged
from blizzard_py.kernels.task import run_task

BARE = "bare processes"
PYARROW = "bare pyarrow processes"
BLIZZARD = "blizzard on Spark"
SPARK_JSON = "spark.read.json"
STREAMING = "Structured Streaming"
DUCKDB = "duckdb"
POLARS = "polars"

_SQL_TYPES = {
    "int64": "BIGINT",
    "timestamp": "TIMESTAMP",
    "string": "VARCHAR",
    "float64": "DOUBLE",
    "boolean": "BOOLEAN",
}
Contender = Callable[[Path, Path], int]


Fields = tuple[FieldSpec, ...]


def job_of(fields: Fields, source: Path, sink: Path) -> IngestJob:
    """Return the daemon's engine job for all files of the folder."""
    return IngestJob(
        IngestSettings(
            Place(str(source)),
            Place(str(sink)),
            RowSchema(fields),
            OutputLayout("snappy", file_bytes=128 << 20),
        ),
        "_blizzard/staging/bench/1/1",
        "bench/source/1/1",
        tuple(JobFile(p.name, p.stat().st_size) for p in sorted(source.iterdir())),
    )


def bare_pool(cores: int) -> ProcessPoolExecutor:
    """Plain processes with the kernels loaded; to be forked before Spark starts its threads."""
    return ProcessPoolExecutor(cores, get_context("fork"), prepare_process)


def table_pool(cores: int) -> ProcessPoolExecutor:
    """One process for duckdb and polars, which takes no more cores than the others."""
    return ProcessPoolExecutor(1, get_context("spawn"), _limit_threads, (cores,))


@contextmanager
def engine_process(cores: int, scratch: Path) -> Iterator[Executor]:
    """Run our engine alone in a process: Spark's own readers need a JVM that compiles longer."""
    with ProcessPoolExecutor(1, get_context("spawn"), _chosen, (cores, str(scratch))) as pool:
        yield pool
        pool.submit(_stop).result()


def contenders(
    engine: SparkEngine,
    ours: Executor,
    bare: Executor,
    tables: Executor,
    cores: int,
    fields: Fields,
) -> dict[str, Contender]:
    """By name; each returns the rows that it wrote, by the footers of its files.

    ``engine`` gives Spark's own readers a session; ``ours`` is an `engine_process`.
    """
    return {
        BARE: partial(_bare, bare, cores, fields, True),
        PYARROW: partial(_bare, bare, cores, fields, False),
        BLIZZARD: lambda source, sink: ours.submit(_blizzard, fields, source, sink).result(),
        SPARK_JSON: partial(_spark_json, engine, fields),
        STREAMING: partial(_streaming, engine, fields),
        DUCKDB: lambda source, sink: tables.submit(_duckdb, fields, source, sink).result(),
        POLARS: lambda source, sink: tables.submit(_polars, fields, source, sink).result(),
        **{name: partial(limit, bare, cores, fields, name) for name in LIMITS},
    }


def _rows_of(result: IngestResult, sink: Path) -> int:
    return _rows_in(sink / output.staged for output in result.outputs)


def _rows_in(paths: Iterable[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in paths)


def _chosen(cores: int, scratch: str) -> None:
    os.environ["BENCH_CORES"] = str(cores)
    os.environ["BENCH_SCRATCH"] = scratch


@cache
def _engine() -> SparkEngine:
    """Return this process's engine, with a JVM as the daemon starts it."""
    conf = quick_start_settings({"spark.local.dir": os.environ["BENCH_SCRATCH"]})
    return SparkEngine(f"local[{os.environ['BENCH_CORES']}]", conf)


def _blizzard(fields: Fields, source: Path, sink: Path) -> int:
    return _rows_of(_engine().ingest(job_of(fields, source, sink)), sink)


def _stop() -> None:
    _engine().stop()


def _bare(pool: Executor, cores: int, fields: Fields, fast: bool, source: Path, sink: Path) -> int:
    """Run the kernels of both jobs without Spark, as the measure for the engine."""
    job = job_of(fields, source, sink)
    schema = replace(job.settings.schema, fast_path=fast)
    job = replace(job, settings=replace(job.settings, schema=schema))
    small = job.settings.layout.file_bytes // SMALL_SHARE
    tasks = tasks_of(job, pack(job.files, task_count(job.files, cores, small)))
    result = merged(pool.map(_bare_task, tasks))
    merges = merge_tasks(job, result, cores)
    reports = list(pool.map(_bare_merge, merges))
    return _rows_of(with_merged(result, merges, reports), sink)


def _bare_task(task: IngestTask) -> TaskReport:
    places = (task.job.settings.source, task.job.settings.sink)
    source, sink = (open_storage(place.uri, place.options) for place in places)
    return run_task(task, source, sink, attempt_id=os.getpid())


def _bare_merge(task: MergeTask) -> TaskReport:
    return run_merge(task, open_storage(task.job.settings.sink.uri, {}), attempt_id=os.getpid())


def _spark_schema(fields: Sequence[FieldSpec]) -> str:
    types = _SQL_TYPES | {"string": "string"}
    return ", ".join(f"{field.name} {types[field.type].lower()}" for field in fields)


def _spark_json(engine: SparkEngine, fields: Fields, source: Path, sink: Path) -> int:
    frame = engine.session().read.schema(_spark_schema(fields)).json(str(source))
    frame.write.parquet(str(sink))
    return _rows_in(sink.glob("*.parquet"))


def _streaming(engine: SparkEngine, fields: Fields, source: Path, sink: Path) -> int:
    frame = engine.session().readStream.schema(_spark_schema(fields)).json(str(source))
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(sink / "table"))
        .option("checkpointLocation", str(sink / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _rows_in((sink / "table").glob("*.parquet"))


def _limit_threads(cores: int) -> None:
    os.environ["POLARS_MAX_THREADS"] = str(cores)  # read when polars is imported
    os.environ["BENCH_CORES"] = str(cores)


def _duckdb(fields: Fields, source: Path, sink: Path) -> int:
    import duckdb  # noqa: PLC0415  # in its process only

    columns = ", ".join(f"{f.name}: '{_SQL_TYPES[f.type]}'" for f in fields)
    sink.mkdir(parents=True)
    with duckdb.connect() as db:
        db.execute(f"set threads = {os.environ['BENCH_CORES']}")
        db.execute(
            f"copy (select * from read_json('{source}/*.gz', format = 'newline_delimited',"
            f" compression = 'gzip', columns = {{{columns}}}))"
            f" to '{sink}/all.parquet' (format parquet, compression snappy)"
        )
    return _rows_in([sink / "all.parquet"])


def _polars(fields: Fields, source: Path, sink: Path) -> int:
    import polars as pl  # noqa: PLC0415  # after POLARS_MAX_THREADS is set

    types = {
        "int64": pl.Int64(),
        "timestamp": pl.Datetime("us", "UTC"),
        "string": pl.String(),
        "float64": pl.Float64(),
        "boolean": pl.Boolean(),
    }
    sink.mkdir(parents=True)
    frame = pl.scan_ndjson(source / "*.gz", schema={f.name: types[f.type] for f in fields})
    frame.sink_parquet(sink / "all.parquet", compression="snappy")
    return _rows_in([sink / "all.parquet"])

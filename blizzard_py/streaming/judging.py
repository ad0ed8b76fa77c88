"""The job that finds late rows of a batch: run only where its times say that there may be any."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from blizzard_py.engines.spark.handed import handing, whole
from blizzard_py.engines.spark.worker import REPORTS, ids_of, storage_of, task_context
from blizzard_py.job import IngestJob
from blizzard_py.kernels.late_letters import Judged, JudgeTask, run_judge


def judged(
    spark: SparkSession, job: IngestJob, make: Callable[[IngestJob], Sequence[JudgeTask]]
) -> list[Judged]:
    """What each task has found; ``make`` makes them of the job as tasks may be told it.

    Raises what Spark raises.
    """
    with handing(spark.sparkContext, job) as bare:
        return _collected(spark, make(bare))


def _collected(spark: SparkSession, tasks: Sequence[JudgeTask]) -> list[Judged]:
    frame = spark.range(0, len(tasks), 1, len(tasks))
    rows = frame.mapInArrow(functools.partial(_run, tasks), REPORTS).collect()
    return [Judged.from_json(row["result"]) for row in rows]


def _run(tasks: Sequence[JudgeTask], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = task_context()
    for index in ids_of(batches):
        task = whole(tasks[index])
        source, sink = storage_of(task.settings.source), storage_of(task.settings.sink)
        found = run_judge(task, source, sink, context.taskAttemptId())
        yield pa.RecordBatch.from_pydict({"result": [found.to_json()]})

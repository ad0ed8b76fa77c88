"""The job that finds late rows of a batch: run only where its times say that there may be any."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from blizzard_py.engines.spark.handed import handing, whole
from blizzard_py.engines.spark.numbered import reports_of
from blizzard_py.engines.spark.worker import storage_of, task_context
from blizzard_py.job import IngestJob
from blizzard_py.kernels.late_letters import Judged, JudgeTask, run_judge


def judged(
    spark: SparkSession, job: IngestJob, make: Callable[[IngestJob], Sequence[JudgeTask]]
) -> list[Judged]:
    """Return what each task has found; ``make`` makes them of the job as tasks may be told it.

    Raises what Spark raises.
    """
    with handing(spark.sparkContext, job) as bare:
        tasks = make(bare)
        run = functools.partial(_run, tasks)
        found = reports_of(spark.sparkContext, run, len(tasks), len(tasks))
    return [Judged.from_json(text) for text in found]


def _run(tasks: Sequence[JudgeTask], numbers: Iterable[int]) -> Iterator[str]:
    context = task_context()
    for number in numbers:
        task = whole(tasks[number])
        source, sink = storage_of(task.settings.source), storage_of(task.settings.sink)
        yield run_judge(task, source, sink, context.taskAttemptId()).to_json()

"""The job that finds late rows of a batch: run only if its times allow for any."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from blizzard_py.engines.spark.job_secrets import attach_secrets, restore_secrets
from blizzard_py.engines.spark.numbered_tasks import run_numbered
from blizzard_py.engines.spark.worker import storage_of, task_context
from blizzard_py.job import IngestJob
from blizzard_py.kernels.late_letters import LatenessReport, LatenessTask, run_lateness_task


def find_late_rows(
    spark: SparkSession, job: IngestJob, make: Callable[[IngestJob], Sequence[LatenessTask]]
) -> list[LatenessReport]:
    """Return each task's result; ``make`` makes the tasks from the job without secrets.

    Raises what Spark raises.
    """
    with attach_secrets(spark.sparkContext, job) as bare:
        tasks = make(bare)
        run = functools.partial(_run, tasks)
        found = run_numbered(spark.sparkContext, run, len(tasks), len(tasks))
    return [LatenessReport.from_json(text) for text in found]


def _run(tasks: Sequence[LatenessTask], numbers: Iterable[int]) -> Iterator[str]:
    context = task_context()
    for number in numbers:
        task = restore_secrets(tasks[number])
        source, sink = storage_of(task.settings.source), storage_of(task.settings.sink)
        yield run_lateness_task(task, source, sink, context.taskAttemptId()).to_json()

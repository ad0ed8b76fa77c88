"""The jobs beside a query: one decides about files and records, one writes letters of late rows.

The first runs before the query and keeps each row's position.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from blizzard_core.storage.protocol import join
from blizzard_py.engines.spark.job_secrets import attach_secrets, restore_secrets
from blizzard_py.engines.spark.numbered_tasks import run_numbered
from blizzard_py.engines.spark.worker import storage_of, task_context
from blizzard_py.job import POSITION, IngestJob, IngestSettings, StagedBadRecords
from blizzard_py.kernels.late_letters import LatenessTask, run_lateness_task
from blizzard_py.kernels.report import TaskReport, merged

_FOLDER = "accepted"


def decode_settings(settings: IngestSettings) -> IngestSettings:
    """Return the settings of that job: as declared and transformed, into unpublished files."""
    return replace(
        settings,
        layout=settings.layout.for_staging(),
        added_columns=settings.added_columns.with_metadata(POSITION),
    )


def make_decode_job(job: IngestJob) -> IngestJob:
    """Return the job with these settings, into its own folder; rows of all partitions together."""
    return replace(
        job,
        settings=decode_settings(job.settings),
        staging=join(job.staging, _FOLDER),
        files=tuple(replace(file, partition="") for file in job.files),
    )


def write_late_letters(
    spark: SparkSession, job: IngestJob, make: Callable[[IngestJob], Sequence[LatenessTask]]
) -> Sequence[StagedBadRecords]:
    """Return the tasks' letters; ``make`` makes the tasks from the job without secrets.

    Raises what Spark raises.
    """
    with attach_secrets(spark.sparkContext, job) as bare:
        tasks = make(bare)
        run = functools.partial(_run, tasks)
        found = run_numbered(spark.sparkContext, run, len(tasks), len(tasks))
    return merged(map(TaskReport.from_json, found)).letters


def _run(tasks: Sequence[LatenessTask], numbers: Iterable[int]) -> Iterator[str]:
    context = task_context()
    for number in numbers:
        task = restore_secrets(tasks[number])
        source, sink = storage_of(task.job.settings.source), storage_of(task.job.settings.sink)
        letters = run_lateness_task(task, source, sink, context.taskAttemptId())
        yield TaskReport(number, (), (), letters).to_json()

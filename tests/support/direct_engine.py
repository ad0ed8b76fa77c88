"""The ingest engine without Spark: the same tasks, one after the other, in this process."""

from __future__ import annotations

import itertools

from blizzard_core.errors import EngineError, StorageError
from blizzard_core.storage.opening import open_storage
from blizzard_py.connections.drivers import reader_of
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.kernels.merge import merge_tasks, run_merge, with_merged
from blizzard_py.kernels.packing import pack, task_count, tasks_of
from blizzard_py.kernels.read_task import read_item, reading_tasks
from blizzard_py.kernels.report import merged
from blizzard_py.kernels.task import run_task
from blizzard_py.reading import Reading


class DirectEngine:
    """An `Engine` without Spark, for tests of the code around it."""

    def __init__(self, *_: object, parallelism: int = 2) -> None:
        """Take what `SparkEngine` is given, to stand in its place."""
        self._parallelism = parallelism
        self._attempts = itertools.count()

    def ingest(self, job: IngestJob) -> IngestResult:
        if job.reading is not None:
            return self._read(job, job.reading)
        packed = pack(job.files, task_count(job.files, self._parallelism))
        source = open_storage(job.settings.source.uri, job.settings.source.options)
        sink = open_storage(job.settings.sink.uri, job.settings.sink.options)
        try:
            result = merged(
                [
                    run_task(task, source, sink, next(self._attempts))
                    for task in tasks_of(job, packed)
                ]
            )
            merges = merge_tasks(job, result, self._parallelism)
            done = [run_merge(task, sink, next(self._attempts)) for task in merges]
            return with_merged(result, merges, done)
        except StorageError as error:
            raise EngineError(f"{job.output_prefix}: {error}") from error

    def session(self) -> None:
        """There is no Spark."""

    def _read(self, job: IngestJob, reading: Reading) -> IngestResult:
        sink = open_storage(job.settings.sink.uri, job.settings.sink.options)
        read = reader_of(reading.access.driver)
        return merged(
            [
                read_item(
                    task,
                    lambda spec: read(reading.access, spec, job.settings.schema.as_read.fields),
                    sink,
                    next(self._attempts),
                )
                for task in reading_tasks(job, reading)
            ]
        )

    def cancel(self, output_prefix: str) -> None:
        """Do nothing: no job runs in the background."""

    def progress(self, output_prefix: str) -> float | None:
        """Return no progress."""

    def start(self) -> None:
        """Do nothing: a job needs no preparation."""

    def warm_up(self) -> None:
        """Nothing is warmed up."""

    def stop(self) -> None:
        """Do nothing: no job runs in the background."""

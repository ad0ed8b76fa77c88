"""The functions that Spark's Python workers run: thin wrappers of the kernels."""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from blizzard_core.storage.opening import open_source, open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.connections.drivers import reader_of
from blizzard_py.connections.protocol import Rows
from blizzard_py.engines.spark.job_secrets import restore_access, restore_secrets, restore_sink
from blizzard_py.formats.child_process import prepare_process
from blizzard_py.formats.ndjson.fast.sandbox import compiled
from blizzard_py.job import FieldSpec, JobFile, Place
from blizzard_py.kernels.merge import MergeTask, run_merge
from blizzard_py.kernels.packing import IngestTask
from blizzard_py.kernels.read_task import ReadingTask, read_item, run_read_task
from blizzard_py.kernels.report import TaskReport
from blizzard_py.kernels.sql_stage import SqlStage, read_records, write_rows
from blizzard_py.kernels.task import run_task
from blizzard_py.reading import Access

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# Counts the tasks of this process.
_begun = itertools.count()

# The schema of every job's frame of reports, in Spark's notation.
REPORTS = "result string"


def run_partition(tasks: Sequence[IngestTask], numbers: Iterable[int]) -> Iterator[str]:
    """Run tasks by number and yield their reports; for `numbered_tasks`, with ``tasks`` bound.

    The attempt's number is passed on: after the first attempt, the worker of the attempt before may
    have died of its input.
    """
    context = task_context()
    for number in numbers:
        task = restore_secrets(tasks[number])
        yield run_task(
            task,
            _source(task.job.settings.source),
            storage_of(task.job.settings.sink),
            context.taskAttemptId(),
            attempt=context.attemptNumber(),
        ).to_json()
    pa.default_memory_pool().release_unused()  # 40 MB, until the next task or for ever


def run_reading(tasks: Sequence[ReadingTask], numbers: Iterable[int]) -> Iterator[str]:
    """Run tasks that a connection's reader reads, with a pause between them.

    Otherwise as `run_partition`.
    """
    context = task_context()
    for place, number in enumerate(numbers):
        task = restore_secrets(tasks[number])
        reading, settings = task.reading, task.job.settings
        if place and reading.pacing_secs:
            time.sleep(reading.pacing_secs)
        access = restore_access(reading.access)
        read = functools.partial(_read, access, settings.schema.as_read.fields)
        sink = storage_of(settings.sink)
        yield read_item(task, read, sink, context.taskAttemptId()).to_json()


def _read(access: Access, fields: Sequence[FieldSpec], spec: Mapping[str, Any]) -> Iterable[Rows]:
    return reader_of(access.driver)(access, spec, fields)


def run_frame(
    tasks: Sequence[ReadingTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run tasks that Spark reads: each partition has the rows of one task.

    This and the following functions are for ``mapInArrow``, which passes a frame's rows to them.
    Otherwise as `run_reading`.
    """
    context = task_context()
    task = restore_secrets(tasks[context.partitionId()])
    sink = storage_of(task.job.settings.sink)
    yield _reported(run_read_task(task, batches, sink, context.taskAttemptId()))


def read_partition(
    sink: Place,
    packed: Sequence[tuple[JobFile, ...]],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the second job's input: accepted records, for ids of packed files."""
    task_context()
    for index in ids_of(batches):
        yield from read_records(storage_of(restore_sink(sink)), packed[index], schema)


def write_partition(
    second: SqlStage, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the second job's rows and yield a report."""
    context = task_context()
    second = restore_secrets(second)
    yield _reported(
        write_rows(
            second,
            context.partitionId(),
            context.taskAttemptId(),
            batches,
            storage_of(second.job.settings.sink),
        )
    )


def write_emitted(
    second: SqlStage, same: Mapping[str, int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write rows as `write_partition`, with additional columns of constant values ``same``."""
    yield from write_partition(second, (_with(each, same) for each in batches))


def _with(rows: pa.RecordBatch, same: Mapping[str, int]) -> pa.RecordBatch:
    for name, value in same.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
    return rows


def reports(frame: DataFrame, run: ArrowFunction) -> DataFrame:
    """Return the reports of ``run`` on the frame's rows, whatever the columns' names.

    ``mapInArrow`` finds columns by name, and reads a dot as the field of a struct.
    """
    names = frame.columns
    plain = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return plain.mapInArrow(functools.partial(_run_named, names, run), REPORTS)


def _run_named(
    names: Sequence[str], run: ArrowFunction, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield from run(batch.rename_columns(names) for batch in batches)


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield no rows: stands in for the records while a transform is only analysed."""
    for _ in batches:
        pass
    yield from ()


def task_context() -> TaskContext:
    """Return the running task's context, with its worker prepared."""
    prepare_worker()
    if next(_begun) == 1:
        gc.freeze()  # also what the first task has loaded, after Spark's own collection
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs only in a Spark task")
    return context


def ids_of(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers in a frame of ids."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def _reported(report: TaskReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"result": [report.to_json()]})


def run_merge_partition(tasks: Sequence[MergeTask], numbers: Iterable[int]) -> Iterator[str]:
    """Run the tasks that merge small outputs, as `run_partition`."""
    context = task_context()
    for number in numbers:
        task = restore_secrets(tasks[number])
        sink = storage_of(task.job.settings.sink)
        yield run_merge(task, sink, context.taskAttemptId()).to_json()


@functools.cache
def prepare_worker() -> None:
    """Prepare the worker process once: pyarrow, the fast path, cheap garbage collection.

    Spark collects garbage after every task. With pyarrow loaded that takes 40 ms, unless the loaded
    objects are frozen now.
    """
    prepare_process()
    compiled()
    gc.collect()
    gc.freeze()


def storage_of(place: Place) -> Storage:
    """Return the storage of a place; the worker keeps it."""
    return _opened(place.uri, frozenset(place.options.items()))


@functools.lru_cache(maxsize=32)
def _opened(uri: str, options: frozenset[tuple[str, str]]) -> Storage:
    """Return a storage that outlives tasks: making an S3 client costs more than a small task."""
    return open_storage(uri, dict(options))


def _source(place: Place) -> Storage:
    return _opened_source(place.uri, frozenset(place.options.items()))


@functools.lru_cache(maxsize=32)
def _opened_source(uri: str, options: frozenset[tuple[str, str]]) -> Storage:
    """Return the storage as the driver lists it: a link that replaced a file is not followed."""
    return open_source(uri, dict(options))

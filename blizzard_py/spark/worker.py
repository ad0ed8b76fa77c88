"""What runs in Spark's Python workers: a thin shell around `kernels.task`."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext

from blizzard_py.core.storage import Storage
from blizzard_py.core.stores import open_storage
from blizzard_py.kernels.merge import MergeTask, run_merge
from blizzard_py.kernels.process import prepare_process
from blizzard_py.kernels.task import Task, run_task
from blizzard_py.settings import Place


def run_partition(
    tasks: Sequence[Task], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """``mapInArrow``'s function, after ``tasks`` is bound: a row of ids in, reports out.

    The attempt's number goes along: a later one means that the worker of the
    one before may have died of its input.
    """
    context = _prepared()
    for batch in batches:
        for index in batch.column("id").to_pylist():
            task = tasks[index]
            report = run_task(
                task,
                _storage(task.settings.source),
                _storage(task.settings.sink),
                context.taskAttemptId(),
                attempt=context.attemptNumber(),
            )
            yield pa.RecordBatch.from_pydict({"result": [report.to_json()]})


def run_merge_partition(
    tasks: Sequence[MergeTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """As `run_partition`, for the job that merges small outputs."""
    context = _prepared()
    for batch in batches:
        for index in batch.column("id").to_pylist():
            task = tasks[index]
            report = run_merge(task, _storage(task.settings.sink), context.taskAttemptId())
            yield pa.RecordBatch.from_pydict({"result": [report.to_json()]})


def _prepared() -> TaskContext:
    _prepare_worker()
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this runs in a Spark task only")
    return context


@functools.cache
def _prepare_worker() -> None:
    """Once per worker process: pyarrow set up, and garbage collections made cheap.

    Spark collects garbage after every task. With pyarrow loaded that takes 40 ms
    unless what is loaded now is set aside.
    """
    prepare_process()
    gc.collect()
    gc.freeze()


def _storage(place: Place) -> Storage:
    return _opened(place.uri, frozenset(place.options.items()))


@functools.lru_cache(maxsize=32)
def _opened(uri: str, options: frozenset[tuple[str, str]]) -> Storage:
    """Connections outlive tasks: making an S3 client costs more than a small task."""
    return open_storage(uri, dict(options))

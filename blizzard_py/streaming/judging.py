"""The job that finds late rows of a batch: run only where its times say that there may be any."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from blizzard_core.storage.protocol import Storage
from blizzard_py.engines.spark.handed import handing, whole
from blizzard_py.engines.spark.worker import REPORTS, ids_of, storage_of, task_context
from blizzard_py.job import IngestJob, StagedOutput
from blizzard_py.kernels.late_letters import Judged, JudgeTask, run_judge

_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"


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


def bounds(
    storage: Storage, outputs: Sequence[StagedOutput], column: str
) -> tuple[int, int] | None:
    """The oldest and newest time in staged files, by their statistics; None if they do not tell."""
    found: list[int] = []
    for output in outputs:
        metadata = _footer(storage, output)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = (group.column(place) for place in range(group.num_columns))
            chunk = next(chunk for chunk in chunks if chunk.path_in_schema == column)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            found += [statistics.min_raw, statistics.max_raw]
    return (min(found), max(found)) if found else None


def _footer(storage: Storage, output: StagedOutput) -> pq.FileMetaData:
    tail = storage.read_range(output.staged, max(0, output.size - _TAIL_BYTES), output.size)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = storage.read_range(output.staged, output.size - length, output.size)
    # A file that consists of its footer is one whose footer can be read.
    return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length:]))

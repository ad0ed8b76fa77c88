"""Spark jobs over the numbers of their tasks; the function has everything else with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from blizzard_py.engines.spark.worker import REPORTS, ids_of

# From the numbers of a partition's tasks to the JSON report of each.
NumberedFunction = Callable[[Iterable[int]], Iterator[str]]


def run_numbered(context: SparkContext, run: NumberedFunction, count: int, parts: int) -> list[str]:
    """Return the reports of ``run`` on the numbers from 0 to ``count``, in ``parts`` Spark tasks.

    It uses no frame: planning, optimising and code generation are half of Spark's cost for a job of
    one small file. Raises what Spark raises.
    """
    # `parallelize` would send the numbers by a socket and leave closing it to garbage collection.
    jvm, java = context._jvm, context._jsc  # noqa: SLF001  # no public name
    assert jvm is not None  # noqa: S101  # a context has one until it is stopped
    empty: RDD[Any] = RDD(java.parallelize(jvm.java.util.ArrayList(), parts), context)
    return empty.mapPartitionsWithIndex(functools.partial(_run_part, run, count, parts)).collect()


def _run_part(
    run: NumberedFunction, count: int, parts: int, part: int, rows: Iterable[object]
) -> Iterator[str]:
    for _ in rows:  # empty, but a worker is reused only if it has read to the end
        pass
    return run(range(part * count // parts, (part + 1) * count // parts))


def run_numbered_frame(
    spark: SparkSession, run: NumberedFunction, count: int, parts: int
) -> list[str]:
    """Return the reports as `run_numbered`, through a frame, the only way of Spark Connect."""
    frame = spark.range(0, count, 1, parts)
    rows = frame.mapInArrow(functools.partial(_run_batches, run), REPORTS).collect()
    return [row["result"] for row in rows]


def _run_batches(
    run: NumberedFunction, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for text in run(ids_of(batches)):
        yield pa.RecordBatch.from_pydict({"result": [text]})

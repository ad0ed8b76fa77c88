"""Counts of a batch: for the metrics of its source, and for reports to other systems."""

from __future__ import annotations

import math
from collections import Counter

from blizzard_core.observability.runs import RunResult
from blizzard_py import metrics
from blizzard_py.state.batch import Batch
from blizzard_py.state.event_times import BEHIND_SECS
from blizzard_py.state.stream_state import QueryBatch, StreamState


def result_of(batch: Batch) -> RunResult:
    """Return what a batch has read and written. Files that wait for another try do not count."""
    results = batch.results
    settled = {file.path for file in results.finished if file.outcome != "retry"}
    ingested = [file for file in results.finished if file.outcome == "ingested"]
    return RunResult(
        read={
            "files": len(ingested),
            "rows": sum(file.rows for file in ingested),
            "bytes": sum(entry.size for entry in batch.files if entry.path in settled),
        },
        written={
            "files": len(results.outputs),
            "rows": sum(output.rows for output in results.outputs),
            "bytes": sum(output.size for output in results.outputs),
        },
        bad_rows=sum(file.bad_rows for file in results.finished),
    )


def count_batch(name: str, batch: Batch, result: RunResult) -> None:
    """Add a batch to the metrics of the source ``name``."""
    finished = batch.results.finished
    for outcome, files in Counter(file.outcome for file in finished).items():
        metrics.FILES_PROCESSED.labels(name, outcome).inc(files)
        if batch.request:
            metrics.REQUEST_FILES.labels(name, outcome).inc(files)
    failed = Counter(file.stage for file in finished if file.outcome != "ingested")
    for stage, files in failed.items():
        metrics.FILES_FAILED.labels(name, stage).inc(files)
    metrics.BYTES_READ.labels(name).inc(result.read["bytes"])
    metrics.RECORDS_PROCESSED.labels(name).inc(result.written["rows"])
    metrics.BAD_RECORDS.labels(name).inc(result.bad_rows)
    metrics.BYTES_DECOMPRESSED.labels(name).inc(
        sum(file.bytes_read for file in finished if file.outcome == "ingested")
    )
    metrics.FILES_WRITTEN.labels(name).inc(result.written["files"])
    metrics.BYTES_WRITTEN.labels(name).inc(result.written["bytes"])


def count_stream(name: str, stream: StreamState | None, before: StreamState | None) -> None:
    """Add to the metrics what a query over event time did since the state ``before``."""
    if stream is None:
        return
    earlier = before or StreamState(query={})
    for metric, more in (
        (metrics.LATE_ROWS, stream.late_rows - earlier.late_rows),
        (metrics.PARTLY_LATE_ROWS, stream.partly_late_rows - earlier.partly_late_rows),
        (metrics.AHEAD_ROWS, stream.ahead_rows - earlier.ahead_rows),
        (metrics.UNACCOUNTED_ROWS, stream.unaccounted_rows - earlier.unaccounted_rows),
    ):
        metric.labels(name).inc(max(0, more))
    if stream.batch > earlier.batch and stream.line is not None:
        _count_line(name, stream.line)


def _count_line(name: str, line: QueryBatch) -> None:
    """Set the event times of a batch's rows, and count the work of the query's operators."""
    if (times := line.times) is not None:
        for secs, rows in zip((*BEHIND_SECS, math.inf), times.behind, strict=True):
            metrics.EVENT_ROWS.labels(name, f"{secs:g}").inc(rows)
        for kind, ms in (("min", times.min_ms), ("max", times.max_ms), ("avg", times.avg_ms)):
            metrics.EVENT_TIMES.labels(name, kind).set(ms / 1000)
    for each in line.operators:
        metrics.OPERATOR_ROWS.labels(name, each.name).set(each.state_rows)
        metrics.OPERATOR_BYTES.labels(name, each.name).set(each.state_bytes)
        for change, rows in (
            ("updated", each.updated_rows),
            ("removed", each.removed_rows),
            ("dropped", each.dropped_rows),
        ):
            metrics.OPERATOR_CHANGES.labels(name, each.name, change).inc(rows)

"""An event-time watermark that is reported but drives no query.

The batch is the engine's usual job, and its rows go to the table whatever their time is. The staged
files give the newest time. The watermark is that, less the delay, and never falls. A row is late by
the rule of `blizzard_py.kernels.lateness`: if its time is not above the watermark of the batches
before it. Rows further ahead than ``max_ahead`` do not move it.

It counts from the save that commits the outputs, so each batch is counted once, whichever attempt
succeeded. If reading a staged file fails, the batch fails, as usual.
"""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.errors import EngineError
from blizzard_core.settings.event_time import WatchedColumn
from blizzard_py.ingest.jobs import Ingested, Jobs
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.kernels.lateness import Limits, Rule
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_state import (
    QueryBatch,
    StreamState,
    add_query_batch,
    placeholder_query,
)
from blizzard_py.streaming.staged_times import TimeTally, tally

_MILLI, _MICRO = 1000, 1_000_000


class ObservedWatermarkJobs(Jobs):
    """The `Jobs` of a source whose watermark is reported."""

    def __init__(self, parts: SourceContext, watch: WatchedColumn) -> None:
        super().__init__(parts.engine)
        self._watch = watch
        self._name = parts.name
        self._sink = parts.stores.sink
        self._width = parts.concurrency

    def run(self, state: SourceState, job: IngestJob, epoch: int) -> Ingested:
        """See `Jobs`. Raises `EngineError` if a file was written without the column."""
        ingested = super().run(state, job, epoch)
        if any(file.path in state.work.replacing for file in job.files):
            return ingested  # rows that are read again were already counted when they first came
        return replace(ingested, stream=self._after(state.kind.stream, job, ingested.result))

    def _after(
        self, known: StreamState | None, job: IngestJob, result: IngestResult
    ) -> StreamState:
        known = known or StreamState(query=placeholder_query(self._watch.column))
        ahead_us = round(job.started_ts * _MICRO) + self._watch.max_ahead_us
        rule, limits = Rule(self._watch.column), Limits(known.watermark_ms, ahead_us)
        try:
            newest_ms = known.max_event_time_ms
            found = tally(self._sink, result.outputs, rule, limits, newest_ms, self._width)
        except LookupError:
            raise EngineError(
                f"{self._name}: rows were written without {self._watch.column!r}, the column of"
                " event_time"
            ) from None
        return after(known, self._watch, found, len(job.files), sum(o.rows for o in result.outputs))


def after(
    known: StreamState, watch: WatchedColumn, found: TimeTally, files: int, rows: int
) -> StreamState:
    """Return the state with one more batch of so many files and rows. Pure.

    The watermark is rounded down to milliseconds, like a query's. If the delay became shorter, the
    newest time of all batches counts.
    """
    newest_ms = None if found.times is None else found.times.max_ms
    times = [ms for ms in (newest_ms, known.max_event_time_ms) if ms is not None]
    reached = max(times, default=0) - watch.delay_us // _MILLI
    batch = QueryBatch(
        batch=known.batch + 1,
        files=files,
        rows=rows,
        used_watermark_ms=known.watermark_ms,
        watermark_ms=max(known.watermark_ms, reached),
        late_rows=found.late,
        ahead_rows=found.ahead,
        emitted_rows=rows,
        times=found.times,
    )
    return add_query_batch(
        known,
        batch,
        {},
        judged_ms=known.watermark_ms,
        max_event_time_ms=newest_ms,
    )

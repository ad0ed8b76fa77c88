"""The batches of one poll: while one is published, the next is ingested.

Live files come first. A batch of a request has its turn when no live files wait, or after three
live batches. So a request makes progress during a long backlog. At most one batch of a request is
in flight, and none starts when the next poll is due. So new files wait for at most one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from uuid_utils import uuid7

from blizzard_core.daemon import StopEvent
from blizzard_core.errors import BlizzardError, PipelineStopped, SourceError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry
from blizzard_py.ingest.batch_runner import BatchRunner, Ingesting
from blizzard_py.ingest.request_acceptance import fail_request
from blizzard_py.job import FinishedFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.sources.protocol import CheckpointServices, Requested, Work
from blizzard_py.state.batch import Batch
from blizzard_py.state.journal_tally import raise_id
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import begin_batch

# The number of live batches between two of a request, while live files wait.
_LIVE_TURNS = 3
# Limits of a batch of a request, because new live files wait for it.
_REQUEST_SECS = 20.0
_FIRST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Turn:
    """The files of the next batch, and their request; ``""`` for live files."""

    files: tuple[Entry, ...]
    request: str = ""


class Turns:
    """Chooses the next batch. ``is_due`` says whether the next poll is due.

    Without any work the first batch has no files, for jobs that have something due anyway.
    """

    def __init__(
        self, live: Work, requested: Requested, limits: BatchLimits, is_due: Callable[[], bool]
    ) -> None:
        self._live = live
        self._request = requested
        self._requested = requested.work
        self._is_empty = not live and not requested.work
        self._limits = limits
        self._is_due = is_due
        # Turns of live files since one of a request.
        self._since = 0
        self._is_first = True

    def next(self, bytes_per_sec: float | None, *, is_beside_request: bool) -> Turn | None:
        """Take the next batch's files; None if no batch may start now.

        With ``is_beside_request`` a batch of a request is in flight.
        """
        if self._is_empty:
            self._is_empty = False
            return Turn(())
        may_begin = self._may_begin and not is_beside_request
        if self._live and (self._since < _LIVE_TURNS or not may_begin):
            self._since += 1
            return Turn(self._live.take(self._limits, bytes_per_sec))
        if not may_begin:
            return None
        self._since, self._is_first = 0, False
        files = self._requested.take(self._small(bytes_per_sec), bytes_per_sec)
        return Turn(files, self._request.id)

    @property
    def _may_begin(self) -> bool:
        # While live files wait there is no need to look for others.
        return bool(self._requested) and (bool(self._live) or self._is_first or not self._is_due())

    def _small(self, bytes_per_sec: float | None) -> BatchLimits:
        limits = self._limits
        most = limits.bytes if bytes_per_sec is not None else min(limits.bytes, _FIRST_BYTES)
        return replace(limits, bytes=most, secs=min(limits.secs, _REQUEST_SECS))


# Errors of a job that a second attempt would have again. They end the request of the batch.
REFUSALS = (PipelineStopped, SourceError)


class BatchLoop:
    """Ingests the work of a poll batch by batch.

    ``is_called`` says whether new requests wait; then no further batch starts.
    """

    def __init__(
        self,
        parts: SourceContext,
        batches: BatchRunner,
        services: CheckpointServices,
        is_called: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._batches = batches
        self._save = services.save
        self._clock = services.clock
        self._is_called = is_called
        self._limits = parts.limits
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def run(
        self, state: SourceState, work: Work, requested: Requested, seen_ts: float, stop: StopEvent
    ) -> tuple[SourceState, list[FinishedFile]]:
        """Ingest all files, or stop after a batch without any readable file.

        The save that commits a batch also has the next batch. Returns the outcomes of live files.
        """
        finished: list[FinishedFile] = []
        if stop.is_set():
            return state, finished
        parts, more = self._parts, requested.work
        parts.meter.start_poll(len(work) + len(more), work.size + more.size)
        due = parts.monotonic() + parts.source.poll_interval
        turns = Turns(work, requested, self._limits, lambda: parts.monotonic() >= due)
        state, following = self._next_batch(state, turns, seen_ts, in_flight=None)
        while following is not None:
            self._save(state)
            ingesting: Ingesting | None = self._batches.start(state, following)
            following = None
            try:
                while ingesting is not None:
                    try:
                        state, ready, started = self._batches.prepare(state, ingesting)
                    except REFUSALS as error:
                        return self.fail_request(state, ingesting.batch, error), finished
                    ingesting = None
                    # If no file of a batch is readable, the store is probably down. Do not try
                    # the other files one after the other.
                    is_readable = any(file.outcome != "retry" for file in ready.results.finished)
                    goes_on = is_readable and not stop.is_set() and not self._is_called()
                    if goes_on:
                        state, following = self._next_batch(state, turns, seen_ts, in_flight=ready)
                    self._save(state)
                    if following is not None:
                        ingesting = self._batches.start(state, following)
                    state = self._batches.finish(state, ready, started, work)
                    following = None
                    finished += () if ready.request else ready.results.finished
                if goes_on:
                    state, following = self._next_batch(state, turns, seen_ts, in_flight=None)
            except BaseException:
                if ingesting is not None:
                    self._batches.abandon(ingesting)
                raise
        return state, finished

    def fail_request(self, state: SourceState, batch: Batch, error: BlizzardError) -> SourceState:
        """End the batch's request with an error; save and return the state."""
        after = fail_request(state, batch, error, self._clock())
        self._log.error("request_failed", request=batch.request, reason=str(error))
        return self._save(after)

    def _next_batch(
        self, state: SourceState, turns: Turns, seen_ts: float, *, in_flight: Batch | None
    ) -> tuple[SourceState, Batch | None]:
        """Return the state with the next batch in it, if one can start now."""
        is_beside = in_flight is not None and bool(in_flight.request)
        turn = turns.next(self._batches.bytes_per_sec, is_beside_request=is_beside)
        if turn is None:
            return state, None
        name = raise_id(str(uuid7()), state.ids.last_batch)
        now = self._clock()
        batch = Batch(name, 1, "running", now, turn.files, seen_ts, request=turn.request)
        return begin_batch(state, batch), batch

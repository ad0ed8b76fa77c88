"""One source's cycle: discover → plan → ingest → prepare → publish → advance.

The order of saves and actions is the whole exactly-once argument:

1. *plan*: the batch goes into the checkpoint as ``running``, then the job starts;
2. *ingest*: the job writes below the batch's own staging directory;
3. *prepare*: outputs, outcomes and bad records go into the checkpoint as
   ``publishing``. **That save is the commit point**;
4. *publish*: the journal and the dead letters say what was committed, then outputs
   are renamed into the table;
5. *advance*: the files are done and the batch leaves the checkpoint.

Every action follows the save that allows it, and every save is refused once another
process has taken the checkpoint over: what a daemon does that was replaced is what
it had committed before, or lies under an epoch that nobody reads any more.

While one batch goes through 4 and 5 the next goes through 2, in a thread of its
own that touches no state; so at most two batches are in the checkpoint.

Whatever raises, the in-memory state is dropped and the next cycle starts from
the checkpoint, so an error is handled by the same code as a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uuid_utils import uuid7

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.fence import FencedFile
from blizzard_core.checkpoint.writer import TakeoverPolicy, allow_takeover
from blizzard_core.daemon import StopEvent
from blizzard_core.errors import (
    BlizzardError,
    Cancelled,
    FencedError,
    NotFound,
    PipelineStopped,
    SourceError,
    StateError,
    StorageError,
    Unavailable,
    Unfinished,
)
from blizzard_core.log import get_logger
from blizzard_core.storage.clock import StoreClock
from blizzard_py.ingest.batch_runner import BatchRunner, Ingesting
from blizzard_py.ingest.jobs import Jobs, PlainJobs
from blizzard_py.ingest.request_runner import RequestRunner
from blizzard_py.ingest.request_steps import RequestEffects, fail_request, without_failing
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.ingest.start import Start
from blizzard_py.ingest.turns import Turns
from blizzard_py.job import FinishedFile
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import has_more
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import (
    CheckpointServices,
    Opener,
    PlainWork,
    Requested,
    Source,
    Work,
)
from blizzard_py.sources.records import requested_records
from blizzard_py.sources.stale import look
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.fence_record import FenceFile, FenceRecord
from blizzard_py.state.journal_tally import above
from blizzard_py.state.last_error import ErrorNote
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import Batch, SourceState, checkpoint_path
from blizzard_py.state.transitions import begin_batch, rested

# A job's errors that a second try would have, too.
_REFUSALS = (PipelineStopped, SourceError)


class SourcePipeline(SourceView):
    """A source of a pipeline as a `Worker` of the poll loop."""

    def __init__(
        self,
        parts: SourceContext,
        opens: Opener,
        *,
        fresh: bool = False,
        admission: TakeoverPolicy = allow_takeover,
        jobs: Jobs | None = None,
        requests_only: bool = False,
        effects: Callable[[Source[Any]], RequestEffects] | None = None,
    ) -> None:
        """Create the pipeline: ``opens`` makes the source, ``fresh`` allows a cold start.

        ``admission`` may leave the source to whoever works on it (`FencedError`).

        With ``requests_only`` it does what operators asked for, and does not look at the source.

        ``jobs`` make outputs of a batch's files; without them each batch is a job of the engine.
        ``effects`` does what operators request of the source; without it nothing is taken.
        """
        self.meter = parts.meter
        self.activity = parts.activity or SourceActivity(
            parts.name, parts.stores.source.uri, parts.clock
        )
        self._clock = StoreClock(parts.clock, parts.monotonic)
        self._file = FencedFile(parts.stores.sink, checkpoint_path(parts.id), admission)
        self._fence = FenceFile(parts.stores.sink, parts.id, parts.identity.range)
        upkeep = CheckpointServices(
            self._save,
            self._clock,
            lambda: self._file.epoch,
            lambda state: self._fence.advance(state.committed),
            self._finish,
            self.activity,
        )
        super().__init__(parts, opens(parts, upkeep))
        self._requests_only = requests_only
        self._start = Start(parts, self.source, self._clock, fresh)
        self._requests = (
            None
            if effects is None
            else RequestRunner(
                Mailbox(parts.stores.sink, parts.id),
                effects(self.source),
                parts.name,
                self._clock,
                parts.monotonic,
            )
        )
        self._jobs = PlainJobs(parts.engine) if jobs is None else jobs
        self._batches = BatchRunner(parts, self.source, upkeep, self._jobs)
        self._limits = parts.limits
        self._items = f"{self.source.items}(s) of {parts.stores.source.uri}"
        self._note = ErrorNote(parts.stores.sink, parts.id, parts.clock)
        # Whether a store did not answer last: then nothing is held against a batch.
        self._is_store_away = False
        # The state that is gone on from; None where it has to be read first.
        self._state: SourceState | None = None
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        self._close_requests()
        self._batches.cancel()

    def is_called(self) -> bool:
        """Return whether there may be new requests since the last poll."""
        return self._requests is not None and self._requests.is_called()

    def release(self) -> None:
        """Say in the checkpoint that this process writes no more. Raises `StorageError`."""
        self._file.release()

    def end_jobs(self) -> None:
        """Release the jobs' resources while the engine still runs."""
        self._close_requests()
        self._jobs.close()

    def _close_requests(self) -> None:
        if self._requests is not None:
            self._requests.close()

    def close(self) -> None:
        """Let go of what the source and the jobs hold open."""
        super().close()
        self.end_jobs()

    def cycle(self, stop: StopEvent) -> bool:
        """Ingest everything that is there now, batch by batch; True if any file was done."""
        try:
            done = self._tried(stop)
        except (Cancelled, FencedError, Unfinished):
            raise  # nothing is wrong here, or the source is somebody else's
        except Exception as error:
            self._note.write(error)
            raise
        self._note.clear()
        return done

    def _tried(self, stop: StopEvent) -> bool:
        try:
            busy = self._cycle(stop)
            self._is_store_away = False
            return busy
        except (FencedError, StateError, NotFound):
            self._state = None
            # What one that was replaced finds missing its successor has removed, and to it the
            # remedy in a message does not apply. Who replaced it the checkpoint says.
            self._file.check()
            self._fence.check()
            raise
        except BaseException as error:
            # What was saved last is the truth; see the module's docstring.
            self._state, self._is_store_away = None, isinstance(error, StorageError)
            raise

    def _cycle(self, stop: StopEvent) -> bool:
        state = self._state if self._state is not None else self._recover()
        self._state = state  # what recovery has loaded is not to be loaded again, without an epoch
        self._checked(state)
        if self._requests is not None:
            state = self._requests.attend(state, self._save, self._file.epoch)
            self._state = state
        if self._requests_only:
            return self._cycle_of_requests(state, stop)
        plan = self.source.plan(state)
        state, found, work = plan.state, plan.found, plan.work
        requested = self._requested(state, found.scanned.ended)
        scanned = found.scanned
        cost = (found.requests, found.keys)
        took = scanned.ended - scanned.began
        if not self.parts.members:  # each of several has told what its own look has found
            self.activity.polled(took, work.files, found.young, cost, found.apart)
        if not (work or requested.work or self._jobs.has_due(state)):
            state = self._rest(state)
            self._complain(state, waiting(state, scanned.ended))
            # What lies behind a bounded scan is looked at without a pause.
            return scanned.until is not None or self._has_more_requested(state)

        self._batches.resolve_settings((*work.files, *requested.work.files))
        state, finished = self._work_off(state, work, requested, scanned.ended, stop)
        self._state = state
        done = sum(f.outcome != "retry" for f in finished)
        if finished and not done:
            first = finished[0]
            raise Unavailable(
                f"{len(finished)} {self._items} cannot be read and will be tried again,"
                f" first {first.path}: {first.error}"
            )
        return (done > 0 and found.again) or bool(requested.work.files)

    def _cycle_of_requests(self, state: SourceState, stop: StopEvent) -> bool:
        """Execute requests without polling the source; return whether any ingested a file."""
        now = self._clock()
        requested = self._requested(state, now)
        if not requested.work:
            asked = {entry.path for entry in state.queue if entry.request}
            self._complain(state, waiting(state, now) & asked)
            if self._requests is not None and self._requests.error is not None:
                raise self._requests.error
            return self._has_more_requested(state)
        self._batches.resolve_settings(requested.work.files)
        state, _ = self._work_off(state, PlainWork(), requested, now, stop)
        self._state = state
        return True

    def _requested(self, state: SourceState, now: float) -> Requested:
        """Return the work of the running request that was accepted first."""
        found = requested_records(state, now)
        return found if found.work else self.source.requested(state, now)

    def _has_more_requested(self, state: SourceState) -> bool:
        blocked = self._requests is None or self._requests.error is not None
        return not blocked and has_more(state.requests)

    def _rest(self, state: SourceState) -> SourceState:
        """Nothing to do: say so."""
        idle = rested(state)
        if idle != state:
            self._save(idle)
            self._log.info("idle", watermark=idle.progress.value)
        self._state = idle
        return idle

    def _complain(self, state: SourceState, waits: set[str]) -> None:
        """Raise `Unfinished` while files wait for another try and nothing else is there to do.

        Only those whose try lies ahead count: one that is due and not there to be tried
        (too young, or left apart) would have the next look begin at once, for ever.
        """
        if waits:
            secs = min(state.retries[path].after for path in waits) - self._clock()
            raise Unfinished(
                f"{len(waits)} {self._items} could not be read and wait for another try,"
                f" among them {min(waits)}",
                max(0.0, secs),
            )

    def _work_off(
        self, state: SourceState, work: Work, asked: Requested, seen_ts: float, stop: StopEvent
    ) -> tuple[SourceState, list[FinishedFile]]:
        """Files in batches, all if they can be read; while one is published the next is ingested.

        The save that makes a batch's outputs count writes the next batch down, too. Returns the
        outcomes of live files.
        """
        finished: list[FinishedFile] = []
        if stop.is_set():
            return state, finished
        requested = asked.work
        self.meter.found(len(work) + len(requested), work.size + requested.size)
        due = self.parts.monotonic() + self.poll_interval_secs
        turns = Turns(work, asked, self._limits, lambda: self.parts.monotonic() >= due)
        state, following = self._next_batch(state, turns, seen_ts, beside=None)
        while following is not None:
            self._save(state)
            ingesting: Ingesting | None = self._batches.start(state, following)
            following = None
            try:
                while ingesting is not None:
                    try:
                        state, ready, started = self._batches.prepare(state, ingesting)
                    except _REFUSALS as error:
                        return self._fail_request(state, ingesting.batch, error), finished
                    ingesting = None
                    # Where nothing of a batch could be read the store is rather down than the
                    # files bad: what else waits is not tried one after the other.
                    readable = any(file.outcome != "retry" for file in ready.finished)
                    goes_on = readable and not stop.is_set() and not self.is_called()
                    if goes_on:
                        state, following = self._next_batch(state, turns, seen_ts, beside=ready)
                    self._save(state)
                    if following is not None:
                        ingesting = self._batches.start(state, following)
                    state = self._batches.finish(state, ready, started, work)
                    following = None
                    finished += () if ready.request else ready.finished
                if goes_on:
                    state, following = self._next_batch(state, turns, seen_ts, beside=None)
            except BaseException:
                if ingesting is not None:
                    self._batches.abandon(ingesting)
                raise
        return state, finished

    def _next_batch(
        self, state: SourceState, turns: Turns, seen_ts: float, *, beside: Batch | None
    ) -> tuple[SourceState, Batch | None]:
        """Return the state with the next batch started ``beside`` another, if possible."""
        is_beside = beside is not None and bool(beside.request)
        turn = turns.next(self._batches.bytes_per_sec, is_beside_request=is_beside)
        if turn is None:
            return state, None
        name = above(str(uuid7()), state.last_batch)
        begun = self._clock()
        batch = Batch(name, 1, "running", begun, turn.files, seen_ts, request=turn.request)
        return begin_batch(state, batch), batch

    def _fail_request(self, state: SourceState, batch: Batch, error: BlizzardError) -> SourceState:
        after = fail_request(state, batch, error, self._clock())
        self._log.error("request_failed", request=batch.request, reason=str(error))
        return self._save(after)

    def _finish(
        self, state: SourceState, batch: Batch, started: float, work: Work | None
    ) -> SourceState:
        return self._batches.finish(state, batch, started, work)

    def _save(self, state: SourceState) -> SourceState:
        try:
            self._file.save(state_to_json(state, self.parts.clock()))
        except BaseException:
            self.activity.save_failed()
            raise
        self.activity.saved(state)
        return state

    def _recover(self) -> SourceState:
        """Return the stored state after finishing the batches that a crash left behind."""
        record = self._fence.read()
        found = self._file.take(
            lambda document, where: self._checked(state_from_json(document, where)),
            self._start.first_document,
            (record or FenceRecord()).epoch,
        )
        # Who is replaced by that may have published since the record was read.
        record = self._fence.read()
        self._clock.set(self._file.now())
        state, changed = self._start.load(found, self._file.epoch)
        # A refused start must not save its new name: the next one would not know the old one.
        current = self.source.reconciled(state, look(self.parts, record, found))
        if changed:
            # Otherwise each start, and each error is one, would begin to wait from the beginning.
            self._save(state)
        self._batches.reset_ts = state.reset_ts
        self.activity.knows(state)
        known, state = state, current
        state = self._batches.as_journaled(state)
        self._fence.take(self._file.epoch, state.committed)
        state = self.source.recover(state, self._file.epoch)
        if (state.last_batch, state.committed) != (known.last_batch, known.committed):
            # Or a copy that is made before the next save could be brought back unnoticed.
            self._save(state)
        if not self._is_store_away:
            kept, state = state, without_failing(state, self._clock())
            if state is not kept:
                self._save(state)
        for batch in state.in_flight:
            try:
                state = self._batches.recover(state, batch)
            except _REFUSALS as error:
                state = self._fail_request(state, batch, error)
        if found is not None:
            self._batches.clear_older()
            checkpoint.sweep_temporaries(self.sink, self.checkpoint_path)
        return state

    def _checked(self, state: SourceState) -> SourceState:
        self.check(state)
        self._jobs.check(state, self._where)
        return state

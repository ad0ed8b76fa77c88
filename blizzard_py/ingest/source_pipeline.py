"""One source's cycle: discover → plan → ingest → prepare → publish → advance.

The order of saves and actions makes ingestion exactly-once:

1. *plan*: the batch goes into the checkpoint as ``running``, then the job starts;
2. *ingest*: the job writes below the batch's own staging directory;
3. *prepare*: outputs, outcomes and bad records go into the checkpoint as
   ``publishing``. **That save is the commit point**;
4. *publish*: the journal and the dead letters record what was committed, then outputs
   are renamed into the table;
5. *advance*: the files are done and the batch leaves the checkpoint.

Every action follows the save that allows it. A save is refused if another process has taken over
the checkpoint. So a daemon that was replaced can only publish what it had committed before.
Everything else that it writes is below an epoch that nobody reads any more.

While one batch is in steps 4 and 5, the next one is in step 2, in a thread that changes no state.
So at most two batches are in the checkpoint.

After any error the state in memory is dropped, and the next cycle starts from the checkpoint. So
the same code handles errors and crashes. Files that wait for another try are no error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.checkpoint.writer_identity import TakeoverPolicy, allow_takeover
from blizzard_core.daemon import StopEvent
from blizzard_core.errors import (
    Cancelled,
    FencedError,
    NotFound,
    StateError,
    StorageError,
    Unavailable,
    Unfinished,
)
from blizzard_core.log import get_logger
from blizzard_core.storage.clock import StoreClock
from blizzard_py.ingest.batch_loop import REFUSALS, BatchLoop
from blizzard_py.ingest.batch_runner import BatchRunner
from blizzard_py.ingest.completion_mirror import CompletionMirror, remove_certificates
from blizzard_py.ingest.jobs import Jobs
from blizzard_py.ingest.request_acceptance import RequestEffects, without_failing
from blizzard_py.ingest.request_runner import RequestRunner
from blizzard_py.ingest.source_cleaning import SourceCleaning
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.ingest.start import Start
from blizzard_py.job import FieldSpec
from blizzard_py.requests.progress import has_more
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import CheckpointServices, Opener, PlainWork, Requested, Source
from blizzard_py.sources.records import records_of_request
from blizzard_py.sources.stale import look
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.fence_record import FenceFile, FenceRecord
from blizzard_py.state.retries import waiting
from blizzard_py.state.source_state import SourceState, checkpoint_path
from blizzard_py.state.status_notes import ErrorNote
from blizzard_py.state.transitions import end_scan


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
        replica_id: str = "",
        taken: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the pipeline: ``opens`` makes the source, ``fresh`` allows a cold start.

        ``admission`` may refuse to take the source over from its owner (`FencedError`).

        With ``requests_only`` it executes requests of operators and does not poll the source.

        ``jobs`` make outputs of a batch's files; without them each batch is a job of the engine.
        ``effects`` executes requests of operators; without it no request is accepted.
        ``replica_id`` is the id of the replica of which it is a writer. ``taken`` is called when it
        has taken the checkpoint over, before it finishes what its predecessor left.
        """
        self.meter = parts.meter
        self.activity = parts.activity or SourceActivity(
            parts.name, parts.stores.source.uri, parts.clock
        )
        self._clock = StoreClock(parts.clock, parts.monotonic)
        self._file = FencedFile(parts.stores.sink, checkpoint_path(parts.id), admission, replica_id)
        self._completions = CompletionMirror(parts.stores.sink, parts.id, self._file.check)
        self._certifies = bool((files := parts.source.as_files) and files.complete_after)
        self._fence = FenceFile(parts.stores.sink, parts.id, parts.identity.range)
        services = CheckpointServices(
            self._save,
            self._clock,
            lambda: self._file.epoch,
            lambda state: self._fence.advance(state.ids.committed),
            lambda *batch: self._batches.finish(*batch),  # noqa: PLW0108  # made below
            lambda: self.activity,
        )
        super().__init__(parts, opens(parts, services))
        self._requests_only = requests_only
        self._taken = taken
        self._start = Start(parts, self.source, self._clock, fresh)
        self._requests = (
            None
            if effects is None
            else RequestRunner(parts, services, partial(effects, self.source))
        )
        self._jobs = Jobs(parts.engine) if jobs is None else jobs
        self._batches = BatchRunner(parts, self.source, services, self._jobs)
        self._cleaning = SourceCleaning(parts, services, self._file.check)
        self._loop = BatchLoop(parts, self._batches, services, self.is_called)
        self._items = f"{self.source.items}(s) of {parts.stores.source.uri}"
        self._note = ErrorNote(parts.stores.sink, parts.id, parts.clock)
        # True if a store did not answer last: then a failed attempt does not count for a batch.
        self._is_store_away = False
        # When the next scan is due, by the clock that never jumps; None: after the poll interval.
        self._next_at: float | None = None
        # The current state; None if it must be read first.
        self._state: SourceState | None = None
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    @property
    def fields(self) -> tuple[FieldSpec, ...]:
        """The columns of records, with those that were inferred or added so far."""
        return self._batches.fields

    @property
    def poll_interval_secs(self) -> float:
        """Return the time until the next scan is due; without a schedule, the configured one."""
        if self._next_at is None:
            return super().poll_interval_secs
        return max(0.0, self._next_at - self.parts.monotonic())

    @property
    def is_paced(self) -> bool:
        """Return whether scans follow a schedule."""
        return self._next_at is not None

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        self._close_requests()
        self._batches.cancel()

    def is_called(self) -> bool:
        """Return whether there may be new requests since the last poll."""
        return self._requests is not None and self._requests.is_called()

    def rest(self, secs: float, stop: StopEvent) -> bool:
        """Wait; return whether a notification ends the pause, or the daemon."""
        hints = self.parts.hints
        return stop.wait(secs) if hints is None else hints.wait(secs, stop)

    @property
    def owns(self) -> bool:
        """Return whether it has taken the checkpoint and not released it."""
        return self._file.epoch > 0

    def release(self) -> None:
        """Give up the checkpoint, so that another process can take over at once.

        Raises `StorageError`.
        """
        self._file.release()

    def end_jobs(self) -> None:
        """Release the jobs' resources while the engine still runs."""
        self._close_requests()
        self._jobs.close()

    def _close_requests(self) -> None:
        if self._requests is not None:
            self._requests.close()

    def close(self) -> None:
        """Close the resources of the source and the jobs."""
        super().close()
        self.end_jobs()

    def cycle(self, stop: StopEvent) -> bool:
        """Ingest everything that is present, batch by batch; return whether any file was done."""
        try:
            is_busy = self._cycle_or_forget(stop)
        except (Cancelled, FencedError, Unfinished):
            raise  # no error of this source, or another process owns it
        except Exception as error:
            self._note.write(error)
            raise
        self._note.clear()
        return is_busy

    def _cycle_or_forget(self, stop: StopEvent) -> bool:
        """Run a cycle; drop the state in memory after an error."""
        try:
            is_busy = self._cycle(stop)
            self._is_store_away = False
            return is_busy
        except Unfinished:
            # Taking the checkpoint over in each poll would scan everything each time.
            self._is_store_away = False
            raise
        except (FencedError, StateError, NotFound):
            self._state = None
            # If another process has taken over, it may have removed what is missing here. Then the
            # remedy in the message is wrong, and the checkpoint names that process.
            self._file.check()
            self._fence.check()
            raise
        except BaseException as error:
            # Only the saved state counts; see the module's docstring.
            self._state, self._is_store_away = None, isinstance(error, StorageError)
            raise

    def _cycle(self, stop: StopEvent) -> bool:
        state = self._state if self._state is not None else self._recover()
        self._state = state  # recovery must not run again in this epoch
        self._checked(state)
        if self._requests is not None:
            state = self._requests.attend(state)
            self._state = state
        if self._requests_only:
            return self._cycle_of_requests(state, stop)
        plan = self.source.plan(state)
        state, found, work = plan.state, plan.scan, plan.work
        scanned = found.scanned
        requested = self._requested(state, scanned.ended)
        cost, took = (found.requests, found.keys), scanned.ended - scanned.began
        self._next_at = found.next_at
        # Sources with a shared checkpoint report their own scans.
        if found.has_listed and not self.parts.members:
            self.activity.polled(
                took, work.files, found.young, cost, found.skipped, found.ignored, scanned.cover
            )
        if not (work or requested.work or self._jobs.has_due(state)):
            state = self._rest(state) if found.has_listed else state
            self._state = state = self._cleaning.run(state, stop)
            self._report_waiting(state, waiting(state.work.retries, scanned.ended))
            # More items follow a bounded scan: go on without a pause.
            return scanned.until is not None or self._has_more_requested(state)

        self._batches.resolve_settings((*work.files, *requested.work.files))
        state, finished = self._loop.run(state, work, requested, scanned.ended, stop)
        self._state = state
        done = sum(f.outcome != "retry" for f in finished)
        if finished and not done:
            first = finished[0]
            raise Unavailable(
                f"{len(finished)} {self._items} cannot be read and are tried again."
                f" The first is {first.path}: {first.error}"
            )
        return (done > 0 and found.needs_rescan) or bool(requested.work.files)

    def _cycle_of_requests(self, state: SourceState, stop: StopEvent) -> bool:
        """Execute requests without polling the source; return whether any ingested a file."""
        now = self._clock()
        requested = self._requested(state, now)
        if not requested.work:
            paths = {entry.path for entry in state.work.queue if entry.request}
            self._report_waiting(state, waiting(state.work.retries, now) & paths)
            if self._requests is not None and self._requests.error is not None:
                raise self._requests.error
            return self._has_more_requested(state)
        self._batches.resolve_settings(requested.work.files)
        state, _ = self._loop.run(state, PlainWork(), requested, now, stop)
        self._state = state
        return True

    def _requested(self, state: SourceState, now: float) -> Requested:
        """Return the work of the running request that was accepted first."""
        found = records_of_request(state, now)
        return found if found.work else self.source.requested_items(state, now)

    def _has_more_requested(self, state: SourceState) -> bool:
        is_blocked = self._requests is None or self._requests.error is not None
        return not is_blocked and has_more(state.work.requests)

    def _rest(self, state: SourceState) -> SourceState:
        """Return the idle state, saved if it is new."""
        idle = end_scan(state)
        if idle != state:
            self._save(idle)
            self._log.info("idle", watermark=idle.position.progress.value)
        self._state = idle
        return idle

    def _report_waiting(self, state: SourceState, paths: set[str]) -> None:
        """Raise `Unfinished` if files wait for a retry and there is no other work.

        ``paths`` are files whose retry is not due. A file that is due but cannot be tried (too
        young, or in a skipped partition) would start the next scan at once, again and again.
        """
        if paths:
            secs = min(state.work.retries[path].after for path in paths) - self._clock()
            raise Unfinished(
                f"{len(paths)} {self._items} could not be read and wait for a retry,"
                f" among them {min(paths)}",
                max(0.0, secs),
            )

    def _save(self, state: SourceState) -> SourceState:
        hints = self.parts.hints
        mark = 0 if hints is None else hints.mark()
        try:
            self._file.save(state_to_json(state, self.parts.clock()))
        except BaseException:
            self.activity.save_failed()
            raise
        if hints is not None:
            # See `blizzard_core.notifications.inbox`: no earlier, and not by a refused save.
            hints.saved(mark)
        self._completions.write(state.complete, self._file.epoch)
        self.activity.saved(state)
        return state

    def _recover(self) -> SourceState:
        """Return the stored state after finishing the batches that a crash left behind."""
        mirrored = self._completions.look() if self._certifies else 0
        record = self._fence.read()
        found = self._file.take(
            lambda document, where: self._checked(state_from_json(document, where)),
            self._start.first_document,
            max((record or FenceRecord()).epoch, mirrored),
        )
        self._taken()
        self._cleaning.start_over()
        # The previous owner may have published after the record was read above.
        record = self._fence.read()
        self._clock.set(self._file.now())
        state, is_changed = self._start.load(found, self._file.epoch)
        # A refused start must not save its new name: the next one would not know the old one.
        current = self.source.reconcile(state, look(self.parts, record, found))
        if is_changed:
            # Otherwise each restart, also one after an error, would begin its waits again.
            self._save(state)
        self._batches.reset_ts = state.position.reset_ts
        self.activity.knows(state)
        loaded, state = state, self._batches.as_journaled(current)
        self._fence.take(self._file.epoch, state.ids.committed)
        state = self.source.recover(state, self._file.epoch)
        if (state.ids.last_batch, state.ids.committed) != (
            loaded.ids.last_batch,
            loaded.ids.committed,
        ):
            # Otherwise a copy made before the next save could come back unnoticed.
            self._save(state)
        state = self._with_mirror(state)
        if not self._is_store_away:
            before, state = state, without_failing(state, self._clock())
            if state is not before:
                self._save(state)
        for batch in state.work.in_flight:
            if batch.phase == "running" and self._file.is_successor:
                self.activity.batch_cut_off(batch)
            try:
                state = self._batches.recover(state, batch)
            except REFUSALS as error:
                state = self._loop.fail_request(state, batch, error)
        if found is not None:
            self._batches.clear_older()
            checkpoint.sweep_temporaries(self.sink, self.checkpoint_path)
        return state

    def _with_mirror(self, state: SourceState) -> SourceState:
        """Return the state after writing its completions, or removing them without the setting."""
        if state.complete is not None and not self._certifies:
            remove_certificates(self.sink, self.id)
            state = self._save(replace(state, complete=None))
        self._completions.take(state.complete, self._file.epoch)
        return state

    def _checked(self, state: SourceState) -> SourceState:
        self.check(state)
        self._jobs.check(state, self._where)
        return state

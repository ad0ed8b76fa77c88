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

from dataclasses import replace

from uuid_utils import uuid7

from blizzard_py.activity import SourceActivity
from blizzard_py.batch import BatchRunner, Ingesting, Upkeep
from blizzard_py.coldstart import check_cold_start
from blizzard_py.core import checkpoint
from blizzard_py.core.daemon import StopEvent
from blizzard_py.core.errors import NotFound, OrderError, StateError, Unavailable, Unfinished
from blizzard_py.core.fence import FencedFile
from blizzard_py.core.log import get_logger
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.model import Apart, FinishedFile
from blizzard_py.core.storage import is_bare, order_key
from blizzard_py.core.watermark import Lowest, Scanned, mark_idle, observed
from blizzard_py.discovery import (
    Discovery,
    Scope,
)
from blizzard_py.latefiles import LateFiles
from blizzard_py.lateness import measured
from blizzard_py.order import TOLERANCE_SECS, inspect
from blizzard_py.outofturn import OutOfTurn
from blizzard_py.parts import Parts
from blizzard_py.progress import BatchLimits, begun, clamped
from blizzard_py.sources.files.marks import Window, Work, held_by, settled
from blizzard_py.sourceview import SourceView
from blizzard_py.state import (
    Batch,
    SourceState,
    state_from_json,
    state_to_json,
    under_way,
)
from blizzard_py.statefile import whole
from blizzard_py.sweep import grace_of, is_due, started


class SourcePipeline(SourceView):
    """A source of a pipeline as a `Worker` of the poll loop."""

    def __init__(self, parts: Parts, scope: Scope | None = None, *, fresh: bool = False) -> None:
        super().__init__(parts, scope)
        self.meter = parts.meter
        self.activity = parts.activity or SourceActivity(
            parts.name, parts.stores.source.uri, parts.clock
        )
        self._fresh = fresh
        self._file = FencedFile(parts.stores.sink, self.checkpoint_path)
        self._others = OutOfTurn(parts)
        upkeep = Upkeep(self._save, self._clock, lambda: self._file.epoch, self._others.theirs)
        self._batches = BatchRunner(parts, self.activity, self._tracker, upkeep)
        self._lateness = LateFiles(parts, self.activity, self._batches, upkeep, self._others)
        limits = parts.source.checkpoint
        self._limits = BatchLimits(
            limits.interval_files, limits.max_bytes_per_batch, limits.interval_secs
        )
        self._scanned: Scanned | None = None
        self._warned: set[str] = set()  # kinds of problems, each told once a process
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        self._batches.cancel()

    def cycle(self, stop: StopEvent) -> bool:
        """Ingest everything that is there now, batch by batch; True if any file was done."""
        try:
            return self._cycle(stop)
        except (StateError, NotFound):
            self._state = None
            # What one that was replaced finds missing its successor has removed, and to it the
            # remedy in a message does not apply.
            self._file.check()
            raise
        except BaseException:
            # What was saved last is the truth; see the module's docstring.
            self._state = None
            raise

    def _cycle(self, stop: StopEvent) -> bool:
        state = self._state if self._state is not None else self._recover()
        self._state = state  # what recovery has loaded is not to be loaded again, without an epoch
        found = self.discover(state)
        self._log.debug(
            "discovered", files=len(found.files), requests=found.requests, keys=found.keys
        )
        if not (found.files or found.young):
            self._check_shown(state)
        scanned = found.scanned
        self._guard_order(found, self.grace_period_secs(state))
        self._tell_apart(found.apart)
        state = self._settled(state, found)
        if state.processed is not None:
            state = self._forget(state, scanned.ended)
        if is_due(state, self._source, scanned.ended):
            state = self._lateness.go_on(state)
        waiting = {path for path, retry in state.retries.items() if retry.after > scanned.ended}
        queued = {entry.path for entry in state.queue}
        elsewhere = self._others.waiting(state.queue)
        late = [e for e in state.queue if e.path not in waiting and e.path not in elsewhere]
        fresh = [e for e in found.files if e.path not in waiting and e.path not in queued]
        files = [*late, *fresh]
        cost = (found.requests, found.keys)
        took = scanned.ended - scanned.began
        self.activity.polled(took, files, found.young, cost, found.apart)
        if not files:
            state = self._rest(state)
            self._complain(state, waiting)
            # What lies behind a bounded scan is looked at without a pause.
            return scanned.until is not None

        self._batches.settle(files)
        held = [*waiting, *(file.path for file in found.young)]
        work = Work(files, len(late), held, state.progress.depth)
        state, finished = self._work_off(state, work, scanned.ended, stop)
        self._state = state
        done = sum(f.outcome != "retry" for f in finished)
        if finished and not done:
            first = finished[0]
            raise Unavailable(
                f"{len(finished)} file(s) of {self._stores.source.uri} cannot be read and will be"
                f" tried again, first {first.path}: {first.error}"
            )
        return done > 0

    def _settled(self, state: SourceState, found: Discovery) -> SourceState:
        """The state with what a scan tells: what is remembered no more, how late files come."""
        scanned = found.scanned
        paths = [file.path for file in (*found.files, *found.young)]
        if state.processed is None:
            lateness = measured(
                state.lateness, found.progress, (*found.files, *found.young), self._scanned, scanned
            )
            state = replace(state, lateness=lateness)
            self._scanned = scanned
        self._young = len(found.young)
        grace = grace_of(self._source, state, scanned.ended)
        oldest = lookback_floor(self._source.partition_filter, scanned.ended)
        window = Window(grace, self._source.max_tracked_partitions, oldest)
        cold = state.origin is None and state.progress.state == "Initial"
        state = settled(state, found.progress, paths, scanned, window)
        if state.origin is None and state.processed is None:
            # Where this source began, also if nothing is there yet: a floor that followed the
            # clock would pass over what comes while nobody looks. What an original did is not
            # known, so nothing of its source is a backfill's.
            state = replace(state, origin=(found.progress.floor or "") if cold else "")
            if cold:
                state = started(state, scanned.ended)
            self._save(state)
        return state

    def _rest(self, state: SourceState) -> SourceState:
        """Nothing to do: say so."""
        idle = replace(state, progress=mark_idle(state.progress))
        if idle.progress.state != state.progress.state:
            self._save(idle)
            self._log.info("idle", watermark=idle.progress.value)
        self._state = idle
        return idle

    def _check_shown(self, state: SourceState) -> None:
        """Raise `Unavailable` where files wait and the source shows nothing at all.

        It may be a disk that is not mounted; that they are not listed would let them go.
        """
        waiting = set(under_way(state))
        if waiting and is_bare(self._stores.source):
            raise Unavailable(
                f"{self._stores.source.uri} shows nothing at all, and {len(waiting)} file(s) of it"
                f" are still to be done, among them {min(waiting)}; mount it, or, if all was"
                " removed on purpose, put anything there, such as a hidden file, and they are"
                " let go of"
            )

    def _complain(self, state: SourceState, waiting: set[str]) -> None:
        """Raise `Unfinished` while files wait for another try and nothing else is there to do.

        Only those whose try lies ahead count: one that is due and not there to be tried
        (too young, or left apart) would have the next look begin at once, for ever.
        """
        if waiting:
            secs = min(state.retries[path].after for path in waiting) - self._clock()
            raise Unfinished(
                f"{len(waiting)} file(s) of {self._stores.source.uri} could not be read and wait"
                f" for another try, among them {min(waiting)}",
                max(0.0, secs),
            )

    def _tell_apart(self, apart: Apart) -> None:
        if apart.files and "apart" not in self._warned:
            self._warned.add("apart")
            self._log.warning(
                "files_left_apart",
                files=apart.files,
                first=apart.first,
                remedy="their partitions lie ahead of time, or are odd and too many; see"
                " max_ahead_secs, or take them with `blizzard ingest`",
            )

    def _work_off(
        self, state: SourceState, work: Work, seen_ts: float, stop: StopEvent
    ) -> tuple[SourceState, list[FinishedFile]]:
        """Files in batches, all if they can be read; while one is published the next is ingested.

        The save that makes a batch's outputs count writes the next batch down, too.
        """
        finished: list[FinishedFile] = []
        if stop.is_set():
            return state, finished
        self.meter.found(len(work), work.size)
        state, batch = self._next_batch(state, work, seen_ts)
        self._save(state)
        ingesting: Ingesting | None = self._batches.start(state, batch)
        following: Batch | None = None
        try:
            while ingesting is not None:
                state, ready, started = self._batches.prepare(state, ingesting)
                ingesting = following = None
                lowest: Lowest = work.lowest
                # Where nothing of a batch could be read the store is rather down than the
                # files bad: what else waits is not tried one after the other.
                readable = any(file.outcome != "retry" for file in ready.finished)
                if work and readable and not stop.is_set():
                    state, following = self._next_batch(state, work, seen_ts)
                    paths = [entry.path for entry in following.files]
                    lowest = held_by(paths, state.progress.depth, work.lowest)
                self._save(state)
                if following is not None:
                    ingesting = self._batches.start(state, following)
                state = self._batches.finish(state, ready, started, lowest)
                finished += ready.finished
        except BaseException:
            if ingesting is not None:
                self._batches.abandon(ingesting)
            raise
        return state, finished

    def _next_batch(
        self, state: SourceState, work: Work, seen_ts: float
    ) -> tuple[SourceState, Batch]:
        """The state with the next batch begun."""
        chosen = work.take(self._limits, self._batches.bytes_per_sec)
        batch = Batch(str(uuid7()), 1, "running", self._clock(), chosen, seen_ts)
        return begun(state, batch), batch

    def _forget(self, state: SourceState, now: float) -> SourceState:
        """Let go of names that the source no longer has, so that the set follows it."""
        if self._listed is None:
            return state
        segments = self._tracker.forgetting(self._listed, now)
        self._listed = None
        if segments is None:
            return state
        state = self._save(replace(state, processed=segments))
        self._tracker.saved()
        return state

    def _guard_order(self, found: Discovery, grace: float) -> None:
        """Say (or fail) if names do not sort in time, before a watermark moves over them.

        Disorder within the grace period is what the grace period is for. Raises
        `OrderError` with ``order_guard: fail``.
        """
        if self._source.order_guard == "off" or not self._source.use_watermark:
            return
        entries = sorted([*found.files, *found.young], key=lambda e: order_key(e.path))
        known = found.progress.partitions
        for finding in inspect(
            entries, found.progress.depth or 0, known, max(grace, TOLERANCE_SECS)
        ):
            if self._source.order_guard == "fail":
                raise OrderError(f"{self._stores.source.uri}: {finding.message}")
            if finding.kind not in self._warned:
                self._warned.add(finding.kind)
                self._log.warning("order_guard", kind=finding.kind, problem=finding.message)

    def _save(self, state: SourceState) -> SourceState:
        try:
            self._file.save(state_to_json(state, self._parts.clock()))
        except BaseException:
            self.activity.save_failed()
            raise
        self.activity.saved(state)
        return state

    def _recover(self) -> SourceState:
        """The state in storage, with batches that a crash left behind brought to their end."""
        cold = SourceState(source=self._parts.identity)
        if self._fresh:
            # Also for whoever starts next, if we die before we have read the store's clock.
            cold = replace(cold, anew_ts=self._parts.clock())
        first = not self._file.epoch
        if not self._fresh and first:
            check_cold_start(self._parts)
        found = self._file.take(
            lambda document, where: self._checked(state_from_json(document, where)),
            state_to_json(cold, self._parts.clock()),
        )
        self._clock.set(self._file.now())
        state, changed = self._begun(found, cold, first=first)
        if changed:
            # Or each start, and each error is one, would begin anew to wait, or not begin over.
            self._save(state)
        self.activity.knows(state)
        self._tracker.load(state.processed or (), self._file.epoch)
        for batch in state.in_flight:
            state = self._batches.recover(state, batch)
        if not self._source.use_watermark:
            state = replace(state, processed=state.processed or ())
        if found is not None:
            self._batches.clear_older()
            checkpoint.sweep_temporaries(self._stores.sink, self.checkpoint_path)
        return state

    def _begun(
        self, found: SourceState | None, cold: SourceState, *, first: bool
    ) -> tuple[SourceState, bool]:
        """What a start goes on with, and whether that is to be saved before anything else."""
        state = cold if found is None else whole(self._stores.sink, self._parts.id, found)
        # Once a process: what it has finished itself it does not begin over.
        over = first and self._scope is not None and self._scope.begins_over(state)
        if over:
            state = replace(cold, totals=state.totals, ledger=state.ledger)
        if (found is None and self._fresh) or self._begins_anew(state):
            state = replace(state, anew_ts=self._clock())
        self._lateness.load(self._file.epoch)
        ledger = state.ledger
        if self._starts_over(state):
            # What was settled before is not to hide what is late from now on.
            state = self._lateness.begin_anew(state)
        kept = replace(state, source=self._parts.identity)
        state = clamped(kept, self._clock())
        if found is not None and found.source is None:
            # The original's, or an older release's.
            state = replace(state, progress=observed(state.progress, self._clock()))
        return state, state != kept or state.ledger != ledger or over

    def _begins_anew(self, state: SourceState) -> bool:
        """Whether this is a scope's start over; its first scan saves that it has begun."""
        anew = self._scope is not None and self._scope.anew
        return anew and state.origin is None and state.progress.state == "Initial"

    def _starts_over(self, state: SourceState) -> bool:
        """Whether this is an insisted start from nothing that has not done anything yet."""
        cold = state.origin is None and state.progress.state == "Initial"
        idle = not (state.in_flight or state.ledger)
        return bool(state.anew_ts) and cold and idle and not self._parts.suffix

    def _checked(self, state: SourceState) -> SourceState:
        self.check(state)
        return state

"""One source's cycle: discover → plan → ingest → prepare → publish → advance.

The order of saves and actions is the whole exactly-once argument:

1. *plan*: the batch goes into the checkpoint as ``running``, then the job starts;
2. *ingest*: the job writes below the batch's own staging directory;
3. *prepare*: dead letters are made durable, then outputs and outcomes go into
   the checkpoint as ``publishing``. **That save is the commit point**;
4. *publish*: outputs are renamed into the table;
5. *advance*: watermarks move and the batch leaves the checkpoint.

While one batch goes through 4 and 5 the next goes through 2, in a thread of its
own that touches no state; so at most two batches are in the checkpoint.

Whatever raises, the in-memory state is dropped and the next cycle starts from
the checkpoint, so an error is handled by the same code as a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uuid_utils import uuid7

from blizzard_py.batch import BatchRunner, Ingesting, Parts
from blizzard_py.core import checkpoint
from blizzard_py.core.daemon import StopEvent
from blizzard_py.core.errors import OrderError, Unavailable
from blizzard_py.core.fence import FencedFile
from blizzard_py.core.log import get_logger
from blizzard_py.core.lookback import lookback_floor
from blizzard_py.core.metrics import (
    FILES_DISCOVERED,
    LATE_FILES,
    LATE_PARTITIONS,
    LATE_SECS,
)
from blizzard_py.core.model import Entry, FinishedFile
from blizzard_py.core.storage import Storage, order_key
from blizzard_py.core.watermark import mark_idle
from blizzard_py.discovery import (
    Discovery,
    Scope,
    check_tracking,
    discover,
    discover_unseen,
    starting_point,
)
from blizzard_py.late import late_by, observed, partitions_behind, quarantined_late, swept
from blizzard_py.order import TOLERANCE_SECS, inspect
from blizzard_py.progress import (
    BatchLimits,
    Window,
    begun,
    next_batch,
    settled,
)
from blizzard_py.settrack import SetTracker
from blizzard_py.state import STATE_FOLDER, Batch, SourceState, state_from_json, state_to_json
from blizzard_py.sweep import find, grace_of, is_due


class SourcePipeline:
    """A source of a pipeline as a `Worker` of the poll loop."""

    def __init__(self, parts: Parts, scope: Scope | None = None) -> None:
        self.pipeline = parts.pipeline
        self.source_name = parts.source_name
        self.meter = parts.meter
        self._parts = parts
        self._source = parts.source
        self._stores = parts.stores
        self._clock = parts.clock
        self._scope = scope
        self.checkpoint_path = f"{STATE_FOLDER}/{parts.id}_checkpoint.json"
        self._file = FencedFile(parts.stores.sink, self.checkpoint_path)
        self._tracker = SetTracker(parts.stores.sink, parts.id)
        self._batches = BatchRunner(parts, self._tracker, self._save)
        limits = parts.source.checkpoint
        self._limits = BatchLimits(
            limits.interval_files, limits.max_bytes_per_batch, limits.interval_secs
        )
        self._state: SourceState | None = None
        self._listed: frozenset[str] = frozenset()
        self._warned: set[str] = set()  # kinds of order problems, each told once a process
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    @property
    def name(self) -> str:
        """``pipeline/source``."""
        return self._parts.name

    @property
    def poll_interval_secs(self) -> float:
        """From the source's settings."""
        return self._source.poll_interval_secs

    @property
    def sink(self) -> Storage:
        """The table's storage, where the state is."""
        return self._stores.sink

    def grace_period_secs(self, state: SourceState) -> float:
        """The grace period in use: as configured, or sized by measured lateness."""
        return grace_of(self._source, state)

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        self._batches.cancel()

    def load(self) -> SourceState:
        """The state in storage, or a cold start. Raises `StateError`, `StorageError`."""
        found = checkpoint.load(self._stores.sink, self.checkpoint_path, state_from_json)
        return SourceState() if found is None else found

    def discover(self, state: SourceState) -> Discovery:
        """What the next poll would find. Writes nothing."""
        where = f"{self._stores.sink.uri}/{self.checkpoint_path}"
        check_tracking(state, self._source, where)
        if not self._source.use_watermark:
            if self._state is None:
                self._tracker.load(state, sweep=False)
            found, self._listed = discover_unseen(
                self._stores.source, self._source, self._tracker.unseen, self._clock()
            )
            return replace(found, progress=state.progress)
        start = starting_point(state.progress, self._source, self._clock(), where)
        return discover(
            self._stores.source,
            self._source,
            start,
            self._clock(),
            self._parts.concurrency,
            self._scope,
        )

    def cycle(self, stop: StopEvent) -> bool:
        """Ingest everything that is there now, batch by batch; True if any file was done."""
        try:
            return self._cycle(stop)
        except BaseException:
            # What was saved last is the truth; see the module's docstring.
            self._state = None
            raise

    def _cycle(self, stop: StopEvent) -> bool:
        state = self._state if self._state is not None else self._recover()
        found = self.discover(state)
        self._log.debug(
            "discovered", files=len(found.files), requests=found.requests, keys=found.keys
        )
        now = self._clock()
        self._guard_order(found, grace_of(self._source, state))
        young = [file.path for file in found.young]
        paths = [*(file.path for file in found.files), *young]
        passed = observed(state.passed, found.progress, [*found.files, *found.young], now)
        state = replace(state, passed=passed)
        state = settled(state, found.progress, paths, now, self._window(state, now))
        if state.processed is not None:
            state = self._forget(state, now)
        elif is_due(state, self._source, now):
            state = self._sweep(state, now)
        files = (*state.passed.queue, *found.files)
        if not files:
            idle = replace(state, progress=mark_idle(state.progress))
            if idle.progress.state != state.progress.state:
                self._save(idle)
                self._log.info("idle", watermark=idle.progress.value)
            self._state = idle
            return False

        self._batches.settle(files)
        FILES_DISCOVERED.labels(self.name).inc(len(files))
        state, finished = self._work_off(state, files, young, stop)
        waiting = [f for f in finished if f.outcome == "retry"]
        done = len(finished) - len(waiting)
        self._state = state
        if waiting and not done:
            first = waiting[0]
            raise Unavailable(
                f"{len(waiting)} file(s) of {self._stores.source.uri} cannot be read and will be"
                f" tried again, first {first.path}: {first.error}"
            )
        return done > 0

    def _work_off(
        self, state: SourceState, files: Sequence[Entry], young: list[str], stop: StopEvent
    ) -> tuple[SourceState, list[FinishedFile]]:
        """All files in batches; while one is published the next is being ingested.

        The save that makes a batch's outputs count writes the next batch down, too.
        """
        finished: list[FinishedFile] = []
        if stop.is_set():
            return state, finished
        self.meter.found(len(files), sum(entry.size for entry in files))
        state, files, batch = self._next_batch(state, files)
        self._save(state)
        ingesting: Ingesting | None = self._batches.start(batch)
        try:
            while ingesting is not None:
                state, ready, started = self._batches.prepare(state, ingesting)
                ingesting = None
                pending = [*young, *(entry.path for entry in files)]
                following = None
                if files and not stop.is_set():
                    state, files, following = self._next_batch(state, files)
                self._save(state)
                if following is not None:
                    ingesting = self._batches.start(following)
                state = self._batches.finish(state, ready, started, pending)
                finished += ready.finished
        except BaseException:
            if ingesting is not None:
                self._batches.abandon(ingesting)
            raise
        return state, finished

    def _next_batch(
        self, state: SourceState, files: Sequence[Entry]
    ) -> tuple[SourceState, Sequence[Entry], Batch]:
        """The state with the next batch begun, and the files that it leaves."""
        chosen = next_batch(files, self._limits, self._batches.bytes_per_sec)
        batch = Batch(str(uuid7()), 1, "running", self._clock(), chosen)
        return begun(state, state.progress, batch), files[len(chosen) :], batch

    def _forget(self, state: SourceState, now: float) -> SourceState:
        """Let go of names that the source no longer has, so that the set follows it."""
        after = self._tracker.forgetting(state, self._listed, now)
        if after is not state:
            self._save(after)
            self._tracker.saved()
        return after

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

    def _window(self, state: SourceState, now: float) -> Window:
        source = self._source
        oldest = lookback_floor(source.partition_filter, now)
        return Window(grace_of(source, state), source.max_tracked_partitions, oldest)

    def _sweep(self, state: SourceState, now: float) -> SourceState:
        """Look for late files and do with them as `late_files` says; due again in an interval."""
        if not state.passed.swept:
            # Nothing can be late yet: the first interval begins here.
            return self._save(replace(state, passed=replace(state.passed, swept=now)))
        late = find(self._stores.source, self._source, state)
        for file in late:
            self._log.warning(
                "late_file",
                path=file.entry.path,
                behind=file.behind,
                late_secs=round(file.late_secs),
                late_files=self._source.late_files,
            )
            LATE_FILES.labels(self.name).inc()
            LATE_SECS.labels(self.name).observe(file.late_secs)
            LATE_PARTITIONS.labels(self.name).observe(partitions_behind(state.progress, file))
        if self._source.late_files == "quarantine":
            self._batches.letters_for_late([quarantined_late(file) for file in late], now)
        passed = swept(
            late_by(state.passed, late, now),
            state.progress,
            late,
            now,
            ingest=self._source.late_files == "ingest",
        )
        return self._save(replace(state, passed=passed))

    def _save(self, state: SourceState) -> SourceState:
        self._file.save(state_to_json(state, self._clock()))
        return state

    def _recover(self) -> SourceState:
        """The state in storage, with batches that a crash left behind brought to their end."""
        cold = SourceState()
        found = self._file.take(state_from_json, state_to_json(cold, self._clock()))
        state = cold if found is None else found
        where = f"{self._stores.sink.uri}/{self.checkpoint_path}"
        check_tracking(state, self._source, where)
        self._tracker.load(state, sweep=True)
        for batch in state.in_flight:
            state = self._batches.recover(state, batch)
        if not self._source.use_watermark:
            state = replace(state, processed=state.processed or ())
        if found is not None:
            self._batches.sweep()
            checkpoint.sweep_temporaries(self._stores.sink, self.checkpoint_path)
        return state

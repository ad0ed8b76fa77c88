"""One source's cycle: discover → plan → ingest → prepare → publish → advance.

The order of saves and actions is the whole exactly-once argument:

1. *plan*: the batch goes into the checkpoint as ``running``, then the job starts;
2. *ingest*: the job writes below the batch's own staging directory;
3. *prepare*: dead letters are made durable, then outputs and outcomes go into
   the checkpoint as ``publishing``. **That save is the commit point**;
4. *publish*: outputs are renamed into the table;
5. *advance*: watermarks move and the batch leaves the checkpoint.

Whatever raises, the in-memory state is dropped and the next cycle starts from
the checkpoint, so an error is handled by the same code as a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from uuid_utils import uuid7

from blizzard_py.core import checkpoint
from blizzard_py.core.config import ErrorSettings, SourceSettings
from blizzard_py.core.daemon import StopEvent
from blizzard_py.core.errors import BlizzardError, PipelineStopped, Unavailable
from blizzard_py.core.log import get_logger
from blizzard_py.core.model import FinishedFile, IngestResult
from blizzard_py.core.storage import Storage, join
from blizzard_py.core.watermark import mark_idle
from blizzard_py.discovery import Discovery, discover, starting_point
from blizzard_py.dlq import DeadLetters
from blizzard_py.partitioning import PartitionError, partition_of
from blizzard_py.progress import (
    BatchLimits,
    advanced,
    begun,
    judged,
    named,
    next_batch,
    prepared,
    renamed,
    restarted,
    settled,
)
from blizzard_py.publish import STATE_FOLDER, fresh_names, publish, staging_root, unpublished
from blizzard_py.settings import Engine, IngestJob, IngestSettings, JobFile
from blizzard_py.state import Batch, SourceState, state_from_json, state_to_json


@dataclass(frozen=True, slots=True)
class Stores:
    """The storages of one source: where files arrive, the table, the dead letters."""

    source: Storage
    sink: Storage
    dlq: Storage


class SourcePipeline:
    """A source of a pipeline as a `Worker` of the poll loop."""

    def __init__(
        self,
        pipeline: str,
        source_name: str,
        source: SourceSettings,
        errors: ErrorSettings,
        ingest: IngestSettings,
        stores: Stores,
        engine: Engine,
        concurrency: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.pipeline = pipeline
        self.source_name = source_name
        self._source = source
        self._errors = errors
        self._ingest = ingest
        self._stores = stores
        self._engine = engine
        self._concurrency = concurrency
        self._clock = clock
        self._id = f"{pipeline}_{source_name}"
        self.checkpoint_path = f"{STATE_FOLDER}/{self._id}_checkpoint.json"
        self._letters = DeadLetters(stores.dlq, self._id, stores.source.uri)
        limits = source.checkpoint
        self._limits = BatchLimits(
            limits.interval_files, limits.max_bytes_per_batch, limits.interval_secs
        )
        self._state: SourceState | None = None
        self._bytes_per_sec: float | None = None
        self._failures = 0
        self._job: str | None = None
        self._log = get_logger(pipeline=pipeline, source=source_name)

    @property
    def name(self) -> str:
        """``pipeline/source``."""
        return f"{self.pipeline}/{self.source_name}"

    @property
    def poll_interval_secs(self) -> float:
        """From the source's settings."""
        return self._source.poll_interval_secs

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        job = self._job
        if job is not None:
            self._engine.cancel(job)

    def load(self) -> SourceState:
        """The state in storage, or a cold start. Raises `StateError`, `StorageError`."""
        found = checkpoint.load(self._stores.sink, self.checkpoint_path, state_from_json)
        return SourceState() if found is None else found

    def discover(self, state: SourceState) -> Discovery:
        """What the next poll would find. Writes nothing."""
        where = f"{self._stores.sink.uri}/{self.checkpoint_path}"
        start = starting_point(state.progress, self._source, self._clock(), where)
        return discover(self._stores.source, self._source, start, self._concurrency)

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
        state = settled(
            state,
            found.progress,
            [f.path for f in found.files],
            now,
            self._source.grace_period_secs,
        )
        if not found.files:
            idle = replace(state, progress=mark_idle(state.progress))
            if idle.progress.state != state.progress.state:
                self._save(idle)
                self._log.info("idle", watermark=idle.progress.value)
            self._state = idle
            return False

        files = found.files
        done = 0
        waiting: list[FinishedFile] = []
        while files and not stop.is_set():
            chosen = next_batch(files, self._limits, self._bytes_per_sec)
            files = files[len(chosen) :]
            batch = Batch(str(uuid7()), 1, "running", self._clock(), chosen)
            state = self._save(begun(state, state.progress, batch))
            state, finished = self._run(state, batch, [f.path for f in files])
            waiting += [f for f in finished if f.outcome == "retry"]
            done += sum(f.outcome != "retry" for f in finished)
        self._state = state
        if waiting and not done:
            first = waiting[0]
            raise Unavailable(
                f"{len(waiting)} file(s) of {self._stores.source.uri} cannot be read and will be"
                f" tried again, first {first.path}: {first.error}"
            )
        return done > 0

    def _save(self, state: SourceState) -> SourceState:
        checkpoint.save(
            self._stores.sink, self.checkpoint_path, state_to_json(state, self._clock())
        )
        return state

    # -- recovery --------------------------------------------------------------

    def _recover(self) -> SourceState:
        """The state in storage, with batches that a crash left behind brought to their end."""
        state = self.load()
        for batch in state.in_flight:
            self._log.info("recovering", batch=batch.batch, phase=batch.phase)
            if batch.phase == "running":
                self._clear_staging(batch)
                state, again = restarted(state, batch)
                self._save(state)
                state, _ = self._run(state, again, [])
            else:
                missing = unpublished(self._stores.sink, batch.outputs, self._concurrency)
                names = dict(
                    zip((o.staged for o in missing), fresh_names(len(missing)), strict=True)
                )
                state, ready = renamed(state, batch, names)
                if missing:
                    self._save(state)
                left = [o for o in ready.outputs if o.staged in names]
                publish(self._stores.sink, left, self._concurrency)
                state = self._advance(state, ready, [])
        if state.last_update_ts is not None:
            self._stores.sink.delete_tree(staging_root(self._id))
            checkpoint.sweep_temporaries(self._stores.sink, self.checkpoint_path)
        return state

    def _clear_staging(self, batch: Batch) -> None:
        self._stores.sink.delete_tree(join(staging_root(self._id), batch.batch))

    # -- one batch -------------------------------------------------------------

    def _run(
        self, state: SourceState, batch: Batch, pending: list[str]
    ) -> tuple[SourceState, tuple[FinishedFile, ...]]:
        """Steps 2 to 5 for a batch that is in the checkpoint as ``running``."""
        started = self._clock()
        log = self._log.bind(batch=batch.batch, attempt=batch.attempt)
        log.info("batch_started", files=len(batch.files), bytes=sum(f.size for f in batch.files))
        result = self._ingest_batch(batch)
        finished = judged(result, state.retries, self._errors.max_retries)
        self._check_failures(finished)
        letters = self._letters.keep(batch.batch, finished, state.retries, self._clock())
        for file in finished:
            if file.outcome != "ingested":
                log.warning(
                    "file_failed",
                    outcome=file.outcome,
                    path=file.path,
                    stage=file.stage,
                    error=file.error,
                )
        outputs = named(result.outputs, fresh_names(len(result.outputs)))
        state, ready = prepared(state, batch, outputs, finished)
        self._save(state)
        publish(self._stores.sink, ready.outputs, self._concurrency)
        state = self._advance(state, ready, pending)
        self._clear_staging(batch)
        secs = self._clock() - started
        if secs > 0:
            self._bytes_per_sec = sum(f.size for f in batch.files) / secs
        self._failures += sum(f.outcome == "quarantined" for f in finished)
        log.info(
            "batch_done",
            files=sum(f.outcome == "ingested" for f in finished),
            rows=sum(o.rows for o in outputs),
            outputs=len(outputs),
            tasks=result.tasks,
            dead_letters=letters,
            secs=round(secs, 3),
            watermark=state.progress.value,
        )
        return state, finished

    def _advance(self, state: SourceState, batch: Batch, pending: list[str]) -> SourceState:
        after = advanced(state, batch, pending, self._clock(), self._source.grace_period_secs)
        return self._save(after)

    def _ingest_batch(self, batch: Batch) -> IngestResult:
        files, lost = self._placed(batch)
        if not files:
            return IngestResult((), tuple(lost), 0)
        prefix = f"{self.pipeline}/{self.source_name}/{batch.batch}/{batch.attempt}"
        job = IngestJob(
            self._ingest,
            join(staging_root(self._id), batch.batch, str(batch.attempt)),
            prefix,
            tuple(files),
        )
        self._job = prefix
        try:
            result = self._engine.ingest(job)
        finally:
            self._job = None
        _check_complete(files, result)
        return replace(result, files=(*result.files, *lost))

    def _placed(self, batch: Batch) -> tuple[list[JobFile], list[FinishedFile]]:
        """The batch's files with their table directories, and those that have none."""
        template = self._ingest.partition_template
        by_path = bool(template) and self._ingest.partition_column is None
        source_filter = self._source.partition_filter
        source_template = source_filter.prefix_template if source_filter else None
        files: list[JobFile] = []
        lost: list[FinishedFile] = []
        for entry in batch.files:
            try:
                place = partition_of(entry.path, template, source_template) if by_path else ""
            except PartitionError as error:
                lost.append(
                    FinishedFile(entry.path, "quarantined", error=str(error), stage="partition")
                )
            else:
                files.append(JobFile(entry.path, entry.size, place))
        return files, lost

    def _check_failures(self, finished: tuple[FinishedFile, ...]) -> None:
        """Raise `PipelineStopped` before the batch that reaches ``max_failures`` is passed."""
        bad = [file for file in finished if file.outcome == "quarantined"]
        limit = self._errors.max_failures
        if limit and bad and self._failures + len(bad) >= limit:
            named_files = "; ".join(f"{file.path}: {file.error}" for file in bad[:5])
            raise PipelineStopped(
                f"{self.name}: stopped at error_handling.max_failures = {limit}, nothing was"
                f" passed over; mend or remove the files, or raise the limit: {named_files}"
            )


def _check_complete(files: list[JobFile], result: IngestResult) -> None:
    """Every file must be reported exactly once; anything else is a bug that must not pass."""
    asked = sorted(file.path for file in files)
    told = sorted(file.path for file in result.files)
    if asked != told:
        raise BlizzardError(
            f"the ingest job was given {len(asked)} files and reported {len(told)};"
            " the batch was not committed"
        )

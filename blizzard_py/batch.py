"""One batch, from a checkpoint entry to the table: steps 2 to 5 of the protocol.

See `blizzard_py.pipeline` for the steps and why their order makes it exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from blizzard_py.core.config import ErrorSettings, SourceSettings
from blizzard_py.core.errors import BlizzardError, PipelineStopped
from blizzard_py.core.log import get_logger
from blizzard_py.core.metrics import FILES_FAILED, FILES_PROCESSED, RECORDS_PROCESSED
from blizzard_py.core.model import FinishedFile, IngestResult
from blizzard_py.core.storage import Storage, join
from blizzard_py.dlq import DeadLetters
from blizzard_py.journal import Journal
from blizzard_py.partitioning import PartitionError, partition_of
from blizzard_py.progress import advanced, judged, named, prepared, renamed, restarted
from blizzard_py.publish import fresh_names, publish, staging_root, unpublished
from blizzard_py.settings import Engine, IngestJob, IngestSettings, JobFile
from blizzard_py.settrack import SetTracker
from blizzard_py.state import Batch, SourceState
from blizzard_py.sweep import grace_of


@dataclass(frozen=True, slots=True)
class Stores:
    """The storages of one source: where files arrive, the table, the dead letters."""

    source: Storage
    sink: Storage
    dlq: Storage


@dataclass(frozen=True, slots=True)
class Parts:
    """What a source is made of; ``suffix`` tells a backfill's state from the live one's."""

    pipeline: str
    source_name: str
    source: SourceSettings
    errors: ErrorSettings
    ingest: IngestSettings
    stores: Stores
    engine: Engine
    concurrency: int
    clock: Callable[[], float]
    suffix: str = ""

    @property
    def name(self) -> str:
        """``pipeline/source``, for logs and metrics."""
        return f"{self.pipeline}/{self.source_name}"

    @property
    def id(self) -> str:
        """``{pipeline}_{source}``, for files and folders."""
        return f"{self.pipeline}_{self.source_name}{self.suffix}"


class BatchRunner:
    """Runs the batches of one source; ``save`` makes a state durable before it is acted on."""

    def __init__(
        self, parts: Parts, tracker: SetTracker, save: Callable[[SourceState], SourceState]
    ) -> None:
        self._parts = parts
        self._tracker = tracker
        self._save = save
        self._sink = parts.stores.sink
        self._journal = Journal(self._sink, parts.id)
        self._letters = DeadLetters(parts.stores.dlq, parts.id, parts.stores.source.uri)
        self._failures = 0
        self._job: str | None = None
        self.bytes_per_sec: float | None = None
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start."""
        job = self._job
        if job is not None:
            self._parts.engine.cancel(job)

    def recover(self, state: SourceState, batch: Batch) -> SourceState:
        """Bring a batch that a crash left in the checkpoint to its end."""
        self._log.info("recovering", batch=batch.batch, phase=batch.phase)
        if batch.phase == "running":
            self._clear_staging(batch)
            state, again = restarted(state, batch)
            self._save(state)
            state, _ = self.run(state, again, [])
            return state
        missing = unpublished(self._sink, batch.outputs, self._parts.concurrency)
        names = dict(zip((o.staged for o in missing), fresh_names(len(missing)), strict=True))
        state, ready = renamed(state, batch, names)
        if missing:
            self._save(state)
        left = [output for output in ready.outputs if output.staged in names]
        publish(self._sink, left, self._parts.concurrency)
        return self._advance(state, ready, [])

    def sweep(self) -> None:
        """Remove what crashes and time have left: staging of no batch, old journal entries."""
        self._sink.delete_tree(staging_root(self._parts.id))
        self._journal.prune(self._parts.clock())

    def letters_for_late(self, files: list[FinishedFile], now: float) -> None:
        """Put late files in the dead-letter queue."""
        self._letters.keep(f"late-{int(now)}", files, {}, now)

    def run(
        self, state: SourceState, batch: Batch, pending: list[str]
    ) -> tuple[SourceState, tuple[FinishedFile, ...]]:
        """Steps 2 to 5 for a batch that is in the checkpoint as ``running``."""
        started = self._parts.clock()
        log = self._log.bind(batch=batch.batch, attempt=batch.attempt)
        log.info("batch_started", files=len(batch.files), bytes=sum(f.size for f in batch.files))
        result = self._ingest_batch(batch)
        finished = judged(result, state.retries, self._parts.errors.max_retries)
        self._check_failures(finished)
        letters = self._letters.keep(batch.batch, finished, state.retries, self._parts.clock())
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
        publish(self._sink, ready.outputs, self._parts.concurrency)
        state = self._advance(state, ready, pending)
        self._clear_staging(batch)
        secs = self._parts.clock() - started
        if secs > 0:
            self.bytes_per_sec = sum(f.size for f in batch.files) / secs
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
        self._journal.write(batch, self._parts.clock())
        after = advanced(
            state, batch, pending, self._parts.clock(), grace_of(self._parts.source, state)
        )
        if after.processed is not None:
            done = [file.path for file in batch.finished if file.outcome != "retry"]
            after = self._tracker.adding(after, done)
        for file in batch.finished:
            FILES_PROCESSED.labels(self._parts.name, file.outcome).inc()
            if file.outcome != "ingested":
                FILES_FAILED.labels(self._parts.name, file.stage).inc()
        RECORDS_PROCESSED.labels(self._parts.name).inc(sum(output.rows for output in batch.outputs))
        saved = self._save(after)
        self._tracker.saved()
        return saved

    def _ingest_batch(self, batch: Batch) -> IngestResult:
        files, lost = self._placed(batch)
        if not files:
            return IngestResult((), tuple(lost), 0)
        prefix = f"{self._parts.pipeline}/{self._parts.source_name}/{batch.batch}/{batch.attempt}"
        job = IngestJob(
            self._parts.ingest,
            join(staging_root(self._parts.id), batch.batch, str(batch.attempt)),
            prefix,
            tuple(files),
        )
        self._job = prefix
        try:
            result = self._parts.engine.ingest(job)
        finally:
            self._job = None
        _check_complete(files, result)
        return replace(result, files=(*result.files, *lost))

    def _placed(self, batch: Batch) -> tuple[list[JobFile], list[FinishedFile]]:
        """The batch's files with their table directories, and those that have none."""
        template = self._parts.ingest.partition_template
        source_filter = self._parts.source.partition_filter
        source_template = source_filter.prefix_template if source_filter else None
        files: list[JobFile] = []
        lost: list[FinishedFile] = []
        for entry in batch.files:
            try:
                place = partition_of(entry.path, template, source_template) if template else ""
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
        limit = self._parts.errors.max_failures
        if limit and bad and self._failures + len(bad) >= limit:
            named_files = "; ".join(f"{file.path}: {file.error}" for file in bad[:5])
            raise PipelineStopped(
                f"{self._parts.name}: stopped at error_handling.max_failures = {limit}, nothing was"
                f" passed over; mend or remove the files, or raise the limit: {named_files}"
            )

    def _clear_staging(self, batch: Batch) -> None:
        self._sink.delete_tree(join(staging_root(self._parts.id), batch.batch))


def _check_complete(files: list[JobFile], result: IngestResult) -> None:
    """Every file must be reported exactly once; anything else is a bug that must not pass."""
    asked = sorted(file.path for file in files)
    told = sorted(file.path for file in result.files)
    if asked != told:
        raise BlizzardError(
            f"the ingest job was given {len(asked)} files and reported {len(told)};"
            " the batch was not committed"
        )

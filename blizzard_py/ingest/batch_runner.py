"""One batch, from a checkpoint entry to the table: steps 2 to 5 of the protocol.

See `blizzard_py.ingest.source_pipeline` for the steps and why their order makes it exactly-once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from blizzard_core.errors import Cancelled, StateError
from blizzard_core.handover.groups import SOURCE_FILE_COLUMN, UNIT_FILE_PREFIX
from blizzard_core.limits import INFERRED_COLUMNS, UNEXPECTED_FIELDS
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.committed import committed_versions
from blizzard_py.ingest.batch_jobs import BatchJobs
from blizzard_py.ingest.batch_records import BatchRecords
from blizzard_py.ingest.group_publishing import GroupManifests
from blizzard_py.ingest.jobs import Ingested, Jobs
from blizzard_py.ingest.publish import (
    OutputIdGenerator,
    clear_older,
    publish,
    staging_of,
    unpublished,
)
from blizzard_py.ingest.tolerance import Tolerance
from blizzard_py.ingest.unexpected import with_reported_fields
from blizzard_py.job import FieldSpec, IngestResult, IngestSettings
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import CheckpointServices, Source, Withheld, Work
from blizzard_py.sources.records import RecordFiles, has_records
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput, Replaced
from blizzard_py.state.record_names import is_of_records
from blizzard_py.state.retries import judge_outcomes
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.transitions import (
    as_journaled,
    commit_time,
    end_batch,
    name_outputs,
    prepare_batch,
    rename_outputs,
    renumber_group,
    restart_batch,
)

# The most runs of a batch for new columns: each run adds as many as a job reports.
_ROUNDS = INFERRED_COLUMNS // UNEXPECTED_FIELDS
# How many bad files a log line names.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Ingesting:
    """A batch whose job has run in another thread since ``started``."""

    batch: Batch
    started: float
    result: Future[Ingested]


class BatchRunner:
    """Runs the batches of one source. Every action of it follows the save that allows it."""

    def __init__(
        self, parts: SourceContext, source: Source[Any], upkeep: CheckpointServices, jobs: Jobs
    ) -> None:
        self._parts = parts
        self._jobs = jobs
        self._activity = upkeep.activity()
        self._source = source
        self._save = upkeep.save
        self._fence = upkeep.fence
        self._now = upkeep.clock
        # When the source was last started over.
        self.reset_ts = 0.0
        self._epoch = upkeep.epoch
        self._sink = parts.stores.sink
        self._records = BatchRecords(parts)
        self._record_files = RecordFiles(parts)
        self._batch_jobs = BatchJobs(parts, source, jobs, self.resolve_settings, upkeep.epoch)
        self._settings: IngestSettings | None = None
        self._names = OutputIdGenerator()
        self._groups = GroupManifests(self._sink, parts.letters_id)
        self._tolerance = Tolerance(parts.name, parts.errors, source.is_missing)
        self._job: str | None = None
        self._wanted = True
        self._thread = ThreadPoolExecutor(1, f"ingest {parts.name}")
        self.bytes_per_sec: float | None = None
        self._is_first = True  # its duration is mostly the start of Spark
        self._log = get_logger(pipeline=parts.pipeline, source=parts.source_name)

    @property
    def fields(self) -> tuple[FieldSpec, ...]:
        """The columns of records, with those that were inferred or added so far."""
        return (self._settings or self._parts.ingest).schema.fields

    def cancel(self) -> None:
        """End the running job; its batch runs again on the next start, and not before."""
        self._wanted = False
        self._end_job()

    def _end_job(self) -> None:
        job = self._job
        if job is not None:
            self._jobs.cancel(job)

    def resolve_settings(self, files: Sequence[Entry]) -> IngestSettings:
        """Return the settings of jobs, after inference and a check against the table.

        Called with all present files before the first batch, since they show more than the batch's
        own. Raises as `SchemaHooks.infer` and `SchemaHooks.check_table` do.
        """
        if self._settings is None:
            settings = self._parts.ingest
            if self._parts.schema.infer is not None:
                own = [file for file in files if not is_of_records(file.path)]
                settings = settings.with_fields(self._parts.schema.infer(own))
            if self._parts.schema.check_table is not None:
                self._parts.schema.check_table(settings)
            self._settings = settings
        return self._settings

    def as_journaled(self, state: SourceState) -> SourceState:
        """Return the state with its batches as the journal has them."""
        return as_journaled(state, self._records.journal_batches(state.work.in_flight))

    def recover(self, state: SourceState, batch: Batch) -> SourceState:
        """Finish a batch that a crash left in the checkpoint.

        Other waiting items are unknown here. Raises `StateError` if outputs are neither staged, nor
        in place, nor in the table's log.
        """
        self._parts.meter.start_poll(len(batch.files), sum(f.size for f in batch.files))
        self._log.info("recovering", batch=batch.batch, phase=batch.phase)
        if batch.phase == "running":
            state, again = restart_batch(state, batch)
            self._save(state)
            state, ready, started = self.prepare(state, self.start(state, again))
            self._save(state)
            return self.finish(state, ready, started, None)
        found = unpublished(self._sink, batch.results.outputs, self._parts.concurrency)
        self._check_published(batch, found.nowhere)
        state, names = self._fresh(state, len(found.staged))
        missing = dict(zip((o.staged for o in found.staged), names, strict=True))
        state, ready = rename_outputs(state, batch, missing)
        if missing:
            self._save(state)
        self._fence(state)
        self._records.write(state, ready)
        unpublished_outputs = [
            output for output in ready.results.outputs if output.staged in missing
        ]
        publish(self._sink, unpublished_outputs, self._parts.concurrency)
        state, ready = self._grouped(state, ready)
        state = self._advance(state, ready, None)
        self._records.tidy(ready)
        return state

    def _fresh(self, state: SourceState, count: int) -> tuple[SourceState, list[str]]:
        """Return ``count`` names of outputs, and the state with the last one."""
        names = self._names.fresh(count, self._now(), state.ids.last_output)
        last = max([state.ids.last_output, *names])  # later names are above it
        return state.with_ids(last_output=last), names

    def _check_published(self, batch: Batch, nowhere: Sequence[PlannedOutput]) -> None:
        """Raise `StateError` for outputs that are nowhere, unless the table knows them."""
        if not nowhere:
            return
        wanted = {path for output in nowhere for path in output.finals}
        versions, _ = committed_versions(
            self._sink, wanted, batch.started_ts, self._parts.concurrency
        )
        lost = [output.final for output in nowhere if versions.keys().isdisjoint(output.finals)]
        if lost:
            raise StateError(
                f"{self._sink.uri}/{lost[0]}: an output of batch {batch.batch} is neither staged,"
                " nor in the table, nor in its log; restore it, or have the batch's files ingested"
                " again: `blizzard checkpoint rebuild`"
            )

    def clear_older(self) -> None:
        """Remove staged files of earlier epochs; none of them may wait for its publication."""
        clear_older(self._sink, self._parts.id, self._epoch())

    def start(self, state: SourceState, batch: Batch) -> Ingesting:
        """Step 2 begins, in a thread of its own. ``state`` is saved, with the batch ``running``."""
        self._log.info(
            "batch_started",
            batch=batch.batch,
            attempt=batch.attempt,
            files=len(batch.files),
            bytes=sum(f.size for f in batch.files),
        )
        self._activity.batch_began(batch)
        parts = self._parts
        prefix = f"{parts.name}/{batch.batch}/{batch.attempt}"
        # One job at a time: while it runs, the caller publishes the batch before.
        self._job = prefix
        size = sum(file.size for file in batch.files)
        parts.meter.start_job(size, partial(self._jobs.progress, prefix))
        return Ingesting(
            batch, parts.clock(), self._thread.submit(self._ingest_batch, state, batch, prefix)
        )

    def prepare(self, state: SourceState, ingesting: Ingesting) -> tuple[SourceState, Batch, float]:
        """Wait for step 2, then step 3 up to its save, which is the caller's.

        Returns the state to save, the batch as it is in it, and when it was started.
        Raises what the job raised, and `PipelineStopped`.
        """
        state, ingesting, ingested = self._evolved(state, ingesting)
        self._parts.meter.end_job()
        batch = ingesting.batch
        log = self._log.bind(batch=batch.batch, attempt=batch.attempt)
        result = ingested.result
        secs = self._parts.clock() - ingesting.started
        if secs > 0 and batch.files and not self._is_first:
            self.bytes_per_sec = sum(f.size for f in batch.files) / secs
        self._is_first = False
        finished = judge_outcomes(
            result, state.work.retries, self._parts.errors.advanced.max_retries
        )
        if not batch.request:  # a requested file that fails has a letter already
            self._tolerance.check(finished)
        bad = [file for file in finished if file.bad_rows]
        if bad:
            log.warning(
                "records_quarantined",
                records=sum(file.bad_rows for file in bad),
                files=len(bad),
                dead_letters=self._records.records_uri(batch.batch),
                examples=[f"{file.path}: {file.error}" for file in bad[:_EXAMPLES]],
            )
        for file in finished:
            if file.outcome not in {"ingested", "reported"}:
                log.warning(
                    "file_failed",
                    outcome=file.outcome,
                    path=file.path,
                    stage=file.stage,
                    error=file.error,
                )
        state = self._log_unexpected_fields(state, result)
        replaced = None if has_records(batch) else self._source.replacement(state, batch, finished)
        if isinstance(replaced, Withheld):
            finished, replaced = replaced.finished, Replaced()
            result = replace(result, outputs=(), letters=())
            log.warning("batch_withheld", files=len(finished), why=finished[0].error)
        state, names = self._fresh(state, len(result.outputs))
        prefix = "" if replaced is None else UNIT_FILE_PREFIX
        outputs = name_outputs(result.outputs, names, prefix)
        log.info("batch_ingested", outputs=len(outputs), tasks=result.tasks)
        results = BatchResults(
            outputs,
            finished,
            result.letters,
            commit_time(self._now(), self.reset_ts),
            result.marks,
            names_root=self._names_root(batch),
        )
        ready = prepare_batch(state, batch, results, replaced, ingested.stream)
        return (*ready, ingesting.started)

    def _evolved(
        self, state: SourceState, ingesting: Ingesting
    ) -> tuple[SourceState, Ingesting, Ingested]:
        """Run the job; run it again if fields of the batch become columns.

        So all rows of the batch have the new columns. The columns are saved before the job runs.
        """
        ingested = self._result(ingesting)
        evolve, settings = self._parts.schema.evolve, self._settings
        for _ in range(_ROUNDS):
            if evolve is None or settings is None or not ingested.result.unexpected:
                break
            before, settings = settings, evolve(settings, ingested.result.unexpected)
            self._settings = settings
            if settings.schema.fields == before.schema.fields:
                break
            if not self._wanted:  # a cancellation between two jobs cancelled none
                raise Cancelled(f"{self._parts.name}: cancelled")
            state, batch = restart_batch(state, ingesting.batch)
            self._save(state)
            ingesting = self.start(state, batch)
            ingested = self._result(ingesting)
        return state, ingesting, ingested

    def _result(self, ingesting: Ingesting) -> Ingested:
        try:
            return ingesting.result.result()
        finally:
            self._job = None

    def _log_unexpected_fields(self, state: SourceState, result: IngestResult) -> SourceState:
        """Log fields without a column, each once; the caller saves which were logged."""
        fields = () if self._settings is None else self._settings.schema.fields
        members = {each.source_name: each.ingest.schema.fields for each in self._parts.members}
        schema = self._parts.ingest.schema  # formats that read by types name captured fields, too
        found = result.unexpected if schema.unexpected_fields == "ignore" else ()
        state, reports = with_reported_fields(state, found, fields, members)
        for fresh, first in reports:
            self._log.warning("fields_not_taken", fields=list(fresh), file=first)
        return state

    def finish(
        self, state: SourceState, ready: Batch, started: float, work: Work | None
    ) -> SourceState:
        """Carry out steps 4 and 5 for a batch that the checkpoint has as ``publishing``.

        ``work`` is the other pending work, None if unknown.
        """
        self._activity.batch_enters(ready, "publish")
        self._fence(state)
        self._records.write(state, ready)
        publish(self._sink, ready.results.outputs, self._parts.concurrency)
        state, ready = self._grouped(state, ready)
        state = self._advance(state, ready, work)
        self._sink.delete_tree(staging_of(self._parts.id, self._epoch(), ready.batch))
        self._tolerance.count_committed()
        rows = sum(o.rows for o in ready.results.outputs)
        self._parts.meter.add_published(len(ready.files), sum(f.size for f in ready.files), rows)
        self._log.info(
            "batch_done",
            batch=ready.batch,
            attempt=ready.attempt,
            files=sum(f.outcome == "ingested" for f in ready.results.finished),
            rows=rows,
            bad_rows=sum(f.bad_rows for f in ready.results.finished),
            outputs=len(ready.results.outputs),
            secs=round(self._parts.clock() - started, 3),
            watermark=state.position.progress.value,
            **(
                {}
                if ready.results.settled is None
                else {"event_time": asdict(ready.results.settled)}
            ),
        )
        return state

    def abandon(self, ingesting: Ingesting) -> None:
        """End a job whose batch will not be finished now, so that it stops writing."""
        self._end_job()
        with contextlib.suppress(BaseException):  # the error of the caller matters more
            ingesting.result.result()
        self._job = None

    def _grouped(self, state: SourceState, batch: Batch) -> tuple[SourceState, Batch]:
        """Write the batch's manifest; save the state again if its number is used."""
        while batch.results.group is not None:
            free = self._groups.put(batch, self._epoch())
            if free is None:
                break
            state, batch = renumber_group(state, batch, free)
            self._save(state)
        return state, batch

    def _names_root(self, batch: Batch) -> str:
        """Return the root for `Batch`; ``""`` if rows of a statement may be of many files."""
        parts = self._parts
        ingest = parts.ingest
        is_of_files = (parts.has_files and not parts.members) or has_records(batch)
        named = is_of_files and SOURCE_FILE_COLUMN in ingest.added_columns.metadata
        as_read = not (ingest.sql.transform or ingest.sql.deduplicate_by)
        root = self._record_files.uri if has_records(batch) else parts.stores.source.uri
        return f"{root}/" if named and as_read else ""

    def _advance(self, state: SourceState, batch: Batch, work: Work | None) -> SourceState:
        self._activity.batch_enters(batch, "advance")
        now = self._now()
        after = state if has_records(batch) else self._source.advance(state, batch, work, now)
        saved = self._save(end_batch(after, batch, now))
        self._activity.batch_done(batch)
        self._source.clean_up()
        self._jobs.clean_up(saved)
        return saved

    def _ingest_batch(self, state: SourceState, batch: Batch, prefix: str) -> Ingested:
        ingested = self._batch_jobs.run(state, batch, prefix)
        self._activity.batch_enters(batch, "prepare")
        return ingested

"""The job of one batch: the files that it is given, and what it is run with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blizzard_core.errors import BlizzardError
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, join
from blizzard_py.ingest.jobs import Ingested, Jobs
from blizzard_py.ingest.publish import staging_of
from blizzard_py.job import IngestJob, IngestResult, IngestSettings, JobFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.protocol import Source
from blizzard_py.sources.records import RecordFiles, has_records
from blizzard_py.state.batch import Batch
from blizzard_py.state.source_state import SourceState


@dataclass(frozen=True, slots=True)
class BatchJobs:
    """Runs jobs of a source's batches. ``settle`` gives what they are run with, given the files.

    ``jobs`` run live batches. A batch of a request may have old files, so it runs as a plain job:
    it changes no query state and no reported watermark.
    """

    parts: SourceContext
    source: Source[Any]
    jobs: Jobs
    settle: Callable[[Sequence[Entry]], IngestSettings]
    epoch: Callable[[], int]

    def run(self, state: SourceState, batch: Batch, prefix: str) -> Ingested:
        """Bring the batch's job to its end. ``state`` is saved; raises as `Jobs.run` does."""
        if has_records(batch):
            return self._run_records(state, batch, prefix)
        files, lost = self.source.job_items(state, batch)
        if not files and not self.jobs.has_due(state):
            return Ingested(IngestResult((), tuple(lost), 0))
        job = self._job(batch, prefix, files, self._settings_of(batch))
        jobs = Jobs(self.parts.engine) if batch.request else self.jobs
        with self.source.reading(state, batch) as reading:
            ingested = jobs.run(state, replace(job, reading=reading), self.epoch())
        result = ingested.result
        _check_complete(files, result)
        if result.rows_dropped:
            log = get_logger(pipeline=self.parts.pipeline, source=self.parts.source_name)
            log.info("rows_dropped", batch=batch.batch, rows=result.rows_dropped)
        return replace(ingested, result=replace(result, files=(*result.files, *lost)))

    def _run_records(self, state: SourceState, batch: Batch, prefix: str) -> Ingested:
        """Return the job for files of single records, which every source kind may have."""
        records = RecordFiles(self.parts)
        files, lost = records.job_files(batch.files)
        if not files:
            return Ingested(IngestResult((), tuple(lost), 0))
        job = self._job(batch, prefix, files, records.settings(self.settle(batch.files)))
        ingested = Jobs(self.parts.engine).run(state, job, self.epoch())
        _check_complete(files, ingested.result)
        result = records.restore_names(ingested.result)
        return replace(ingested, result=replace(result, files=(*result.files, *lost)))

    def _settings_of(self, batch: Batch) -> IngestSettings:
        """Return what a batch's job is run with: no file that a request brings stops its source.

        A bad row of a table has no file that could have a letter instead; it ends the request.
        """
        settings = self.settle(batch.files)
        tolerance = settings.tolerance
        if not batch.request or not self.parts.has_files or tolerance.on_bad_record != "fail":
            return settings
        return replace(settings, tolerance=replace(tolerance, on_bad_record="quarantine_file"))

    def _job(
        self, batch: Batch, prefix: str, files: Sequence[JobFile], settings: IngestSettings
    ) -> IngestJob:
        staging = staging_of(self.parts.id, self.epoch(), batch.batch)
        where = join(staging, str(batch.attempt))
        return IngestJob(settings, where, prefix, tuple(files), batch.started_ts)


def _check_complete(files: Sequence[JobFile], result: IngestResult) -> None:
    """Every file must be reported exactly once; anything else is a bug that must not pass."""
    planned = sorted(file.path for file in files)
    reported = sorted(file.path for file in result.files)
    if planned != reported:
        raise BlizzardError(
            f"the ingest job was given {len(planned)} files and reported {len(reported)};"
            " the batch was not committed"
        )

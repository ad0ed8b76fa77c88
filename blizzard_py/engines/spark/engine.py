"""The `Engine` of the product: a Spark job per batch, one kernel call per task.

With a transform or ``deduplicate_by`` a batch has two jobs. The first works as always, but writes
to its own directory; so all guarantees about files and records hold. The second passes the first
one's output through Spark SQL to the outputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from blizzard_core.errors import Cancelled, EngineError, PipelineStopped
from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import join, order_key
from blizzard_py.engines.spark import jdbc
from blizzard_py.engines.spark.class_archive import Classes
from blizzard_py.engines.spark.deduplication import without_duplicates
from blizzard_py.engines.spark.failures import (
    FAILURES,
    DataFailure,
    find_failing_files,
    is_data_failure,
    reading_error,
    reason_of,
)
from blizzard_py.engines.spark.gateway import end_gateway, quick_start_settings
from blizzard_py.engines.spark.masters import is_connect
from blizzard_py.engines.spark.running import RunningJob, collected, on_ids, read_items
from blizzard_py.engines.spark.session import Session, open_driver
from blizzard_py.engines.spark.transform import (
    check,
    check_written,
    needs_second,
    records,
    staged_columns,
    transformed,
)
from blizzard_py.engines.spark.worker import (
    reports,
    run_merge_partition,
    run_partition,
    write_partition,
)
from blizzard_py.job import FinishedFile, IngestJob, IngestResult, IngestSettings, JobFile
from blizzard_py.kernels.merge import SMALL_SHARE, merge_tasks, with_merged
from blizzard_py.kernels.packing import pack, task_count, tasks_of
from blizzard_py.kernels.report import TaskReport, merged
from blizzard_py.kernels.sql_stage import SqlStage
from blizzard_py.reading import Access

_CANCEL_INTERVAL_SECS = 0.1
# The output of the first of two jobs: below the batch's staging, and fast to read.
_FIRST = "first"


class SparkEngine:
    """Runs ingest jobs on one Spark session, from any number of threads.

    The session starts with the first job, so commands that ingest nothing never start a JVM.
    ``conf`` is passed to Spark unchanged and overrides our settings. A session that died is
    replaced by the next job.
    """

    def __init__(
        self,
        master: str,
        conf: Mapping[str, str] | None = None,
        app_name: str = "blizzard",
        classes: Classes = "queries",
    ) -> None:
        """Create the engine; ``classes`` are those that its driver is expected to load."""
        self._master = master
        self._conf = dict(conf or {})
        self._app_name = app_name
        self._classes = classes
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._running: dict[str, RunningJob] = {}
        self._checked: dict[str, pa.Schema] = {}

    def ingest(self, job: IngestJob) -> IngestResult:
        """Run the job; see `Engine.ingest`. Raises `ConfigError` for a transform as `check` does.

        Tasks of a cancelled or failed job may write to its staging directory for some seconds more.
        Nothing that they write is reported.
        """
        if not job.files:
            return IngestResult((), (), 0)
        with self._job(job) as running:
            if needs_second(job.settings.sql):
                result = self._run_with_quarantine(running.job, running)
            else:
                result = merged(self._first(running.job, running))
            return _with_merges(running.job, result, running)

    def columns(self, pipeline: str, settings: IngestSettings) -> pa.Schema:
        """Return the columns of a pipeline's query. Starts Spark.

        Raises `ConfigError` if the query cannot be used, `EngineError` if Spark fails.
        """
        session = self._opened()
        try:
            return self._output_schema(session, pipeline, settings)
        except FAILURES as error:
            self._drop_if_dead(session)
            raise EngineError(f"{pipeline}: {reason_of(error)}") from None

    def check_written(self, pipeline: str, transform: str) -> None:
        """Check a transform before there are columns. Starts Spark.

        Raises as `columns`.
        """
        session = self._opened()
        try:
            check_written(session.spark, pipeline, transform)
        except FAILURES as error:
            self._drop_if_dead(session)
            raise EngineError(f"{pipeline}: {reason_of(error)}") from None

    def ask(self, access: Access, statement: str) -> pa.Table:
        """Return the complete result of a query by Spark's JDBC source. Starts Spark."""
        return jdbc.query(self.session(), access)(statement)

    def start(self) -> None:
        """Get ready for the first job. Raises `ConfigError`, `EngineError`."""
        self._opened()

    def cancel(self, output_prefix: str) -> None:
        """Cancel the job with that prefix and wait until `ingest` has returned."""
        with self._lock:
            running = self._running.get(output_prefix)
        if running is None:
            return
        running.cancelled.set()
        # A job can be cancelled only after Spark has it: repeat until it is gone.
        while not running.ended.wait(_CANCEL_INTERVAL_SECS):
            with self._lock:
                session = self._session
            if session is not None:
                with contextlib.suppress(*FAILURES):  # it may end at this moment
                    session.interrupt(output_prefix)

    def progress(self, output_prefix: str) -> float | None:
        """See `Engine.progress`."""
        with self._lock:
            running = self._running.get(output_prefix)
        return None if running is None else running.progress()

    def warm_up(self) -> None:
        """Start, and run a job without work, so that the first real one takes as long as others.

        Raises `ConfigError`, `EngineError`.
        """
        session = self._opened()
        try:
            # Without numbers there is no work, but each worker starts and imports what tasks need.
            session.reports(functools.partial(run_partition, ()), 0, session.parallelism())
        except FAILURES as error:
            self._drop_if_dead(session)
            raise EngineError(f"Spark runs no job: {reason_of(error)}") from None

    def stop(self) -> None:
        """Stop Spark; running jobs fail. A later job starts a new session."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.stop()

    def release(self) -> None:
        """Stop Spark and end its JVM."""
        self.stop()
        if not is_connect(self._master):
            end_gateway()

    def session(self) -> SparkSession:
        """See `Engine.session`."""
        return self._opened().spark

    def _opened(self) -> Session:
        with self._lock:
            session = self._session
        if session is not None and not is_connect(self._master):
            self._drop_if_dead(session)  # killed while nothing ran; a job checks a server itself
        with self._lock:
            if self._session is None:
                self._session = self._open()
            return self._session

    def _open(self) -> Session:
        if not is_connect(self._master):
            return open_driver(self._master, self._conf, self._app_name, self._classes)
        # Loading the client of a server takes longer than everything else.
        from blizzard_py.engines.spark.connect import open_connect  # noqa: PLC0415  # see above

        return open_connect(self._master, self._conf)

    def _drop_if_dead(self, session: Session) -> None:
        if session.alive():
            return
        with self._lock:
            if self._session is not session:
                return
            self._session = None
        session.stop()

    @contextlib.contextmanager
    def _job(self, job: IngestJob) -> Iterator[RunningJob]:
        """Register the job for `cancel` and translate every failure into a project error."""
        group = job.output_prefix
        with self._lock:
            if group in self._running:
                raise EngineError(f"{group}: this job is already running")
            running = self._running[group] = RunningJob(group, job)
        session: Session | None = None
        try:
            session = running.session = self._opened()
            with session.job(job, _pool(group)) as running.job:
                yield running
        except FAILURES as error:
            if session is not None:
                self._drop_if_dead(session)
            if running.cancelled.is_set():
                raise Cancelled(f"{group}: cancelled") from None
            # The cause repeats the whole JVM trace and may contain secrets that were sent to it.
            known_error = reading_error(error) if job.reading is not None else None
            if known_error is not None:
                raise known_error from None
            raise EngineError(f"{group}: the Spark job failed: {reason_of(error)}") from None
        finally:
            with self._lock:
                del self._running[group]
            running.ended.set()

    def _first(self, job: IngestJob, running: RunningJob) -> list[TaskReport]:
        if job.reading is not None:
            return read_items(job, job.reading, running)
        slots = running.session.parallelism()
        small = job.settings.layout.file_bytes // SMALL_SHARE
        packed = pack(job.files, task_count(job.files, slots, small))
        run = functools.partial(run_partition, tasks_of(job, packed, slots))
        return on_ids(running, len(packed), run)

    def _run_with_quarantine(self, job: IngestJob, running: RunningJob) -> IngestResult:
        """Run both jobs; quarantine files that the statement fails on, and keep the others.

        Each attempt is complete or has no effect, so attempts are safe.
        """

        def attempt(files: Sequence[JobFile]) -> IngestResult:
            return self._run_both_jobs(dataclasses.replace(job, files=tuple(files)), running)

        files: Sequence[JobFile] = job.files
        bad: dict[str, str] = {}
        while files:
            try:
                result = attempt(files)
            except DataFailure as error:
                if job.reading is not None:
                    # A window is published as a whole: no file can be left out.
                    raise PipelineStopped(
                        f"{job.output_prefix}: the transform fails on a row; nothing was"
                        f" skipped; correct it: {error.reason}"
                    ) from None
                found = find_failing_files(files, error.reason, attempt)
                if not found:
                    raise EngineError(f"{job.output_prefix}: {error.reason}") from None
                bad |= found
                # Without these files other duplicates come first, so the rest is run as a whole.
                files = [file for file in files if file.path not in found]
            else:
                break
        else:
            result = IngestResult((), (), 0)
        lost = tuple(
            FinishedFile(path, "quarantined", error=reason, stage="transform")
            for path, reason in bad.items()
        )
        by_path = sorted((*result.files, *lost), key=lambda file: order_key(file.path))
        return dataclasses.replace(result, files=tuple(by_path))

    def _run_both_jobs(self, job: IngestJob, running: RunningJob) -> IngestResult:
        """Run both jobs. Raises `DataFailure` if a row made the statement fail."""
        session = running.session
        schema = self._output_schema(session, _pool(job.output_prefix), job.settings)
        first = merged(self._first(_first_job(job), running))
        if not first.outputs:
            return first
        staged = [JobFile(o.staged, o.size, o.partition) for o in first.outputs]
        packed = pack(staged, task_count(staged, session.parallelism()))
        frame = records(session.spark, job.settings, packed)
        frame = without_duplicates(frame, job.settings, len(packed))
        second = SqlStage(
            job.without_items,
            schema,
            frozenset(file.partition for file in job.files),
            frozenset(output.unit for output in first.outputs if output.unit),
        )
        write = functools.partial(write_partition, second)
        try:
            with transformed(session.spark, frame, job.settings.sql.transform) as rows:
                written = merged(collected(running, reports(rows, write)))
        except FAILURES as error:
            if running.cancelled.is_set() or not is_data_failure(error):
                raise
            raise DataFailure(reason_of(error)) from None
        if job.reading is None:
            _check_directories(job, written)
        accepted = sum(file.rows for file in first.files)
        written_rows = sum(output.rows for output in written.outputs)
        return dataclasses.replace(
            first,
            outputs=written.outputs,
            tasks=first.tasks + written.tasks,
            rows_dropped=accepted - written_rows,
        )

    def _output_schema(
        self, session: Session, pipeline: str, settings: IngestSettings
    ) -> pa.Schema:
        key = f"{pipeline} {settings!r}"  # storage options are irrelevant and left out
        with self._lock:
            known = self._checked.get(key)
        if known is None:
            known = check(session.spark, pipeline, settings)
            with self._lock:
                self._checked[key] = known
        return known


def checking_engine(master: str, conf: Mapping[str, str]) -> SparkEngine:
    """Return an engine for `SparkEngine.columns`: local, or the Connect server."""
    if is_connect(master):
        return SparkEngine(master, conf, "blizzard-validate")
    own = {key: value for key, value in conf.items() if key.startswith("spark.sql.")}
    return SparkEngine("local[1]", quick_start_settings(own), "blizzard-validate")


def _with_merges(job: IngestJob, result: IngestResult, running: RunningJob) -> IngestResult:
    """Return the result with its small outputs merged; unmerged if merging fails."""
    tasks = merge_tasks(job, result, running.session.parallelism())
    if not tasks:
        return result
    try:
        reports = on_ids(running, len(tasks), functools.partial(run_merge_partition, tasks))
    except FAILURES as error:
        if running.cancelled.is_set():
            raise
        get_logger().warning("merge_failed", job=job.output_prefix, error=reason_of(error))
        return result
    return with_merged(result, tasks, reports)


def _check_directories(job: IngestJob, written: IngestResult) -> None:
    """Raise `DataFailure` if the rows of so many files go to too many directories.

    Rows of the result no longer have a file. If all files together have too many, so does one half
    of them, so the search ends at the files that cause it.
    """
    most = job.settings.tolerance.limits.directories
    if len({output.partition for output in written.outputs}) > most * len(job.files):
        raise DataFailure(
            f"its rows go to more than {most:,} directories of the table, each with its own"
            " output; if that is intended, raise error_handling.advanced.max_directories_per_file"
        )


def _first_job(job: IngestJob) -> IngestJob:
    """Return the first job: records as declared, into files that are never published."""
    settings = job.settings
    return dataclasses.replace(
        job,
        settings=dataclasses.replace(
            settings,
            layout=settings.layout.for_staging(),
            added_columns=staged_columns(settings.added_columns, settings.sql),
        ),
        staging=join(job.staging, _FIRST),
        output_prefix=f"{job.output_prefix}/{_FIRST}",
    )


def _pool(group: str) -> str:
    """Return the pipeline's name, the name of its scheduler pool."""
    return group.partition("/")[0]

"""The `Engine` of the product: one Spark job per batch, one kernel call per task."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from blizzard_py.core.errors import Cancelled, EngineError
from blizzard_py.core.log import get_logger
from blizzard_py.core.model import IngestResult
from blizzard_py.kernels.failure import bounded
from blizzard_py.kernels.merge import merge_tasks, with_merged
from blizzard_py.kernels.packing import pack, task_count
from blizzard_py.kernels.task import TaskReport, merged, tasks_of
from blizzard_py.settings import IngestJob
from blizzard_py.spark.session import open_session
from blizzard_py.spark.worker import run_merge_partition, run_partition

_CANCEL_INTERVAL_SECS = 0.1

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkEngine:
    """Runs ingest jobs on one Spark session, from any number of threads.

    The session starts with the first job, so commands that ingest nothing never
    start a JVM. ``conf`` goes to Spark as it is and wins over our settings.
    """

    def __init__(
        self, master: str, conf: Mapping[str, str] | None = None, app_name: str = "blizzard"
    ) -> None:
        self._master = master
        self._conf = dict(conf or {})
        self._app_name = app_name
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._running: dict[str, _Running] = {}

    def ingest(self, job: IngestJob) -> IngestResult:
        """Run the job; see `Engine.ingest`.

        Tasks of a cancelled or failed job may go on writing to its staging
        directory for some seconds; nothing that they write is reported.
        """
        if not job.files:
            return IngestResult((), (), 0)
        with self._registered(job.output_prefix) as running:
            result = merged(self._reports(job, running))
            return self._with_merges(job, result, running)

    def cancel(self, output_prefix: str) -> None:
        """End the job with that prefix and wait until `ingest` has returned."""
        with self._lock:
            running = self._running.get(output_prefix)
            session = self._session
        if running is None:
            return
        running.cancelled.set()
        # A job can be cancelled only once Spark has it: repeat until it is gone.
        while not running.ended.wait(_CANCEL_INTERVAL_SECS):
            if session is not None:
                session.sparkContext.cancelJobGroup(output_prefix)
            with self._lock:
                session = self._session

    def stop(self) -> None:
        """Stop Spark; running jobs fail. A later job starts a new session."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.stop()

    def session(self) -> SparkSession:
        """The session, started if there is none."""
        with self._lock:
            if self._session is None:
                self._session = open_session(self._master, self._conf, self._app_name)
            return self._session

    def _reports(self, job: IngestJob, running: _Running) -> list[TaskReport]:
        packed = pack(job.files, task_count(job.files, self._parallelism(job, running)))
        run = functools.partial(run_partition, tasks_of(job, packed))
        return self._collected(job, running, run, len(packed))

    def _with_merges(self, job: IngestJob, result: IngestResult, running: _Running) -> IngestResult:
        """The result with its small outputs merged. Without that it is as right, only larger."""
        tasks = merge_tasks(job, result, self._parallelism(job, running))
        if not tasks:
            return result
        try:
            run = functools.partial(run_merge_partition, tasks)
            reports = self._collected(job, running, run, len(tasks))
        except EngineError as error:
            get_logger().warning("merge_failed", job=job.output_prefix, error=str(error))
            return result
        return with_merged(result, tasks, reports)

    def _parallelism(self, job: IngestJob, running: _Running) -> int:
        with _engine_errors(job.output_prefix, running):
            return self.session().sparkContext.defaultParallelism

    def _collected(
        self, job: IngestJob, running: _Running, run: ArrowFunction, tasks: int
    ) -> list[TaskReport]:
        """Run one Spark job and return its tasks' reports."""
        group = job.output_prefix
        with _engine_errors(group, running):
            spark = self.session()
            spark.sparkContext.setJobGroup(group, f"ingest {group}", interruptOnCancel=True)
            if running.cancelled.is_set():
                raise Cancelled(f"{group}: cancelled before it started")
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(run, "result string").collect()
            return [TaskReport.from_json(row["result"]) for row in rows]

    @contextlib.contextmanager
    def _registered(self, group: str) -> Iterator[_Running]:
        """The job as one that `cancel` can end."""
        running = _Running()
        with self._lock:
            if group in self._running:
                raise EngineError(f"{group}: this job is running already")
            self._running[group] = running
        try:
            yield running
        finally:
            with self._lock:
                del self._running[group]
            running.ended.set()


class _Running:
    """A job between its submission and its end."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.ended = threading.Event()


@contextlib.contextmanager
def _engine_errors(group: str, running: _Running) -> Iterator[None]:
    """Whatever Spark raises, as ours."""
    try:
        yield
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        if running.cancelled.is_set():
            raise Cancelled(f"{group}: cancelled") from None
        # The cause repeats the whole JVM trace and may hold what was sent to it.
        raise EngineError(f"{group}: the Spark job failed: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """One line out of a Spark failure: the Python exception of the task, if there is one.

    Spark wraps a worker's exception in a JVM stack trace that holds the Python
    traceback as text. Its last line is the only one that tells something.
    """
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        return (
            "the JVM did not start; Java 17 or newer must be on PATH or in JAVA_HOME"
            " (what it printed is in the log, event `jvm`)"
        )
    _, traceback, tail = text.rpartition("Traceback (most recent call last):")
    if traceback:
        unindented = (line for line in tail.splitlines()[1:] if line and not line[0].isspace())
        if found := next(unindented, ""):
            kind, _, message = found.partition(": ")
            if kind.startswith("blizzard_py.") and message:
                return bounded(message)
            return bounded(found)
    for marker in ("Most recent failure: ", "SparkException: "):
        if marker in text:
            text = text.partition(marker)[2]
            break
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return bounded(first)

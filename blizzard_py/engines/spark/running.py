"""A running job: its tasks on Spark, their reports, and its progress."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading

from pyspark.sql import DataFrame

from blizzard_core.errors import Cancelled, SourceError, StorageError
from blizzard_py.engines.spark import jdbc
from blizzard_py.engines.spark.failures import FAILURES, reading_error
from blizzard_py.engines.spark.numbered_tasks import NumberedFunction
from blizzard_py.engines.spark.session import Session
from blizzard_py.engines.spark.transform import needs_second
from blizzard_py.engines.spark.worker import reports, run_frame, run_reading
from blizzard_py.job import IngestJob
from blizzard_py.kernels.read_task import ReadingTask, reading_tasks, unread
from blizzard_py.kernels.report import TaskReport, together
from blizzard_py.reading import Access, Reading


class RunningJob:
    """A submitted job that has not ended: ``job`` is without secrets, as its tasks get it.

    ``access`` is that of the submitted job, for queries of the driver itself.
    """

    def __init__(self, group: str, job: IngestJob) -> None:
        self.group = group
        self.job = job
        self.access = None if job.reading is None else job.reading.access
        self.cancelled = threading.Event()
        self._session: Session | None = None
        self.ended = threading.Event()

    @property
    def session(self) -> Session:
        """The job's session; set before anything runs."""
        if self._session is None:
            raise RuntimeError("the job has no session yet")
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        self._session = session

    def progress(self) -> float | None:
        """Return the share of finished tasks, 0 to 1; None until Spark has the job."""
        session = self._session
        if session is None:
            return None
        steps = 2 if needs_second(self.job.settings.sql) else 1
        with contextlib.suppress(*FAILURES):  # only for display; the job reports the error
            done = session.tasks_done(self.group)[:steps]
            return sum(done) / steps if done else None
        return None


def read_items(job: IngestJob, reading: Reading, running: RunningJob) -> list[TaskReport]:
    """Run a job whose items a connection reads: in a task each, or as JDBC partitions."""
    tasks = reading_tasks(job, reading)
    access = running.access
    if access is None or access.driver != "jdbc":
        run = functools.partial(run_reading, tasks)
        return on_ids(running, len(tasks), run, reading.parallel)
    if reading.apart:
        found = []
        for place, task in enumerate(tasks):
            if place and running.cancelled.wait(reading.pacing_secs):
                raise Cancelled(f"{running.group}: cancelled")
            found += _read_separately(task, access, running)
        return found
    frame = jdbc.frame(running.session.spark, access, [task.slices[0].task.spec for task in tasks])
    return collected(running, reports(frame, functools.partial(run_frame, tasks)))


def _read_separately(task: ReadingTask, access: Access, running: RunningJob) -> list[TaskReport]:
    """Read one item by Spark's JDBC source, a frame for each slice; a failure affects it alone."""
    found: list[TaskReport] = []
    try:
        for some in task.slices:
            only = dataclasses.replace(task, slices=(some,))
            frame = jdbc.frame(running.session.spark, access, [some.task.spec])
            run = functools.partial(run_frame, [only])
            found += collected(running, reports(frame, run))
    except FAILURES as error:
        known_error = reading_error(error) or jdbc.database_error(access, error)
        if running.cancelled.is_set() or not isinstance(known_error, SourceError | StorageError):
            raise
        return [unread(task, known_error)]
    except (SourceError, StorageError) as error:
        return [unread(task, error)]
    return together(found)


def on_ids(
    running: RunningJob, tasks: int, run: NumberedFunction, most: int = 0
) -> list[TaskReport]:
    """Return the reports of ``run`` for tasks by number, ``most`` at a time.

    Raises `Cancelled` if the job was cancelled before.
    """
    _require_wanted(running)
    texts = running.session.reports(run, tasks, min(tasks, most or tasks))
    return [TaskReport.from_json(text) for text in texts]


def collected(running: RunningJob, frame: DataFrame) -> list[TaskReport]:
    """Return the reports of a frame's tasks.

    Raises `Cancelled` if the job was cancelled before.
    """
    _require_wanted(running)
    return [TaskReport.from_json(row["result"]) for row in frame.collect()]


def _require_wanted(running: RunningJob) -> None:
    if running.cancelled.is_set():
        raise Cancelled(f"{running.group}: cancelled")

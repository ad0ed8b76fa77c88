"""A Spark session whose driver is this process's own JVM: local, standalone, Kubernetes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import blizzard_core
import blizzard_py
from blizzard_core.errors import EngineError
from blizzard_core.log import get_logger
from blizzard_py.engines.java import require_java
from blizzard_py.engines.spark.class_archive import Classes
from blizzard_py.engines.spark.failures import reason_of
from blizzard_py.engines.spark.gateway import (
    JAVA_OPTIONS,
    answers,
    forget_gateway,
    log_hanging_up,
    open_gateway,
    release_context,
)
from blizzard_py.engines.spark.job_secrets import SECRETS_PROPERTY, attach_secrets
from blizzard_py.engines.spark.masters import is_local, require_reachable, settings, with_retries
from blizzard_py.engines.spark.numbered_tasks import NumberedFunction, run_numbered
from blizzard_py.engines.spark.scratch import Scratch
from blizzard_py.engines.spark.security import weak_settings
from blizzard_py.job import IngestJob


def zipped_packages(folder: Path) -> Path:
    """Write both packages to a zip file in ``folder``; their dependencies are in the image."""
    target = folder / "blizzard.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in (blizzard_core.__file__, blizzard_py.__file__):
            root = Path(file).parent
            for part in sorted([*root.rglob("*.py"), *root.rglob("*.wasm")]):
                archive.write(part, part.relative_to(root.parent))
    return target


_LOCAL_DIR = "spark.local.dir"
# Goes before the setting.
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_PYTHON = "spark.pyspark.python"
_SOCKETS = "spark.python.unix.domain.socket.enabled"
# A socket's path has at most 107 bytes; Spark's names in the directory have 42.
_SOCKET_FOLDER = 64
_POOL = "spark.scheduler.pool"


class Session(Protocol):
    """A Spark session as the engine needs it, wherever its driver is."""

    @property
    def spark(self) -> SparkSession:
        """The session for making queries."""

    def parallelism(self) -> int:
        """Return how many tasks run at the same time, as far as the master reports it."""

    def job(self, job: IngestJob, pool: str) -> contextlib.AbstractContextManager[IngestJob]:
        """Run jobs of this thread in ``pool`` until the block ends; `interrupt` cancels them.

        Yields the job for its tasks: without credentials if tasks get them in another way. The
        group to interrupt is its ``output_prefix``.
        """

    def reports(self, run: NumberedFunction, count: int, parts: int) -> list[str]:
        """Return the reports of ``run`` on numbers from 0 to ``count``, in ``parts`` Spark tasks.

        Raises what Spark raises.
        """

    def interrupt(self, group: str) -> None:
        """End the running jobs of that group; nothing that starts later."""

    def tasks_done(self, group: str) -> list[float]:
        """Return the share of finished tasks of each Spark job in that group, oldest first.

        Empty if unknown.
        """

    def alive(self) -> bool:
        """Return whether another job may succeed. False: only a new session can."""

    def stop(self) -> None:
        """Release everything."""


class DriverSession:
    """A `Session` with its driver in a JVM of this process."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @functools.cached_property
    def spark(self) -> SparkSession:
        """The session for making queries, made at first use: it loads 3,000 classes.

        Most batches make no query. Raises `EngineError`.
        """
        try:
            return SparkSession(self._context)
        except (PySparkException, Py4JError, OSError) as error:
            raise EngineError(f"spark.master {self._context.master}: {reason_of(error)}") from None

    def parallelism(self) -> int:
        """Return the number of parallel tasks by the current executors."""
        return self._context.defaultParallelism

    @contextlib.contextmanager
    def job(self, job: IngestJob, pool: str) -> Iterator[IngestJob]:
        """Set job group, pool and credentials as properties of the thread until the job ends."""
        context, group = self._context, job.output_prefix
        context.setJobGroup(group, f"ingest {group}", interruptOnCancel=True)
        context.setLocalProperty(_POOL, pool)
        try:
            with attach_secrets(context, job) as bare:
                yield bare
        finally:
            # The thread's next work is not part of this job, and is not cancelled with it.
            with contextlib.suppress(Py4JError, OSError):  # the JVM may have failed
                context._jsc.clearJobGroup()  # noqa: SLF001  # no public name
                context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]  # removes it

    def reports(self, run: NumberedFunction, count: int, parts: int) -> list[str]:
        """Return the reports by a job of Spark's core, without a plan."""
        return run_numbered(self._context, run, count, parts)

    def interrupt(self, group: str) -> None:
        """Interrupt tasks, which ends their Python workers."""
        self._context.cancelJobGroup(group)

    def tasks_done(self, group: str) -> list[float]:
        """Return the shares from Spark's own tracker, which forgets jobs long after they ended."""
        tracker = self._context.statusTracker()
        found = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
        shares = []
        for stages in (list(info.stageIds) for info in found if info is not None):
            known = [stage for one in stages if (stage := tracker.getStageInfo(one))]
            tasks = sum(stage.numTasks for stage in known)
            done = sum(stage.numCompletedTasks for stage in known)
            shares.append(done / tasks if tasks else 0.0)
        return shares

    def alive(self) -> bool:
        """Return whether the JVM answers and its context has not failed."""
        try:
            # Spark's own flag; the Python flag is only set by stop().
            return not self._context._jsc.sc().isStopped()  # noqa: SLF001  # no public name
        except (Py4JError, OSError, AttributeError):
            return False

    def stop(self) -> None:
        """Stop Spark; if its JVM is gone, forget it, so that the next session starts one."""
        with contextlib.suppress(Py4JError, OSError), warnings.catch_warnings():
            # pyspark warns of a JVM that is gone; that case is handled here.
            warnings.simplefilter("ignore", RuntimeWarning)
            (self.spark if "spark" in vars(self) else self._context).stop()
        if not answers():
            forget_gateway()


def open_driver(
    master: str, conf: Mapping[str, str], app_name: str, classes: Classes
) -> DriverSession:
    """Return a new session with this package on its executors.

    Local workers run this interpreter. Executors of a cluster need Python with this package's
    dependencies (an image); the package itself is sent along. Raises `ConfigError`, `EngineError`,
    `NoJava`.
    """
    if python := conf.get(_PYTHON):
        os.environ["PYSPARK_PYTHON"] = python  # otherwise only spark-submit sets it
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # The JVM resolves this machine's name before it reads any setting of ours,
        # and dies on a container whose name does not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = settings(master, conf, os.environ) | _places(master, conf)
    for weakness in weak_settings(master, conf):
        get_logger().warning("spark_open", setting=weakness)
    require_java(master)
    require_reachable(master)
    get_logger().info("spark_starting", master=master)
    silence_query_logs()
    conf_of_all = SparkConf(loadDefaults=False).setMaster(with_retries(master)).setAppName(app_name)
    for key, value in wanted.items():
        # The JVM has its options now, and nothing else needs them.
        if key != JAVA_OPTIONS:
            conf_of_all.set(key, value)
    try:
        with _preserve_interrupt_handler():
            all_conf = {**dict(conf_of_all.getAll()), **wanted}
            gateway = open_gateway(all_conf, _scratch().path, classes)
            conf_of_all.set(SECRETS_PROPERTY, "handed with each job")  # keeps it out of event logs
            context = SparkContext(conf=conf_of_all, gateway=gateway)
            log_hanging_up(context)
            session = DriverSession(context)
        if not is_local(master):
            # Executors fetch it with their first task, new executors later.
            context.addPyFile(str(zipped_packages(_scratch().path)))
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        release_context()
        raise EngineError(f"spark.master {master}: {reason_of(error)}") from None
    return session


def _places(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the directories for a driver's temporary files, unless the user chose them."""
    scratch, places = str(_scratch().path), {}
    # Executors choose their own directories.
    if is_local(master):
        _own_local_dirs()
        if _LOCAL_DIR not in conf:
            places[_LOCAL_DIR] = scratch
    if _SOCKETS not in conf and len(scratch) > _SOCKET_FOLDER:
        places[_SOCKETS] = "false"
    return places


@functools.cache
def _scratch() -> Scratch:
    """Return one directory for the life of the process: its JVM outlives sessions and uses it."""
    scratch = Scratch()
    atexit.register(scratch.close)
    return scratch


@functools.cache
def _own_local_dirs() -> None:
    """Give this process directories of its own below those of the environment, if there are any.

    Otherwise the files of a process that was killed would stay there, until the disk is full.
    """
    given = os.environ.get(_LOCAL_DIRS)
    if not given:
        return
    with contextlib.suppress(OSError):  # Spark names a directory that it cannot write
        own = [Scratch(Path(folder)) for folder in given.split(",")]
        for scratch in own:
            atexit.register(scratch.close)
        os.environ[_LOCAL_DIRS] = ",".join(str(scratch.path) for scratch in own)


def silence_query_logs() -> None:
    """Silence Spark's query logger: it prints each failed query to stderr with its whole trace."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


@contextlib.contextmanager
def _preserve_interrupt_handler() -> Iterator[None]:
    """Restore the daemon's SIGINT handler: Spark replaces it when started in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)

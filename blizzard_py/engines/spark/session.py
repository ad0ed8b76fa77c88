"""A Spark session whose driver is this process's own JVM: local, standalone, Kubernetes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from blizzard_core.errors import EngineError
from blizzard_core.log import get_logger
from blizzard_py.engines.spark.failures import reason_of
from blizzard_py.engines.spark.masters import is_local, require_reachable, retrying, settings
from blizzard_py.engines.spark.scratch import Scratch
from blizzard_py.engines.spark.zipped_package import zipped_packages

_LOCAL_DIR = "spark.local.dir"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON = "spark.pyspark.python"
_POOL = "spark.scheduler.pool"

# A task's failure comes back as an exception; Spark would print its trace as well, once
# per attempt. ``spark.log.level: WARN`` in the configuration's ``spark.conf`` shows it all.
# The gateway's logger is named because Spark would raise the level to the one it has; the
# scheduler's tells of executors that were lost, and of a job that waits because there are none.
_LOG4J = """\
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c: %m%n
"""


class Session(Protocol):
    """What the engine asks of a Spark session, wherever its driver is."""

    @property
    def spark(self) -> SparkSession:
        """The session that queries are made with."""

    def parallelism(self) -> int:
        """How many tasks run at the same time, as far as the master tells."""

    def job(self, group: str, pool: str) -> contextlib.AbstractContextManager[None]:
        """What this thread starts inside is ended by `interrupt` and scheduled in ``pool``."""

    def interrupt(self, group: str) -> None:
        """End what runs in that group now; nothing that starts later."""

    def alive(self) -> bool:
        """Whether another job may succeed. False: only a new session can."""

    def stop(self) -> None:
        """Let go of everything."""


class DriverSession:
    """A `Session` with its driver in a JVM of this process."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def parallelism(self) -> int:
        """From the executors there are now."""
        return self.spark.sparkContext.defaultParallelism

    @contextlib.contextmanager
    def job(self, group: str, pool: str) -> Iterator[None]:
        """Job group and pool are properties of the thread."""
        context = self.spark.sparkContext
        context.setJobGroup(group, f"ingest {group}", interruptOnCancel=True)
        context.setLocalProperty(_POOL, pool)
        yield

    def interrupt(self, group: str) -> None:
        """Tasks are interrupted, which ends their Python workers."""
        self.spark.sparkContext.cancelJobGroup(group)

    def alive(self) -> bool:
        """A JVM that was killed answers nothing; a context that failed says so."""
        try:
            # Spark's own flag; the Python one knows only of stop().
            return not self.spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001  # no public name
        except (Py4JError, OSError, AttributeError):
            return False

    def stop(self) -> None:
        """Stop Spark; if its JVM is gone, forget it, so that the next session starts one."""
        with contextlib.suppress(Py4JError, OSError), warnings.catch_warnings():
            # pyspark warns of a JVM that is gone, which is what is dealt with here.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.spark.stop()
        if not _answers():
            _forget_gateway()


def open_driver(master: str, conf: Mapping[str, str], app_name: str) -> DriverSession:
    """A new session with this package on its executors. Raises `ConfigError`, `EngineError`.

    Local workers run this interpreter. Executors of a cluster need Python with
    this package's dependencies (an image); the package itself is sent along.
    """
    if python := conf.get(_PYTHON):
        os.environ["PYSPARK_PYTHON"] = python  # which only spark-submit would do
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # The JVM resolves this machine's name before it reads any setting of ours,
        # and dies on a container whose name does not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    wanted = settings(master, conf, os.environ)
    require_reachable(master)
    silence_query_logs()
    conf_of_all = SparkConf(loadDefaults=False).setMaster(retrying(master)).setAppName(app_name)
    # An executor's disk is its own business, and so is what the user chose.
    if is_local(master) and _LOCAL_DIR not in wanted:
        wanted[_LOCAL_DIR] = str(_scratch().path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log4j = folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        for key, value in wanted.items():
            conf_of_all.set(key, value)
        # The user's options come last and win.
        quiet = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
        conf_of_all.set(_JAVA_OPTIONS, f"{quiet} {conf.get(_JAVA_OPTIONS, '')}".strip())
        try:
            with _interrupt_handler_kept():
                context = SparkContext(conf=conf_of_all, gateway=_gateway(conf_of_all))
                session = DriverSession(SparkSession(context))
            if not is_local(master):
                # Executors fetch it when their first task comes, and new ones later still.
                context.addPyFile(str(zipped_packages(_scratch().path)))
        except (PySparkException, Py4JError, OSError, RuntimeError) as error:
            if not _answers():
                _forget_gateway()
            raise EngineError(f"spark.master {master}: {reason_of(error)}") from None
    return session


@functools.cache
def _scratch() -> Scratch:
    """One for the life of the process: its JVM outlives sessions and remembers the directory."""
    scratch = Scratch()
    atexit.register(scratch.close)
    return scratch


def silence_query_logs() -> None:
    """Spark prints every failed query to stderr, as JSON of its own with all of the trace."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _gateway(conf: SparkConf) -> Any:
    """The JVM of this process, started if there is none, with its stderr going to our log.

    What the JVM itself prints is no JSON and would break whoever reads our log.
    """
    running = SparkContext._gateway  # noqa: SLF001 (a stopped context leaves its JVM there)
    if running is not None:
        return running
    read_end, write_end = os.pipe()
    try:
        gateway = launch_gateway(conf, {"stderr": write_end})  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
    finally:
        os.close(write_end)
        threading.Thread(target=_log_lines, args=(read_end,), name="jvm-log", daemon=True).start()
    return gateway


def _answers() -> bool:
    """Whether the JVM of this process is there."""
    jvm = SparkContext._jvm  # noqa: SLF001 (pyspark has no other name for it)
    if jvm is None:
        return SparkContext._gateway is None  # noqa: SLF001  # no public name
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def _forget_gateway() -> None:
    """Make pyspark start a new JVM: it keeps a dead one for the life of the process."""
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    if gateway is not None:
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.wait()
        if gateway.proc.stdin is not None:
            with contextlib.suppress(OSError):  # nobody reads what it still holds
                gateway.proc.stdin.close()
    SparkContext._gateway = None  # noqa: SLF001  # no public name
    SparkContext._jvm = None  # noqa: SLF001  # no public name
    SparkContext._active_spark_context = None  # noqa: SLF001  # no public name
    SparkSession._instantiatedSession = None  # noqa: SLF001  # no public name


def _log_lines(descriptor: int) -> None:
    log = get_logger()
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.strip()
            # Java says this at every start with the modules that Spark asks for.
            if text and not text.startswith("WARNING: Using incubator modules"):
                log.warning("jvm", line=text)


@contextlib.contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """Spark takes SIGINT over when it starts in the main thread; the daemon owns it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)

"""The JVM of this process: its start, its liveness check and its release.

Every user of a machine can read the command lines of its processes. So the JVM gets Spark's
settings and its own options from two files that only this user can read. The command line contains
only the names of these files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j import protocol  # type: ignore[import-untyped]  # ships no types
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # as above
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from blizzard_core.errors import EngineError
from blizzard_core.log import get_logger
from blizzard_py.engines.spark.class_archive import ARCHIVE, Classes, archive_options
from blizzard_py.engines.spark.class_path import class_path_option, has_queries, task_jars
from blizzard_py.engines.spark.masters import is_local
from blizzard_py.lines.failure import bounded

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_OPTION_KEYS = {JAVA_OPTIONS, _DEFAULT_JAVA_OPTIONS}
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_QUICK = "-XX:TieredStopAtLevel=1"
# One thread collects a small heap as fast, and gives more of it back. Once a minute the JVM returns
# what its compiler has freed, 6 MB; a JVM that does not know the option passes over it.
_SMALL_HEAP = (
    "-Xms24m -XX:+UseSerialGC -XX:NewRatio=6 -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20"
    " -XX:TrimNativeHeapInterval=60000"
)
# Lines of a start that say nothing about its failure.
_NO_REASON = re.compile(r"WARNING:|NOTE:|Picked up |.*/spark-class: line")
_MOST_LINES = 100
# Its output ends with it.
_END_SECS = 5.0
_HEAP_OPTION = re.compile(r"-XX:(\+Use\w+GC\b|(Min|Max)HeapFreeRatio)")

# A task's failure is returned as an exception; Spark would also print its trace, once
# per attempt. ``spark.log.level: WARN`` in the configuration's ``spark.conf`` shows it all.
# The gateway's logger is set because Spark would otherwise change its level. The scheduler's
# logger reports lost executors, and jobs that wait because there are none.
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


def quick_start_settings(
    conf: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return Spark's settings for a driver that distributes tasks and computes nothing itself.

    Its JVM uses only the quick compiler: half of a start's cost is optimised code that is not used
    afterwards (see docs/design/engine.md). Its heap is small. The user's own options take
    precedence. Two collectors, or ratios that contradict each other, keep a JVM from starting.
    """
    is_chosen = _HEAP_OPTION.search(_user_options(conf, environment)) is not None
    options = _QUICK if is_chosen else f"{_QUICK} {_SMALL_HEAP}"
    return {_DEFAULT_JAVA_OPTIONS: options, **conf}


def _user_options(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the options of the JVM that are the user's."""
    variables = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    given = [conf.get(_DEFAULT_JAVA_OPTIONS, ""), conf.get(JAVA_OPTIONS, "")]
    return " ".join([*given, *(environment.get(name, "") for name in variables)])


def open_gateway(conf: Mapping[str, str], scratch: Path, classes: Classes = "queries") -> Any:
    """Return the JVM of this process, started with ``conf`` if there is none.

    Its output goes to our log: it is not JSON and would break readers of the log. A JVM that still
    writes its class archive would also keep a pipe open whose reader waits for its end.
    Its own temporary files go to ``scratch``: sockets of workers, and files that Spark creates.

    The JVM has its own session. A signal to all processes of a terminal or a service only reaches
    the daemon, which lets the running job finish. When the daemon is gone, the JVM's standard input
    is closed and the JVM ends.
    """
    # They load pyspark's test helpers and pandas, 30 MB, and no call passes values of numpy.
    protocol.INPUT_CONVERTER[:] = [
        each
        for each in protocol.INPUT_CONVERTER
        if not isinstance(each, NumpyArrayConverter | NumpyScalarConverter)
    ]
    running = SparkContext._gateway  # noqa: SLF001 (a stopped context leaves its JVM there)
    if running is not None:
        if classes == "tasks":
            return running
        if has_queries(running.jvm.java.lang.System.getProperty("java.class.path")):
            return running
        end_gateway()  # no query is possible there
    read_end, write_end = os.pipe()
    output = _Output(read_end)
    try:
        # In a directory that the next start removes: a killed process leaves its settings behind.
        folder = tempfile.TemporaryDirectory(dir=scratch)
        with folder as name, _submit_arguments(_files(Path(name), conf, scratch, classes)):
            options = {"stdout": write_end, "stderr": write_end, "start_new_session": True}
            gateway = launch_gateway(None, options)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
    except PySparkRuntimeError:
        os.close(write_end)
        raise EngineError(f"the JVM did not start: {output.reason()}") from None
    except BaseException:
        os.close(write_end)
        raise
    os.close(write_end)
    output.started()
    return gateway


def _files(folder: Path, conf: Mapping[str, str], scratch: Path, classes: Classes) -> Path:
    """Write the JVM's settings to a directory of this user alone; return Spark's settings file."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    given = _user_options(conf, os.environ)
    jars = None
    if classes == "tasks" and is_local(conf.get("spark.master", "")) and ARCHIVE not in given:
        jars = task_jars({k: v for k, v in conf.items() if k not in _OPTION_KEYS}, os.environ)
    # The user's options come last and take precedence.
    options = [
        *([] if jars is None else class_path_option(jars)),
        *archive_options(given, os.environ, classes, jars),
        *shlex.split(conf.get(_DEFAULT_JAVA_OPTIONS, "")),
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        *shlex.split(conf.get(JAVA_OPTIONS, "")),
    ]
    arguments = folder / "jvm.options"
    arguments.write_text("".join(f"{_argument(option)}\n" for option in options))
    conf_written = {k: v for k, v in conf.items() if k not in _OPTION_KEYS}
    conf_written[JAVA_OPTIONS] = f'"@{arguments}"'
    settings = folder / "spark.properties"
    settings.write_text(
        "".join(f"{as_property(k)}={as_property(v)}\n" for k, v in conf_written.items())
    )
    return settings


@contextlib.contextmanager
def _submit_arguments(settings: Path) -> Iterator[None]:
    """Set pyspark's arguments for the program that starts the JVM, during the start."""
    before = os.environ.get(_ARGUMENTS)
    own_arguments = f"--properties-file {shlex.quote(str(settings))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{own_arguments} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _argument(option: str) -> str:
    """Return one option as it is written in the JVM's argument file."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def as_property(text: str) -> str:
    """Return a name or a value as it is written in a Java properties file."""
    units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
    return "".join(f"\\u{unit:04x}" for unit in units)


def log_hanging_up(context: SparkContext) -> None:
    """Log errors of pyspark's own server of this context; it would print them to stderr.

    It has one connection, to the JVM. The end of the JVM is reported where it is noticed.
    """

    def log_error(*_request: object) -> None:
        get_logger().debug("jvm_hung_up", error=repr(sys.exception()))

    server = context._accumulatorServer  # noqa: SLF001  # no public name
    server.handle_error = log_error  # type: ignore[assignment]  # pyspark makes the server itself


def answers() -> bool:
    """Return whether the JVM of this process answers."""
    jvm = SparkContext._jvm  # noqa: SLF001 (pyspark has no other name for it)
    if jvm is None:
        return SparkContext._gateway is None  # noqa: SLF001  # no public name
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def release_context() -> None:
    """Stop a context whose session was never made; forget a JVM that is gone.

    A process has one context at a time. An unused one would block every later one.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001  # no public name
    if context is not None:
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
    if not answers():
        forget_gateway()


def end_gateway() -> None:
    """Have the JVM end by itself, as it does after its process, and wait for it."""
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    if gateway is not None and gateway.proc.stdin is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()
        forget_gateway()


def forget_gateway() -> None:
    """Make pyspark start a new JVM: it keeps a dead one for the life of the process."""
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    if gateway is not None:
        with contextlib.suppress(Py4JError, OSError):
            gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.wait()
        if gateway.proc.stdin is not None:
            with contextlib.suppress(OSError):  # nothing reads the rest of its buffer
                gateway.proc.stdin.close()
    SparkContext._gateway = None  # noqa: SLF001  # no public name
    SparkContext._jvm = None  # noqa: SLF001  # no public name
    SparkContext._active_spark_context = None  # noqa: SLF001  # no public name
    SparkSession._instantiatedSession = None  # noqa: SLF001  # no public name


class _Output:
    """Output of a JVM: held back until it runs, and then a warning a line.

    If it does not start, its lines are one error.
    """

    def __init__(self, descriptor: int) -> None:
        self._early: list[str] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._read, args=(descriptor,), name="jvm-log", daemon=True
        )
        self._thread.start()

    def started(self) -> None:
        """Log what was held back, and from now on each line."""
        with self._lock:
            early, self._early = self._early or [], None
        for line in early:
            get_logger().warning("jvm", line=line)

    def reason(self) -> str:
        """Return in one line why the JVM has ended, with what can be done."""
        self._thread.join(_END_SECS)
        lines = [line for line in self._early or [] if not _NO_REASON.match(line)]
        get_logger().debug("jvm", lines=lines)
        # The first is often "Error occurred during initialization of VM".
        told = bounded(" / ".join(lines[:3])) if lines else "it printed nothing"
        return f"{told}; check spark.conf, JAVA_TOOL_OPTIONS and the memory of this machine"

    def _read(self, descriptor: int) -> None:
        log = get_logger()
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.strip()
                # Java prints this at every start with the modules that Spark requests.
                if not text or text.startswith("WARNING: Using incubator modules"):
                    continue
                with self._lock:
                    if self._early is not None:
                        self._early += [text] if len(self._early) < _MOST_LINES else []
                        continue
                log.warning("jvm", line=text)

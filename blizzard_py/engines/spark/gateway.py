"""The JVM of this process: how it is started, whether it answers, how it is forgotten.

Every user of a machine reads the command lines of its processes. So what the JVM is told
comes from two files that only this user can read, Spark's settings and the JVM's own options,
and the command line holds no more than their names.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from blizzard_core.log import get_logger

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_QUICK = "-XX:TieredStopAtLevel=1"

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


def quick_start_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a driver that hands out tasks and computes nothing itself.

    Its JVM stops at quickly compiled code: half of what a start costs is spent on making code
    fast that then runs no more (docs/design/engine.md has figures). The user's own options win.
    """
    return {_DEFAULT_JAVA_OPTIONS: _QUICK, **conf}


def open_gateway(conf: Mapping[str, str], scratch: Path) -> Any:
    """The JVM of this process, started with ``conf`` if there is none, its stderr in our log.

    What the JVM itself prints is no JSON and would break whoever reads our log. Its own
    temporary files go to ``scratch``: sockets of workers, and what Spark makes beside them.

    It has a session of its own, so who asks all processes of a terminal or a service to end asks
    the daemon, which lets the running job finish. When the daemon is gone, its standard input is
    closed and the JVM ends.
    """
    running = SparkContext._gateway  # noqa: SLF001 (a stopped context leaves its JVM there)
    if running is not None:
        return running
    read_end, write_end = os.pipe()
    try:
        # In what the next start removes: who is killed meanwhile leaves all settings behind.
        folder = tempfile.TemporaryDirectory(dir=scratch)
        with folder as name, _submit_arguments(_files(Path(name), conf, scratch)):
            told = {"stderr": write_end, "start_new_session": True}
            gateway = launch_gateway(None, told)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
    finally:
        os.close(write_end)
        threading.Thread(target=_log_lines, args=(read_end,), name="jvm-log", daemon=True).start()
    return gateway


def _files(folder: Path, conf: Mapping[str, str], scratch: Path) -> Path:
    """What the JVM is told, in a directory of this user alone; the file of Spark's settings."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    # The user's options come last and win.
    options = [
        *shlex.split(conf.get(_DEFAULT_JAVA_OPTIONS, "")),
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        *shlex.split(conf.get(JAVA_OPTIONS, "")),
    ]
    arguments = folder / "jvm.options"
    arguments.write_text("".join(f"{_argument(option)}\n" for option in options))
    told = {k: v for k, v in conf.items() if k not in {JAVA_OPTIONS, _DEFAULT_JAVA_OPTIONS}}
    told[JAVA_OPTIONS] = f'"@{arguments}"'
    settings = folder / "spark.properties"
    settings.write_text("".join(f"{as_property(k)}={as_property(v)}\n" for k, v in told.items()))
    return settings


@contextlib.contextmanager
def _submit_arguments(settings: Path) -> Iterator[None]:
    """Return what pyspark hands to the program that starts the JVM, for as long as that takes."""
    before = os.environ.get(_ARGUMENTS)
    ours = f"--properties-file {shlex.quote(str(settings))} --load-spark-defaults"
    os.environ[_ARGUMENTS] = f"{ours} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ARGUMENTS]
        else:
            os.environ[_ARGUMENTS] = before


def _argument(option: str) -> str:
    """One option as it stands in a file of the JVM's arguments."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def as_property(text: str) -> str:
    """A name or a value as it stands in a file of Java's properties."""
    units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
    return "".join(f"\\u{unit:04x}" for unit in units)


def log_hanging_up(context: SparkContext) -> None:
    """Have pyspark's own server of this context log what it would print to stderr, with a trace.

    It has one connection, the JVM's, whose end is told where it is met.
    """

    def log_error(*_request: object) -> None:
        get_logger().debug("jvm_hung_up", error=repr(sys.exception()))

    server = context._accumulatorServer  # noqa: SLF001  # no public name
    server.handle_error = log_error  # type: ignore[assignment]  # pyspark makes the server itself


def answers() -> bool:
    """Return whether the JVM of this process is there."""
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

    A process has one context at a time, and one that nobody holds would stand in the way of
    every later one.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001  # no public name
    if context is not None:
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
    if not answers():
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

"""How the Spark session is set up, and why each setting differs from Spark's default."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import blizzard_py
from blizzard_py.core.log import get_logger

# A crashed worker costs a retry; plain local[N] never retries.
_LOCAL_ATTEMPTS = 3
_LOCAL = re.compile(r"local(?:\[(?P<cores>\d+|\*)\])?")

_DEFAULTS = {
    # Plans have one stage; adapting them costs milliseconds and gains nothing.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Between the JVM and its workers; TCP makes an empty job four times as long.
    "spark.python.unix.domain.socket.enabled": "true",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL_DEFAULTS = {
    # Nobody outside this machine needs to reach the driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# A task's failure comes back as an exception; Spark would print its trace as well, once
# per attempt. ``spark.log.level: WARN`` in the configuration's ``spark.conf`` shows it all.
# The gateway's logger is named because Spark would raise the level to the one it has.
_LOG4J = """\
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c: %m%n
"""


def is_local(master: str) -> bool:
    """Whether the driver's JVM runs the tasks."""
    return master == "local" or master.startswith("local[")


def retrying(master: str) -> str:
    """``local[N]`` as ``local[N,3]``; any other master unchanged."""
    found = _LOCAL.fullmatch(master)
    return f"local[{found['cores'] or 1},{_LOCAL_ATTEMPTS}]" if found else master


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration: ours, then what the user set, which wins."""
    return {**_DEFAULTS, **(_LOCAL_DEFAULTS if is_local(master) else {}), **conf}


def open_session(master: str, conf: Mapping[str, str], app_name: str) -> SparkSession:
    """A new session with this package on its executors.

    Local workers run this interpreter. Executors of a cluster need Python with
    this package's dependencies (an image); the package itself is sent along.
    """
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # The JVM resolves this machine's name before it reads any setting of ours,
        # and dies on a container whose name does not resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf_of_all = SparkConf(loadDefaults=False).setMaster(retrying(master)).setAppName(app_name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log4j = folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        for key, value in settings(master, conf).items():
            conf_of_all.set(key, value)
        # The user's options come last and win.
        quiet = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
        conf_of_all.set(_JAVA_OPTIONS, f"{quiet} {conf.get(_JAVA_OPTIONS, '')}".strip())
        with _interrupt_handler_kept():
            session = SparkSession(SparkContext(conf=conf_of_all, gateway=_gateway(conf_of_all)))
        if not is_local(master):
            session.sparkContext.addPyFile(str(_packed(folder)))
    return session


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


def _packed(folder: Path) -> Path:
    """The package as a zip file that Python can import from."""
    root = Path(blizzard_py.__file__).parent
    target = folder / f"{root.name}.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for module in sorted(root.rglob("*.py")):
            archive.write(module, module.relative_to(root.parent))
    return target

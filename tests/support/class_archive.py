"""Java's archive of Spark's classes: the JVMs of the tests map it instead of parsing jars.

A start of Spark up to its first query costs 14 seconds of CPU, six of them without classes and
their bytecode's checks. The suite starts more than a hundred. Java ignores an archive that was
made of other jars or by another version.

    python -m tests.support.class_archive     makes it, if there is none of these jars and this Java
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
import structlog
from pyspark import SparkContext

from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.gateway import JAVA_OPTIONS, forget_gateway
from tests.support.event_time_harness import EventTimeHarness
from tests.support.event_time_oracle import row
from tests.support.join_oracle import TWO, joining

_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
# Optimised code costs more than tests of a few rows gain by it. Java says nothing about an archive
# of other jars. One that is missing would also cost Java's own archive.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
if _ARCHIVE.exists():
    SHORT_LIVED += f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"


def shorten_starts() -> None:
    """Have all drivers that this process and its children start begin as `SHORT_LIVED` ones."""
    given = os.environ.get(_SUBMIT_OPTIONS, "")
    if SHORT_LIVED not in given:  # a worker of the tests has it from the process that started it
        os.environ[_SUBMIT_OPTIONS] = f"{SHORT_LIVED} {given}".strip()


def main() -> None:
    """Make the archive if what it is made from has changed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    stamp = _stamp()
    noted = _ARCHIVE.with_suffix(".stamp")
    if _ARCHIVE.exists() and noted.exists() and noted.read_text() == stamp:
        return
    sys.stderr.write("making an archive of Spark's classes takes a minute...\n")
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        made = Path(folder, _ARCHIVE.name)
        _run_queries(Path(folder), made)
        made.replace(_ARCHIVE)
    noted.write_text(stamp)


def _stamp() -> str:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    version = subprocess.run([java, "-version"], capture_output=True, check=True).stderr
    jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    stats = sorted((str(jar), jar.stat().st_mtime_ns, jar.stat().st_size) for jar in jars)
    return hashlib.sha256(version + repr(stats).encode()).hexdigest()


def _run_queries(folder: Path, archive: Path) -> None:
    """Load the classes that the tests load: those of a join of streams, and of its state."""
    options = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    engine = SparkEngine("local[2]", {JAVA_OPTIONS: options})
    world = EventTimeHarness(folder, engine, joining("inner"), sources=TWO)
    for second in (100, 130):
        world.put([row(second, id_=1)])
        world.put([row(second, id_=1)], "app")
        world.drain()
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    assert gateway is not None
    gateway.proc.stdin.close()  # it ends, and writes the archive
    gateway.proc.wait()
    forget_gateway()


if __name__ == "__main__":
    main()

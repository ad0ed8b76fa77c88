"""Spark's Python daemon, which loads everything that a worker needs before it forks one.

Spark ends a worker that was idle for a minute, and forks the next one from a daemon with almost
nothing loaded. Each new worker then loads pyarrow and the kernels: a second of work on every core
before the first file of a batch. A worker forked from this daemon begins at once, and shares the
loaded memory.

Spark's own daemon loads nothing, because a fork leaves threads behind and libraries may start some.
The libraries that are loaded here start none (`masters` configures pyarrow's allocator); a test
checks it.

Spark puts an archive of pyspark on the path, and its jar of 6,000 files. Python would read the
directories of both again, several times, in each worker: 23 MB and 0.2 s. So pyspark is imported
from the folder where the driver has it.

Without a worker for some seconds the daemon ends, for it holds 100 MB. Spark starts it again with
its next task. A task that connects at that very moment fails, and Spark tries it again.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

_ARCHIVE = re.compile(r"pyspark\.zip|py4j-.*-src\.zip|spark-core_.*\.jar")


def without_archives(path: Iterable[str]) -> list[str]:
    """Return a path of modules without Spark's archives, if a folder there has pyspark as well."""
    others = [each for each in path if not _ARCHIVE.fullmatch(Path(each).name)]
    return others if any(Path(each, "pyspark").is_dir() for each in others) else list(path)


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402  # from which place, is decided above

from blizzard_py.engines.spark.worker import prepare_worker  # noqa: E402  # imports pyspark

# The module that Spark imports in a worker; it is then already loaded.
_WORKER = "pyspark.worker"

# Spark ends a worker that was idle for a minute.
_LOOK_SECS = 5.0

serve_task = daemon.worker


def load() -> None:
    """Load the modules of a worker, and keep the process with a single thread."""
    importlib.import_module(_WORKER)
    prepare_worker()


def serve(sock: socket.socket, authenticated: bool) -> int:
    """Serve one task of a worker; return 1 if Spark has released it.

    Spark's own function treats the closed socket as a failure, and prints a trace for every worker
    that was idle for a minute.
    """
    return serve_task(sock, authenticated) if sock.recv(1, socket.MSG_PEEK) else 1


def end_without_workers(interval: float = _LOOK_SECS) -> None:
    """End this process once it has had no worker for one to two intervals, in seconds."""
    seen = True

    def look(*_signal: object) -> None:
        nonlocal seen
        if not (seen or _has_children()):
            signal.setitimer(signal.ITIMER_REAL, 0)  # no signal while Python ends
            sys.exit()
        seen = _has_children()

    def forked() -> None:
        nonlocal seen
        seen = True

    os.register_at_fork(after_in_parent=forked)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, interval, interval)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    load()
    end_without_workers()
    daemon.worker = serve
    daemon.manager()

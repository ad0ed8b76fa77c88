"""Spark's Python daemon, which loads everything that a worker needs before it forks one.

Spark ends a worker that was idle for a minute, and forks the next one from a daemon with almost
nothing loaded. Each new worker then loads pyarrow and the kernels: a second of work on every core
before the first file of a batch. A worker forked from this daemon begins at once, and shares the
loaded memory.

Spark's own daemon loads nothing, because a fork leaves threads behind and libraries may start some.
The libraries that are loaded here start none (`masters` configures pyarrow's allocator); a test
checks it.
"""

from __future__ import annotations

import importlib
import socket

from pyspark import daemon

from blizzard_py.engines.spark.worker import prepare_worker

# The module that Spark imports in a worker; it is then already loaded.
_WORKER = "pyspark.worker"

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


if __name__ == "__main__":
    load()
    daemon.worker = serve
    daemon.manager()

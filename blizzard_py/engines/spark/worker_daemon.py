"""Spark's Python daemon, with all that a worker needs loaded before it forks one.

Spark ends a worker that was idle for a minute and forks the next from a daemon that has
loaded next to nothing. Each then loads pyarrow and the kernels, a second of work on
every core before the first file of the first batch after a quiet minute. A worker
forked from here begins at once, and shares the memory of what is loaded.

Spark's own daemon loads nothing because a fork leaves threads behind, and libraries may
start some. What is loaded here starts none (`masters` tells pyarrow's allocator to), which a
test holds.
"""

from __future__ import annotations

import importlib
import socket

from pyspark import daemon

from blizzard_py.engines.spark.worker import prepare_worker

# What Spark calls in a worker; the workers' own import of it then finds it loaded.
_WORKER = "pyspark.worker"

serve_task = daemon.worker


def load() -> None:
    """Load what a worker would, and leave the process with its one thread."""
    importlib.import_module(_WORKER)
    prepare_worker()


def serve(sock: socket.socket, authenticated: bool) -> int:
    """One task of a worker, or its end if Spark has let it go.

    Spark's own takes the closed socket for a failure, and prints a trace for every worker
    that was idle for a minute.
    """
    return serve_task(sock, authenticated) if sock.recv(1, socket.MSG_PEEK) else 1


if __name__ == "__main__":
    load()
    daemon.worker = serve
    daemon.manager()

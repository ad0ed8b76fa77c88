"""A source file that keeps its task waiting, and the worker processes that read or write.

Workers take a pipe for a file where `PIPES` is in their path, and nowhere else.
"""

from __future__ import annotations

import glob
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from blizzard_py.job import IngestResult
from tests.support.ingest_job_harness import IngestJobHarness

PIPES = str(Path(__file__).parent / "pipes")


class Pipe:
    """A source file that keeps its task waiting until the test writes to it.

    The test holds both ends, so no attempt ever sees an end of file too early.
    """

    def __init__(self, world: IngestJobHarness, name: str) -> None:
        world.source.mkdir(exist_ok=True)
        self._path = world.source / name
        os.mkfifo(self._path)
        self._file = os.fdopen(os.open(self._path, os.O_RDWR), "wb", buffering=0)
        self._killed: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def wait_for_reader(self, running: Future[IngestResult]) -> set[int]:
        """Wait for processes that read the pipe and were not killed; return them."""
        while not (found := self.readers() - self._killed):
            assert not running.done()
        return found

    def wait_for_no_reader(self) -> None:
        """Wait until Spark has ended the workers of a cancelled job, after two seconds.

        A worker that read on would be ended in the middle of the next job.
        """
        while self.readers():
            pass

    def kill_reader(self, running: Future[IngestResult]) -> None:
        found = self.wait_for_reader(running)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        self._killed |= found

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def feed(self, data: bytes, running: Future[IngestResult]) -> IngestResult:
        """Write all data to the reader, and again to a later reader if the first one ends.

        Otherwise a restarted task would wait for ever.
        """
        self.write(data)
        self._file.close()
        while not running.done():
            if self.readers():
                continue
            try:
                end = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody waits for one
                continue
            with os.fdopen(end, "wb") as file:
                file.write(data)
        return running.result()

    def readers(self) -> set[int]:
        return holders(self._path)


def holders(path: Path) -> set[int]:
    """Spark's Python workers that have a file open whose path begins like this."""
    found = set()
    for link in descriptors():
        try:
            # A child of ours that is about to become the JVM has our descriptors, too.
            if str(link.readlink()).startswith(str(path)) and (w := _worker_of(link.parts[2])):
                found.add(w)
        except OSError:
            continue  # the process or the descriptor is gone by now
    return found


def descriptors() -> Iterator[Path]:
    """Yield the open files of the machine's processes, as links; skip processes that end."""
    yield from map(Path, glob.iglob("/proc/[0-9]*/fd/*"))  # noqa: PTH207  # of 3.11's it raises


def _worker_of(pid: str) -> int | None:
    """Return the worker that the process is or reads for; None for a process of this test."""
    for _ in range(3):  # a nursery's child, the nursery, the worker
        command = Path("/proc", pid, "cmdline").read_bytes()
        if not command:  # it is dying, and what started it is not what reads
            return None
        if b"pyspark.worker" in command:
            return int(pid)
        pid = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1]
    return None

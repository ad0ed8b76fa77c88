"""``blizzard …`` without Spark, whose next job takes as long as a file says.

``python -m tests.chaos.blizzard.daemon CONTROL ARGS…``. Whoever makes the file
``CONTROL/slow`` with a number of seconds slows down one job: the first that finds it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from blizzard_core.errors import Cancelled
from blizzard_py.__main__ import main
from blizzard_py.engines.spark import engine as spark
from blizzard_py.job import IngestJob, IngestResult
from tests.support.direct_engine import DirectEngine

SLOW = "slow"


def slow_down(control: Path, secs: float, *, after: bool) -> None:
    """Let the next job wait before it reads, or ``after`` it has written."""
    whole = control / f"{SLOW}.new"
    whole.write_text(f"{-secs if after else secs}")
    whole.rename(control / SLOW)


def claimed(control: Path) -> float:
    """Return the seconds that `slow_down` set, once; negative: wait at the end of the job."""
    mine = control / f"{SLOW}.{os.getpid()}"
    with suppress(FileNotFoundError):
        (control / SLOW).rename(mine)
        return float(mine.read_text())
    return 0.0


class SlowEngine(DirectEngine):
    """Stand-in for `SparkEngine`."""

    def __init__(self, control: Path) -> None:
        super().__init__()
        self._control = control
        self._cancelled: set[str] = set()
        self._changed = threading.Condition()

    def ingest(self, job: IngestJob) -> IngestResult:
        secs = claimed(self._control)
        self._wait(job, secs)
        result = super().ingest(job)
        self._wait(job, -secs)
        return result

    def cancel(self, output_prefix: str) -> None:
        with self._changed:
            self._cancelled.add(output_prefix)
            self._changed.notify_all()

    def progress(self, output_prefix: str) -> float | None:
        """Return no progress."""

    def stop(self) -> None:
        """Do nothing: no job runs in the background."""

    def _wait(self, job: IngestJob, secs: float) -> None:
        prefix = job.output_prefix
        with self._changed:
            if secs > 0 and self._changed.wait_for(lambda: prefix in self._cancelled, secs):
                raise Cancelled(f"{prefix}: cancelled")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    spark.SparkEngine = lambda *_: SlowEngine(folder)  # type: ignore[assignment,misc]  # stand-in
    main(sys.argv[2:])

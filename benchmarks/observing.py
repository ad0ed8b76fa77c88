"""Cost of metrics, health and the log: ``python -m benchmarks.observing``.

Each figure is the best of several runs of the real calls, beside the same work without them.
"""

from __future__ import annotations

import io
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from prometheus_client import generate_latest

from blizzard_core import log
from blizzard_core.observability.metered_storage import metered
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.ignored_names import NONE_SKIPPED
from blizzard_py.state.batch import Batch, BatchResults, PlannedOutput
from blizzard_py.state.source_state import SourceState

FILES = 100


def micros(action: Callable[[], object], times: int) -> float:
    """Microseconds of one call, the best of seven runs."""
    return min(timeit.repeat(action, number=times, repeat=7)) / times * 1e6


def entries(count: int) -> list[Entry]:
    return [
        Entry(f"date=2024-01-01/{n:09d}.ndjson.gz", 1000, 1.7e9 + n * 7 % 997) for n in range(count)
    ]


def batch(files: list[Entry]) -> Batch:
    outputs = tuple(PlannedOutput("s", "f", 1, 1, "o") for _ in range(4))
    finished = tuple(FinishedFile(entry.path, "ingested", 5, 5) for entry in files)
    return Batch(
        "b",
        1,
        "publishing",
        time.time(),
        tuple(files),
        time.time(),
        results=BatchResults(outputs=outputs, finished=finished),
    )


def main() -> None:
    activity = SourceActivity("p/s", "raw", time.time)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f").write_bytes(b"x")
        bare = LocalStorage(folder)
        timed = metered(bare, activity.beat)
        plain = micros(lambda: bare.stat("f"), 5000)
        print(f"a request on a local disk    {plain:8.1f} µs")
        print(f"  counted and timed, adds    {micros(lambda: timed.stat('f'), 5000) - plain:8.1f}")
    for count in (FILES, 1_000_000):
        found = entries(count)
        took = micros(lambda found=found: activity.polled(0.1, found, [], (1, 1), NONE_SKIPPED), 1)  # type: ignore[misc]
        print(f"a poll that finds {count:9,d}  {took:8.0f} µs")
    files = entries(FILES)
    activity.polled(0.1, files, [], (1, 1), NONE_SKIPPED)

    def report_batch() -> None:
        done = batch(files)
        activity.batch_began(done)
        activity.batch_enters(done, "prepare")
        activity.batch_enters(done, "publish")
        activity.batch_enters(done, "advance")
        activity.saved(SourceState())
        activity.batch_done(done)

    took = micros(report_batch, 200) - micros(lambda: batch(files), 200)
    print(f"a batch of {FILES} files         {took:8.0f} µs")
    print(f"a scrape                     {micros(generate_latest, 20):8.0f} µs")
    log.configure("info", io.StringIO())
    logger = log.get_logger(pipeline="p", source="s")
    line = micros(lambda: logger.info("batch_done", batch="x", files=3, watermark="a/b"), 2000)
    print(f"a line of the log            {line:8.0f} µs")


if __name__ == "__main__":
    main()

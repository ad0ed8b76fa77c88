"""Cost to finish a batch of an event-time query: alone, above many keys, over many batches."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from benchmarks.processed import rss_mb
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.captured_logs import captured_logs
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import row

# Seconds of a small settle, by the issue; of a quiet machine.
SETTLE_GOAL = 0.6
# What may be held more after many batches than after the first of them.
GROWTH_GOAL_MB = 20.0
_WARM = 3
_NEW_KEYS = 10_000
_UNIQUE: dict[str, Any] = {"column": "ts", "delay": "1 day", "deduplicate": ["id"]}


@dataclass(frozen=True, slots=True)
class Keys:
    """Settles above so many remembered keys: memory before and with them, then a restart."""

    keys: int
    before_mb: float
    with_mb: float
    settle_secs: float
    restore_secs: float
    first_settle_secs: float


@dataclass(frozen=True, slots=True)
class Held:
    """Memory after so many batches: JVM heap in use, the JVM, this process (MB)."""

    batches: int
    heap_mb: float
    jvm_mb: float
    python_mb: float


def batch_seconds(found: list[Any]) -> list[float]:
    """Return the seconds of each finished batch."""
    return [line["settle_secs"] for line in found if line["event"] == "batch_settled"]


def settles(folder: Path, engine: SparkEngine, partitions: int, batches: int) -> list[float]:
    """Seconds of small settles that each close a window, the first ones left out."""
    world = EventTimeHarness(
        folder / f"settle-{partitions}", engine, TUMBLING | {"partitions": partitions}
    )
    for number in range(_WARM + batches):
        world.put([row(100 + 20 * number), row(101 + 20 * number, "b")])
    with captured_logs("debug") as found:
        world.drain()
    return batch_seconds(found)[_WARM:]


def above_keys(folder: Path, engine: SparkEngine, keys: int, batches: int) -> Keys:
    """Measure small batches above many stored keys, and a restart."""
    world = EventTimeHarness(folder / "keys", engine, _UNIQUE)
    worker = world.pipeline()
    ids = itertools.count()
    _put_keys(world, ids, 1)
    world.drain(worker)
    before = jvm_mb()
    many = 10
    for _ in range(many):
        _put_keys(world, ids, keys // many)
    world.drain(worker)
    if (kept := world.stream().state_rows) <= keys:
        raise AssertionError(f"of {keys + 1:,} keys {kept:,} are remembered")
    for _ in range(batches):
        _put_keys(world, ids, _NEW_KEYS)
    with captured_logs("debug") as found:
        world.drain(worker)
    secs = statistics.median(batch_seconds(found))
    held = jvm_mb()
    worker.close()
    _put_keys(world, ids, _NEW_KEYS)
    with captured_logs("debug") as found:
        world.drain()
    restore = next(one["restore_secs"] for one in found if one["event"] == "query_started")
    return Keys(keys, before, held, secs, restore, batch_seconds(found)[0])


def _put_keys(world: EventTimeHarness, ids: Iterator[int], count: int) -> None:
    at = row(100 + world.files)["ts"]
    world.put(
        f'{{"ts": "{at}", "seen": "{at}", "id": {one}, "page": "a", "bytes": 1}}'
        for one in itertools.islice(ids, count)
    )


def held_over(folder: Path, engine: SparkEngine, batches: int, looks: int) -> list[Held]:
    """Measure memory at several points of one process's batches."""
    world = EventTimeHarness(folder / "long", engine, TUMBLING)
    worker = world.pipeline()
    found = []
    for look in range(1, looks + 1):
        _batches(world, worker, batches // looks)
        found.append(_held(look * (batches // looks)))
    worker.close()
    return found


def _batches(world: EventTimeHarness, worker: SourcePipeline, count: int) -> None:
    for _ in range(count):
        at = 100 + 20 * world.files
        world.put([row(at, page) for page in "abcdefgh"])
    world.drain(worker)


def growth_mb(found: list[Held]) -> float:
    """Heap and this process at the end, above what they were when a quarter was done."""
    early, last = found[max(0, len(found) // 4 - 1)], found[-1]
    return max(last.heap_mb - early.heap_mb, last.python_mb - early.python_mb)


def _held(batches: int) -> Held:
    context = SparkContext._active_spark_context  # noqa: SLF001  # no public name
    assert context is not None
    runtime = context._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]  # noqa: SLF001  # as above
    for _ in range(3):  # what is not held goes, soon
        runtime.gc()
        time.sleep(0.2)
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    return Held(batches, heap, jvm_mb(), rss_mb())


def jvm_mb() -> float:
    """Return the JVM's resident memory in MB."""
    gateway = SparkContext._gateway  # noqa: SLF001  # no public name
    assert gateway is not None
    status = Path(f"/proc/{gateway.proc.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000

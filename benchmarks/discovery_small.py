"""Polls over many small partitions: pages that neighbours share, beside each range alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.discovery_cases import NOW, all_done
from benchmarks.s3_stand_in import StandIn
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_core.watermark.progress import Progress, gaps
from blizzard_core.watermark.scan import scan

_COSTS = ["LIST alone", "poll", "keys alone", "poll", "s alone", "poll"]
HEADER = ["store", "closed", "tracked", "files each", *_COSTS]
_BUCKET = "small"
_LATENCY_SECS = 0.05
# Partitions that are tracked, files in each, and closed partitions before them.
_BUCKETS = ((64, 2, 0), (500, 2, 0), (2_000, 2, 0))
_DISKS = ((64, 2, 500), (64, 40, 500))

# Requests, keys and seconds.
_Cost = tuple[int, int, float]


def measure_small(server: StandIn, concurrency: int, most: int) -> Iterator[Sequence[str]]:
    """Yield a line per case of at most so many partitions, both ways measured one after another."""
    for case in (case for case in _BUCKETS if case[0] <= most):
        paths = _paths(*case)
        server.load(_BUCKET, dict.fromkeys(paths, NOW))
        storage = open_storage(f"s3://{_BUCKET}", server.options)
        server.set_latency(_LATENCY_SECS)
        try:
            yield _line("S3, 50 ms", case, storage, concurrency)
        finally:
            server.set_latency(0)
    for case in _DISKS:
        with tempfile.TemporaryDirectory() as root:
            for path in _paths(*case):
                Path(root, path).parent.mkdir(exist_ok=True)
                Path(root, path).touch()
            yield _line("local disk", case, open_storage(root, {}), concurrency)


def _paths(tracked: int, files: int, closed: int) -> list[str]:
    return [
        f"partition={number:05}/{file:05}"
        for number in range(closed + tracked)
        for file in range(files)
    ]


def _line(
    store: str, case: tuple[int, int, int], storage: Storage, concurrency: int
) -> Sequence[str]:
    tracked, files, closed = case
    floor = f"partition={closed:05}"
    progress = all_done(Progress(depth=1, floor=floor), [p for p in _paths(*case) if p >= floor])
    alone = _measured(lambda: _list_alone(storage, progress, concurrency))
    shared = _measured(lambda: _poll(storage, progress, concurrency))
    costs = [text for a, b in zip(alone, shared, strict=True) for text in (_text(a), _text(b))]
    return [store, f"{closed:,}", f"{tracked:,}", f"{files}", *costs]


def _poll(storage: Storage, progress: Progress, concurrency: int) -> tuple[int, int]:
    found = scan(storage, progress, lambda _file: True, concurrency)
    return found.requests, found.keys


def _list_alone(storage: Storage, progress: Progress, concurrency: int) -> tuple[int, int]:
    """List each range on its own, several at once."""
    with ThreadPoolExecutor(concurrency) as pool:
        listed = pool.map(
            lambda gap: list(storage.list_range(gap.after, gap.until)), gaps(progress)
        )
        pages = [page for part in listed for page in part]
    return sum(page.requests for page in pages), sum(page.keys for page in pages)


def _measured(action: Callable[[], tuple[int, int]]) -> _Cost:
    began = time.perf_counter()
    requests, keys = action()
    return requests, keys, time.perf_counter() - began


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"

"""The set of processed names: size on disk, time to load and look up, memory, rewriting.

    python benchmarks/processed.py                  # a million names
    python benchmarks/processed.py --names 100000

Beside it, the same names kept as text: sorted, one per line, zstd level 3.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import zstandard

from blizzard_core.storage.opening import open_storage
from blizzard_py.state.processed_set import ProcessedSet, Segment

FOLDER = "_blizzard/bench_processed"


def name(rng: random.Random, i: int) -> str:
    at = 1_706_450_400 + i
    day, hour = divmod(at // 3600, 24)
    token = uuid.UUID(int=rng.getrandbits(128), version=4)
    date = f"2024-{day % 336 // 28 + 1:02d}-{day % 28 + 1:02d}"
    return f"date={date}/hour={hour:02d}/{at}-{token}.ndjson.gz"


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_load(root: str, segments: tuple[Segment, ...]) -> tuple[float, float]:
    storage = open_storage(root, {})
    done = ProcessedSet(storage, FOLDER)
    done.load(())
    before, started = rss_mb(), time.perf_counter()
    done.load(segments)
    took = time.perf_counter() - started
    assert len(done)
    return took, rss_mb() - before


def measure_text(root: str) -> tuple[float, float]:
    before, started = rss_mb(), time.perf_counter()
    done = set(zstandard.decompress(Path(root, "names.zst").read_bytes()).decode().split("\n"))
    took = time.perf_counter() - started
    assert done
    return took, rss_mb() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100, help="files per batch")
    args = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as root:
        storage = open_storage(root, {})

        done = ProcessedSet(storage, FOLDER)
        done.load((), 1)
        written = added = 0
        worst = 0.0
        started = time.perf_counter()
        while added < args.names:
            count = min(args.batch, args.names - added)
            before = set(done.segments)
            begun = time.perf_counter()
            done.adding(name(rng, added + i) for i in range(count))
            done.clean_up()
            worst = max(worst, time.perf_counter() - begun)
            written += 16 * sum(each.count for each in set(done.segments) - before)
            added += count
        secs = time.perf_counter() - started
        segments = done.segments
        files = sorted(Path(root, FOLDER).iterdir())
        size = sum(f.stat().st_size for f in files)
        batches = -(-args.names // args.batch)
        print(f"{args.names:,} names in {batches:,} batches of {args.batch}")
        print(f"on disk            {size / 1e6:8.1f} MB in {len(files)} segments")
        print(f"written in all     {written / 1e6:8.1f} MB, {written / size:.1f} times the set")
        print(
            f"adding, with fsync {secs / batches * 1e3:8.2f} ms a batch, worst {worst * 1e3:.0f} ms"
        )

        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            took, grown = fresh.submit(measure_load, root, segments).result()
        print(f"load               {took * 1e3:8.1f} ms")
        print(f"memory             {grown:8.1f} MB more resident")

        done.load(segments)
        rng = random.Random(0)
        names = [name(rng, i) for i in range(args.names)]
        paths = [*names, *(f"{n}.new" for n in names[:100])]
        busy = time.process_time()
        found = done.unseen(paths)
        busy = time.process_time() - busy
        print(f"look up all names  {busy:8.2f} s of processor time, {len(found)} new found")

        busy = time.process_time()
        text = zstandard.compress("\n".join(sorted(names)).encode(), 3)
        busy = time.process_time() - busy
        print(f"names as text      {len(text) / 1e6:8.1f} MB, {busy:.2f} s to write")
        Path(root, "names.zst").write_bytes(text)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            took, grown = fresh.submit(measure_text, root).result()
        print(f"  load as a set    {took * 1e3:8.1f} ms, {grown:.1f} MB more resident")


if __name__ == "__main__":
    main()

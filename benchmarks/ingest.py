"""One batch, NDJSON to Parquet: the engine against the limit and against the alternatives.

    python -m benchmarks.ingest            # all shapes, some twenty minutes
    python -m benchmarks.ingest --quick    # small ones, to see that it works

Contenders take turns within a round and begin with another one in each, so a slow minute
of the machine hits them all. Figures are medians over the rounds; compare ratios of one
run. Prints Markdown on stdout, progress on stderr.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import worker_memory
from benchmarks.ingest_contenders import (
    BLIZZARD,
    Contender,
    bare_pool,
    contenders,
    table_pool,
)
from benchmarks.ingest_report import Measured, report
from benchmarks.ingest_shapes import FULL, QUICK, Shape, write_shape
from blizzard_py.engines.spark import SparkEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small batches, one round")
    parser.add_argument("--rounds", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    parser.add_argument("--against", nargs="*", default=[], help="contenders by part of the name")
    options = parser.parse_args()
    rounds: int = options.rounds or (1 if options.quick else 3)
    shapes = [s for s in (QUICK if options.quick else FULL) if options.only in s.name]
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        engine = SparkEngine(f"local[{cores}]", {"spark.local.dir": str(folder / "spark")})
        with bare_pool(cores) as bare, table_pool(cores) as tables:
            everyone = contenders(engine, bare, tables, cores)
            chosen = {
                name: run
                for name, run in everyone.items()
                if not options.against or any(part in name for part in options.against)
            }
            measured = []
            for shape in shapes:
                source = folder / "source"
                _say(f"{shape.name}: generating")
                raw = write_shape(shape, source, bare)
                size = sum(path.stat().st_size for path in source.iterdir())
                seconds, peak = _measure(shape, source, folder / "sink", chosen, rounds)
                measured.append(Measured(shape, size / 1e6, raw / 1e6, seconds, peak))
                shutil.rmtree(source)
        engine.stop()
    print(f"{cores} cores, {platform.machine()}, Python {platform.python_version()}", end="")
    for package in ("pyspark", "pyarrow", "duckdb", "polars"):
        print(f", {package} {importlib.metadata.version(package)}", end="")
    print(f"; medians of {rounds}\n\n{report(measured)}", end="")


def _measure(
    shape: Shape, source: Path, sink: Path, chosen: Mapping[str, Contender], rounds: int
) -> tuple[dict[str, list[float]], float]:
    """Seconds of each round by contender, and the peak of a worker in MB."""
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    peak = 0.0
    names = list(chosen)
    first = 0 if shape.huge else -1  # a round before the first one warms up
    for turn in range(first, rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name == BLIZZARD:
                worker_memory.reset()
            start = time.perf_counter()
            rows = chosen[name](source, sink)
            elapsed = time.perf_counter() - start
            if name == BLIZZARD:
                peak = max(peak, worker_memory.peak_mb())
            if rows != shape.total:
                sys.exit(f"{name}: {rows} rows instead of {shape.total}")
            shutil.rmtree(sink)
            if turn >= 0:
                seconds[name].append(elapsed)
            _say(f"{shape.name}: {name} {elapsed:.2f} s{'' if turn >= 0 else ' (warm-up)'}")
    return seconds, peak


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

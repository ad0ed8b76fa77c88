"""One batch, NDJSON to Parquet: the engine against the limit and against the alternatives.

    python -m benchmarks.ingest            # all shapes, some twenty minutes
    python -m benchmarks.ingest --quick    # small ones, to see that it works

Contenders take turns within a round and begin with another one in each, so a slow minute
of the machine hits them all. Figures are medians over the rounds; compare ratios of one
run. CPU seconds are those of all processes together, which a busy machine changes less than the
time on the clock. Prints Markdown on stdout, progress on stderr; `--csv` has every round.
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
from benchmarks.cpu_time import seconds_between, ticks
from benchmarks.ingest_contenders import (
    BLIZZARD,
    Contender,
    bare_pool,
    contenders,
    engine_process,
    table_pool,
)
from benchmarks.ingest_report import Measured, Turn, csv_of, report
from benchmarks.ingest_shapes import FULL, QUICK, Shape, write_shape
from benchmarks.slope import slope
from blizzard_py.engines.spark.engine import SparkEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small batches, one round")
    parser.add_argument("--rounds", type=int, help="default: 3, or 1 with --quick")
    parser.add_argument("--only", default="", help="shapes whose name holds this")
    parser.add_argument("--against", nargs="*", default=[], help="contenders by part of the name")
    parser.add_argument("--csv", type=Path, help="write every round's seconds there as well")
    options = parser.parse_args()
    rounds: int = options.rounds or (1 if options.quick else 3)
    shapes = [s for s in (QUICK if options.quick else FULL) if options.only in s.name]
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        engine = SparkEngine(f"local[{cores}]", {"spark.local.dir": str(folder / "spark")})
        with (
            bare_pool(cores) as bare,
            table_pool(cores) as tables,
            engine_process(cores, folder / "ours") as ours,
        ):
            measured = []
            for shape in shapes:
                everyone = contenders(engine, ours, bare, tables, cores, shape.fields)
                chosen = {
                    name: run
                    for name, run in everyone.items()
                    if not options.against or any(part in name for part in options.against)
                }
                source = folder / "source"
                _say(f"{shape.name}: generating")
                raw = write_shape(shape, source, bare)
                size = sum(path.stat().st_size for path in source.iterdir())
                turns, peak = _measure(shape, source, folder / "sink", chosen, rounds)
                measured.append(Measured(shape, size / 1e6, raw / 1e6, turns, peak))
                shutil.rmtree(source)
        engine.stop()
    if options.csv:
        options.csv.write_text(csv_of(measured))
    print(f"{cores} cores, {platform.machine()}, Python {platform.python_version()}", end="")
    for package in ("pyspark", "pyarrow", "duckdb", "polars"):
        print(f", {package} {importlib.metadata.version(package)}", end="")
    print(f"; medians of {rounds}\n\n{report(measured)}", end="")
    if not (options.only or options.against):
        _say("the daemon's slope")
        print(f"\n{slope(500, 2, rounds) if options.quick else slope(20_000, 4, rounds)}", end="")


def _measure(
    shape: Shape, source: Path, sink: Path, chosen: Mapping[str, Contender], rounds: int
) -> tuple[dict[str, list[Turn]], float]:
    """Run all rounds; return them by contender, with the peak of a worker in MB."""
    turns: dict[str, list[Turn]] = {name: [] for name in chosen}
    peak = 0.0
    names = list(chosen)
    first = 0 if shape.huge else -1  # a round before the first one warms up
    for turn in range(first, rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name == BLIZZARD:
                worker_memory.reset()
            before, start = ticks(), time.perf_counter()
            rows = chosen[name](source, sink)
            elapsed = time.perf_counter() - start
            cpu = seconds_between(before, ticks())
            if name == BLIZZARD:
                peak = max(peak, worker_memory.peak_mb())
            if rows != shape.total:
                sys.exit(f"{name}: {rows} rows instead of {shape.total}")
            shutil.rmtree(sink)
            if turn >= 0:
                turns[name].append(Turn(elapsed, cpu))
            warm = "" if turn >= 0 else " (warm-up)"
            _say(f"{shape.name}: {name} {elapsed:.2f} s, {cpu:.2f} of CPU{warm}")
    return turns, peak


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""The daemon's slope: the cost of each further batch of 100 files of `blizzard run --once`.

    python -m benchmarks.slope               # batches of 100 files of 20,000 rows, one to four
    python -m benchmarks.slope --rows 2000   # smaller files

A run is the command itself, in a process of its own, over a table that is not there yet: discovery,
saves, jobs, publishing. The starts of Python, Spark and its workers are in each run alike, so
the difference between a run of four batches and one of one, over three, has none of them.

Beside it two bare processes read the same hundred files with pyarrow and write a Parquet file
each. They and both runs take turns; figures are medians, CPU seconds those of all processes.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import yaml
from isal import igzip

from benchmarks.cpu_time import adopt_orphans, children, watched
from benchmarks.ingest_report import Turn
from benchmarks.ingest_shapes import FIELDS, Shape, write_shape

FILES = 100
# A further batch takes at most so many times what the bare processes take.
MAX_OF_BARE = 0.65
_TYPES = {
    "int64": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "string": pa.string(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
}
_SCHEMA = pa.schema([pa.field(field.name, _TYPES[field.type]) for field in FIELDS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="of each file")
    parser.add_argument("--batches", type=int, default=4, help="of the longer run")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(slope(options.rows, options.batches, options.rounds), end="")


def slope(rows: int, batches: int, rounds: int) -> str:
    """Return the table for runs of one batch and of ``batches``, with files of so many ``rows``."""
    cores = len(os.sched_getaffinity(0))
    adopt_orphans()  # or Spark's processes would go on ending beside the next run
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        ProcessPoolExecutor(cores, get_context("spawn")) as pool,
    ):
        folder = Path(name)
        sources = {count: folder / f"source-{count}" for count in (1, batches)}
        for count, source in sources.items():
            write_shape(Shape("", FILES * count, rows), source, pool)
        turns: dict[str, Callable[[], None]] = {
            "short": partial(daemon_run, folder, sources[1], FILES * rows),
            "long": partial(daemon_run, folder, sources[batches], FILES * rows * batches),
            "bare": partial(bare_run, pool, cores, sources[1], folder / "bare"),
        }
        found = _measured(turns, rounds)
    return slope_report(found, batches - 1)


def _measured(turns: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {name: [] for name in turns}
    for number in range(-1, rounds):  # one before the first warms up
        for name, run in turns.items():
            start = time.perf_counter()
            with watched() as processes:
                run()
                elapsed = time.perf_counter() - start
            turn = Turn(elapsed, processes.seconds)
            print(f"{name} {turn.seconds:.2f} s, {turn.cpu:.2f} of CPU", file=sys.stderr)
            if number >= 0:
                found[name].append(turn)
    return found


def daemon_run(folder: Path, source: Path, rows: int) -> None:
    """Run the command over all files of a folder, into a new table."""
    table = folder / "table"
    shutil.rmtree(table, ignore_errors=True)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_config(source, table)))
    command = [sys.executable, "-m", "blizzard_py", "run", str(config), "--once"]
    before = children()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    for pid in children() - before:
        os.waitpid(pid, 0)
    found = sum(pq.read_metadata(path).num_rows for path in table.rglob("[!_.]*.parquet"))
    if found != rows:
        sys.exit(f"{found} rows instead of {rows}")


def _config(source: Path, table: Path) -> dict[str, object]:
    fields = [
        {"name": field.name, "type": field.type, "nullable": field.nullable} for field in FIELDS
    ]
    return {
        "pipelines": {
            "clicks": {
                "sink": {"table_uri": str(table)},
                "schema": {"fields": fields},
                "sources": {
                    "main": {
                        "source_uri": str(source),
                        "advanced": {"checkpoint": {"interval_files": FILES}},
                    }
                },
            }
        }
    }


def bare_run(pool: ProcessPoolExecutor, cores: int, source: Path, sink: Path) -> None:
    """Give each process its share of the files, into one Parquet file."""
    shutil.rmtree(sink, ignore_errors=True)
    sink.mkdir()
    files = sorted(source.iterdir())
    shares = [files[number::cores] for number in range(cores)]
    list(pool.map(_share, shares, [sink / f"{number}.parquet" for number in range(cores)]))


def _share(files: Sequence[Path], output: Path) -> None:
    parse = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
    with pq.ParquetWriter(output, _SCHEMA) as writer:
        for path in files:
            with igzip.open(path) as raw:  # type: ignore[no-untyped-call]  # isal leaves it untyped
                table = pj.read_json(raw, pj.ReadOptions(use_threads=False), parse)
            writer.write_table(table)


def slope_report(found: Mapping[str, Sequence[Turn]], further: int) -> str:
    """Return the table of runs that are ``further`` batches apart."""

    def middle(name: str) -> tuple[float, float]:
        turns = found[name]
        seconds = statistics.median(turn.seconds for turn in turns)
        return seconds, min(turn.cpu for turn in turns)

    (short, short_cpu), (long, long_cpu), (bare, bare_cpu) = map(middle, ("short", "long", "bare"))
    slope, slope_cpu = (long - short) / further, (long_cpu - short_cpu) / further
    return (
        "| | seconds | CPU seconds | x bare | x bare, CPU |\n|---|---|---|---|---|\n"
        f"| a further batch of {FILES} files | {slope:.2f} | {slope_cpu:.2f} |"
        f" {slope / bare:.2f} | {slope_cpu / bare_cpu:.2f} |\n"
        f"| two bare pyarrow processes | {bare:.2f} | {bare_cpu:.2f} | 1 | 1 |\n"
        f"| a run of one batch, with its start | {short:.2f} | {short_cpu:.2f} |"
        f" {short / bare:.2f} | {short_cpu / bare_cpu:.2f} |\n"
        f"\nA further batch: at most {MAX_OF_BARE} x bare:"
        f" {'met' if slope / bare <= MAX_OF_BARE else 'missed'}\n"
    )


if __name__ == "__main__":
    main()

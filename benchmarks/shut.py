"""What authentication and encryption cost: the same batches on Spark shut and on Spark open.

    python -m benchmarks.shut                        # a local master
    python -m benchmarks.shut --standalone           # a master and two workers of one core each
    python -m benchmarks.shut --files 20 --rounds 3  # a small one, to see that it works

Two processes with an engine each take turns at the same folder, and begin in turn, so a slow
minute of the machine hits both. ``deduplicate_by`` sends all rows through a shuffle. Figures are
medians over the rounds; compare ratios of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.ingest_contenders import bare_pool, job_of
from benchmarks.ingest_shapes import Shape, write_shape
from blizzard_py.engines.spark import SparkEngine
from tests.support.spark_servers import standalone_cluster

_CORES = 2
# What a master may be told. Authentication itself is a handshake for each connection.
_OPEN = {"spark.network.crypto.enabled": "false", "spark.io.encryption.enabled": "false"}
_engine: SparkEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--standalone", action="store_true", help="a cluster instead of local[2]")
    parser.add_argument("--files", type=int, default=100, help="of 20,000 rows each")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    shape = Shape(f"{options.files} x 20,000 rows", options.files, 20_000)
    with tempfile.TemporaryDirectory(prefix="bench-shut-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        with bare_pool(_CORES) as pool:
            write_shape(shape, folder / "source", pool)
        masters = _masters(folder, stack, standalone=options.standalone)
        engines = {
            kind: stack.enter_context(
                ProcessPoolExecutor(1, get_context("spawn"), initializer=_start, initargs=told)
            )
            for kind, told in masters.items()
        }
        print(f"{shape.name}, medians of {options.rounds}\n\n| | open | shut | shut / open |")
        print("|---|---|---|---|")
        for what, keys in (("ingest", ()), ("deduplicate_by", ("id",))):
            seconds = _measured(engines, folder, keys, options.rounds)
            open_secs, shut_secs = (statistics.median(seconds[kind]) for kind in ("open", "shut"))
            ratios = [s / o for o, s in zip(seconds["open"], seconds["shut"], strict=True)]
            print(
                f"| {what} | {open_secs:.2f} s | {shut_secs:.2f} s"
                f" | {shut_secs / open_secs:.3f} (by round {statistics.median(ratios):.3f}) |"
            )


def _masters(
    folder: Path, stack: contextlib.ExitStack, *, standalone: bool
) -> dict[str, tuple[str, dict[str, str]]]:
    if not standalone:
        return {"shut": (f"local[{_CORES}]", {}), "open": (f"local[{_CORES}]", _OPEN)}
    found = {}
    for kind in ("shut", "open"):
        place = folder / kind
        place.mkdir()
        extra = {} if kind == "shut" else _OPEN
        cluster = stack.enter_context(standalone_cluster(place, settings=extra))
        found[kind] = (cluster.master, {**cluster.conf, **extra})
    return found


def _measured(
    engines: dict[str, ProcessPoolExecutor], folder: Path, keys: tuple[str, ...], rounds: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {kind: [] for kind in engines}
    names = list(engines)
    for turn in range(-2, rounds):  # two rounds before the first one warm up
        for kind in _turned(names, turn):
            taken = engines[kind].submit(_run, folder / "source", folder / "sink", keys).result()
            shutil.rmtree(folder / "sink")
            if turn >= 0:
                seconds[kind].append(taken)
            print(f"{kind} {keys} {taken:.2f} s", file=sys.stderr, flush=True)
    return seconds


def _turned(names: list[str], turn: int) -> Iterator[str]:
    yield from names[turn % len(names) :]
    yield from names[: turn % len(names)]


def _start(master: str, conf: dict[str, str]) -> None:
    global _engine  # noqa: PLW0603  # a process of its own, which has one
    _engine = SparkEngine(master, conf)


def _run(source: Path, sink: Path, keys: tuple[str, ...]) -> float:
    job = job_of(source, sink)
    job = dataclasses.replace(job, settings=dataclasses.replace(job.settings, deduplicate_by=keys))
    start = time.perf_counter()
    _engine.ingest(job)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

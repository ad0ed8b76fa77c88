"""Cost of authentication and encryption: the same batches on Spark with both and without.

    python -m benchmarks.shut                        # a local master
    python -m benchmarks.shut --standalone           # a master and two workers of one core each
    python -m benchmarks.shut --files 20 --rounds 3  # a small one, to see that it works

Two processes with an engine each take turns at the same folder, and begin in turn, so a slow
minute of the machine hits both. ``deduplicate_by`` sends all rows through a shuffle. Figures are
medians over the rounds; compare ratios of one run, and where others use the machine those of
seconds of a core.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import os
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
from benchmarks.ingest_shapes import FIELDS, Shape, write_shape
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.job import SqlSteps
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
        engines = {
            kind: stack.enter_context(
                ProcessPoolExecutor(
                    1,
                    get_context("spawn"),
                    initializer=_start,
                    initargs=(folder / kind, conf, options.standalone),
                )
            )
            for kind, conf in {"shut": {}, "open": _OPEN}.items()
        }
        print(f"{shape.name}, medians of {options.rounds}; seconds, and seconds of a core\n")
        print("| | open | shut | shut / open | core, open | core, shut | shut / open |")
        print("|---|---|---|---|---|---|---|")
        for what, keys in (("ingest", ()), ("deduplicate_by", ("id",))):
            found = _measured(engines, folder, keys, options.rounds)
            columns = [_compared(found, place) for place in (0, 1)]
            print(f"| {what} | {' | '.join(columns)} |", flush=True)


def _compared(found: dict[str, list[tuple[float, float]]], place: int) -> str:
    """Return the medians of both, and that of the rounds' ratios."""
    opened, shut = ([each[place] for each in found[kind]] for kind in ("open", "shut"))
    ratio = statistics.median(s / o for o, s in zip(opened, shut, strict=True))
    return f"{statistics.median(opened):.2f} | {statistics.median(shut):.2f} | {ratio:.3f}"


def _measured(
    engines: dict[str, ProcessPoolExecutor], folder: Path, keys: tuple[str, ...], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in engines}
    names = list(engines)
    for turn in range(-3, rounds):  # three rounds before the first one warm up
        for kind in _turned(names, turn):
            taken = engines[kind].submit(_run, folder / "source", folder / "sink", keys).result()
            shutil.rmtree(folder / "sink")
            if turn >= 0:
                found[kind].append(taken)
            print(f"{kind} {keys} {taken[0]:.2f} s, {taken[1]:.2f} s", file=sys.stderr, flush=True)
    return found


def _turned(names: list[str], turn: int) -> Iterator[str]:
    yield from names[turn % len(names) :]
    yield from names[: turn % len(names)]


def _start(folder: Path, conf: dict[str, str], standalone: bool) -> None:
    global _engine  # noqa: PLW0603  # a process of its own, which has one
    master, known = f"local[{_CORES}]", {}
    if standalone:
        folder.mkdir()
        opened = contextlib.ExitStack()
        cluster = opened.enter_context(standalone_cluster(folder, settings=conf))
        atexit.register(opened.close)
        master, known = cluster.master, cluster.conf
    _engine = SparkEngine(master, {**known, **conf})


def _run(source: Path, sink: Path, keys: tuple[str, ...]) -> tuple[float, float]:
    """Seconds, and seconds of a core in all that this process has started."""
    job = job_of(FIELDS, source, sink)
    job = dataclasses.replace(job, settings=dataclasses.replace(job.settings, sql=SqlSteps(keys)))
    start, worked = time.perf_counter(), _core_secs()
    _engine.ingest(job)
    return time.perf_counter() - start, _core_secs() - worked


def _core_secs() -> float:
    """Return the core seconds of this process and its descendants, ended ones included.

    Load of other programs makes a batch slower, but hardly adds core seconds.
    """
    parents, ticks = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            columns = status.read_text().rpartition(")")[2].split()
            pid = int(status.parent.name)
            parents[pid], ticks[pid] = int(columns[1]), sum(map(int, columns[11:15]))
    found = {os.getpid()}
    for _ in range(len(parents)):
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            break
        found |= more
    return sum(ticks.get(pid, 0) for pid in found) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

"""Hundreds of pipelines in one process: their cost while idle and while all have work.

    python -m benchmarks.many_pipelines                       # 300 on a local disk
    python -m benchmarks.many_pipelines --store s3            # through an S3 API on this machine
    python -m benchmarks.many_pipelines --pipelines 50 --idle-secs 60
    python -m benchmarks.many_pipelines --busy                # and then a file for each source

Each pipeline has a source with files in `--partitions` hourly partitions and a table of its own,
and is polled every minute; what is there is ingested and committed before. Measured are both
daemons, run as an operator runs them:

* a start that finds nothing new: seconds until `/ready` says so;
* idle: seconds of processor time a second, memory that is its own, threads;
* the page: seconds for `/status.json` and `/metrics`, and their sizes;
* with `--busy` a file for each source at once: seconds until Blizzard has published all of them.

Prints Markdown. Exits with 1 if a bound that docs/guides/many-sources.md states does not hold
(`BOUNDS`), at 300 pipelines or fewer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_py.app.workers import build
from blizzard_py.ingest.source_pipeline import SourcePipeline
from penguin_py.app import build as tables_of
from penguin_py.pipeline import TablePipeline
from tests.support.direct_engine import DirectEngine
from tests.support.s3_server import s3_server

MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}
DAY = "date=2024-01-28"
PATIENCE_SECS = 900.0
# By what is measured, in its unit: docs/guides/many-sources.md states them.
BOUNDS = {"idle cores": 0.15, "memory MiB": 400.0, "page secs": 1.0, "metrics secs": 3.0}
PATHS = {"/": "page secs", "/status.json": "page secs", "/metrics": "metrics secs"}
# A proxy of the environment must not come between this machine and itself.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class DataLocation:
    """Location of the pipelines' data, and the options to reach it."""

    root: str
    options: Mapping[str, str]
    pipelines: int
    partitions: int

    def configuration(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return the configuration of all pipelines, polled every minute as by default."""
        options = {"storage_options": dict(self.options)} if self.options else {}
        found: dict[str, Any] = {}
        for number in range(self.pipelines):
            name = f"p{number:04}"
            found[name] = {
                "sources": {
                    "main": {
                        "source_uri": f"{self.root}/raw/{name}",
                        "advanced": {"partition_depth": 2},
                        **options,
                    }
                },
                "sink": {"table_uri": f"{self.root}/lake/{name}", **options},
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
            }
        tables = {
            name: {"table_uri": one["sink"]["table_uri"], "poll_interval": "1m", **options}
            for name, one in found.items()
        }
        address = "127.0.0.1"
        return {
            "pipelines": found,
            "tables": tables,
            "spark": {"master": "local[2]"},
            "metrics": {
                "address": f"{address}:{ports['blizzard']}",
                "penguin_address": f"{address}:{ports['penguin']}",
            },
        }

    def arrive(self, hours: range, second: int) -> None:
        """Put a file for each source in each of these hours."""
        data = gzip.compress(b'{"id": 1}\n{"id": 2}\n')
        for number in range(self.pipelines):
            source = open_storage(f"{self.root}/raw/p{number:04}", self.options)
            for hour in hours:
                name = f"{1706400000 + hour * 3600 + second}-3f2a9c51.ndjson.gz"
                source.put_atomic(f"{DAY}/hour={hour:02}/{name}", data)


@dataclass(frozen=True)
class Usage:
    """CPU time and memory of a process."""

    cpu_secs: float
    mib: float
    threads: int

    @classmethod
    def of(cls, process: int) -> Usage:
        place = Path("/proc") / str(process)
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        own = 0
        for line in (place / "smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                own += int(line.split()[1])
        ticks = int(fields[11]) + int(fields[12])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), own / 1024, int(fields[17]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> tuple[int, bytes]:
    """Return the status and body of an answer; 0 if the server does not listen yet."""
    try:
        with _OPENER.open(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def until(reached: Callable[[], bool], what: str, pause: float = 0.2) -> float:
    """Seconds until it is so."""
    start = time.monotonic()
    while not reached():
        if time.monotonic() - start > PATIENCE_SECS:
            sys.exit(f"{what}: not within {PATIENCE_SECS:.0f} s")
        time.sleep(pause)
    return time.monotonic() - start


def command(daemon: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", MODULES[daemon], *map(str, arguments)]


def drain(config: Path) -> None:
    """Ingest and commit what is there, in this process and without Spark, which is not measured."""
    loaded, stop = load_config(config), threading.Event()
    sources = build(loaded, DirectEngine())
    with tables_of(loaded) as tables:
        workers: list[SourcePipeline | TablePipeline] = [*sources, *tables]
        for worker in workers:
            while worker.cycle(stop):
                pass
    for source in sources:
        source.close()


@contextmanager
def running(daemon: str, config: Path, port: int, log: Path) -> Iterator[tuple[int, float]]:
    """Run the daemon; yield its process id and the seconds until it was ready."""
    # What was ingested before, this process has done, and it is still running.
    over = ("--take-over",) if daemon == "blizzard" else ()
    with log.open("wb") as output:
        process = subprocess.Popen(command(daemon, "run", config, *over), stderr=output)

    def ready() -> bool:
        if process.poll() is not None:
            sys.exit(f"{daemon} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        return get(port, "/ready")[0] == 200

    try:
        took = until(ready, f"{daemon} ready")
        yield process.pid, took
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)


def idle(process: int, secs: float) -> tuple[float, Usage]:
    """Cores in use over a while in which nothing is new, and what the process holds then."""
    before = Usage.of(process)
    start = time.monotonic()
    time.sleep(secs)
    after = Usage.of(process)
    return (after.cpu_secs - before.cpu_secs) / (time.monotonic() - start), after


def answered(port: int, path: str) -> tuple[float, int]:
    """Seconds for an answer, the median of fifteen, and its bytes."""
    times, body = [], b""
    for _ in range(15):
        start = time.perf_counter()
        _, body = get(port, path)
        times.append(time.perf_counter() - start)
    return statistics.median(times), len(body)


def files_done(port: int) -> int:
    targets = json.loads(get(port, "/status.json")[1])["targets"]
    return sum(target["totals"]["files"] for target in targets)


def measure(world: DataLocation, folder: Path, idle_secs: float, *, busy: bool) -> dict[str, float]:
    """Print all figures as they are measured; return those with limits."""
    ports = {daemon: free_port() for daemon in MODULES}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(world.configuration(ports), sort_keys=False))
    world.arrive(range(world.partitions), 0)
    worst = dict.fromkeys(BOUNDS, 0.0)
    drain(config)
    print("| | blizzard | penguin |\n|---|---|---|")
    rows: dict[str, list[str]] = {}
    with ExitStack() as stack:
        processes = {}
        for daemon, port in ports.items():
            log = folder / f"{daemon}.log"
            processes[daemon], took = stack.enter_context(running(daemon, config, port, log))
            rows.setdefault("ready after", []).append(f"{took:.1f} s")
        for daemon, port in ports.items():
            cores, usage = idle(processes[daemon], idle_secs)
            rows.setdefault("idle, seconds of a core a second", []).append(f"{cores:.3f}")
            rows.setdefault("memory of its own", []).append(f"{usage.mib:.0f} MiB")
            rows.setdefault("threads", []).append(f"{usage.threads}")
            worst["idle cores"] = max(worst["idle cores"], cores)
            worst["memory MiB"] = max(worst["memory MiB"], usage.mib)
            for path, bound in PATHS.items():
                secs, size = answered(port, path)
                told = f"{secs * 1000:.0f} ms, {size / 1024:.0f} KiB"
                rows.setdefault(f"`{path}`", []).append(told)
                worst[bound] = max(worst[bound], secs)
        for name, values in rows.items():
            print(f"| {name} | {' | '.join(values)} |", flush=True)
        if not busy:
            return worst
        port = ports["blizzard"]
        expected = files_done(port) + world.pipelines
        world.arrive(range(world.partitions - 1, world.partitions), 60)
        took = until(lambda: files_done(port) >= expected, "a file for each", 1.0)
        usage = Usage.of(processes["blizzard"])
        print(f"| a file for each source | {took:.0f} s | |")
        print(f"| memory after that | {usage.mib:.0f} MiB | |", flush=True)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument(
        "--partitions", type=int, default=2, help="hours with files, of each source"
    )
    parser.add_argument("--idle-secs", type=float, default=180.0)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--busy", action="store_true", help="then a file for each source")
    given = parser.parse_args()
    print(f"{given.pipelines} pipelines, {given.partitions} partitions each, {given.store}\n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="many-")))
        root, options = str(folder), {}
        if given.store == "s3":
            server = stack.enter_context(s3_server())
            root, options = f"s3://{server.new_bucket()}", server.options
        world = DataLocation(root, options, given.pipelines, given.partitions)
        worst = measure(world, folder, given.idle_secs, busy=given.busy)
    over = [
        f"{name} {worst[name]:.3g} > {bound}"
        for name, bound in BOUNDS.items()
        if worst[name] > bound
    ]
    if over and given.pipelines <= 300:
        sys.exit("over its bound: " + ", ".join(over))


if __name__ == "__main__":
    main()

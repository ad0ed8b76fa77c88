"""Tables of PostgreSQL and SQLite into Parquet: the product against readers written by hand.

    python -m benchmarks.tables                  # 1.5 and 1 million rows, some ten minutes
    python -m benchmarks.tables --rows 100000    # so many and two thirds, to see that it works

Contenders take turns within a round and begin with another one in each, so a slow minute of the
machine hits them all; what each wrote is compared. Figures are medians over the rounds, peaks the
highest; compare ratios of one run. CPU is that of the Python process that reads (for Spark: of
its workers), without imports, and that of the JVM apart. Spark's workers serve all who run
through it, so a peak may hold what another left.
Prints Markdown on stdout, progress on stderr.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks import worker_memory
from benchmarks.tables_poll import polled
from benchmarks.tables_reading import Order, as_json, contenders
from benchmarks.tables_report import Measured, Turn, report
from benchmarks.tables_shapes import fill_postgresql, fill_sqlite
from benchmarks.tables_spark import (
    JAR,
    JDBC,
    Through,
    cpu_secs,
    jvm,
    statement_of,
    workers_cpu_secs,
)
from blizzard_core import log
from blizzard_py.engines.spark.engine import SparkEngine
from tests.support.postgresql_server import PASSWORD, postgresql_server

ROWS = 1_500_000
_FACTS = """SELECT count(*), sum(id), sum(amount), min(epoch_us(created_at)),
 max(epoch_us(updated_at)), sum(quantity), count(country), count(weight), sum(weight),
 count(*) FILTER (paid), count(DISTINCT customer)
 FROM read_parquet('{folder}/**/*.parquet')"""

Facts = tuple[object, ...]


class Bench:
    """One database at a time: every contender, round by round."""

    def __init__(self, folder: Path, through: Through, rounds: int) -> None:
        self._sink = folder / "sink"
        self._through = through
        self._rounds = rounds

    def measured(self, name: str, driver: str, uri: str, rows: int) -> Measured:
        """Run all rounds. Exits if one reads other rows than another."""
        statement = statement_of(driver, uri)
        spark = self._through.contenders(driver)
        names = [*contenders(driver), *spark]
        turns: dict[str, list[Turn]] = {contender: [] for contender in names}
        facts: dict[str, Facts] = {}
        for turn in range(-1, self._rounds):  # the first one warms Spark up
            for contender in names[turn % len(names) :] + names[: turn % len(names)]:
                if turn < 0 and contender not in spark:
                    continue
                order = Order(contender, driver, uri, statement, str(self._sink))
                call = spark.get(contender)
                took = _alone(order) if call is None else _in_spark(call, order)
                if turn >= 0:
                    turns[contender].append(took)
                    facts[contender] = self._read_back()
                shutil.rmtree(self._sink)
                _say(
                    f"{name}: {contender} {took.secs:.2f} s, CPU {took.cpu:.2f} s, {took.mb:.0f} MB"
                )
        if len(set(facts.values())) != 1 or next(iter(facts.values()))[0] != rows:
            sys.exit(f"{name}: not all have read the same: {facts}")
        order = Order("", driver, uri, "", str(self._sink))
        tenth = _in_spark(lambda order: self._through.run_first_window(order, rows // 10), order)
        shutil.rmtree(self._sink)
        return Measured(name, rows, turns, tenth.mb)

    def _read_back(self) -> Facts:
        with duckdb.connect() as connection:
            found = connection.execute(_FACTS.format(folder=self._sink)).fetchone()
        assert found is not None
        return (found[0], *map(str, found[1:]))


def _alone(order: Order) -> Turn:
    """Run in a fresh process, which measures itself."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables_reading"],
        input=as_json(order),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    return Turn(told["secs"], told["cpu"], 0.0, told["mb"])


def _in_spark(call: Callable[[Order], int], order: Order) -> Turn:
    java = jvm()
    pids = () if java is None else (java,)
    worker_memory.reset(*pids)
    python, other = workers_cpu_secs(), cpu_secs(*pids)
    start = time.perf_counter()
    call(order)
    secs = time.perf_counter() - start
    mb = worker_memory.peak_mb(*pids) if order.contender == JDBC else worker_memory.peak_mb()
    return Turn(secs, workers_cpu_secs() - python, cpu_secs(*pids) - other, mb)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of PostgreSQL; default: {ROWS:,}")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    rows: int = options.rows
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    log.configure("warning", sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        postgresql_server() as server,
    ):
        folder = Path(name)
        conf = {"spark.local.dir": str(folder / "spark")}
        if JAR.exists():
            conf["spark.jars"] = str(JAR)
        else:
            _say(f"{JAR} is missing (Debian: libpostgresql-jdbc-java): no {JDBC}")
        engine = SparkEngine(f"local[{cores}]", conf)
        _say("filling")
        fill_postgresql(server, rows)
        fill_sqlite(folder / "shop.db", rows * 2 // 3)
        bench = Bench(folder, Through(engine, PASSWORD, server.port), options.rounds)
        measured = [
            bench.measured("PostgreSQL", "postgresql", server.uri(), rows),
            bench.measured("SQLite", "sqlite", str(folder / "shop.db"), rows * 2 // 3),
        ]
        statements, saved = polled(server, folder, engine)
        engine.stop()
    print(
        f"{cores} cores, load {load:.1f} to {os.getloadavg()[0]:.1f}, {platform.machine()}", end=""
    )
    print(f", Python {platform.python_version()}", end="")
    for package in ("pyspark", "pyarrow", "adbc-driver-postgresql", "connectorx", "psycopg"):
        print(f", {package} {importlib.metadata.version(package)}", end="")
    print(f"; medians of {options.rounds}\n\n{report(measured, statements, saved)}", end="")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

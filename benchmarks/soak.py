"""Both daemons under steady arrival, with restarts: nothing grows, nothing lags, counts are exact.

    python -m benchmarks.soak                 # about 10 minutes
    python -m benchmarks.soak --minutes 3

Three pipelines; files arrive all the time, some with a bad line, some damaged. In
the first half each daemon is stopped once with SIGTERM and killed once with SIGKILL;
in the second half they are left alone, and memory, descriptors and threads are
compared between its second and its last quarter. At the end everything is worked off
and counted with another engine. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from benchmarks.soak_parts import PIPELINES, Daemon, Sample, Writer, configuration, every

SAMPLE_SECS = 2.0
MAX_LAG_SECS = 60.0
# What a process may grow by between two quarters of the quiet half, and still be called flat.
GROWTH = 1.1
GROWTH_MB = 10.0
GROWTH_COUNT = 5

MEASURES: dict[str, Callable[[Sample], float]] = {
    "daemon, MB": lambda s: s.main_mb,
    "JVM, MB": lambda s: s.jvm_mb,
    "Python workers, MB": lambda s: s.workers_mb,
    "file descriptors": lambda s: s.descriptors,
    "threads": lambda s: s.threads,
    "threads of delta-rs": lambda s: s.delta_threads,
}
# The JVM's heap fills up to its limit before it collects. delta-rs's pool for files grows
# with the most that were ever open at the same time, to at most 512 by its runtime's default.
NOT_JUDGED = ("JVM, MB", "threads of delta-rs")


def soak(folder: Path, minutes: float, files_per_sec: float) -> bool:
    config = configuration(folder)
    writer = Writer(folder, files_per_sec)
    daemons = [Daemon(name, config, folder) for name in ("blizzard", "penguin")]
    start = time.monotonic()
    half = start + minutes * 30

    def look() -> None:
        for daemon in daemons:
            daemon.sample()

    writer.start()
    for daemon in daemons:
        daemon.start()
    lags: list[float] = []
    strikes = [(d, how) for how in (signal.SIGTERM, signal.SIGKILL) for d in daemons]
    for number, (daemon, how) in enumerate(strikes, 1):
        every(SAMPLE_SECS, start + (half - start) * number / (len(strikes) + 1), look)
        lags += [sample.lag_secs for sample in daemon.samples]
        code = daemon.end(how)
        if how is signal.SIGTERM and code != 0:
            sys.exit(f"{daemon.name} ended with {code} after SIGTERM")
        daemon.start()
    every(SAMPLE_SECS, start + minutes * 60, look)
    writer.ended.set()
    writer.join()
    good = report(daemons, half, lags)
    for daemon in daemons:
        daemon.end(signal.SIGTERM)
    for daemon in daemons:
        if daemon.drain():
            sys.exit(f"{daemon.name} --once failed")
    starts = ", ".join(f"{d.name} started {d.starts - 1} times" for d in daemons)
    print(f"\n{writer.files:,} files in {minutes:g} minutes; {starts}\n")
    return counted(folder, writer) and good


def report(daemons: Sequence[Daemon], half: float, lags: list[float]) -> bool:
    """Print how flat the quiet half was; whether it was flat enough."""
    good = True
    print("| | quarter 2 | quarter 4 | |")
    print("|---|---|---|---|")
    for daemon in daemons:
        quiet = [sample for sample in daemon.samples if sample.at >= half]
        quarters = [quiet[len(quiet) * n // 4 : len(quiet) * (n + 1) // 4] for n in range(4)]
        for label, measure in MEASURES.items():
            before, after = (statistics.median(map(measure, quarters[n])) for n in (1, 3))
            if not before and not after:
                continue
            limit = before * GROWTH + GROWTH_MB if label.endswith("MB") else before + GROWTH_COUNT
            judged = label not in NOT_JUDGED
            verdict = "not judged" if not judged else "flat" if after <= limit else "**grows**"
            good = good and (not judged or after <= limit)
            print(f"| {daemon.name}: {label} | {before:,.0f} | {after:,.0f} | {verdict} |")
        lag = max(sample.lag_secs for sample in quiet)
        verdict = "bounded" if lag <= MAX_LAG_SECS else "**too long**"
        good = good and lag <= MAX_LAG_SECS
        print(f"| {daemon.name}: longest lag, s | | {lag:,.1f} | {verdict} |")
    print(f"| longest lag before a restart, s | | {max(lags, default=0):,.1f} | |")
    return good


def counted(folder: Path, writer: Writer) -> bool:
    """Print what was written and what is in the tables; whether they are the same."""
    good = True
    print(
        "| table | rows written | rows in it | distinct | sum of ids | bad lines | damaged files |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in PIPELINES:
        events = DeltaTable(str(folder / "lake" / name)).to_pyarrow_dataset()
        connection = duckdb.connect()
        connection.register("events", events)
        query = "select count(*), count(distinct id), coalesce(sum(id), 0)::bigint from events"
        rows, distinct, total = connection.execute(query).fetchall()[0]
        letters = [
            json.loads(line)
            for path in (folder / "lake" / name / "_blizzard" / "dlq").rglob("*.ndjson")
            for line in path.read_text().splitlines()
        ]
        bad = sum("line" in letter for letter in letters)
        damaged = len(letters) - bad
        exact = (
            rows == distinct == writer.rows[name]
            and total == writer.sums[name]
            and bad == writer.bad_lines[name]
            and damaged == writer.damaged[name]
        )
        good = good and exact
        print(
            f"| {name} | {writer.rows[name]:,} | {rows:,} | {distinct:,}"
            f" | {'equal' if total == writer.sums[name] else '**different**'}"
            f" | {bad} of {writer.bad_lines[name]} | {damaged} of {writer.damaged[name]} |"
        )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--files-per-sec", type=float, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        good = soak(Path(name), options.minutes, options.files_per_sec)
    print("\nall goals met" if good else "\nGOALS MISSED")
    sys.exit(not good)


if __name__ == "__main__":
    main()

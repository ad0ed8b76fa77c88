"""Cost of many queries over event time in one daemon, over a few files each.

    python -m benchmarks.event_time_many                # 1, 5, 10 and 20 queries
    python -m benchmarks.event_time_many --queries 40

Each pipeline counts rows per minute and key from a source of its own, in `BATCHES` batches, in one
`blizzard run --once`. Measured from outside: seconds until each query has made its first batch,
until the run ends, cycles that failed, and memory of the daemon with its JVM and Python processes
(shared pages by their share).

Prints Markdown. Exits with 1 if a query has not made all of its batches.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from blizzard_core.storage.opening import open_storage

BATCHES = 3
ROWS = 1000
_START = dt.datetime(2024, 1, 28, tzinfo=dt.UTC)
_PROC = Path("/proc")


@dataclass
class Run:
    """Measurements of one run of a daemon."""

    queries: int
    first: dict[str, float] = field(default_factory=dict)
    batches: int = 0
    rows: int = 0
    failed: int = 0
    secs: float = 0.0
    mib: float = 0.0

    @property
    def has_all_batches(self) -> bool:
        """Return whether each query has made each of its batches, of all rows."""
        batches = self.queries * BATCHES
        return (self.batches, self.rows) == (batches, batches * ROWS)

    def note(self, event: dict[str, Any], since_start: float) -> None:
        """Count one line of the daemon's log."""
        if event.get("event") == "batch_done":
            self.batches += 1
            self.rows += event["event_time"]["rows"]
            self.first.setdefault(event["pipeline"], since_start)
        elif event.get("event") == "worker_failed":
            self.failed += 1


def configuration(root: Path, queries: int) -> dict[str, Any]:
    """Pipelines that count per minute and key, a batch for each file."""
    names = [f"q{number:03}" for number in range(queries)]
    return {
        "pipelines": {
            name: {
                "sources": {
                    "main": {
                        "source_uri": str(root / "raw" / name),
                        "grace_period": 0,
                        "advanced": {"order_guard": "off", "checkpoint": {"interval_files": 1}},
                    }
                },
                "sink": {"table_uri": str(root / "lake" / name)},
                "schema": {
                    "fields": [
                        {"name": "time", "type": "timestamp", "nullable": False},
                        {"name": "key", "type": "int64"},
                    ]
                },
                "event_time": {
                    "column": "time",
                    "delay": "1 minute",
                    "window": "1 minute",
                    "group_by": ["key"],
                    "aggregates": {"n": "count(*)"},
                },
            }
            for name in names
        },
        "spark": {"master": "local[2]"},
    }


def arrive(root: Path, queries: int) -> None:
    """Lay down a file of `ROWS` rows for each query and batch, a row a second."""
    for number in range(queries):
        source = open_storage(str(root / "raw" / f"q{number:03}"), {})
        for batch in range(BATCHES):
            rows = (
                json.dumps({"time": _time_of(batch * ROWS + row), "key": row % 10})
                for row in range(ROWS)
            )
            source.put_atomic(f"{batch:03d}.ndjson", "\n".join(rows).encode() + b"\n")


def _time_of(row: int) -> str:
    return (_START + dt.timedelta(seconds=row)).isoformat()


def measured(queries: int) -> Run:
    """Run a daemon over all of them once."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        arrive(root, queries)
        config = root / "queries.yaml"
        config.write_text(yaml.safe_dump(configuration(root, queries)))
        run, start = Run(queries), time.monotonic()
        command = [sys.executable, "-m", "blizzard_py", "run", str(config), "--once"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(run, process.pid, over))
        watch.start()
        assert process.stderr is not None  # it is a pipe
        for line in process.stderr:
            if line.startswith(b"{"):
                run.note(json.loads(line), time.monotonic() - start)
        process.wait()
        run.secs = time.monotonic() - start
        over.set()
        watch.join()
    return run


def _watch(run: Run, process: int, over: threading.Event) -> None:
    while not over.wait(1.0):
        run.mib = max(run.mib, _tree_mib(process))


def _tree_mib(process: int) -> float:
    """Memory of a process and of all below it, shared pages by their share."""
    parents: dict[int, int] = {}
    for place in _PROC.glob("[0-9]*"):
        try:
            parents[int(place.name)] = int(
                (place / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue  # it has ended
    tree = {process}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(map(_pss_kib, tree)) / 1024


def _pss_kib(process: int) -> int:
    try:
        text = (_PROC / str(process) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 5, 10, 20])
    runs = []
    print(
        "| queries | all have a batch after (s) | run (s) | failed cycles | MiB |\n"
        "|---:|---:|---:|---:|---:|"
    )
    for queries in parser.parse_args().queries:
        run = measured(queries)
        runs.append(run)
        first = f"{max(run.first.values()):.0f}" if len(run.first) == queries else "never"
        print(f"| {queries} | {first} | {run.secs:.0f} | {run.failed} | {run.mib:,.0f} |")
        sys.stdout.flush()
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}.")
    return 0 if all(run.has_all_batches for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())

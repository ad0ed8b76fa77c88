"""Lag of live files beside a replay of many files: `python -m benchmarks.request_lag`.

A daemon (a process of its own, with Spark) polls a folder on the local disk. A new file is put
there every two seconds; its lag is the time until the journal holds it. First alone, then beside a
request that brings all files of a past day again. Both in one run, medians and the worst are told.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from blizzard_py.app.configuration import load_config
from blizzard_py.app.submit import RequestOrder, Waits, submit_and_follow

WHERE = ("events", "main")
_EVERY_SECS = 2.0
_POLL = "5s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print both; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, help="files that are replayed")
    parser.add_argument("--rows", type=int, default=20, help="rows of each of them")
    parser.add_argument("--live", type=int, default=60, help="live files of each measurement")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="request-lag-") as folder:
        _measure(Path(folder), given.files, given.rows, given.live)
    return 0


def _measure(folder: Path, files: int, rows: int, live: int) -> None:
    config = _configured(folder)
    _history(folder / "raw", files, rows)
    _call(config, "run", "--once")
    daemon = subprocess.Popen(  # our own module, and no shell
        [sys.executable, "-m", "blizzard_py", "run", str(config)],
        stdout=(folder / "daemon.log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        _lags(folder, "warm", 5)
        alone = _lags(folder, "alone", live)
        order = RequestOrder("reingest", {"range": ["date=2024-01-01", "date=2024-01-01"]}, _AGAIN)
        submit_and_follow(
            load_config(config), WHERE, order, Waits(time.sleep, time.time, print, wait=False)
        )
        beside = _lags(folder, "beside", live)
        brought = _requests(folder)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(120)
    _print_lags("alone", alone)
    _print_lags("beside a replay", beside)
    print(f"worse by {max(beside) - max(alone):.1f} s at most, replayed meanwhile: {brought}")


_AGAIN = {"mode": "again"}


def _configured(folder: Path) -> Path:
    document = {
        "pipelines": {
            "events": {
                "sources": {
                    "main": {"source_uri": str(folder / "raw"), "poll_interval": _POLL},
                },
                "sink": {
                    "table_uri": str(folder / "lake"),
                    "partition_by": {"prefix_template": "date=%Y-%m-%d"},
                },
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
            }
        },
        "spark": {"master": "local[2]"},
        "global": {"advanced": {"poll_jitter": 0}},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _history(raw: Path, files: int, rows: int) -> None:
    day = raw / "date=2024-01-01"
    day.mkdir(parents=True)
    data = "".join(json.dumps({"id": number}) + "\n" for number in range(rows))
    for number in range(files):
        (day / f"{number:07}.ndjson").write_text(data)


def _call(config: Path, command: str, *options: str) -> None:
    words = [sys.executable, "-m", "blizzard_py", command, str(config), *options]
    subprocess.run(words, check=True, capture_output=True)  # our own module


def _lags(folder: Path, name: str, count: int) -> list[float]:
    """Put so many files, one every two seconds, and wait until the journal holds each."""
    day = folder / "raw" / "date=2024-02-01"
    day.mkdir(parents=True, exist_ok=True)
    put: dict[str, float] = {}
    lags: dict[str, float] = {}
    read: set[str] = set()
    while len(lags) < count:
        if len(put) < count and time.monotonic() >= max(put.values(), default=0.0) + _EVERY_SECS:
            path = day / f"{time.time_ns()}-{name}.ndjson"
            path.write_text('{"id": 1}\n')
            put[path.name] = time.monotonic()
        for each in _journaled(folder, read):
            if each in put and each not in lags:
                lags[each] = time.monotonic() - put[each]
        time.sleep(0.1)
    return list(lags.values())


def _journaled(folder: Path, read: set[str]) -> list[str]:
    """Return the names of files in batches that are new in the journal."""
    found = []
    for path in (folder / "lake/_blizzard/journal/events_main").glob("*.json"):
        if path.name not in read:
            read.add(path.name)
            files = json.loads(path.read_bytes())["files"]
            found += [each["path"].rpartition("/")[2] for each in files]
    return found


def _requests(folder: Path) -> str:
    document = json.loads((folder / "lake/_blizzard/events_main_checkpoint.json").read_bytes())
    return "; ".join(f"{each['state']} {each['counts']}" for each in document["requests"].values())


def _print_lags(name: str, lags: Sequence[float]) -> None:
    worst, median = max(lags), statistics.median(lags)
    print(f"{name}: {len(lags)} live files, median lag {median:.1f} s, worst {worst:.1f} s")


if __name__ == "__main__":
    raise SystemExit(main())

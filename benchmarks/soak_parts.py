"""Parts of the soak: the writer of files, the daemons, and their metrics."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[1]
MODULES = {"blizzard": "blizzard_py", "penguin": "penguin_py"}
LAG = {"blizzard": "blizzard_lag_seconds", "penguin": "penguin_lag_seconds"}
# What its runtime calls each of its threads.
DELTA_THREAD = "tokio-rt-worker"
PIPELINES = ("hourly", "flat", "by_kind")
ROWS_PER_FILE = 200
BAD_LINE_EVERY, DAMAGED_EVERY = 25, 60


def configuration(folder: Path) -> Path:
    """Three pipelines: partitions from the path, none, and from a column of the rows."""
    fields = [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "time", "type": "timestamp", "nullable": False},
        {"name": "kind", "type": "string"},
    ]
    by_path = {"prefix_template": "date=%Y-%m-%d/hour=%H"}
    partitions = {
        "hourly": by_path,
        "flat": None,
        "by_kind": {"prefix_template": "day=%Y-%m-%d", "column": "time"},
    }
    pipelines = {
        name: {
            "sources": {"main": {"source_uri": f"{folder}/raw/{name}", "poll_interval": "1s"}},
            "sink": {
                "table_uri": f"{folder}/lake/{name}",
                **({"partition_by": by} if (by := partitions[name]) else {}),
            },
            "schema": {"fields": fields},
        }
        for name in PIPELINES
    }
    tables = {
        name: {"table_uri": f"{folder}/lake/{name}", "poll_interval": "1s"} for name in PIPELINES
    }
    path = folder / "config.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "pipelines": pipelines,
                "tables": tables,
                "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "512m"}},
                "global": {"advanced": {"poll_jitter": 0}},
                "metrics": {"address": "127.0.0.1:${METRICS_PORT}"},
            }
        )
    )
    return path


class Writer(threading.Thread):
    """A writer that drops a file into each source in turn, and counts the expected rows."""

    def __init__(self, folder: Path, files_per_sec: float) -> None:
        super().__init__(name="writer", daemon=True)
        self._folder = folder
        self._pause = 1 / files_per_sec
        self.ended = threading.Event()
        self.files = 0
        self.rows: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.bad_lines: Counter[str] = Counter()
        self.damaged: Counter[str] = Counter()

    def run(self) -> None:
        while not self.ended.wait(self._pause):
            self._drop(PIPELINES[self.files % len(PIPELINES)])

    def _drop(self, name: str) -> None:
        number, self.files = self.files, self.files + 1
        now = datetime.now(UTC)
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        lines = [json.dumps({"id": i, "time": now.isoformat(), "kind": f"k{i % 7}"}) for i in ids]
        data = "\n".join(lines).encode()
        if number % DAMAGED_EVERY == DAMAGED_EVERY - 1:
            packed = gzip.compress(data)[:-9]
            self.damaged[name] += 1
        else:
            if number % BAD_LINE_EVERY == BAD_LINE_EVERY - 1:
                data += b'\n{"id": "not a number"}'
                self.bad_lines[name] += 1
            packed = gzip.compress(data)
            self.rows[name] += len(ids)
            self.sums[name] += sum(ids)
        partition = f"{now:date=%Y-%m-%d/hour=%H}/" if name == "hourly" else ""
        target = self._folder / "raw" / name / f"{partition}{time.time_ns()}-{number}.ndjson.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}")
        hidden.write_bytes(packed)
        hidden.rename(target)


@dataclass(frozen=True)
class Sample:
    """One look at a daemon: MB by kind of process; descriptors and threads of its main one.

    Those of delta-rs's runtime are counted apart.
    """

    at: float
    main_mb: float
    jvm_mb: float
    workers_mb: float
    descriptors: int
    threads: int
    delta_threads: int
    lag_secs: float


class Daemon:
    """One of the two, as a process that is started and stopped."""

    def __init__(self, name: str, config: Path, folder: Path) -> None:
        self.name = name
        self._config = config
        self._log = folder / f"{name}.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.samples: list[Sample] = []
        self.starts = 0

    def start(self, *options: str) -> None:
        self.starts += 1
        self.samples.clear()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULES[self.name], "run", str(self._config), *options],
                cwd=ROOT,
                env={**os.environ, "METRICS_PORT": str(self._port)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return self._process.wait(60)

    def drain(self) -> int:
        """Work off what is left; the exit code."""
        self.start("--once")
        assert self._process is not None
        return self._process.wait(300)

    def sample(self) -> None:
        """Look once, if the daemon answers already."""
        assert self._process is not None
        if self._process.poll() is not None:
            sys.exit(f"{self.name} ended with {self._process.returncode}; see {self._log}")
        try:
            lag = self._lag()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return
        main = self._process.pid
        megabytes: defaultdict[str, float] = defaultdict(float)
        for pid in _tree(main):
            command = _read(pid, "cmdline")
            kind = "main" if pid == main else "jvm" if "java" in command[:200] else "workers"
            megabytes[kind] += int(_read(pid, "statm").split()[1] or 0) * 4096 / 1e6
        threads = Counter(_read(main, f"task/{task}/comm").strip() for task in _names(main, "task"))
        delta_threads = threads.pop(DELTA_THREAD, 0)
        self.samples.append(
            Sample(
                time.monotonic(),
                megabytes["main"],
                megabytes["jvm"],
                megabytes["workers"],
                len(_names(main, "fd")),
                threads.total(),
                delta_threads,
                lag,
            )
        )

    def _lag(self) -> float:
        """Return the largest lag of all targets, from the daemon's metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return max(
            (
                sample.value
                for family in text_string_to_metric_families(text)
                if family.name == LAG[self.name]
                for sample in family.samples
            ),
            default=0.0,
        )


def _tree(root: int) -> list[int]:
    """Return the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _read(int(entry.name), "stat")):
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _names(pid: int, folder: str) -> list[str]:
    return [path.name for path in Path(f"/proc/{pid}/{folder}").iterdir()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace") or "0 0"
    except OSError:  # it ended meanwhile
        return "0 0"


def every(secs: float, until: float, act: Callable[[], None]) -> None:
    """Call ``act`` each ``secs`` until the monotonic clock shows ``until``."""
    while time.monotonic() < until:
        act()
        time.sleep(secs)

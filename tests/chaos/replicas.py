"""Replicas that are killed: ``python -m tests.chaos.replicas --kills 30``.

Real daemons share sources on a disk, or behind an S3 API with ``--s3``, while files arrive. A
replica that has a source is killed with SIGKILL, or stopped for longer than a lease and woken. It
measures the time until another one has begun and finished a batch of each of its sources. At the
end Penguin commits, and each row must be in the table once. Without ``--spark`` jobs run in the
daemon, so only the hand-over takes time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.s3_server import s3_server
from tests.support.scenario import Scenario, ndjson

# What a hand-over may take besides the lease, until the next batch begins.
GOAL_LEASES, GOAL_SECS = 1.4, 3.0
_SILENCE = 300.0


@dataclass
class Daemon:
    """One replica: its process and its log."""

    number: int
    log: Path
    process: subprocess.Popen[bytes]
    held: set[str] = field(default_factory=set)
    has_started: bool = False
    _at: int = 0

    def events(self) -> list[dict[str, Any]]:
        """Return the log lines that came since the last call."""
        with self.log.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        found = [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]
        for each in found:
            match each["event"]:
                case "started":
                    self.has_started = True
                case "source_taken":
                    self.held.add(each["source"])
                case "source_released" | "source_lost":
                    self.held.discard(each["source"])
        return found


class Fleet:
    """The replicas of a run, the writer of its files, and what was measured."""

    def __init__(self, scenario: Scenario, folder: Path, sources: int, *, spark: bool) -> None:
        self.scenario = scenario
        self.folder = folder
        self.sources = [f"s{number}" for number in range(sources)]
        self.spark = spark
        self.daemons: list[Daemon] = []
        self.rows = 0
        self.handovers: Counter[str] = Counter()
        self.events: list[dict[str, Any]] = []
        self._number = count(1)
        self._over = threading.Event()

    def start(self) -> Daemon:
        number = next(self._number)
        log = self.folder / f"replica-{number}.log"
        module = (
            ["blizzard_py"] if self.spark else ["tests.chaos.blizzard.daemon", str(self.folder)]
        )
        command = [sys.executable, "-m", *module, "run", str(self.scenario.config)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        made = Daemon(number, log, process)
        self.daemons.append(made)
        return made

    def read(self) -> list[dict[str, Any]]:
        """Return new log lines of all replicas, each with its ``replica``."""
        found = [{**e, "replica": d.number} for d in self.daemons for e in d.events()]
        self.handovers.update(
            e["event"]
            for e in found
            if e["event"] in ("source_taken", "source_released", "source_lost")
        )
        self.events += found
        return found

    def wait(self, is_reached: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        until = time.monotonic() + _SILENCE
        while time.monotonic() < until:
            if is_reached(self.read()):
                return
            time.sleep(0.02)
        raise AssertionError(f"{what}: not within {_SILENCE:.0f} s")

    @contextmanager
    def writing(self, pause: float) -> Iterator[None]:
        """Let a file arrive at one source after the other."""

        def write() -> None:
            for number in count():
                source = self.sources[number % len(self.sources)]
                ids = range(self.rows, self.rows + 1 + number % 3)
                self.rows = ids.stop
                now = dt.datetime.now(dt.UTC)
                path = f"{source}/date={now:%Y-%m-%d}/{number:08d}.json.gz"
                self.scenario.put(path, ndjson(*({"id": i, "text": "t"} for i in ids)))
                if self._over.wait(pause):
                    return

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def configured(scenario: Scenario, sources: int, lease: float) -> None:
    """Write a configuration with several sources of one table."""
    document = scenario.document
    main = document["pipelines"]["events"]["sources"].pop("main")
    document["pipelines"]["events"]["sources"] = {
        f"s{n}": {**main, "source_uri": f"{scenario.place}/raw/s{n}", "poll_interval": "500ms"}
        for n in range(sources)
    }
    document["global"]["replicas"] = {
        "uri": f"{scenario.place}/lake/leases",
        "advanced": {"lease": f"{lease}s"},
        "storage_options": scenario.options,
    }
    document["spark"] = {"master": "local[1]", "conf": {"spark.driver.memory": "512m"}}
    scenario.write_config()


def hand_over(fleet: Fleet, chance: random.Random) -> dict[str, float]:
    """Kill a replica that has sources; return how long its sources waited."""
    victim = chance.choice([d for d in fleet.daemons if d.held])
    lost, since = set(victim.held), time.time()
    took: dict[str, float] = {}
    began: dict[str, float] = {}
    done: dict[str, float] = {}
    victim.process.kill()
    victim.process.wait()
    fleet.read()
    fleet.daemons.remove(victim)

    def reached(found: list[dict[str, Any]]) -> bool:
        for each in found:
            source, at = each.get("source"), _time(each)
            if source not in lost or at < since:
                continue
            match each["event"]:
                case "source_taken":
                    took.setdefault(source, at - since)
                case "batch_started" if source in took:
                    began.setdefault(source, at - since)
                case "batch_done" if source in began:
                    done.setdefault(source, at - since)
        return lost <= done.keys()

    fleet.wait(reached, "a source whose replica died is ingested again")
    return {"taken": max(took.values()), "began": max(began.values()), "done": max(done.values())}


def pause(fleet: Fleet, chance: random.Random, secs: float) -> None:
    """Stop a replica that has sources, and wake it.

    On a disk it may have stopped within a save, whose lock makes the others wait.
    """
    victim = chance.choice([d for d in fleet.daemons if d.held])
    victim.process.send_signal(signal.SIGSTOP)
    time.sleep(secs)
    victim.process.send_signal(signal.SIGCONT)


def _time(event: dict[str, Any]) -> float:
    return dt.datetime.fromisoformat(event["timestamp"]).timestamp()


def wait_until_shared(fleet: Fleet, replicas: int) -> None:
    """Start replicas until there are enough, and wait until each has its share."""
    while len(fleet.daemons) < replicas:
        fleet.start()

    def is_shared(_found: list[dict[str, Any]]) -> bool:
        for each in fleet.daemons:
            assert each.process.poll() is None, each.log.read_text()[-3000:]
        share = -(-len(fleet.sources) // len(fleet.daemons))
        held = [source for each in fleet.daemons for source in each.held]
        if not all(each.has_started for each in fleet.daemons):
            return False
        return sorted(held) == fleet.sources and max(len(d.held) for d in fleet.daemons) <= share

    fleet.wait(is_shared, "sources are shared")


def check_rows(fleet: Fleet) -> None:
    """Let Penguin commit, and hold the table against what was written."""
    done = subprocess.run(
        [sys.executable, "-m", "penguin_py", "run", str(fleet.scenario.config), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ids = Counter(fleet.scenario.ids())
    lost, doubled = set(range(fleet.rows)) - ids.keys(), [i for i, n in ids.items() if n > 1]
    assert not lost, f"{len(lost)} rows lost, such as {min(lost)}"
    assert not doubled, f"{len(doubled)} rows doubled, such as {min(doubled)}"


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play a run; return what it measured. Raises `AssertionError` if rows are not right."""
    chance = random.Random(options.seed)
    with ExitStack() as stack:
        if options.s3:
            server = stack.enter_context(s3_server())
            place, credentials = f"s3://{server.new_bucket()}", server.options
            scenario = Scenario(folder, place, credentials)
        else:
            scenario = Scenario(folder, str(folder / "place"))
        configured(scenario, options.sources, options.lease)
        fleet = Fleet(scenario, folder, options.sources, spark=options.spark)
        stack.callback(lambda: [d.process.kill() for d in fleet.daemons])
        found: list[dict[str, float]] = []
        with fleet.writing(options.pause):
            wait_until_shared(fleet, options.replicas)
            for number in range(options.kills):
                if options.pauses and number % options.pauses == options.pauses - 1:
                    pause(fleet, chance, 2 * options.lease)
                    wait_until_shared(fleet, options.replicas)
                found.append(hand_over(fleet, chance))
                print(json.dumps({"kill": number, **found[-1]}), flush=True)
                wait_until_shared(fleet, options.replicas)
                time.sleep(options.rest)
                wait_until_shared(fleet, options.replicas)  # it may have changed hands meanwhile
        drained(fleet)
        for each in fleet.daemons:
            each.process.send_signal(signal.SIGTERM)
        for each in fleet.daemons:
            assert each.process.wait(120) == 0, each.log.read_text()[-3000:]
        check_rows(fleet)
    summary: dict[str, Any] = {"rows": fleet.rows, **fleet.handovers}
    for name in ("taken", "began", "done"):
        times = sorted(each[name] for each in found) or [0.0]
        summary[name] = {"median": statistics.median(times), "max": times[-1]}
    summary["goal"] = GOAL_LEASES * options.lease + GOAL_SECS
    return summary


def drained(fleet: Fleet) -> None:
    """Wait until no file waits any more."""

    def is_done(_found: list[dict[str, Any]]) -> bool:
        time.sleep(1.0)
        document = fleet.scenario.status("blizzard")
        sources = document["pipelines"]["events"]["sources"].values()
        return all(s["lag"]["files"] == 0 and not s["in_flight"] for s in sources)

    fleet.wait(is_done, "everything is ingested")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument(
        "--pauses", type=int, default=0, help="before every so many kills, pause another"
    )
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--sources", type=int, default=4)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between files")
    parser.add_argument("--rest", type=float, default=0, help="seconds in which Spark may warm up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replicas-", ignore_cleanup_errors=True) as name:
        print(json.dumps(run(options, Path(name)), indent=1))


if __name__ == "__main__":
    main()

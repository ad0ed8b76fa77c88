"""`make demo-units`: thirteen months of surveys that change after the fact, into a Delta table.

Each simulated day is a run of both daemons, so that a month grows by a day a run. They run in this
process and not by their commands, since nobody waits thirteen months: the clock by which a range
ends is turned, everything else is as it is. Below ``.demo-units/`` (or ``$DEMO_DIR``), made anew.
Exits 1 if the lake does not hold what the API says at the end of any day.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rich.console import Console

from blizzard_core import log
from blizzard_core.daemon import Loop, run_worker
from blizzard_py.app.configuration import load_config
from blizzard_py.app.engine import spark_engine
from blizzard_py.app.wiring import context_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.demo.stage import DemoFailedError, staged, step
from blizzard_py.engines.lazy import LazyEngine
from demo.surveys import OPENED, Surveys, served
from demo.units_report import Day, Lake, as_rows, show_check, show_cost, show_months
from penguin_py.app import build

CONFIG = Path("configs/demo-units.yaml")
WHERE = ("polls", "answers")
DAYS = 396
# After so many days a month is scored anew that nobody would read again, and is read by hand.
RECOUNT_DAY = 36
RECOUNTED = ("south", datetime(2023, 1, 1, tzinfo=UTC), datetime(2023, 2, 1, tzinfo=UTC))
_ONCE = Loop(once=True, jitter_secs=0, grace_secs=0)


class Demo:
    """The days of the demo, printed as they happen."""

    def __init__(self, place: Path, console: Console, surveys: Surveys) -> None:
        self.step = partial(step, console)
        self.surveys = surveys
        self.lake = Lake(place / "lake" / "answers")
        self.config = load_config(CONFIG, os.environ)
        self.engine = LazyEngine(partial(spark_engine, self.config, "demo-units"))
        self.days: list[Day] = []

    def run(self, days: int) -> None:
        """Play all days; print a line for each month."""
        first = OPENED
        while len(self.days) < days:
            left = days - len(self.days)
            behind = min((first + timedelta(days=31)).replace(day=1), first + timedelta(days=left))
            with self.step(f"{first:%B %Y}: {(behind - first).days} days, each with a run"):
                while first < behind:
                    self.day(first)
                    first += timedelta(days=1)

    def day(self, day: datetime) -> None:
        """Play a day, run both daemons at its end, and read the lake."""
        surveys, midnight = self.surveys, day + timedelta(days=1)
        changes = surveys.live(day)
        if len(self.days) == RECOUNT_DAY:
            surveys.recount(*RECOUNTED)
            self.read_again(*RECOUNTED)
        before = (surveys.requests, surveys.sent)
        self.blizzard(midnight)
        self.penguin()
        rows, version = self.lake.rows()
        expected = as_rows(surveys.answers(end=midnight))
        self.days.append(
            Day(
                day,
                changes,
                surveys.requests - before[0],
                surveys.sent - before[1],
                expected.total(),
                rows.total(),
                version,
                rows == expected,
            )
        )

    def blizzard(self, now: datetime) -> None:
        """`blizzard run --once`, at another time."""
        parts = context_of(self.config, WHERE, self.engine)
        with closing(source_pipeline(replace(parts, clock=now.timestamp))) as worker:
            _finished("blizzard", run_worker(worker, _ONCE, threading.Event()))
            worker.release()

    def penguin(self) -> None:
        """`penguin run --once`."""
        with build(self.config) as workers:
            for worker in workers:
                _finished("penguin", run_worker(worker, _ONCE, threading.Event()))

    def read_again(self, survey: str, first: datetime, end: datetime) -> None:
        """`blizzard backfill`, which marks the units of a time to be read again."""
        command = [
            sys.executable, "-m", "blizzard_py", "backfill", str(CONFIG), "--pipeline", WHERE[0],
            "--source", WHERE[1], "--from", f"{first:%Y-%m-%d}", "--to", f"{end:%Y-%m-%d}",
            "--values", survey,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoFailedError(f"{' '.join(command[2:])}:\n{done.stdout}{done.stderr}")


def _finished(daemon: str, code: int) -> None:
    if code:
        raise DemoFailedError(f"{daemon} ended with {code}; what it said is above")


def run(place: Path, console: Console, days: int) -> bool:
    """Play the days; return whether lake and API were equal at the end of each."""
    log.configure("error")
    surveys = Surveys()
    with served(surveys) as port:
        os.environ |= {"DEMO_DIR": str(place.absolute()), "DEMO_PORT": str(port)}
        console.print(f"An API on port {port}; {CONFIG}; days are simulated", soft_wrap=True)
        demo = Demo(place, console, surveys)
        try:
            demo.run(days)
        finally:
            demo.engine.stop()
    console.print()
    show_months(console, demo.days)
    if days > RECOUNT_DAY:
        console.print(
            f"On day {RECOUNT_DAY + 1} the API scored {RECOUNTED[1]:%B} of {RECOUNTED[0]} anew,"
            " long after its grace: `blizzard backfill --from --to` had it read again.",
            soft_wrap=True,
        )
    show_cost(console, demo.days)
    expected = as_rows(surveys.answers())
    return show_check(console, demo.lake.all_rows(), expected) and all(d.same for d in demo.days)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the process's exit code."""
    parser = argparse.ArgumentParser(description="Work units, day by day")
    parser.add_argument("--days", type=int, default=DAYS, help="thirteen months by default")
    days = parser.parse_args(arguments).days
    success = "At the end of each day the lake held what the API said"
    place = Path(os.environ.get("DEMO_DIR") or ".demo-units")
    code = staged(place, partial(run, days=days), "lake", success)
    if code == 0:
        Console(highlight=False).print(f"The lake stays in {place}/lake/answers.", soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

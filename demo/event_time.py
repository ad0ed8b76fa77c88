"""`make demo-event-time`: edits per five minutes and channel, although they arrive out of order.

The Wikipedia edits of `make demo` arrive in two rounds, some of them hours after they happened;
both daemons run after each, as an operator runs them. What is in the table and in the dead
letters is then held against what duckdb makes of the same files. Below ``.demo-event-time/`` (or
``$DEMO_DIR``), made anew. Exits 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from blizzard_py.demo.daemons import ask, run_once
from blizzard_py.demo.edits import SAMPLE
from blizzard_py.demo.stage import DemoFailedError, staged, step
from demo.arrivals import Edit, arriving
from demo.event_time_report import Found, answer, read, show_batches, show_busiest, show_check

CONFIG = Path("configs/demo-event-time.yaml")
PIPELINE = "edits_per_channel"


class Demo:
    """The rounds of the demo, printed as they happen."""

    def __init__(self, place: Path, console: Console) -> None:
        self.step = partial(step, console)
        self.place = place

    def round(self, number: int, files: Sequence[list[Edit]]) -> None:
        """Let files arrive, and run both daemons to the end of their work."""
        edits = sum(map(len, files))
        raw = self.place / "raw"
        raw.mkdir(exist_ok=True)
        for file in files:
            name = file[0].file
            (self.place / "waiting" / name).rename(raw / name)
        for daemon in ("blizzard", "penguin"):
            with self.step(
                f"round {number}: {len(files)} files with {edits:,} edits; {daemon} run --once"
            ):
                run_once(daemon, CONFIG, self.place / "logs" / f"round{number}-{daemon}.log")

    def batches(self, files: Sequence[list[Edit]]) -> Iterator[list[Edit]]:
        """Yield the edits of each batch: files in the order of names, as many as the log says."""
        left = iter(files)
        for log in sorted((self.place / "logs").glob("*-blizzard.log")):
            for line in log.read_text().splitlines():
                told = json.loads(line) if line.startswith("{") else {}
                if told.get("event") == "batch_done":
                    some = islice(left, told["event_time"]["files"])
                    yield [edit for file in some for edit in file]

    def letters(self) -> list[dict[str, Any]]:
        """Return the dead letters that `blizzard dlq list` prints."""
        command = ["dlq", "list", str(CONFIG), "--json", "--limit", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "blizzard_py", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DemoFailedError(f"blizzard {' '.join(command)}:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def run(place: Path, console: Console) -> bool:
    """Run the demo; return whether table and dead letters equal duckdb's results."""
    os.environ["DEMO_DIR"] = str(place.absolute())
    demo = Demo(place, console)
    with demo.step(
        "39,244 Wikipedia edits, into a file for each quarter of an hour they arrive in"
    ):
        files = arriving(SAMPLE, place / "waiting")
    middle = len(files) // 2
    demo.round(1, files[:middle])
    demo.round(2, files[middle:])
    with demo.step("status, dead letters, and the table read back"):
        told = ask("blizzard", "status", CONFIG)["pipelines"][PIPELINE]["event_time"]
        letters = demo.letters()
        table = read(place / "lake" / PIPELINE)
    with demo.step("the same by duckdb, from the files"):
        expected = answer(list(demo.batches(files)))
    console.print()
    show_batches(console, told["history"])
    show_busiest(console, table)
    late = [letter for letter in letters if letter["stage"] == "late"]
    if late:
        one = late[0]
        console.print(f"\nThe first of {len(late):,} late edits, by `blizzard dlq list`:")
        console.print(
            f"  {Path(one['path']).name}, line {one['line']}: {one['error']}\n",
            markup=False,
            soft_wrap=True,
        )
    open_windows = told["state_rows"]
    found = Found(table, {(Path(one["path"]).name, one["line"]) for one in late}, open_windows)
    return show_check(console, found, expected, sum(map(len, files)))


def main() -> int:
    """Run the demo; the process's exit code."""
    place = Path(os.environ.get("DEMO_DIR") or ".demo-event-time")
    console = Console(highlight=False)
    success = "Windows and late edits are those that duckdb finds in the same files"
    code = staged(place, run, "table", success)
    if code == 0:
        given = f"DEMO_DIR={place} " if os.environ.get("DEMO_DIR") else ""
        console.print(f"\nIt is all in {place}/. Try next:")
        for command, note in (
            (f"blizzard status {CONFIG}", "watermark, newest edit, late rows"),
            (f"blizzard state {CONFIG}", "the windows that are still open"),
            (f"blizzard dlq list {CONFIG} --limit 5", "late edits, each with file and line"),
        ):
            console.print(f"  {given}{command:<60} [dim]# {note}[/dim]", soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

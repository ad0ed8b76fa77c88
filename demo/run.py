"""`make demo`: real events through both daemons, in two rounds, into a Delta table.

Everything happens below ``.demo/`` (or ``$DEMO_DIR``), which is made anew each time
and kept at the end, so that the commands it closes with have something to work on.
Exits 1 if a daemon fails or the table does not hold exactly the sample's events.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from demo.daemons import run_once, status
from demo.report import Round, measure, show_check, show_rounds, table_size
from demo.split import ArrivingFile, split
from demo.stage import staged, step

SAMPLE = Path(__file__).parent / "data" / "wikiticker-2015-09-12-sampled.json.gz"
CONFIG = Path("configs/demo.yaml")


class Demo:
    """The steps, told as they happen."""

    def __init__(self, place: Path, console: Console) -> None:
        self.console = console
        self.step = partial(step, console)
        self.waiting = place / "waiting"
        self.raw = place / "raw"
        self.table = place / "lake" / "wikipedia"
        self.logs = place / "logs"

    def arrive(self, files: Sequence[ArrivingFile]) -> None:
        """Let the files appear in the source, each whole, in the order of their paths."""
        for file in files:
            place = self.raw / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            (self.waiting / file.path).rename(place)

    def round(self, number: int, files: Sequence[ArrivingFile]) -> Round:
        """Let files arrive, run both daemons once, and ask them where they are."""
        rows = sum(file.rows for file in files)
        name = f"round {number}"
        with self.step(f"{name}: {len(files)} files with {rows:,} rows arrive"):
            self.arrive(files)
        with self.step(f"{name}: blizzard run {CONFIG} --once"):
            blizzard_secs = run_once("blizzard", CONFIG, self.logs / f"round{number}-blizzard.log")
        with self.step(f"{name}: penguin run {CONFIG} --once"):
            penguin_secs = run_once("penguin", CONFIG, self.logs / f"round{number}-penguin.log")
        with self.step(f"{name}: status"):
            source = status("blizzard", CONFIG)["pipelines"]["wikipedia"]["sources"]["main"]
            table = status("penguin", CONFIG)["tables"]["wikipedia"]
        table_files, table_rows = table_size(self.table)
        return Round(
            len(files), rows, blizzard_secs, penguin_secs, source, table, table_files, table_rows
        )

    def run(self) -> bool:
        """All of it; True if the table holds exactly the sample's events."""
        with self.step("splitting 39,244 Wikipedia edits into a file per quarter of an hour"):
            files = split(SAMPLE, self.waiting)
        middle = len(files) // 2
        rounds = [self.round(1, files[:middle]), self.round(2, files[middle:])]
        shutil.rmtree(self.waiting)
        with self.step("reading the table back"):
            found = measure(self.table)
        self.console.print()
        show_rounds(self.console, rounds)
        return show_check(self.console, found)


def farewell(console: Console, place: Path) -> None:
    """What to try next, on what the demo left behind."""
    variable = f"DEMO_DIR={place} " if "DEMO_DIR" in os.environ else ""
    console.print(f"\nIt is all in {place}/. Try next:")
    for command, note in (
        (f"blizzard status {CONFIG}", "where the watermarks are"),
        (f"blizzard plan {CONFIG}", "what the next poll would do"),
        (f"blizzard run {CONFIG} --once", "again: nothing is new, so nothing happens"),
        (f"penguin status {CONFIG}", "what is committed"),
    ):
        console.print(f"  {variable}.venv/bin/{command:<42} [dim]# {note}[/dim]", soft_wrap=True)


def run(place: Path, console: Console) -> bool:
    """The demo in its folder."""
    return Demo(place, console).run()


def main() -> int:
    """Run the demo; the process's exit code."""
    console = Console(highlight=False)
    code, place = staged(
        ".demo",
        lambda place, console: Demo(place, console).run(),
        "table",
        f"{39_244:,} rows, each exactly once",
    )
    if code == 0:
        farewell(console, place)
    return code


if __name__ == "__main__":
    sys.exit(main())

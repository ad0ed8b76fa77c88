"""`blizzard demo`: real events through both daemons, in two rounds, into a Delta table.

Everything is below one directory, which is replaced each time and stays at the end for the commands
that the demo proposes. The events come with the package, and no network is used.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from blizzard_py.demo.daemons import ask, run_once
from blizzard_py.demo.report import Round, measure, show_check, show_rounds, table_size
from blizzard_py.demo.split import ArrivingFile, split
from blizzard_py.demo.stage import staged, step

_HERE = Path(__file__).parent
SAMPLE = _HERE / "data" / "wikiticker-2015-09-12-sampled.json.gz"
_CONFIG = _HERE / "edits.yaml"
_PLACE = re.compile(r"\$\{PLACE\}/(\S+)")


def configuration(place: Path) -> str:
    """Return the demo's configuration for data below ``place``."""

    def below(found: re.Match[str]) -> str:
        # JSON strings are YAML, whatever the folders are called.
        return json.dumps(str(place / found[1]).replace("${", "$${"), ensure_ascii=False)

    return _PLACE.sub(below, _CONFIG.read_text(encoding="utf-8"))


class Demo:
    """The steps, described as they happen."""

    def __init__(self, place: Path, console: Console) -> None:
        self.console = console
        self.step = partial(step, console)
        self.config = place / "demo.yaml"
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
        with self.step(f"{name}: blizzard run {self.config} --once"):
            blizzard_secs = run_once(
                "blizzard", self.config, self.logs / f"round{number}-blizzard.log"
            )
        with self.step(f"{name}: penguin run {self.config} --once"):
            penguin_secs = run_once(
                "penguin", self.config, self.logs / f"round{number}-penguin.log"
            )
        with self.step(f"{name}: status"):
            source = ask("blizzard", "status", self.config)["pipelines"]["wikipedia"]["sources"][
                "main"
            ]
            table = ask("penguin", "status", self.config)["tables"]["wikipedia"]
        table_files, table_rows = table_size(self.table)
        return Round(
            len(files), rows, blizzard_secs, penguin_secs, source, table, table_files, table_rows
        )

    def run(self) -> bool:
        """All of it; True if the table holds exactly the sample's events."""
        self.config.write_text(configuration(self.config.parent.absolute()), encoding="utf-8")
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


def farewell(console: Console, place: Path, programs: str) -> None:
    """Print what to try next, on what the demo left behind."""
    config = place / "demo.yaml"
    console.print(f"\nIt is all in {place}/, also the configuration, {config}. Try next:")
    for command, note in (
        (f"blizzard status {config}", "where the watermarks are"),
        (f"blizzard plan {config}", "what the next poll would do"),
        (f"blizzard run {config} --once", "again: nothing is new, so nothing happens"),
        (f"penguin status {config}", "what is committed"),
    ):
        console.print(f"  {programs}{command:<42} [dim]# {note}[/dim]", soft_wrap=True)


def play(place: Path, programs: str) -> int:
    """Run the demo; return 1 if the table does not hold exactly the events, else 0.

    ``programs`` is what to type before the names of the commands.
    """
    console = Console(highlight=False)

    def scenes(place: Path, console: Console) -> bool:
        return Demo(place, console).run()

    code = staged(place, scenes, "table", f"{39_244:,} rows, each exactly once")
    if code == 0:
        farewell(console, place, programs)
    return code

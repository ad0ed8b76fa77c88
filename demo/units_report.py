"""Report of `make demo-units`: lake and API side by side at the end of each day, then by month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from demo.surveys import Answer, Changes

Rows = Counter[tuple[Any, ...]]

_READ = (
    "SELECT id, survey, epoch_us(answered_at), score, text, _unit IS NOT NULL FROM read_parquet(?)"
)


@dataclass(frozen=True, slots=True)
class Day:
    """One day: its changes, the cost of its run, and whether the lake then equalled the API."""

    date: datetime
    changes: Changes
    requests: int
    sent: int
    everything: int
    rows: int
    version: int
    same: bool


class Lake:
    """The table as duckdb reads it. Files never change, so each is read once."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._read: dict[str, list[tuple[Any, ...]]] = {}

    def rows(self) -> tuple[Rows, int]:
        """Every row of the table now, and the table's version."""
        if not (self._place / "_delta_log").is_dir():
            return Counter(), -1
        table = DeltaTable(str(self._place))
        files = table.file_uris()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for file in files:
                if file not in self._read:
                    self._read[file] = connection.execute(_READ, [[file]]).fetchall()
        return Counter(row for file in files for row in self._read[file]), table.version()

    def all_rows(self) -> Rows:
        """Read all files again and return every row."""
        self._read.clear()
        return self.rows()[0]


def as_rows(answers: Sequence[Answer]) -> Rows:
    """Answers as the lake has them; each row says its unit."""
    return Counter(
        (a.id, a.survey, round(a.answered_at.timestamp()) * 1_000_000, a.score, a.text, True)
        for a in answers
    )


@dataclass
class Month:
    """The days of a month, together."""

    days: int = 0
    changes: Changes = field(default_factory=Changes)
    requests: int = 0
    sent: int = 0
    rows: int = 0
    differ: int = 0


def show_months(console: Console, days: Sequence[Day]) -> None:
    """Print what became of each month's days."""
    months: dict[str, Month] = {}
    for day in days:
        month = months.setdefault(f"{day.date:%Y-%m}", Month())
        month.days += 1
        month.changes += day.changes
        month.requests += day.requests
        month.sent += day.sent
        month.rows = day.rows
        month.differ += not day.same
    table = Table(
        title="Each day a run; the lake beside the API at its end",
        title_justify="left",
        padding=(0, 0, 0, 1),
    )
    names = ("month", "days", "new", "late", "edited", "gone", "asked", "read", "lake", "")
    for name in names:
        table.add_column(name, justify="left" if name in {"month", ""} else "right", no_wrap=True)
    for name, month in months.items():
        changes = month.changes
        numbers = (
            month.days, changes.new, changes.late, changes.corrected, changes.withdrawn,
            month.requests, month.sent, month.rows,
        )  # fmt: skip
        differs = f"[bold red]{month.differ} differ[/bold red]"
        table.add_row(
            name, *(f"{n:,}" for n in numbers), differs if month.differ else "[green]ok[/green]"
        )
    console.print(table)
    console.print(
        "late: of the new ones, for days before; asked: requests; read: answers in them; lake: its"
        " rows at the month's end",
        soft_wrap=True,
    )


def show_cost(console: Console, days: Sequence[Day]) -> None:
    """Print the rows that were read, beside a loader that reads everything each day."""
    read, everything = sum(d.sent for d in days), sum(d.everything for d in days)
    requests = sum(d.requests for d in days)
    console.print(
        f"{requests:,} requests, {requests / len(days):.1f} a day, gave {read:,} answers, and the"
        f" table is at version {days[-1].version:,};"
        f" reading everything each day would have given {everything:,}, {everything / read:.0f}"
        " times as many.",
        soft_wrap=True,
    )


def show_check(console: Console, found: Rows, expected: Rows) -> bool:
    """Print the lake beside the API; True if they are the same."""
    lines = {
        "answers": (found.total(), expected.total()),
        "missing": ((expected - found).total(), 0),
        "twice": (found.total() - len(found), 0),
        "old readings, or nobody's": ((found - expected).total(), 0),
    }
    table = Table(title="The lake, read back whole with duckdb", title_justify="left")
    table.add_column("")
    table.add_column("in the lake", justify="right")
    table.add_column("in the API", justify="right")
    table.add_column("")
    for name, (one, other) in lines.items():
        verdict = "[green]ok[/green]" if one == other else "[bold red]differs[/bold red]"
        table.add_row(name, f"{one:,}", f"{other:,}", verdict)
    console.print(table)
    return found == expected

"""Report of `benchmarks.tables` as Markdown: a table per database, and the goals. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.tables_reading import ADBC
from benchmarks.tables_spark import ADBC_SPARK, JDBC, OURS_SPARK

MAX_OF_ADBC = 1.10
MIN_OF_JDBC = 2.0
MAX_WORKER_MB = 350
MAX_STATEMENTS = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """One reading: ``cpu`` and ``mb`` (a peak) are the Python process's, ``jvm`` Spark's CPU."""

    secs: float
    cpu: float
    jvm: float
    mb: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One database's turns by contender. ``tenth_mb``: our worker's peak at a tenth of the rows."""

    name: str
    rows: int
    turns: Mapping[str, Sequence[Turn]]
    tenth_mb: float

    def cpu(self, name: str) -> float:
        return median(turn.cpu for turn in self.turns[name])

    def secs(self, name: str) -> float:
        return median(turn.secs for turn in self.turns[name])

    def mb(self, name: str) -> float:
        return max(turn.mb for turn in self.turns[name])


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its measured value."""

    wanted: str
    found: str
    met: bool


def goals(measured: Sequence[Measured], statements: float, saved: int) -> Iterator[Goal]:
    """Yield the goals for reading a table, without those whose contender took no part."""
    for one in measured:
        for other in (ADBC_SPARK, ADBC):
            ratio = one.cpu(OURS_SPARK) / one.cpu(other)
            yield Goal(
                f"{one.name}: a worker's CPU at most {MAX_OF_ADBC:.2f} x {other}",
                f"{ratio:.2f} x",
                ratio <= MAX_OF_ADBC,
            )
        if JDBC in one.turns:
            times = one.secs(JDBC) / one.secs(OURS_SPARK)
            yield Goal(
                f"{one.name}: at least {MIN_OF_JDBC:g} times as fast as {JDBC}",
                f"{times:.1f} times",
                times >= MIN_OF_JDBC,
            )
        peak = max(one.tenth_mb, one.mb(OURS_SPARK))
        yield Goal(
            f"{one.name}: a worker takes at most {MAX_WORKER_MB} MB, whatever there is to read",
            f"{one.tenth_mb:.0f} MB at a tenth of the rows, {one.mb(OURS_SPARK):.0f} MB at all",
            peak <= MAX_WORKER_MB,
        )
    yield Goal(
        f"a poll without rows: at most {MAX_STATEMENTS} statements",
        f"{statements:g}",
        statements <= MAX_STATEMENTS,
    )
    yield Goal("a poll without rows: no save", f"{saved} objects written", saved == 0)


def report(measured: Sequence[Measured], statements: float, saved: int) -> str:
    """Return the whole report, to paste into the documentation."""
    rows = [
        f"| {goal.wanted} | {goal.found} | {'met' if goal.met else 'missed'} |"
        for goal in goals(measured, statements, saved)
    ]
    judged = "\n".join(["| goal | measured | |", "|---|---|---|", *rows])
    return "\n\n".join([*map(_table, measured), judged]) + "\n"


def _table(one: Measured) -> str:
    lines = [
        f"**{one.name}**, {one.rows:,} rows of 9 columns into Parquet",
        "",
        "| | rows/s | CPU s | x bare ADBC | JVM CPU s | peak MB | seconds of each round |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, turns in one.turns.items():
        python = name != JDBC
        ratio = f"{one.cpu(name) / one.cpu(ADBC):.2f}" if python else "-"
        jvm = median(turn.jvm for turn in turns)
        each = " ".join(f"{turn.secs:.3g}" for turn in turns)
        lines.append(
            f"| {name} | {one.rows / one.secs(name):,.0f} |"
            f" {f'{one.cpu(name):.2f}' if python else '-'} | {ratio} |"
            f" {f'{jvm:.2f}' if jvm else '-'} | {one.mb(name):.0f} | {each} |"
        )
    return "\n".join(lines)

"""Report of `benchmarks.ingest` as Markdown: a table per batch, and the goals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.ingest_contenders import BARE, BLIZZARD, DUCKDB, PYARROW, SPARK_JSON
from benchmarks.ingest_shapes import Shape

MAX_WORKER_MB = 350
MAX_WARM_SECS = 0.100


@dataclass(frozen=True, slots=True)
class Wanted:
    """Goals of a shape: the highest ratio to one contender, the least speed-up over another."""

    most: Mapping[str, float]
    least: Mapping[str, float]


# By the shape's name. Small shapes are to see that the program works.
WANTED = {
    "100 x 20,000 rows": Wanted({BARE: 1.10, PYARROW: 0.50}, {SPARK_JSON: 4.5, DUCKDB: 1.8}),
    "1,000 x 2,000 rows": Wanted({BARE: 1.10, PYARROW: 0.55}, {}),
    "100 x 10,000 edits": Wanted({BARE: 1.10}, {DUCKDB: 1.5}),
    "1 x 9,600,000 rows": Wanted({}, {DUCKDB: 1.0}),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One round of a contender: on the clock, and of CPU in all processes."""

    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One shape's rounds by contender, and the peak of a worker's memory in MB."""

    shape: Shape
    gzip_mb: float
    raw_mb: float
    turns: Mapping[str, Sequence[Turn]]
    worker_mb: float

    def ratio(self, one: str, other: str) -> float | None:
        """Return the ratio of two medians; None if one contender took no part."""
        if one not in self.turns or other not in self.turns:
            return None
        return self.seconds(one) / self.seconds(other)

    def seconds(self, name: str) -> float:
        """Return the median of wall time."""
        return median(turn.seconds for turn in self.turns[name])

    def cpu(self, name: str) -> float:
        """Return the least CPU time: load of other programs only adds to it."""
        return min(turn.cpu for turn in self.turns[name])


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its measured value."""

    wanted: str
    found: str
    met: bool


def goals(measured: Iterable[Measured]) -> Iterator[Goal]:
    """Yield the goals of the ingest engine, in the order of the shapes."""
    for one in measured:
        name = one.shape.name
        if BLIZZARD not in one.turns:
            continue
        if wanted := WANTED.get(name):
            yield from _ratios(one, wanted)
        if one.shape.huge:
            yield Goal(
                f"{name}: a worker takes at most {MAX_WORKER_MB} MB",
                f"{one.worker_mb:.0f} MB",
                one.worker_mb <= MAX_WORKER_MB,
            )
        if one.shape.files == 1 and not one.shape.huge:
            secs = one.seconds(BLIZZARD)
            yield Goal(
                f"{name}: a warm batch takes at most {1000 * MAX_WARM_SECS:.0f} ms in the job",
                f"{1000 * secs:.0f} ms",
                secs <= MAX_WARM_SECS,
            )


def _ratios(one: Measured, wanted: Wanted) -> Iterator[Goal]:
    for other, most in wanted.most.items():
        if (ratio := one.ratio(BLIZZARD, other)) is not None:
            text = f"{one.shape.name}: at most {most:.2f} x {other}"
            yield Goal(text, f"{ratio:.2f} x", ratio <= most)
    for other, least in wanted.least.items():
        if (times := one.ratio(other, BLIZZARD)) is not None:
            text = f"{one.shape.name}: at least {least:g} times as fast as {other}"
            yield Goal(text, f"{times:.2f} times", times >= least)


def csv_of(measured: Iterable[Measured]) -> str:
    """Every round, for a spreadsheet."""
    lines = ["shape,contender,round,seconds,cpu_seconds"]
    for one in measured:
        for name, turns in one.turns.items():
            lines += [
                f'"{one.shape.name}","{name}",{number},{turn.seconds:.4f},{turn.cpu:.2f}'
                for number, turn in enumerate(turns, 1)
            ]
    return "\n".join(lines) + "\n"


def report(measured: Sequence[Measured]) -> str:
    """Return the whole report, to paste into the documentation."""
    parts = [_table(one) for one in measured]
    rows = [f"| {g.wanted} | {g.found} | {'met' if g.met else 'missed'} |" for g in goals(measured)]
    parts.append("\n".join(["| goal | measured | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _table(one: Measured) -> str:
    sizes = f"{one.gzip_mb:.1f} MB gzip, {one.raw_mb:.1f} MB raw"
    lines = [
        f"**{one.shape.name}**: {sizes}; a Python worker's peak: {one.worker_mb:.0f} MB",
        "",
        "| | seconds | rows/s | x bare | CPU s | rounds |",
        "|---|---|---|---|---|---|",
    ]
    for name, turns in one.turns.items():
        middle = one.seconds(name)
        each = " ".join(f"{turn.seconds:.3g}" for turn in turns)
        ratio = one.ratio(name, BARE)
        of_bare = "" if ratio is None else f"{ratio:.2f}"
        speed = f"{one.shape.total / middle:,.0f}"
        lines.append(
            f"| {name} | {middle:.3g} | {speed} | {of_bare} | {one.cpu(name):.3g} | {each} |"
        )
    return "\n".join(lines)

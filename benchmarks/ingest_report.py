"""What `benchmarks.ingest` measured, as Markdown: a table per batch, and the goals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.ingest_contenders import BARE, BLIZZARD, SPARK_JSON
from benchmarks.ingest_shapes import Shape

MAX_OF_BARE = 1.10
MIN_OF_SPARK_JSON = 3.0
MAX_WORKER_MB = 350
MAX_WARM_SECS = 0.150


@dataclass(frozen=True, slots=True)
class Measured:
    """One shape's rounds by contender, in seconds, and the peak of a worker's memory in MB."""

    shape: Shape
    gzip_mb: float
    raw_mb: float
    seconds: Mapping[str, Sequence[float]]
    worker_mb: float

    def ratio(self, one: str, other: str) -> float | None:
        """How many times as long ``one`` took, in the middle; None if one took no part."""
        if one not in self.seconds or other not in self.seconds:
            return None
        return median(self.seconds[one]) / median(self.seconds[other])


@dataclass(frozen=True, slots=True)
class Goal:
    """What was wanted, and what was measured."""

    wanted: str
    found: str
    met: bool


def goals(measured: Iterable[Measured]) -> Iterator[Goal]:
    """What the ingest engine is held to, in the order of the shapes."""
    for one in measured:
        name = one.shape.name
        if BLIZZARD not in one.seconds:
            continue
        if one.shape.large:
            if (ratio := one.ratio(BLIZZARD, BARE)) is not None:
                yield Goal(
                    f"{name}: at most {MAX_OF_BARE:.2f} x {BARE}",
                    f"{ratio:.2f} x",
                    ratio <= MAX_OF_BARE,
                )
            if (times := one.ratio(SPARK_JSON, BLIZZARD)) is not None:
                yield Goal(
                    f"{name}: at least {MIN_OF_SPARK_JSON:g} times as fast as {SPARK_JSON}",
                    f"{times:.1f} times",
                    times >= MIN_OF_SPARK_JSON,
                )
        if one.shape.huge:
            yield Goal(
                f"{name}: a worker takes at most {MAX_WORKER_MB} MB",
                f"{one.worker_mb:.0f} MB",
                one.worker_mb <= MAX_WORKER_MB,
            )
        if one.shape.files == 1 and not one.shape.huge:
            secs = median(one.seconds[BLIZZARD])
            yield Goal(
                f"{name}: a warm batch takes at most {1000 * MAX_WARM_SECS:.0f} ms in the job",
                f"{1000 * secs:.0f} ms",
                secs <= MAX_WARM_SECS,
            )


def report(measured: Sequence[Measured]) -> str:
    """All of it, to paste into the documentation."""
    parts = [_table(one) for one in measured]
    rows = [f"| {g.wanted} | {g.found} | {'met' if g.met else 'missed'} |" for g in goals(measured)]
    parts.append("\n".join(["| goal | measured | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _table(one: Measured) -> str:
    sizes = f"{one.gzip_mb:.1f} MB gzip, {one.raw_mb:.1f} MB raw"
    lines = [
        f"**{one.shape.name}**: {sizes}; a Python worker's peak: {one.worker_mb:.0f} MB",
        "",
        "| | seconds | rows/s | x bare | rounds |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in one.seconds.items():
        middle = median(rounds)
        each = " ".join(f"{value:.3g}" for value in rounds)
        ratio = one.ratio(name, BARE)
        of_bare = "" if ratio is None else f"{ratio:.2f}"
        lines.append(
            f"| {name} | {middle:.3g} | {one.shape.total / middle:,.0f} | {of_bare} | {each} |"
        )
    return "\n".join(lines)

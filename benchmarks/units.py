"""Cost of work units: planning, commits that replace, rewritten mixed files, idle polls.

    python -m benchmarks.units [--quick]

Prints Markdown. Whatever is compared takes turns in one process, a pair a round, and the median
of the pairs' ratios is told: other work on the machine meets both.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from benchmarks import units_commits, units_planning, units_polls, units_rewriting
from benchmarks.units_commits import Pairs
from benchmarks.units_planning import Timed
from benchmarks.units_polls import Requests


def report(
    planned: tuple[list[Timed], dict[str, int]],
    committed: tuple[int, list[Pairs]],
    rewritten: tuple[int, Pairs],
    polled: dict[int, Requests],
) -> str:
    """Return all tables as Markdown, the goals last."""
    return "\n\n".join(
        [
            f"Load at the end: {os.getloadavg()[0]:.1f}.",
            _planning(*planned),
            _commits(*committed),
            _rewriting(*rewritten),
            _polls(polled),
            goals(planned[0], committed[1], rewritten[1], polled),
        ]
    )


def goals(
    planned: list[Timed], committed: list[Pairs], rewritten: Pairs, polled: dict[int, Requests]
) -> str:
    """Return each goal with its measured value and whether it is met."""
    plans = [one for one in planned if one.what.startswith("plan of")]
    slowest = max(plans, key=lambda one: one.secs)
    worst = max(committed, key=lambda one: one.ratio)
    added = [found.manifests / count for count, found in polled.items() if count]
    told = [
        (
            "plan: at most 1 s",
            f"{slowest.secs:.2f} s, {slowest.cpu:.2f} s of the processor",
            slowest.secs <= units_planning.GOAL_SECS,
        ),
        (
            f"a replacing commit: at most {units_commits.GOAL} x an append of as many files",
            f"{worst.ratio:.2f} x ({worst.files:,} files)",
            worst.ratio <= units_commits.GOAL,
        ),
        (
            f"rewriting: at most {units_rewriting.GOAL} x copying with pyarrow",
            f"{rewritten.ratio:.2f} x",
            rewritten.ratio <= units_rewriting.GOAL,
        ),
        (
            "an idle poll: one request more a source",
            f"{max(added):.2f}",
            max(added) <= units_polls.GOAL,
        ),
    ]
    lines = [f"| {what} | {is_} | {'met' if met else 'missed'} |" for what, is_, met in told]
    return "\n".join(["| goal | measured | |", "|---|---|---|", *lines])


def _planning(planned: list[Timed], sizes: dict[str, int]) -> str:
    lines = [f"| {one.what} | {one.secs:.3f} | {one.cpu:.3f} |" for one in planned]
    told = ", ".join(f"{size:,} bytes with all {what}" for what, size in sizes.items())
    head = ["**Planning**", "", "| | seconds | of the processor |", "|---|---|---|"]
    return "\n".join([*head, *lines, "", f"The state is {told}."])


def _commits(files: int, committed: list[Pairs]) -> str:
    lines = [f"| {one.files:,} | {_pair(one)} |" for one in committed]
    head = [
        f"**A commit that replaces** in a table of {files:,} files",
        "",
        "| files out and in | replacing s | appending s | ratio | ratio of CPU time | ratios |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def _rewriting(rows: int, rewritten: Pairs) -> str:
    head = [
        f"**A mixed file** of {rows:,} rows, of which a {units_rewriting.UNITS}th goes",
        "",
        "| rewriting s | copying s | ratio | ratio of CPU time | ratios |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, f"| {_pair(rewritten)} |"])


def _polls(polled: dict[int, Requests]) -> str:
    lines = [f"| {count} | {one.all:g} | {one.manifests:g} |" for count, one in polled.items()]
    head = [
        "**An idle poll**, S3 API",
        "",
        "| sources of units | requests | of these for manifests |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *lines])


def _pair(pairs: Pairs) -> str:
    ours = statistics.median(one for one, _ in pairs.secs)
    theirs = statistics.median(other for _, other in pairs.secs)
    each = " ".join(f"{one / other:.2f}" for one, other in pairs.secs)
    return f"{ours:.3f} | {theirs:.3f} | {pairs.ratio:.2f} | {pairs.cpu_ratio:.2f} | {each}"


def measured(*, quick: bool, rounds: int) -> str:
    """Measure everything; ``quick`` is small."""
    units, files, rows = (2_000, 500, 60_000) if quick else (200_000, 100_000, 3_000_000)
    counts = [1, 20] if quick else [1, 20, 100]
    with tempfile.TemporaryDirectory(prefix="bench-units-") as name:
        folder = Path(name)
        return report(
            units_planning.planning(units),
            (files, units_commits.pairs(folder, files, counts, rounds)),
            (rows, units_rewriting.pairs(folder, rows, rounds)),
            units_polls.polls([0, 1, 3]),
        )


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small tables, seconds")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(measured(quick=options.quick, rounds=3 if options.quick else options.rounds))


if __name__ == "__main__":
    main()

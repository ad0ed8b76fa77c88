"""Cost of event-time queries: commits, rows a second, many keys, many batches.

    python -m benchmarks.event_time [--quick]

Prints Markdown, the goals last. Seconds of a machine that does something else, too, are told with
its load, and judge nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from benchmarks import event_time_rows, event_time_settling
from benchmarks.event_time_rows import Rates
from benchmarks.event_time_settling import GROWTH_GOAL_MB, SETTLE_GOAL, Held, Keys, growth_mb
from blizzard_py.engines.spark.engine import SparkEngine


def report(
    settled: dict[int, list[float]], rates: list[Rates], keys: Keys, held: list[Held]
) -> str:
    """Return all tables as Markdown, the goals last."""
    return "\n\n".join(
        [
            f"Load at the end: {os.getloadavg()[0]:.1f}.",
            _settles(settled),
            _rates(rates),
            _keys(keys),
            _held(held),
            goals(settled, rates, held),
        ]
    )


def goals(settled: dict[int, list[float]], rates: list[Rates], held: list[Held]) -> str:
    """Return each goal with its measured value and whether it is met."""
    partitions = min(settled)
    small = statistics.median(settled[partitions])
    slowest = min(rates, key=lambda one: one.each_ratio)
    # One batch alone closes windows that nothing follows to bring out.
    followed = [one for one in rates if one.batches > 1] or rates
    waiting = min(followed, key=lambda one: one.next_ratio)
    growth = growth_mb(held)
    told = [
        (
            f"a small settle, {partitions} partitions: at most {SETTLE_GOAL} s on a quiet machine",
            f"{small:.2f} s",
            small <= SETTLE_GOAL,
        ),
        (
            "rows a second with each batch's windows before the next: at least Spark's file stream",
            f"{slowest.each_ratio:.2f} x ({slowest.batches} batches)",
            slowest.each_ratio >= 1,
        ),
        (
            "the same with windows that come with the next batch",
            f"{waiting.next_ratio:.2f} x ({waiting.batches} batches)",
            waiting.next_ratio >= 1,
        ),
        (
            f"memory over {held[-1].batches} batches: at most {GROWTH_GOAL_MB:g} MB more",
            f"{growth:+.1f} MB",
            growth <= GROWTH_GOAL_MB,
        ),
    ]
    lines = [f"| {what} | {is_} | {'met' if met else 'missed'} |" for what, is_, met in told]
    return "\n".join(["| goal | measured | |", "|---|---|---|", *lines])


def _settles(settled: dict[int, list[float]]) -> str:
    head = ["**A small settle** that closes windows", "", "| partitions | seconds | from, to |"]
    lines = [
        f"| {count} | {statistics.median(secs):.2f} | {min(secs):.2f}, {max(secs):.2f} |"
        for count, secs in settled.items()
    ]
    return "\n".join([*head, "|---|---|---|", *lines])


def _rates(rates: list[Rates]) -> str:
    head = [
        f"**Windows over {rates[0].rows:,} rows** of gzip NDJSON, seconds with the query's start;",
        "Spark's file stream as it comes, given batch by batch, then all at once, and then tuned",
        "with our settings; medians of 5 rounds of one batch and of 3 of twenty",
        "",
        "| batches | ours | rows a second | Spark | `next_batch` | Spark, all | tuned | duckdb |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"| {one.batches} | {one.ours:.1f} | {one.rows / one.ours:,.0f} | {one.spark_each:.1f} |"
        f" {one.next_batch:.1f} | {one.spark:.1f} | {one.tuned_spark:.1f} | {one.duckdb:.1f} |"
        for one in rates
    ]
    return "\n".join([*head, *lines])


def _keys(keys: Keys) -> str:
    head = [
        f"**{keys.keys:,} keys remembered** by the removal of duplicates",
        "",
        "| JVM before MB | with them MB | settle of 10,000 new s | restore s | first settle s |",
        "|---|---|---|---|---|",
    ]
    line = (
        f"| {keys.before_mb:,.0f} | {keys.with_mb:,.0f} | {keys.settle_secs:.2f} |"
        f" {keys.restore_secs:.2f} | {keys.first_settle_secs:.2f} |"
    )
    return "\n".join([*head, line])


def _held(held: list[Held]) -> str:
    head = [
        "**Memory of one process** on the way, heap after a collection",
        "",
        "| batches | heap MB | JVM MB | Python MB |",
        "|---|---|---|---|",
    ]
    lines = [
        f"| {one.batches} | {one.heap_mb:,.0f} | {one.jvm_mb:,.0f} | {one.python_mb:,.0f} |"
        for one in held
    ]
    return "\n".join([*head, *lines])


def measured(*, quick: bool) -> str:
    """Measure everything; ``quick`` is small."""
    rows, keys, batches, looks = (
        (40_000, 20_000, 8, 4) if quick else (2_000_000, 1_000_000, 500, 10)
    )
    # Rounds by batches: a short run says little alone.
    counts = {1: 1, 5: 1} if quick else {1: 5, 20: 3, 200: 1}
    partitions = [2, 4] if quick else [2, 8, 32]
    engine = SparkEngine("local[2]")
    with tempfile.TemporaryDirectory(prefix="bench-event-time-") as name:
        folder = Path(name)
        try:
            event_time_settling.settles(folder, engine, 1, 1)  # Spark is up from here on
            settled = {
                count: event_time_settling.settles(folder, engine, count, 3 if quick else 15)
                for count in partitions
            }
            event_time_rows.rates(folder, engine, rows // 20, 1, 1)  # nobody's first query counts
            rates = [
                event_time_rows.rates(folder, engine, rows, count, rounds)
                for count, rounds in counts.items()
            ]
            above = event_time_settling.above_keys(folder, engine, keys, 2 if quick else 5)
            held = event_time_settling.held_over(folder, engine, batches, looks)
        finally:
            engine.stop()
    return report(settled, rates, above, held)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few rows and batches, minutes")
    options = parser.parse_args()
    print(measured(quick=options.quick))


if __name__ == "__main__":
    main()

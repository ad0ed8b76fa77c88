"""Goals of the event-time benchmark."""

from __future__ import annotations

import pytest

from benchmarks.event_time import goals, report
from benchmarks.event_time_rows import Rates
from benchmarks.event_time_settling import Held, Keys, growth_mb

HELD = [Held(n * 50, 90.0, 400.0, 200.0) for n in range(1, 11)]


def rates(each: float, waiting: float = 2.0, batches: int = 20) -> Rates:
    return Rates(1_000, batches, 10.0, 5.0, 10.0 * each, 5.0 * waiting, 4.0, 0.1)


@pytest.mark.parametrize(
    ("settle", "each", "waiting", "heap", "missed"),
    [
        (0.6, 1.0, 1.0, 110.0, []),
        (0.61, 1.0, 1.0, 110.0, ["a small settle, 2 partitions"]),
        (0.6, 1.0, 0.99, 110.0, ["come with the next batch"]),
        (0.6, 0.99, 1.0, 110.0, ["each batch's windows before the next"]),
        (0.6, 1.0, 1.0, 110.1, ["memory over 500 batches"]),
    ],
)
def test_goals_are_met_or_missed(
    settle: float, each: float, waiting: float, heap: float, missed: list[str]
) -> None:
    # The median of the fewest partitions, the slowest of the runs, and what grew since a quarter.
    settled = {8: [9.0], 2: [settle, 0.1, 9.0]}
    held = [*HELD[:-1], Held(500, heap, 9_000.0, 200.0)]
    text = goals(settled, [rates(2.0), rates(1.0, 0.5, batches=1), rates(each, waiting)], held)
    lines = [line for line in text.splitlines() if line.endswith("| missed |")]
    assert len(lines) == len(missed)
    assert all(part in line for part, line in zip(missed, lines, strict=True))


def test_growth_counts_used_heap_and_not_jvm_size() -> None:
    assert growth_mb(HELD) == 0
    assert growth_mb([Held(1, 90.0, 400.0, 200.0), Held(2, 80.0, 900.0, 207.0)]) == 7.0


def test_report_has_all_measurements() -> None:
    keys = Keys(1_000_000, 448.0, 612.0, 0.8, 2.5, 3.4)
    text = report({2: [0.4], 32: [1.5, 1.7]}, [rates(1.5, batches=1)], keys, HELD)
    for told in (
        "| 32 | 1.60 | 1.50, 1.70 |",
        "| 1 | 10.0 | 100 | 15.0 | 5.0 | 10.0 | 4.0 | 0.1 |",
        "| 448 | 612 | 0.80 | 2.50 | 3.40 |",
        "| 500 | 90 | 400 | 200 |",
        "at most 20 MB more | +0.0 MB | met |",
    ):
        assert told in text

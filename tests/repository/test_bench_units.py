"""The benchmark of units: its goals and its measurements."""

from __future__ import annotations

import pytest

from benchmarks.units import goals, measured
from benchmarks.units_commits import Pairs
from benchmarks.units_planning import Timed
from benchmarks.units_polls import Requests


def pairs(ratio: float, files: int = 1) -> Pairs:
    """Return rounds whose median ratio is this one, whatever the others are."""
    return Pairs(files, [(ratio, 1.0), (9.0, 1.0), (0.1, 1.0)], [(1.0, 1.0)] * 3)


@pytest.mark.parametrize(
    ("secs", "commit", "rewriting", "manifests", "missed"),
    [
        (1.0, 1.5, 1.2, 3.0, []),
        (1.1, 1.5, 1.2, 3.0, ["plan"]),
        (1.0, 1.6, 1.2, 3.0, ["a replacing commit"]),
        (1.0, 1.5, 1.21, 3.0, ["rewriting"]),
        (1.0, 1.5, 1.2, 6.0, ["an idle poll"]),
    ],
)
def test_goals_are_met_or_missed(
    secs: float, commit: float, rewriting: float, manifests: float, missed: list[str]
) -> None:
    planned = [Timed("plan of 10 units", secs, 0.1), Timed("what is due", 99.0, 0.1)]
    polled = {0: Requests(3, 0), 3: Requests(3 + manifests, manifests)}
    text = goals(planned, [pairs(1.0), pairs(commit, 20)], pairs(rewriting), polled)
    lines = [line for line in text.splitlines() if line.endswith("| missed |")]
    assert len(lines) == len(missed)
    assert all(part in line for part, line in zip(missed, lines, strict=True))


def test_a_short_run_reports_all_four() -> None:
    text = measured(quick=True, rounds=1)
    for told in (
        "| plan of 2,000 units |",
        "**A commit that replaces** in a table of 500 files",
        "**A mixed file** of 60,000 rows, of which a 20th goes",
        "| 3 | 5 | 3 |",
        "| an idle poll: one request more a source | 1.00 | met |",
    ):
        assert told in text

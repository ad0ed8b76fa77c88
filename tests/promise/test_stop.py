"""SIGTERM in every phase: the real processes end with 0 and save their state.

They are started to run for ever, so one that misses the signal fails by the
time-out of `Scenario.call`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.scenario import Scenario

DIRECT = ("0-listing", "1-planned", "3-prepared", "4-one-renamed", "6-idle")


def filled(tmp_path: Path, **limits: Any) -> tuple[Scenario, list[int]]:
    """Three batches, one file each."""
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source["checkpoint"] = {"interval_files": 1}
    scenario.document["global"].update(limits)
    scenario.write_config()
    for number in (1, 2, 3):
        scenario.put_rows(f"date=2024-01-0{number}/{number}.ndjson.gz", number)
    return scenario, [1, 2, 3]


def stopped(scenario: Scenario, point: str, program: str) -> list[dict[str, Any]]:
    """Run until SIGTERM at the point has ended the process; its log."""
    done = scenario.call("tests.support.dying_main", point, program, "run", str(scenario.config))
    assert done.returncode == 0, (done.returncode, done.stderr)
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    assert events[-1]["event"] == "stopped"
    assert not [e for e in events if e["level"] in ("error", "critical")]
    return events


def batches(scenario: Scenario) -> int:
    document = scenario.status("blizzard")
    return document["pipelines"]["events"]["sources"]["main"]["totals"]["batches"]


@pytest.mark.promise("G-184")
@pytest.mark.parametrize("point", DIRECT)
def test_blizzard_stops_in_every_phase(tmp_path: Path, point: str) -> None:
    scenario, expected = filled(tmp_path)
    stopped(scenario, f"TERM-DIRECT:{point}", "blizzard")
    status = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]
    # What had begun was finished; how much that is depends on when the signal was seen.
    assert status["in_flight"] == []
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == expected


@pytest.mark.promise("G-184")
@pytest.mark.parametrize("grace_secs", [60, 0])
def test_stop_finishes_a_spark_job_or_cancels_it_after_grace(
    tmp_path: Path, grace_secs: int
) -> None:
    scenario, expected = filled(tmp_path, shutdown_grace=f"{grace_secs}s")
    events = stopped(scenario, "TERM:2-job-submitted", "blizzard")
    if grace_secs:
        assert batches(scenario) >= 1
        assert "cancelled" not in [event["event"] for event in events]
    else:
        assert batches(scenario) == 0
        assert {"grace_period_over", "cancelled"} <= {event["event"] for event in events}
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == expected


@pytest.mark.parametrize("point", ["0-listing", "before-commit", "after-commit", "commit-idle"])
def test_penguin_stops_in_every_phase(tmp_path: Path, point: str) -> None:
    scenario, expected = filled(tmp_path)
    scenario.ingest()
    stopped(scenario, f"TERM:{point}", "penguin")
    scenario.commit()
    assert scenario.ids() == expected
    table = scenario.status("penguin")["tables"]["events"]
    assert table["txn_version"] == 1

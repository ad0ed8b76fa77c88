"""Lines of `plan` and `status` about a budget of LIST requests."""

from __future__ import annotations

from typing import Any

import pytest

from blizzard_core.settings.sources import SourceSettings
from blizzard_core.watermark.progress import Progress, mark_done
from blizzard_py.commands.printing import print_plan
from blizzard_py.sources.files.list_budget import budget_document, budget_lines, budget_notes
from blizzard_py.state.source_state import SourceState, Totals
from tests.support.flat_settings import nested
from tests.support.watermarks import nothing_waits, passed

HOURS = [f"date=2024-06-01/hour={hour:02}" for hour in range(24)]
NOW = 1_717_286_400.0
DONE = passed(Progress(depth=2, floor=HOURS[0]), [f"{hour}/1" for hour in HOURS])
KNOWN = mark_done(DONE, [f"{HOURS[-2]}/2"], NOW - 240, nothing_waits)


def state(files: int) -> SourceState:
    return SourceState().with_position(progress=KNOWN).with_summary(totals=Totals(files=files))


def document(files: int = 1_000_000, known: Progress = KNOWN, **given: Any) -> dict[str, Any]:
    source = SourceSettings.model_validate(
        nested(SourceSettings, {"source_uri": "s3://raw", **given})
    )
    found = budget_document(source, state(files), known, NOW)
    assert found is not None
    return found


def notes(files: int, **given: Any) -> list[str]:
    source = SourceSettings.model_validate(
        nested(SourceSettings, {"source_uri": "s3://raw", **given})
    )
    return list(budget_notes(source, state(files), KNOWN, NOW))


def test_lines_price_what_waiting_costs() -> None:
    assert list(budget_lines(document(max_list_cost="5 USD/month"))) == [
        "5.00 USD/month = 1,389 LISTs an hour, 42 of them the sweep's",
        "hot: date=2024-06-01/hour=23 (newest), date=2024-06-01/hour=22 (found 4 min ago)",
        (
            "2 hot of 24 ranges every 7.5 s, all every 3.5 min: a file waits 3.8 s on average,"
            " 7.5 s at most there and 3.5 min elsewhere"
        ),
        (
            "1.00 USD: 41 s / 19 min · 20.00 USD: 1.9 s / 52 s · polls of everything each 60 s:"
            " 5.18 USD"
        ),
    ]


def test_lines_without_a_budget_have_no_price() -> None:
    lines = list(budget_lines(document(full_scan_interval="1h", poll_interval="2s")))
    assert lines[0] == "scans 2 hot of 24 ranges every 2 s, all every 60 min"
    assert len(lines) == 2


def test_lines_before_the_first_file() -> None:
    lines = list(budget_lines(document(0, Progress(), max_list_cost="0.36 USD/month")))
    assert lines[0] == "0.36 USD/month = 100 LISTs an hour, 0 of them the sweep's"
    assert lines[1].startswith("all 1 ranges every 37 s: a file waits")


def test_status_says_what_a_budget_does_not_pay() -> None:
    assert notes(1000, max_list_cost="5 USD/month") == [
        "scans 2 hot of 24 ranges every 7.5 s, all every 3.5 min"
    ]
    late = notes(100_000_000, max_list_cost="5 USD/month")
    assert late[1] == (
        "a sweep for late files takes about 100,000 LISTs, with half of the budget 144 h: longer"
        " than late_sweep_interval"
    )
    few = notes(1000, max_list_cost="0.072 USD/month")
    assert few[1] == (
        "the LIST budget pays a scan of all 24 ranges in 8 h only; 39 an hour would pay it in six"
        " hours"
    )
    assert notes(1000) == []


def test_plan_prints_the_budget_below_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    source = {
        "state": "Idle",
        "watermark": "1",
        "files": [],
        "list_requests": 24,
        "directories_read": None,
        "keys_listed": 0,
        "notes": [],
        "list_budget": document(max_list_cost="5 USD/month"),
    }
    print_plan({"pipelines": {"events": {"sources": {"main": source}}}})
    lines = capsys.readouterr().out.splitlines()
    assert "events/main: 5.00 USD/month = 1,389 LISTs an hour, 42 of them the sweep's" in lines
    assert lines[-1].startswith("  1.00 USD: ")


def test_partitions_of_an_earlier_selection_cost_nothing() -> None:
    """Of 50 tenants whose partitions are tracked one is left."""
    known = passed(Progress(depth=2), [f"tenant={n:02}/date=2024-06-01/1" for n in range(50)])
    every = document(0, known, max_list_cost="3.60 USD/month")
    assert (every["ranges"], every["hot_ranges"]) == (51, 50)
    assert len(every["hot"]) == 50
    found = document(0, known, max_list_cost="3.60 USD/month", include=["tenant=17/**"])
    assert (found["ranges"], found["hot_ranges"]) == (2, 1)
    assert [each["partition"] for each in found["hot"]] == ["tenant=17/date=2024-06-01"]
    assert found["all_secs"] < every["all_secs"] / 10

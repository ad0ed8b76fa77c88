"""One writer per source: concurrent requests of operators bring each row once after any loss."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from blizzard_py.__main__ import main
from blizzard_py.job import IngestJob, IngestResult
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario

NAMES = ["--pipeline", "events", "--source", "main"]


class Hooked(DirectEngine):
    """Calls ``before`` once, before the next job: what another person does meanwhile."""

    before: Callable[[], object] | None = None

    def ingest(self, job: IngestJob) -> IngestResult:
        before, Hooked.before = Hooked.before, None
        if before is not None:
            before()
        return super().ingest(job)


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", Hooked)
    monkeypatch.setattr(Hooked, "before", None)
    return Scenario(tmp_path, str(tmp_path / "place"))


def day(ago: int) -> str:
    return f"date={dt.datetime.now(dt.UTC) - dt.timedelta(days=ago):%Y-%m-%d}"


def blizzard(scenario: Scenario, *words: str, code: int = 0) -> str:
    command, *rest = words
    group = ["checkpoint", rest.pop(0)] if command == "checkpoint" else [command]
    done = CliRunner().invoke(main, [*group, str(scenario.config), *rest])
    assert done.exit_code == code, done.output
    return done.output


def with_history(scenario: Scenario, *ago: int) -> None:
    """Give the source two days of files, each with its own row."""
    scenario.main_source["partition_filter"] = {
        "prefix_template": "date=%Y-%m-%d",
        "lookback": 2,
    }
    scenario.write_config()
    for each in ago:
        scenario.put_rows(f"{day(each)}/{each}.json.gz", each)
    scenario.ingest()


def test_a_rollback_is_refused_while_a_request_brings_files(scenario: Scenario) -> None:
    scenario.main_source["grace_period"] = "1s"
    scenario.write_config()
    for number in (1, 2):
        scenario.put_rows(f"date=2024-01-0{number}/{number}.json.gz", number)
    scenario.ingest()
    for number in (3, 4):
        scenario.put_rows(f"date=2024-01-03/{number}.json.gz", number)
    blizzard(
        scenario,
        *("checkpoint", "set", *NAMES, "--partition", "date=2024-01-03"),
        *("--watermark", "9.json", "--yes"),
    )
    log = blizzard(scenario, "checkpoint", "log", *NAMES)
    version = next(word for word in log.split() if word.startswith("epoch-"))
    told: list[str] = []

    def roll_back() -> None:
        to = ("--to", version, "--why", "a mistake", "--yes")
        told.append(blizzard(scenario, "checkpoint", "rollback", *NAMES, *to, code=1))

    Hooked.before = roll_back
    blizzard(
        scenario,
        "backfill",
        *NAMES,
        "--again",
        "--from",
        "date=2024-01-03",
        "--to",
        "date=2024-01-03",
    )
    assert "is running" in told[0]
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, 4]


def test_overlapping_backfills_bring_a_partition_once(scenario: Scenario) -> None:
    with_history(scenario, 0, 10, 11, 12)

    def other() -> None:
        ends = ("--from", day(11), "--to", day(10))
        blizzard(scenario, "backfill", *NAMES, *ends, "--no-wait", code=7)

    Hooked.before = other
    blizzard(scenario, "backfill", *NAMES, "--from", day(12), "--to", day(11))
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 10, 11, 12]


def test_a_reset_is_refused_while_a_request_brings_files(scenario: Scenario) -> None:
    with_history(scenario, 0, 10, 11)
    told: list[str] = []

    def reset() -> None:
        told.append(blizzard(scenario, "checkpoint", "reset", *NAMES, "--yes", code=1))

    Hooked.before = reset
    blizzard(scenario, "backfill", *NAMES, "--from", day(11), "--to", day(10))
    assert "is running" in told[0]
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 10, 11]


def test_requested_files_stay_done_after_a_rebuild(
    scenario: Scenario,
) -> None:
    with_history(scenario, 0, 10, 11, 13)
    early = f"{day(-5)}/1.json.gz"
    scenario.put_rows(early, 99)
    blizzard(scenario, "backfill", *NAMES, "--from", day(11), "--to", day(10))
    blizzard(scenario, "ingest", f"{scenario.place}/raw/{early}")
    lake = Path(scenario.place, "lake/events/_blizzard")
    (lake / "events_main_checkpoint.json").unlink()
    blizzard(scenario, "checkpoint", "rebuild", *NAMES, "--yes")
    scenario.ingest()
    blizzard(scenario, "ingest", f"{scenario.place}/raw/{day(10)}/10.json.gz")
    blizzard(scenario, "backfill", *NAMES, "--from", day(13), "--to", day(11))
    scenario.main_source["advanced"] = {"max_ahead": "30d"}
    scenario.write_config()
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 10, 11, 13, 99]

"""``blizzard backfill`` of files: a range by its ends, done by the daemon or here."""

from __future__ import annotations

import datetime as dt

import pytest
from click.testing import CliRunner, Result

from blizzard_py.__main__ import main as blizzard
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario, scenario_on


def backfill(scenario: Scenario, first: str, last: str, *more: str) -> Result:
    where = ("--pipeline", "events", "--source", "main", "--from", first, "--to", last)
    return CliRunner().invoke(blizzard, ["backfill", str(scenario.config), *where, *more])


class Today:
    """One for all of a test, in which a day may begin."""

    at = dt.datetime.now(dt.UTC)


def day(back: int) -> str:
    return f"date={Today.at - dt.timedelta(days=back):%Y-%m-%d}"


@pytest.fixture
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Ten days of files; the live daemon began two days back and is up to date."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    monkeypatch.setattr(Today, "at", dt.datetime.now(dt.UTC))
    found = scenario_on(getattr(request, "param", "local"), request)
    found.main_source["partition_filter"] = {"prefix_template": "date=%Y-%m-%d", "lookback": 2}
    found.write_config()
    for back in range(10):
        found.put_rows(f"{day(back)}/1.json.gz", back)
    found.ingest()
    return found


@pytest.mark.promise("G-031")
@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_backfill_ingests_once_and_leaves_new_files_to_polls(scenario: Scenario) -> None:
    done = backfill(scenario, day(6), day(4))
    assert (done.exit_code, "3 rows of 3 files are in." in done.stdout) == (0, True), done.output
    again = backfill(scenario, day(6), day(4))
    assert (again.exit_code, "3 present" in again.stdout) == (0, True)
    planned = backfill(scenario, day(9), day(7), "--dry-run")
    assert (planned.exit_code, "3 would ingest" in planned.stdout) == (0, True)
    assert backfill(scenario, day(9), day(7)).exit_code == 0
    scenario.commit()
    assert scenario.ids() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    # What arrives now is for polls, wherever it lies.
    scenario.put_rows(f"{day(0)}/2.json.gz", 100)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 100]


@pytest.mark.promise("G-036")
@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_a_range_comes_again_once_and_once_more_on_demand(scenario: Scenario) -> None:
    def again(*more: str) -> list[int]:
        done = backfill(scenario, f"{day(1)}/1.json.gz", day(1), *more)
        assert done.exit_code == 0, done.stderr
        scenario.commit()
        return [found for found in scenario.ids() if found == 1]

    assert again() == [1]
    assert again("--again") == [1, 1]
    assert again("--again") == [1, 1]
    assert again("--again", "--once-more") == [1, 1, 1]
    assert again("--again") == [1, 1, 1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--once-more",), "--once-more goes with --again"),
        (("--again", "--replace"), "either --replace or --again"),
        (("--assume-named",), "--assume-named goes with --replace"),
        (("--chunk", "1month"), "for tables and APIs"),
        (("--values", "a"), "for sources of work units"),
        (("--save",), "--save"),
        (("--source", "other"), "there is no events/other; known: events/main"),
        (("--from", "z"), "sorts above --to"),
    ],
)
def test_wrong_options_are_refused(scenario: Scenario, more: tuple[str, ...], message: str) -> None:
    wrong = backfill(scenario, "a", "b", *more)
    assert (wrong.exit_code, message in wrong.stderr) == (2, True), wrong.output

"""``blizzard ingest``: a request for files by their URIs, done by the daemon or here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.operations import files_by_source
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario, scenario_on


@pytest.fixture
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = scenario_on(getattr(request, "param", "local"), request)
    found.put_rows("date=2024-01-01/5.json.gz", 1)
    found.ingest()
    return found


def command(scenario: Scenario, *arguments: str) -> Result:
    return CliRunner().invoke(blizzard, ["ingest", str(scenario.config), *arguments])


@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_the_command_takes_files_by_their_uri_and_tells_of_each(scenario: Scenario) -> None:
    scenario.put_rows("date=2024-01-01/_h.json.gz", 2)
    scenario.put("date=2024-01-01/plain.txt", b'{"id": 3, "text": "t"}\n')
    root = f"{scenario.place}/raw/date=2024-01-01"
    dry = command(scenario, f"{root}/_h.json.gz", "--dry-run")
    assert (dry.exit_code, "would ingest" in dry.stdout) == (0, True), dry.output
    done = command(scenario, f"{root}/_h.json.gz", f"{root}/plain.txt", f"{root}/x.json", "--json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert [file["state"] for file in document["files"]] == ["ingested", "ingested", "missing"]
    assert (document["rows"], document["files"][0]["source"]) == (2, "events/main")
    folder = command(scenario, root)
    assert (folder.exit_code, "missing" in folder.stdout) == (1, True)
    shown = command(scenario, f"{root}/plain.txt")
    assert "its rows are in" in shown.stdout
    assert "0 rows of 0 files are in." in shown.stdout
    assert (shown.exit_code, "1 present" in shown.stdout) == (0, True)
    # Written again it is another file, of which nothing is in.
    scenario.put("date=2024-01-01/plain.txt", b'{"id": 4, "text": "other"}\n')
    refused = command(scenario, f"{root}/plain.txt")
    assert (refused.exit_code, "not known to be the same file still" in refused.stdout) == (1, True)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3]


def test_no_wait_leaves_the_request_to_the_daemon(scenario: Scenario) -> None:
    scenario.put_rows("date=2024-01-01/_h.json.gz", 2)
    uri = f"{scenario.place}/raw/date=2024-01-01/_h.json.gz"
    left = command(scenario, uri, "--no-wait")
    assert (left.exit_code, "is not done by any daemon yet" in left.stderr) == (7, True)
    assert "taken" in left.stdout
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2]
    done = command(scenario, uri)
    assert (done.exit_code, "1 present" in done.stdout) == (0, True)


def test_ingest_is_refused_before_the_first_run_of_a_source(tmp_path: Path) -> None:
    fresh = Scenario(tmp_path, str(tmp_path))
    fresh.put_rows("date=2024-01-01/5.json.gz", 1)
    found = command(fresh, f"{fresh.place}/raw/date=2024-01-01/5.json.gz")
    assert (found.exit_code, "has no checkpoint; have it run once first" in found.stderr) == (
        1,
        True,
    )


@pytest.mark.promise("G-047")
def test_files_of_another_place_are_not_requested(scenario: Scenario) -> None:
    scenario.put_rows("date=2024-01-01/_h.json.gz", 2)
    other = scenario.folder / "other" / "date=2024-01-01"
    other.mkdir(parents=True)
    (other / "_h.json.gz").write_bytes(b"{}")
    right = scenario.main_source["source_uri"]
    scenario.main_source["source_uri"] = str(scenario.folder / "other")
    scenario.write_config()
    done = command(scenario, str(other / "_h.json.gz"))
    assert (done.exit_code, "is of the files below" in done.stderr) == (1, True)
    # Nor does the owner take them for its own, under their names.
    scenario.main_source["source_uri"] = right
    scenario.write_config()
    scenario.ingest()
    scenario.commit()
    assert 2 not in scenario.ids()


def test_a_uri_must_name_one_source(scenario: Scenario) -> None:
    elsewhere = command(scenario, "/nowhere/1.json")
    assert (elsewhere.exit_code, "names no file below" in elsewhere.stderr) == (2, True)
    wrong = command(scenario, f"{scenario.place}/raw/1.json.gz", "--pipeline", "none")
    assert (wrong.exit_code, "known: events/main" in wrong.stderr) == (2, True)
    # The account may stand in the options, so the URI alone does not tell them apart.
    for name in ("one", "two"):
        scenario.document["pipelines"]["events"]["sources"][name] = {
            "source_uri": "az://box/raw",
            "storage_options": {"AZURE_STORAGE_ACCOUNT_NAME": name},
        }
    scenario.write_config()
    both = command(scenario, "az://box/raw/1.json.gz")
    assert both.exit_code == 2
    assert "lies below the roots of events/one, events/two; say which" in both.stderr


def test_a_relative_path_names_one_of_several_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    other = {"source_uri": str(tmp_path / "other")}
    scenario.document["pipelines"]["events"]["sources"]["other"] = other
    scenario.write_config()
    monkeypatch.chdir(tmp_path)
    config = load_config(scenario.config)
    found = files_by_source(config, ["raw/d/1.json", "./other/2.json"], (None, None))
    assert found == {("events", "main"): ["d/1.json"], ("events", "other"): ["2.json"]}
    with pytest.raises(ConfigError, match=r"d/1\.json: names no file below .*; it is outside of"):
        files_by_source(config, ["d/1.json"], (None, None))

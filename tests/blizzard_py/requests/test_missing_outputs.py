"""Outputs that are deleted before they are committed are told, and come again by request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from blizzard_core.errors import REFUSED
from blizzard_core.storage.protocol import Entry
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.request_harness import DAY
from tests.support.scenario import Scenario


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A table with one file, and a second one that waits for its commit."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    found.put_rows(f"{DAY}/1.json.gz", 1)
    found.ingest()
    assert penguins(found, "run", "--once").exit_code == 0
    found.put_rows(f"{DAY}/2.json.gz", 2)
    found.ingest()
    return found


def penguins(scenario: Scenario, command: str, *more: str) -> Result:
    return CliRunner().invoke(penguin, [command, str(scenario.config), *more])


def blizzards(scenario: Scenario, command: str, *more: str) -> Result:
    return CliRunner().invoke(blizzard, [command, str(scenario.config), *more])


def vacuumed(scenario: Scenario, *, full: bool = True) -> list[str]:
    return DeltaTable(scenario.table.uri).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=full
    )


@pytest.mark.promise("G-102")
def test_vacuumed_output_is_reported_and_ingested_again(scenario: Scenario) -> None:
    [gone] = vacuumed(scenario)
    done = penguins(scenario, "run", "--once")
    assert done.exit_code == REFUSED
    [told] = [line for line in done.output.splitlines() if "outputs_missing" in line]
    assert f"{DAY}/2.json.gz" in told
    assert "blizzard replay CONFIG --refused" in told
    for command in ("status", "reconcile"):
        answer = penguins(scenario, command)
        assert answer.exit_code == REFUSED
        assert f"missing: {gone}" in answer.stdout
    assert penguins(scenario, "run", "--once").exit_code == REFUSED  # as long as it is missing
    answer = blizzards(scenario, "status")
    assert answer.exit_code == REFUSED
    assert f"{DAY}/2.json.gz" in answer.stdout
    done = blizzards(scenario, "replay", "--refused")
    assert done.exit_code == 0, done.output
    assert penguins(scenario, "run", "--once").exit_code == 0
    assert scenario.ids() == [1, 2]
    assert penguins(scenario, "status").exit_code == 0
    assert blizzards(scenario, "status").exit_code == 0


def test_an_output_that_comes_back_is_committed(scenario: Scenario) -> None:
    [name] = [e.path for e in data_files(scenario) if e.path not in committed(scenario)]
    data = scenario.table.read(name)
    vacuumed(scenario)
    assert penguins(scenario, "run", "--once").exit_code == REFUSED
    scenario.table.put_atomic(name, data)
    assert penguins(scenario, "reconcile").exit_code == 0
    assert scenario.ids() == [1, 2]
    assert (
        json.loads(penguins(scenario, "status", "--json").stdout)["tables"]["events"]["missing"]
        == []
    )


@pytest.mark.promise("G-102")
def test_waiting_and_compacted_outputs_are_not_missing(scenario: Scenario) -> None:
    vacuumed(scenario, full=False)
    assert penguins(scenario, "run", "--once").exit_code == 0
    assert scenario.ids() == [1, 2]
    DeltaTable(scenario.table.uri).optimize.compact()
    assert len(vacuumed(scenario)) == 2
    assert penguins(scenario, "run", "--once").exit_code == 0
    assert penguins(scenario, "reconcile").exit_code == 0


@pytest.mark.promise("G-102")
def test_an_output_that_is_not_renamed_yet_is_not_missing(scenario: Scenario) -> None:
    [name] = [e.path for e in data_files(scenario) if e.path not in committed(scenario)]
    [journal] = [e.path for e in everything(scenario) if "/journal/" in e.path][-1:]
    [output] = json.loads(scenario.table.read(journal))["outputs"]
    assert output["final"] == name
    scenario.table.rename(name, output["staged"])
    assert penguins(scenario, "run", "--once").exit_code == 0
    scenario.table.rename(output["staged"], name)
    assert penguins(scenario, "run", "--once").exit_code == 0
    assert scenario.ids() == [1, 2]


def test_a_damaged_journal_stops_no_commit(scenario: Scenario) -> None:
    for entry in everything(scenario):
        if "/journal/" in entry.path:
            scenario.table.put_atomic(entry.path, b"{")
    assert penguins(scenario, "run", "--once").exit_code == 0
    assert scenario.ids() == [1, 2]


def everything(scenario: Scenario) -> list[Entry]:
    return [e for page in scenario.table.list_range("", None) for e in page.entries]


def data_files(scenario: Scenario) -> list[Entry]:
    return [e for e in everything(scenario) if e.path.endswith(".parquet") and e.path[0] != "_"]


def committed(scenario: Scenario) -> set[str]:
    uris = DeltaTable(scenario.table.uri).file_uris()
    return {uri.removeprefix(f"{scenario.table.uri}/") for uri in uris}

"""Columns of the path from configuration to table, and in what commands show."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from blizzard_core.settings.load import load_config
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.inspection import plan
from blizzard_py.app.operations import files_by_source
from tests.support.scenario import Scenario, ndjson


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    found.main_source["path_columns"] = {"region": "string", "day": "date"}
    pipeline = found.document["pipelines"]["events"]
    pipeline["sink"]["partition_by"] = {"columns": ["region"]}
    pipeline["schema"] = {"infer": True}
    found.write_config()
    return found


def output_of(scenario: Scenario, *command: str) -> str:
    done = CliRunner().invoke(blizzard, [command[0], str(scenario.config), *command[1:]])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_path_columns_go_into_the_table(scenario: Scenario) -> None:
    good = "region=S%C3%A3o/day=2024-01-01/a.ndjson.gz"
    scenario.put(good, ndjson({"id": 1, "region": "of the file", "text": "x"}))
    scenario.put("region=eu/day=2024-01-02/b.ndjson.gz", ndjson({"id": 2}))
    scenario.put("region=eu/day=never/c.ndjson.gz", ndjson({"id": 3}))
    [note] = sources(scenario)["notes"]
    assert note == (
        "1 new file would become dead letters, such as region=eu/day=never/c.ndjson.gz: its path"
        " has 'never' for path column 'day', which is no date"
    )
    shown = output_of(scenario, "explain", f"{scenario.place}/raw/{good}")
    assert "  path       day=2024-01-01, region=São\n" in shown
    scenario.ingest()
    scenario.commit()
    table = DeltaTable(f"{scenario.place}/lake/events")
    assert table.metadata().partition_columns == ["region"]
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    found = sorted((row["id"], row["region"], str(row["day"]), row["text"]) for row in rows)
    assert found == [(1, "São", "2024-01-01", "x"), (2, "eu", "2024-01-02", None)]
    shown = output_of(scenario, "explain", f"{scenario.place}/raw/region=eu/day=never/c.ndjson.gz")
    assert "partition: its path has 'never'" in shown
    assert "# from the path: {day: date}" in output_of(scenario, "schema")
    document = json.loads(output_of(scenario, "schema", "--json"))["pipelines"]["events"]
    assert [field["name"] for field in document["fields"]] == ["id", "text"]
    assert document["path_columns"] == {"region": "string", "day": "date"}


def test_replayed_records_keep_the_values_of_their_path(scenario: Scenario) -> None:
    scenario.document["pipelines"]["events"]["schema"] = {
        "fields": [{"name": "id", "type": "int64", "nullable": False}]
    }
    scenario.document["pipelines"]["events"]["error_handling"] = {"max_bad_fraction": 1}
    scenario.write_config()
    scenario.put("region=eu/day=2024-01-02/a.ndjson.gz", ndjson({"id": 1}, {"id": "2"}))
    scenario.ingest()
    scenario.document["pipelines"]["events"]["schema"]["fields"][0]["type"] = "string"
    scenario.document["pipelines"]["events"]["schema"]["fields"][0]["coerce"] = True
    scenario.write_config()
    where = ("--pipeline", "events", "--source", "main")
    command = ["replay", str(scenario.config), *where, "--all", "--no-wait"]
    assert CliRunner().invoke(blizzard, command).exit_code == 7  # for the daemon
    scenario.ingest()
    outputs = list(Path(scenario.place, "lake/events/region=eu").glob("*.parquet"))
    assert len(outputs) == 2


def sources(scenario: Scenario) -> dict[str, Any]:
    document, errors = plan(load_config(scenario.config))
    assert not errors
    return document["pipelines"]["events"]["sources"]["main"]


def test_tables_share_a_source_folder_by_tenants(scenario: Scenario) -> None:
    pipelines = scenario.document["pipelines"]
    for tenant in ("eu", "us"):
        pipelines[tenant] = copy.deepcopy(pipelines["events"])
        pipelines[tenant]["sources"]["main"]["include"] = [f"region={tenant}/**"]
        pipelines[tenant]["sink"]["table_uri"] = f"{scenario.place}/lake/{tenant}"
        scenario.put(f"region={tenant}/day=2024-01-01/a.ndjson.gz", ndjson({"id": len(pipelines)}))
    del pipelines["events"]
    scenario.write_config()
    scenario.ingest()
    for tenant, count in (("eu", 2), ("us", 3)):
        [output] = Path(scenario.place, "lake", tenant).glob("*/*.parquet")
        assert pq.read_table(output)["id"].to_pylist() == [count]
        uri = f"{scenario.place}/raw/region={tenant}/day=2024-01-01/a.ndjson.gz"
        assert output_of(scenario, "explain", uri).startswith("ingested: 1 row in batch")
        config = load_config(scenario.config)
        assert [*files_by_source(config, [uri], (None, None))] == [(tenant, "main")]

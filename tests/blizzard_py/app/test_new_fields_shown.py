"""Fields without a column, as `explain` and `schema --diff` show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from blizzard_core.errors import DIFFERS
from blizzard_core.settings.document import Config
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.flat_settings import nested
from tests.support.scenario import Scenario, ndjson
from tests.support.workbooks import saved

DAY = "date=2024-01-0"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path, str(tmp_path))


def call(*arguments: str, command: Any = blizzard) -> Result:
    return CliRunner().invoke(command, arguments)


def diff(scenario: Scenario, code: int) -> dict[str, Any]:
    done = call("schema", str(scenario.config), "--diff", "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)["pipelines"]["events"]


def explained(scenario: Scenario, path: str) -> tuple[dict[str, Any], str]:
    uri = f"{scenario.place}/raw/{path}"
    done = call("explain", str(scenario.config), uri, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), call("explain", str(scenario.config), uri).stdout


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.xlsx").write_bytes(saved([["id", "v", "v"], [1, 2, 3]]))
    reason = "a.xlsx: the header has 'v' twice; rename one"
    document: dict[str, Any] = {
        "pipelines": {
            "events": {
                "sources": {"main": {"source_uri": str(tmp_path / "raw"), "format": "excel"}},
                "sink": {"table_uri": str(tmp_path / "lake/t")},
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
            }
        }
    }
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump(nested(Config, document)))
    done = call("schema", str(config), "--diff")
    assert done.stdout.strip().endswith(f"(0 records of 1 file of events/main): {reason}")
    document["pipelines"]["events"]["schema"] = {"infer": True}
    config.write_text(yaml.safe_dump(nested(Config, document)))
    assert f"({reason})" in call("schema", str(config)).output
    made = call(
        "init", str(tmp_path / "new.yaml"), "--source-uri", str(tmp_path / "raw"),
        "--table-uri", str(tmp_path / "lake/t"),
    )  # fmt: skip
    assert reason in made.output


def test_explain_names_the_fields_without_a_column(scenario: Scenario) -> None:
    path = f"{DAY}1/1.ndjson.gz"
    scenario.put(path, ndjson({"id": 1, "new": 1, "e\u202evil": 2}))
    found, _ = explained(scenario, path)
    assert (found["verdict"], found["untaken"]) == ("pending", ["e\u202evil", "new"])
    scenario.ingest()
    found, text = explained(scenario, path)
    assert (found["verdict"], found["untaken"]) == ("ingested", ["e\u202evil", "new"])
    assert "no column  for e\\u202evil, new" in text
    scenario.put_rows(f"{DAY}1/2.ndjson.gz", 2)
    found, text = explained(scenario, f"{DAY}1/2.ndjson.gz")
    assert found["untaken"] == found["added_since"] == []
    assert "no column" not in text
    missing, _ = explained(scenario, f"{DAY}1/3.ndjson.gz")
    assert missing["untaken"] is None


def test_explain_tells_of_columns_that_were_added_since(scenario: Scenario) -> None:
    path = f"{DAY}1/1.ndjson.gz"
    scenario.put(path, ndjson({"id": 1, "new": 1, "other": 1}))
    scenario.ingest()
    scenario.document["pipelines"]["events"]["schema"]["evolve"] = "add"
    scenario.write_config()
    kept = scenario.folder / "lake/events/_blizzard/events_schema.json"
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 2, "new": 2}))
    scenario.ingest()
    document = json.loads(kept.read_bytes())
    document["added"]["new"] += 10  # whole seconds, and the test takes less than one
    kept.write_text(json.dumps(document))
    found, text = explained(scenario, path)
    assert (found["untaken"], found["added_since"]) == (["other"], ["new"])
    assert "added      new: a column since it was ingested" in text


def test_schema_diff_exits_with_0_when_nothing_differs(scenario: Scenario) -> None:
    (scenario.folder / "raw").mkdir()
    assert diff(scenario, 0)["records"] == 0
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1, 2)
    for _ in range(2):  # new files, and files that are done
        assert diff(scenario, 0)["differs"] is False
        told = call("schema", str(scenario.config), "--diff").stdout
        assert told == "# events: no difference in 2 records of 1 file of events/main\n"
        scenario.ingest()


def test_schema_diff_prints_the_yaml_that_adds_new_columns(scenario: Scenario) -> None:
    events = scenario.document["pipelines"]["events"]
    user = {"name": "user", "type": "struct", "fields": [{"name": "name", "type": "string"}]}
    events["schema"]["fields"].append(user)
    scenario.write_config()
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
    scenario.ingest()
    record = {"id": 1.5, "price": 1, "Text": "x", "user": {"name": "a", "age": 1}, "n: [": 1}
    scenario.put(f"{DAY}2/1.ndjson.gz", ndjson(record, {"date": "left to the path"}))
    scenario.put(f"{DAY}2/2.ndjson.gz", b"not gzip")
    found = diff(scenario, DIFFERS)
    assert [each["path"] for each in found["new"]] == ["price", "n: [", "user.age"]
    assert [each["path"] for each in found["changed"]] == ["id"]
    assert found["unusable"].keys() == {"Text"}
    assert found["missing"] == []  # the older file has them
    done = call("schema", str(scenario.config), "--diff")
    assert done.exit_code == DIFFERS
    assert (
        "# changed: 'id' is {type: int64, nullable: false}, and records have float64" in done.stdout
    )
    assert "# new, to add to `fields` of 'user': {name: age, type: int64}" in done.stdout
    pasted = yaml.safe_load(done.stdout)
    assert pasted == {
        "fields": [
            {"name": "price", "type": "int64"},
            {"name": "n:_[", "from": "n: [", "type": "int64"},
        ]
    }
    events["schema"]["fields"] += pasted["fields"]
    user["fields"].append({"name": "age", "type": "int64"})
    events["schema"]["fields"][0] = {"name": "id", "type": "float64", "nullable": False}
    scenario.write_config()
    assert diff(scenario, 0)["differs"] is False


def test_only_the_newest_files_count(scenario: Scenario) -> None:
    scenario.document["pipelines"]["events"]["schema"]["sample_files"] = 1
    scenario.write_config()
    scenario.put(f"{DAY}1/1.ndjson.gz", ndjson({"id": 1, "text": "x", "old": 1}))
    scenario.ingest()
    scenario.put(f"{DAY}2/1.ndjson.gz", ndjson({"id": 1}))
    found = diff(scenario, DIFFERS)
    assert found["files"] == [f"{DAY}2/1.ndjson.gz"]
    assert (found["new"], found["missing"]) == ([], ["text"])


def test_the_table_counts(scenario: Scenario) -> None:
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
    scenario.ingest()
    assert call("run", str(scenario.config), "--once", command=penguin).exit_code == 0
    fields = scenario.document["pipelines"]["events"]["schema"]["fields"]
    fields[:] = [{"name": "id", "type": "string"}, {"name": "more", "type": "json"}]
    scenario.write_config()
    found = diff(scenario, DIFFERS)
    assert found["table"]["only"] == ["text"]
    assert found["table"]["lacks"] == ["more"]
    assert "'id'" in found["table"]["refused"][0]


def test_columns_not_inferred_yet_are_no_difference(
    scenario: Scenario,
) -> None:
    scenario.document["pipelines"]["events"]["schema"] = {"infer": True}
    scenario.write_config()
    scenario.put_rows(f"{DAY}1/1.ndjson.gz", 1)
    assert diff(scenario, 0)["known"] is False
    scenario.ingest()
    scenario.put(f"{DAY}1/2.ndjson.gz", ndjson({"id": 1, "new": [1]}))
    assert [each["path"] for each in diff(scenario, DIFFERS)["new"]] == ["new"]


def test_a_source_out_of_reach_is_an_error(scenario: Scenario) -> None:
    scenario.main_source["source_uri"] = f"{scenario.place}/nowhere"
    scenario.write_config()
    done = call("schema", str(scenario.config), "--diff")
    assert done.exit_code == 1
    assert "events: " in done.stderr

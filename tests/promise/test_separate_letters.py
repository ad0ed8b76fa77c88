"""Dead letters in a store with credentials of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import ConfigError
from blizzard_core.redact import redacted
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import listed
from blizzard_py.__main__ import main
from blizzard_py.app.doctor import stores_of
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario, ndjson


def separate(tmp_path: Path, errors: dict[str, Any]) -> Scenario:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.document["pipelines"]["events"]["error_handling"] = errors
    scenario.write_config()
    return scenario


@pytest.mark.parametrize("is_flat", [True, False])
def test_letters_are_written_and_replayed_there(
    tmp_path: Path, s3: S3Server, is_flat: bool
) -> None:
    options = {"dlq_storage_options": s3.options}
    place = {"dlq_path": f"s3://{s3.new_bucket()}/dlq"}
    scenario = separate(tmp_path, {**place, **(options if is_flat else {"advanced": options})})
    good = [{"id": number, "text": "x"} for number in range(20)]
    scenario.put("date=2024-01-01/1.ndjson.gz", ndjson(*good, {"id": "7x", "text": "y"}))
    scenario.ingest()
    letters = open_storage(place["dlq_path"], s3.options)
    assert [each.path for each in listed(letters, "", None) if "records" in each.path]
    assert not (tmp_path / "lake/events/_blizzard/dlq").exists()

    scenario.document["pipelines"]["events"]["schema"]["fields"][0] = {
        "name": "id", "type": "string", "coerce": True,
    }  # fmt: skip
    scenario.write_config()
    chosen = ("--pipeline", "events", "--source", "main", "--all", "--no-wait")
    done = CliRunner().invoke(main, ["replay", str(scenario.config), *chosen])
    assert "is not done" in done.output
    scenario.ingest()
    found = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]
    assert (found["totals"]["rows"], found["dead_letters"]["records"]) == (21, 0)
    [store] = [each for each in stores_of(load_config(scenario.config)) if "letters" in each.use]
    assert store.options == s3.options


def test_options_without_a_place_are_refused(tmp_path: Path) -> None:
    scenario = separate(tmp_path, {"dlq_storage_options": {"AWS_REGION": "x"}})
    with pytest.raises(ConfigError, match="dlq_storage_options needs dlq_path"):
        load_config(scenario.config)


def test_secrets_of_letters_are_masked(tmp_path: Path) -> None:
    options = {"AWS_SECRET_ACCESS_KEY": "hush-hush-hush"}
    scenario = separate(tmp_path, {"dlq_path": "s3://dlq/x", "dlq_storage_options": options})
    load_config(scenario.config)
    assert "hush" not in redacted("key hush-hush-hush")


def test_a_relative_key_file_belongs_to_the_configuration(tmp_path: Path) -> None:
    options = {"GOOGLE_SERVICE_ACCOUNT": "key.json"}
    scenario = separate(tmp_path, {"dlq_path": "gs://dlq/x", "dlq_storage_options": options})
    (tmp_path / "key.json").write_text("{}")
    found = load_config(scenario.config).pipelines["events"].error_handling.advanced
    assert found.dlq_storage_options == {"GOOGLE_SERVICE_ACCOUNT": f"{tmp_path}/key.json"}

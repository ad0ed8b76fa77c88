"""``backfill --replace`` in processes of its own, with Spark as it is."""

from __future__ import annotations

from pathlib import Path

from tests.support.scenario import Scenario


def test_spark_replaces_a_mended_file(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    sink = scenario.document["pipelines"]["events"]["sink"]
    sink["metadata_columns"] = ["_source_file"]
    scenario.write_config()
    for number in (1, 2):
        scenario.put_rows(f"date=2024-01-01/{number}.json.gz", number)
    scenario.once("blizzard")  # a process that ends, so the command has the source
    scenario.commit()
    scenario.put_rows("date=2024-01-01/1.json.gz", 11, 12)
    names = ("--pipeline=events", "--source=main", "--from=date=2024-01-01", "--to=date=2024-01-01")
    scenario.run("blizzard", "backfill", str(scenario.config), *names, "--replace")
    scenario.commit()
    assert scenario.ids() == [2, 11, 12]

"""``--replace`` as a user gives it: commands, real files and a real Delta table, each version."""

from __future__ import annotations

import json

import duckdb
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from blizzard_core.handover.groups import group_path
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.support.direct_engine import DirectEngine
from tests.support.scenario import Scenario, scenario_on

DAY = "date=2024-01-01"


@pytest.fixture
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Five files of two days are in the table."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = scenario_on(getattr(request, "param", "local"), request)
    found.main_source["checkpoint"] = {"interval_files": 2}
    return found


def ingest_five_files(scenario: Scenario, *, named: bool) -> None:
    sink = scenario.document["pipelines"]["events"]["sink"]
    sink["metadata_columns"] = ["_source_file"] if named else []
    scenario.write_config()
    for number in range(1, 5):
        scenario.put_rows(f"{DAY}/{number}.json.gz", number, number + 10)
    scenario.put_rows("date=2024-01-02/5.json.gz", 5)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, 4, 5, 11, 12, 13, 14]


def backfill(scenario: Scenario, first: str, last: str, *more: str) -> Result:
    names = ["--pipeline=events", "--source=main", f"--from={first}", f"--to={last}"]
    return CliRunner().invoke(
        blizzard, ["backfill", str(scenario.config), *names, "--replace", *more]
    )


def versions(scenario: Scenario) -> list[list[int]]:
    """The ids in each version of the table, read by duckdb; the last says the same without."""
    options = {**scenario.options, "AWS_ALLOW_HTTP": "true"} if scenario.options else None
    uri = f"{scenario.place}/lake/events"
    found = []
    for version in range(DeltaTable(uri, storage_options=options).version() + 1):
        table = DeltaTable(uri, version=version, storage_options=options)
        connection = duckdb.connect()
        connection.register("events", table.to_pyarrow_dataset())
        rows = connection.execute("select id from events order by id").fetchall()
        found.append([row[0] for row in rows])
    return found


@pytest.mark.promise("G-037")
@pytest.mark.parametrize(
    ("scenario", "named"), [("local", True), ("local", False), ("s3", True)], indirect=["scenario"]
)
def test_every_version_has_one_reading_of_each_file(scenario: Scenario, named: bool) -> None:
    ingest_five_files(scenario, named=named)
    before = versions(scenario)
    scenario.put_rows(f"{DAY}/1.json.gz", 101)
    scenario.put_rows(f"{DAY}/2.json.gz", 102, 112, 122)
    dry = backfill(scenario, DAY, f"{DAY}/2.json.gz", "--dry-run")
    assert (dry.exit_code, "2 files would replace 4 rows" in dry.stdout) == (0, True), dry.output
    assert ("outputs" in dry.stdout) is not named
    done = backfill(scenario, DAY, f"{DAY}/2.json.gz", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["rows"], document["replaced"], document["blocked"]) == (4, 4, {})
    scenario.commit()
    first = [3, 4, 5, 13, 14, 101, 102, 112, 122]
    assert versions(scenario) == [*before, first]
    # Once more, and with nothing of it.
    scenario.put_rows(f"{DAY}/1.json.gz", 201)
    scenario.put(f"{DAY}/2.json.gz", b"")
    again = backfill(scenario, f"{DAY}/1.json.gz", f"{DAY}/2.json.gz")
    assert again.exit_code == 1, again.output  # an empty gzip file is none, so it is kept
    scenario.commit()
    kept = sorted([*first, 201] if named else [*first, 101])
    kept.remove(101)
    assert scenario.ids() == kept
    assert all(version in ([*before, first, kept]) for version in versions(scenario))


def test_required_files_are_named_and_nothing_is_written(
    scenario: Scenario,
) -> None:
    ingest_five_files(scenario, named=False)
    there = paths(scenario)
    done = backfill(scenario, f"{DAY}/2.json.gz", f"{DAY}/2.json.gz")
    assert done.exit_code == 1
    assert f"{DAY}/1.json.gz" in done.stderr
    assert "--from and --to" in done.stderr
    assert paths(scenario) == there
    assert scenario.table.stat(group_path("events_main", 1)) is None


def test_letters_of_mended_files_replace_what_their_files_had(scenario: Scenario) -> None:
    ingest_five_files(scenario, named=True)
    pipeline = scenario.document["pipelines"]["events"]
    pipeline["error_handling"] = {"max_bad_fraction": 1}
    scenario.write_config()
    scenario.put("date=2024-01-02/6.json", b'{"id": 6}\n{"id": "x"}\n{"id": "y"}\n')
    scenario.ingest()
    scenario.commit()
    scenario.put("date=2024-01-02/6.json", b'{"id": 6}\n{"id": 16}\n{"id": 26}\n')
    names = [str(scenario.config), "--pipeline=events", "--source=main"]
    command = ["replay", *names, "--all", "--replace"]
    dry = CliRunner().invoke(blizzard, [*command, "--dry-run"])
    assert "1 file would replace 1 row." in dry.stdout, dry.output
    done = CliRunner().invoke(blizzard, command)
    assert (done.exit_code, "in the place of 1 row." in done.stdout) == (0, True), done.output
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 16, 26]
    listed = CliRunner().invoke(blizzard, ["dlq", "list", str(scenario.config), "--json"])
    assert listed.stdout == ""
    told = CliRunner().invoke(
        blizzard,
        ["explain", str(scenario.config), f"{scenario.place}/raw/date=2024-01-02/6.json", "--json"],
    )
    found = json.loads(told.stdout)
    assert (found["batch"]["group"], found["outputs"][0]["delta_status"]) == (1, "committed")


def paths(scenario: Scenario) -> set[str]:
    pages = scenario.table.list_range(f"{DAY}/", f"{DAY}0")
    return {entry.path for page in pages for entry in page.entries}


def test_a_file_with_rejected_rows_is_replaced_when_discarded(
    scenario: Scenario,
) -> None:
    ingest_five_files(scenario, named=True)
    there = paths(scenario)
    scenario.put_rows(f"{DAY}/6.json.gz", 6, 16)
    scenario.ingest()
    [broken] = paths(scenario) - there
    scenario.table.put_atomic(broken, b"PAR1 and no more of it")
    scenario.commit()
    scenario.put_rows(f"{DAY}/6.json.gz", 106)
    assert "wait behind" not in backfill(scenario, f"{DAY}/6.json.gz", f"{DAY}/6.json.gz").output
    scenario.commit()
    dry = backfill(scenario, f"{DAY}/1.json.gz", f"{DAY}/1.json.gz", "--dry-run")
    assert "groups of this source wait behind one that waits" in dry.stdout
    assert "penguin discard --output" in dry.stdout
    done = backfill(scenario, f"{DAY}/1.json.gz", f"{DAY}/1.json.gz", "--json")
    assert "quarantined" in json.loads(done.stdout)["blocked"]["events/main"]
    manifest = json.loads(scenario.table.read(group_path("events_main", 1)))
    [output] = manifest["outputs"]
    before = versions(scenario)
    names = [str(scenario.config), "--table=events", f"--output={output}"]
    told = CliRunner().invoke(penguin, ["discard", *names])
    assert told.exit_code == 0, told.output
    assert versions(scenario) == [*before, before[-1]]
    scenario.commit()
    assert scenario.ids() == [1, 2, 3, 4, 5, 11, 12, 13, 14, 106]
    dry = backfill(scenario, f"{DAY}/1.json.gz", f"{DAY}/1.json.gz", "--dry-run", "--json")
    assert json.loads(dry.stdout)["blocked"] == {}

"""``blizzard requests``: what was ordered of sources, how far it is, and what became of files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_py.__main__ import main as blizzard
from blizzard_py.commands.requests import summarize
from blizzard_py.requests.document import Request
from tests.support.direct_engine import DirectEngine
from tests.support.request_harness import RequestHarness, made
from tests.support.scenario import Scenario

DAY = "date=2024-01-01"
WHERE = ("--pipeline", "events", "--source", "main")


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Two files are in, and two were given up."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    found.document["pipelines"]["events"]["sink"]["metadata_columns"] = ["_source_file"]
    found.write_config()
    found.put_rows(f"{DAY}/1.json.gz", 1, 2)
    found.put_rows(f"{DAY}/2.json.gz", 3)
    for name in ("3", "4"):
        found.put(f"{DAY}/{name}.json.gz", b"junk")
    found.ingest()
    return found


def invoke(scenario: Scenario, *words: str) -> Result:
    count = 2 if words[0] in {"requests", "dlq"} else 1
    given = [*words[:count], str(scenario.config), *words[count:]]
    return CliRunner().invoke(blizzard, given)


def listed(scenario: Scenario) -> list[list[str]]:
    """The lines of `requests list` below its heading, as words."""
    shown = invoke(scenario, "requests", "list")
    assert shown.exit_code == 0, shown.output
    return [line.split() for line in shown.stdout.splitlines()]


def test_the_list_says_what_was_ordered_and_how_far_it_is(scenario: Scenario) -> None:
    scenario.put_rows(f"{DAY}/3.json.gz", 4)
    replayed = invoke(scenario, "replay", *WHERE, "--all", "--why", "mended")
    assert replayed.exit_code == 1, replayed.output
    assert "1 ingested" in replayed.stdout
    closed = invoke(scenario, "dlq", "discard", *WHERE, "--all", "--why", "junk")
    assert closed.exit_code == 0, closed.output
    invoke(scenario, "backfill", *WHERE, "--from", DAY, "--to", DAY, "--replace", "--no-wait")
    heading, *lines = listed(scenario)
    assert heading == ["source", "id", "what", "state", "done", "by", "at"]
    found = sorted(line[2:-2] for line in lines if line[0] == "events/main")
    assert ["add", "1", "letter", "done", "1"] in found
    assert ["close", "1", "letter", "done", "1"] in found
    assert ["replace", DAY, "..", "open", "-"] in found
    document = json.loads(invoke(scenario, "requests", "list", "--json").stdout)
    assert {each["state"] for each in document["requests"]} == {"done", "open"}


def test_the_files_of_a_request_are_shown_with_their_rows(scenario: Scenario) -> None:
    scenario.put_rows(f"{DAY}/1.json.gz", 7)
    scenario.put_rows(f"{DAY}/3.json.gz", 4, 5)
    names = ("--from", f"{DAY}/1.json.gz", "--to", f"{DAY}/3.json.gz", "--replace")
    done = invoke(scenario, "backfill", *WHERE, *names)
    assert done.exit_code == 0, done.output
    request_id = done.stdout.split()[1]
    assert "file  " not in invoke(scenario, "requests", "show", request_id).stdout
    shown = invoke(scenario, "requests", "show", request_id, "--files")
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(DAY)]
    assert rows[0][:4] == [f"{DAY}/1.json.gz", "replaced", "1", "2"]
    assert rows[1][:4] == [f"{DAY}/2.json.gz", "replaced", "1", "1"]
    assert rows[2][:3] == [f"{DAY}/3.json.gz", "ingested", "2"]
    document = json.loads(
        invoke(scenario, "requests", "show", request_id, "--files", "--json").stdout
    )
    assert [(file["state"], file["rows"], file["before"]) for file in document["files"]] == [
        ("replaced", 1, 2),
        ("replaced", 1, 1),
        ("ingested", 2, 0),
    ]
    plain = json.loads(invoke(scenario, "requests", "show", request_id, "--json").stdout)
    assert "files" not in plain
    assert invoke(scenario, "requests", "show", "00000000.1", "--files").exit_code == 1


def test_the_files_of_a_request_that_nobody_did_yet_are_none(scenario: Scenario) -> None:
    left = invoke(scenario, "replay", *WHERE, "--all", "--no-wait")
    assert left.exit_code == 7, left.output
    request_id = left.stdout.split()[1]
    document = json.loads(
        invoke(scenario, "requests", "show", request_id, "--files", "--json").stdout
    )
    assert (document["state"], document["files"]) == ("open", [])


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (("reingest", {"range": ["a", "b"]}, {"mode": "again"}), "again a .. b"),
        (("reingest", {"range": ["a", "a"]}, {"mode": "replace"}), "replace a .."),
        (("reingest", {"files": ["a"]}, {}), "add 1 file"),
        (("reingest", {"letters": ["a", "b", "c"]}, {"mode": "add"}), "add 3 letters"),
        (("close_letters", {"letters": ["a", "b"]}, {}), "close 2 letters"),
        (("mark_units", {"units": ["a", "b"]}, {}), "mark 2 units"),
        (
            ("advance_watermark", {"to_ms": 1_706_450_400_000}, {}),
            "advance watermark to 2024-01-28T14:00:00Z",
        ),
    ],
)
def test_each_kind_of_request_is_summarized(request_: tuple[str, dict, dict], what: str) -> None:  # type: ignore[type-arg]  # any
    kind, select, options = request_
    parts = RequestHarness().parts()
    request: Request = made(parts, select, kind, **options)  # type: ignore[arg-type]  # any kind
    assert summarize(request) == what

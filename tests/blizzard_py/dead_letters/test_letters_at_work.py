"""Dead letters at work: one count, the bad line with its neighbours, closing with a reason."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_py.__main__ import main as blizzard
from blizzard_py.dead_letters.reader import Counted, counted, objects, read
from tests.support.direct_engine import DirectEngine
from tests.support.pipeline_harness import PipelineHarness
from tests.support.scenario import Scenario

DAY = "date=2024-01-01"
WHERE = ("--pipeline=events", "--source=main")


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """A file with two bad records among twenty, and one that is bad as a whole."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    lines = [json.dumps({"id": number, "text": f"t{number}"}) for number in range(1, 41)]
    lines[6] = '{"id": "\x1b[31mseven\u202e", "text": "x"}'
    lines[8] = '{"id": "nine"}'
    found.put(f"{DAY}/1.json", "".join(f"{line}\n" for line in lines).encode())
    found.put(f"{DAY}/2.json", b'{"id": 1}\nnonsense\n')
    found.ingest()
    return found


def run_command(scenario: Scenario, *command: str) -> Result:
    verb = 2 if command[0] == "dlq" else 1
    given = [*command[:verb], str(scenario.config), *command[verb:]]
    return CliRunner().invoke(blizzard, given)


def listed(scenario: Scenario, *more: str) -> list[dict[str, str]]:
    done = run_command(scenario, "dlq", "list", "--json", *more)
    return [json.loads(line) for line in done.stdout.splitlines()]


def dead_letters(scenario: Scenario) -> dict[str, int]:
    told = json.loads(run_command(scenario, "status", "--json").stdout)
    return told["pipelines"]["events"]["sources"]["main"]["dead_letters"]


@pytest.mark.promise("G-192")
def test_every_command_counts_the_same_letters(scenario: Scenario) -> None:
    assert len(listed(scenario)) == 3
    assert "3 letters in 2 objects." in run_command(scenario, "dlq", "list").stderr
    told = dead_letters(scenario)
    assert (told["letters"], told["records"], told["objects"]) == (3, 2, 2)
    dry = run_command(scenario, "replay", *WHERE, "--all", "--dry-run")
    assert "2 would ingest" in dry.stdout
    done = run_command(scenario, "replay", *WHERE, "--all")
    assert (done.exit_code, "2 records failed again" in done.stdout) == (1, True), done.output
    # What failed again is told as of the source's files.
    again = listed(scenario)
    assert {letter["path"].rpartition("/raw/")[2] for letter in again} == {
        f"{DAY}/1.json",
        f"{DAY}/2.json",
    }
    assert dead_letters(scenario)["letters"] == len(again)


@pytest.mark.promise("G-192")
def test_the_bad_line_is_shown_with_its_neighbours_and_harmless(scenario: Scenario) -> None:
    records = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "records")
    done = run_command(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "7")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    shown = [line[2:] for line in done.stdout.splitlines()[2:]]
    assert [line[:3] for line in shown] == ["  5", "  6", "> 7", "  8", "  9"]
    assert "seven" in shown[2]
    whole = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "files")
    lines = json.loads(
        run_command(scenario, "dlq", "show", *WHERE, "--letter", whole, "--json").stdout
    )
    [letter] = lines["letters"]
    assert letter["line"] == 2
    assert [line["text"] for line in letter["lines"]] == ['{"id": 1}', "nonsense"]
    assert (
        run_command(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "1").exit_code
        == 1
    )


def test_dlq_show_reports_a_file_that_no_longer_exists(scenario: Scenario) -> None:
    records = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "records")
    scenario.source.delete(f"{DAY}/1.json")
    done = run_command(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "9")
    assert "the file is gone" in done.stdout
    assert '> 9  {"id": "nine"}' in done.stdout


def test_dlq_show_notes_a_file_that_was_replaced_since(scenario: Scenario) -> None:
    records = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "records")
    shown = ("dlq", "show", *WHERE, "--letter", records, "--line", "9")
    note = "the file was replaced after the letter was written"
    assert note not in run_command(scenario, *shown).stdout
    scenario.put(f"{DAY}/1.json", b"{}\n" * 20)
    later = time.time() + 60
    os.utime(f"{scenario.place}/raw/{DAY}/1.json", (later, later))
    assert note in run_command(scenario, *shown).stdout


def test_letters_are_closed_with_a_reason_and_explain_tells_it(scenario: Scenario) -> None:
    uri = f"{scenario.place}/raw/{DAY}/2.json"
    told = run_command(scenario, "explain", uri).stdout
    whole = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "files")
    assert f"blizzard replay CONFIG --pipeline events --source main --letter {whole}" in told
    good = run_command(scenario, "explain", f"{scenario.place}/raw/{DAY}/1.json").stdout
    assert f"--letter {whole}.records" in good
    close = ("dlq", "discard", *WHERE, "--letter", whole)
    assert run_command(scenario, *close).exit_code == 2
    assert run_command(scenario, *close, "--why", " ").exit_code == 2
    assert run_command(scenario, *close, "--why", "junk", "--dry-run").exit_code == 0
    assert dead_letters(scenario)["letters"] == 3
    done = run_command(scenario, *close, "--why", "junk of a vendor")
    assert (done.exit_code, "1 letter in 1 object is closed." in done.stdout) == (0, True)
    assert dead_letters(scenario)["letters"] == 2
    assert "junk of a vendor" in run_command(scenario, "explain", uri).stdout
    assert run_command(scenario, *close, "--why", "again").exit_code == 2


def test_letters_count_by_line_and_only_as_far_as_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = PipelineHarness()
    world.put(f"{DAY}/1.json", "bad")
    world.put(f"{DAY}/2.json", "a", "?", "?")
    world.drain()
    found = list(objects(world.dlq, "events_main"))
    told = counted(world.dlq, found)
    assert (told.objects, told.letters, told.records, told.complete) == (2, 3, 2, True)
    monkeypatch.setattr("blizzard_py.dead_letters.reader.OBJECTS_COUNTED", 1)
    assert not counted(world.dlq, found).complete
    assert counted(world.dlq, []) == Counted()


@pytest.mark.parametrize("tries", ["many", None, [2]])
def test_a_letter_is_read_whatever_its_retry_count_is(tries: object) -> None:
    world = PipelineHarness()
    world.put(f"{DAY}/1.json", "bad")
    world.drain()
    [found] = objects(world.dlq, "events_main")
    document = json.loads(world.dlq.read(found.path)) | {"retry_count": tries}
    world.dlq.put_atomic(found.path, json.dumps(document).encode())
    [letter] = read(world.dlq, found)
    assert (letter.uri, letter.retry_count) == (f"mem://raw/{DAY}/1.json", None)

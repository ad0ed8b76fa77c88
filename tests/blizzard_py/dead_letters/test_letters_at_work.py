"""Dead letters at work: one count, the bad line with its neighbours, closing with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import FencedError
from blizzard_core.storage.protocol import Storage
from blizzard_py.__main__ import main as blizzard
from blizzard_py.dead_letters.counting import Counted, counted, lines_of
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.dead_letters.reasons import reason_of
from blizzard_py.replay.discarding import Discarded, DiscardRefused, discard
from blizzard_py.replay.taken import Taken
from blizzard_py.state.source_state import Closing
from tests.blizzard_py.replay.test_replay import ReplayWorld
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died, Dying
from tests.support.scenario import Scenario

DAY = "date=2024-01-01"
WHERE = ("--pipeline=events", "--source=main")
WHY = Closing("test data", "ann@ops", "2024-01-28T14:00:00+00:00")


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


def asked(scenario: Scenario, *command: str) -> Result:
    verb = 2 if command[0] == "dlq" else 1
    given = [*command[:verb], str(scenario.config), *command[verb:]]
    return CliRunner().invoke(blizzard, given)


def listed(scenario: Scenario, *more: str) -> list[dict[str, str]]:
    done = asked(scenario, "dlq", "list", "--json", *more)
    return [json.loads(line) for line in done.stdout.splitlines()]


def dead_letters(scenario: Scenario) -> dict[str, int]:
    told = json.loads(asked(scenario, "status", "--json").stdout)
    found: dict[str, int] = told["pipelines"]["events"]["sources"]["main"]["dead_letters"]
    return found


def test_every_command_counts_the_same_letters(scenario: Scenario) -> None:
    assert len(listed(scenario)) == 3
    assert "3 letters in 2 objects." in asked(scenario, "dlq", "list").stderr
    told = dead_letters(scenario)
    assert (told["letters"], told["records"], told["objects"]) == (3, 2, 2)
    dry = asked(scenario, "dlq", "replay", *WHERE, "--all", "--dry-run")
    assert "3 letters in 2 objects: 3 would replay." in dry.stdout
    done = asked(scenario, "dlq", "replay", *WHERE, "--all")
    assert "3 letters in 2 objects: 3 replayed." in done.stdout, done.output
    # What failed again is told as of the source's files.
    again = listed(scenario)
    assert {letter["path"].rpartition("/raw/")[2] for letter in again} == {
        f"{DAY}/1.json",
        f"{DAY}/2.json",
    }
    assert dead_letters(scenario)["letters"] == len(again)


def test_the_bad_line_is_shown_with_its_neighbours_and_harmless(scenario: Scenario) -> None:
    records = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "records")
    done = asked(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "7")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    shown = [line[2:] for line in done.stdout.splitlines()[2:]]
    assert [line[:3] for line in shown] == ["  5", "  6", "> 7", "  8", "  9"]
    assert "seven" in shown[2]
    whole = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "files")
    lines = json.loads(asked(scenario, "dlq", "show", *WHERE, "--letter", whole, "--json").stdout)
    [letter] = lines["letters"]
    assert letter["line"] == 2
    assert [line["text"] for line in letter["lines"]] == ['{"id": 1}', "nonsense"]
    assert asked(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "1").exit_code == 1


def test_a_file_that_is_gone_or_was_written_again_is_told(scenario: Scenario) -> None:
    records = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "records")
    scenario.source.delete(f"{DAY}/1.json")
    done = asked(scenario, "dlq", "show", *WHERE, "--letter", records, "--line", "9")
    assert "the file is gone" in done.stdout
    assert '> 9  {"id": "nine"}' in done.stdout


def test_letters_are_closed_with_a_reason_and_explain_tells_it(scenario: Scenario) -> None:
    uri = f"{scenario.place}/raw/{DAY}/2.json"
    told = asked(scenario, "explain", uri).stdout
    whole = next(letter["id"] for letter in listed(scenario) if letter["kind"] == "files")
    assert f"dlq replay CONFIG --pipeline events --source main --letter {whole}" in told
    good = asked(scenario, "explain", f"{scenario.place}/raw/{DAY}/1.json").stdout
    assert f"--letter {whole}.records" in good
    close = ("dlq", "discard", *WHERE, "--letter", whole)
    assert asked(scenario, *close).exit_code == 2
    assert asked(scenario, *close, "--why", " ").exit_code == 2
    assert asked(scenario, *close, "--why", "junk", "--dry-run").exit_code == 0
    assert dead_letters(scenario)["letters"] == 3
    done = asked(scenario, *close, "--why", "junk of a vendor")
    assert (done.exit_code, "1 letter in 1 object is closed." in done.stdout) == (0, True)
    assert dead_letters(scenario)["letters"] == 2
    assert "junk of a vendor" in asked(scenario, "explain", uri).stdout
    assert asked(scenario, *close, "--why", "again").exit_code == 2


def with_letters() -> ReplayWorld:
    world = ReplayWorld()
    world.put(f"{DAY}/1.json", "bad")
    world.put(f"{DAY}/2.json", "a", "?", "?")
    world.drain()
    return world


def closed(world: ReplayWorld, reason: Closing | None = WHY) -> list[Discarded]:
    replay = world.replay()
    return discard(world.live(), (replay.files, replay.records), world.open_letters(), reason)


def test_letters_count_by_line_and_only_as_far_as_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_letters()
    found = counted(world.dlq, world.open_letters())
    assert (found.objects, found.letters, found.records, found.complete) == (2, 3, 2, True)
    monkeypatch.setattr("blizzard_py.dead_letters.counting.OBJECTS_COUNTED", 1)
    assert not counted(world.dlq, world.open_letters()).complete
    assert counted(world.dlq, []) == Counted()


def test_what_is_closed_is_ingested_by_no_replay_and_fences_one_that_runs() -> None:
    world = with_letters()
    running = Taken(world.replay().files)
    state = running.open()
    told = [(each.kind, each.letters) for each in closed(world)]
    assert sorted(told) == [("files", 1), ("records", 2)]
    with pytest.raises(FencedError):
        running.add(state, [])
    assert world.run().outcomes == ()
    assert world.rows() == ["a"]


def test_letters_that_a_replay_has_taken_are_not_closed() -> None:
    world = with_letters()
    taken = Taken(world.replay().files)
    taken.add(taken.open(), [], letters_taken=[world.open_letters()[0].id])
    with pytest.raises(DiscardRefused, match="dlq replay"):
        closed(world)
    assert len(world.open_letters()) == 2


def test_a_replay_that_comes_in_between_has_the_letter_and_nobody_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_letters()
    lettered = world.open_letters()
    world.put(f"{DAY}/1.json", "mended")

    def sleeps(dlq: Storage, found: DeadLetterObject) -> int:
        monkeypatch.undo()
        world.run()  # it has all letters, and is done
        return lines_of(dlq, found)

    monkeypatch.setattr("blizzard_py.replay.discarding.lines_of", sleeps)
    with pytest.raises(FencedError):
        closed(world)
    assert world.rows() == ["a", "mended"]
    assert [reason_of(world.dlq, "events_main", each.id) for each in lettered] == [None, None]


def test_closing_that_dies_anywhere_is_done_again_or_by_the_next_replay() -> None:
    for again in (True, False):
        at, died = 0, True
        while died:
            world = with_letters()
            names = [each.id for each in world.open_letters()]
            dying = Dying(world.sink, world.dlq)
            dying.arm(at)
            died = False
            try:
                closed(world)
            except Died:
                died = True
            dying.countdown = -1
            taken = [
                Taken(parts).peek() for parts in (world.replay().files, world.replay().records)
            ]
            decided = {name for state in taken for name in state.closing}
            if again:
                closed(world)
                decided = set(names)
            world.put(f"{DAY}/1.json", "mended")
            world.run()
            told = {name for name in names if reason_of(world.dlq, "events_main", name)}
            assert decided <= told, at
            mended = names[0] not in told
            assert world.rows() == (["a", "mended"] if mended else ["a"]), at
            at += 1
        assert at > 8


def test_a_closed_letter_that_its_writer_brings_back_is_put_away_again() -> None:
    world = with_letters()
    [whole, _] = world.open_letters()
    data = world.dlq.read(whole.path)
    closed(world)
    world.dlq.put_atomic(whole.path, data)
    world.put(f"{DAY}/1.json", "mended")
    [outcome] = world.run().outcomes
    assert "closed by" in outcome.left_to_others[0][1]
    assert (world.open_letters(), world.rows()) == ([], ["a"])

"""State under another name, or of files at another place: all of it, once, whatever dies."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import BlizzardError, ColdStartRefused, FencedError, StateError
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader as letters
from blizzard_py.edits import rename
from blizzard_py.edits.rename import Rename, Renamed
from blizzard_py.edits.renamed_documents import RenameRefused, copy_letters, letter_for
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_document import state_from_json
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.source_state import checkpoint_path
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import MemoryStorage, each_death
from tests.support.request_harness import DAY, RequestHarness, ingest_files, outcomes_of, submit
from tests.support.scenario import scenario_on

OLD = "_blizzard/events_main_checkpoint.json"
NEW = "_blizzard/clicks_main_checkpoint.json"
MOVED = "_blizzard_fence/events_main~moved.json"


class RenameHarness(RequestHarness):
    """A source with a journal, letters, a replay, and something still to do."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**source)
        self.put(f"{DAY}/6.json", "bad")
        self.put(f"{DAY}/7.json", "bad")
        self.drain()
        self.put(f"{DAY}/3.json", "given")
        self.ingest(f"{DAY}/3.json")
        self.put_records({"path": f"mem://raw/{DAY}/1.json", "line": 3, "raw": "bad"})
        self.replay()  # fails again, so letters point into our own records
        self.put(f"{DAY}/8.json", "new")

    def renamed_parts(self) -> SourceContext:
        """The parts of the source under its new name."""
        return replace(self.parts(), pipeline="clicks")

    def rename(self, moved_from: str | None = None) -> Renamed:
        return Rename(self.renamed_parts(), "events_main", moved_from).run()

    def go_on_renamed(self) -> None:
        for _ in range(5):
            self.drain(source_pipeline(self.renamed_parts()))
            self.now += 86_400 / 2 + 1

    def replay_renamed(self) -> int:
        """Replay all letters under the new name; how many rows came of them."""
        parts = self.renamed_parts()
        ids = [each.id for each in letters.objects(self.dlq, parts.id)]
        if not ids:
            return 0
        request_id = submit(parts, {"letters": ids})
        self.drain(source_pipeline(parts))
        state = read_state(self.sink, parts.id)
        assert state.work.requests[request_id].state == "done"
        return state.work.requests[request_id].counts.get("rows", 0)


ROWS = ["1", "5", "52", "given"]


def test_everything_goes_over_and_nothing_comes_twice() -> None:
    world = RenameHarness()
    open_before = len(world.open_letters())
    told = world.rename()
    assert (told.old_id, told.new_id, told.begun, told.over) == (
        "events_main",
        "clicks_main",
        False,
        False,
    )
    assert len(list(letters.objects(world.dlq, "clicks_main"))) == open_before
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "new"]
    # The mended files come by a replay of the letters that moved along.
    world.put(f"{DAY}/6.json", "mended")
    assert world.replay_renamed() >= 1
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "mended", "new"]
    again = world.rename()
    assert again.over


def test_a_start_under_the_old_name_names_the_new_one() -> None:
    world = RenameHarness()
    daemon = world.pipeline()
    daemon.load()
    daemon.cycle(threading.Event())
    world.put(f"{DAY}/9.json", "9")
    world.rename()
    with pytest.raises(FencedError):
        daemon.cycle(threading.Event())
    with pytest.raises(StateError, match="was renamed to clicks_main") as told:
        world.drain()
    assert "_blizzard/clicks_main_checkpoint.json" in str(told.value)
    assert "`id: clicks_main`" in str(told.value)
    with pytest.raises(StateError, match="was renamed"):
        world.previewed(f"{DAY}/3.json")
    world.go_on_renamed()
    assert world.rows() == sorted([*ROWS, "9", "new"])


def test_every_release_refuses_a_tombstone() -> None:
    world = RenameHarness()
    world.rename()
    assert world.checkpoint()["schema_version"] == 0  # which none has ever read
    assert "watermark" not in world.checkpoint()


@pytest.mark.promise("G-057")
def test_the_command_finishes_after_a_death_at_any_write() -> None:
    for at, world, died in each_death(RenameHarness, RenameHarness.rename):
        if died:
            # Whoever runs meanwhile runs under one name at most.
            moving = "moved_to" in world.checkpoint()
            for worker in (world.pipeline(), source_pipeline(world.renamed_parts())):
                ours = worker.id == "clicks_main"
                if ours == (NEW in world.sink.objects and moving):
                    continue
                with pytest.raises(BlizzardError) if ours or moving else nullcontext():
                    world.drain(worker)
            world.rename()
        world.go_on_renamed()
        assert world.rows() == [*ROWS, "new"], at
        with pytest.raises(StateError, match="was renamed"):
            world.drain()
        assert world.replay_renamed() == 0
    assert at > 30


def test_a_death_after_the_new_daemons_start_copies_nothing() -> None:
    world = next(
        world
        for _, world, _ in each_death(RenameHarness, RenameHarness.rename)
        if NEW in world.sink.objects and "moving" in world.checkpoint()
    )
    world.go_on_renamed()
    world.put(f"{DAY}/6.json", "mended")
    world.replay_renamed()
    left = len(list(letters.objects(world.dlq, "clicks_main")))
    assert world.rename().begun
    assert len(list(letters.objects(world.dlq, "clicks_main"))) == left
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "mended", "new"]


@pytest.mark.promise("G-202")
def test_a_restored_old_checkpoint_does_not_run() -> None:
    announced = 0

    def rename(world: RenameHarness) -> None:
        world.old = world.sink.read(OLD)
        world.rename()

    for _, world, _ in each_death(RenameHarness, rename):
        world.sink.put_atomic(OLD, world.old)
        if MOVED not in world.sink.objects:
            continue
        announced += 1
        with pytest.raises(StateError, match="renamed to clicks_main"):
            world.drain()
        if NEW not in world.sink.objects:
            world.rename()
        world.go_on_renamed()
        assert world.rows() == [*ROWS, "new"]
    assert announced > 2


@pytest.mark.promise("G-202")
def test_an_older_checkpoint_is_not_renamed() -> None:
    world = RenameHarness()
    old = world.sink.read(OLD)
    world.put(f"{DAY}/6.json", "mended")
    world.ingest(f"{DAY}/6.json")
    world.drain()
    world.sink.put_atomic(OLD, old)
    before = dict(world.sink.objects)
    with pytest.raises(RenameRefused, match=r"`id: events_main`"):
        world.rename()
    assert world.sink.objects == before


def test_the_slower_of_two_at_once_finds_the_work_done(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RenameHarness()
    faster = [world.rename]

    def copy_after_another_run(*arguments: Any) -> int:
        while faster:
            assert not faster.pop()().over
        return copy_letters(*arguments)

    monkeypatch.setattr(rename, "copy_letters", copy_after_another_run)
    world.rename()
    assert not faster
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "new"]


@pytest.mark.promise("G-202")
@pytest.mark.parametrize("step", ["_take_over", "_create", "_let_go"])
def test_of_two_at_once_to_two_names_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world = RenameHarness()
    faster, original = [True], getattr(Rename, step)

    def overtaking(self: Rename, *arguments: Any) -> Any:
        if faster and faster.pop():
            other = Rename(replace(world.parts(), pipeline="views"), "events_main")
            if step == "_take_over":  # nothing is decided yet
                other.run()
            else:
                with pytest.raises(RenameRefused, match="renamed to clicks_main"):
                    other._rename(seen)  # noqa: SLF001  # it looked before we began
        return original(self, *arguments)

    seen = Rename(replace(world.parts(), pipeline="views"), "events_main").plan()
    monkeypatch.setattr(Rename, step, overtaking)
    if step == "_take_over":
        with pytest.raises(RenameRefused, match="renamed to views_main"):
            world.rename()
        assert not world.sink.stat(NEW)
        return
    world.rename()
    assert not world.sink.stat("_blizzard/views_main_checkpoint.json")
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "new"]


def test_letters_restored_by_a_slower_rename_bring_no_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RenameHarness()
    batch = "019aa000-0000-7000-8000-000000000002"
    world.put_records({"path": f"mem://raw/{DAY}/1.json", "line": 5, "raw": "record"}, batch=batch)
    opened = {found.id for found in world.open_letters()}
    came: list[int] = []

    def copy_after_another_run(*arguments: Any) -> int:
        if not came:
            came.append(0)
            world.rename()
            world.put(f"{DAY}/6.json", "mended")
            came.append(world.replay_renamed())
        return copy_letters(*arguments)

    monkeypatch.setattr(rename, "copy_letters", copy_after_another_run)
    world.rename()
    assert came == [0, 2]
    assert opened <= {found.id for found in letters.objects(world.dlq, "clicks_main")}
    assert world.replay_renamed() == 0
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "mended", "new", "record"]


@pytest.mark.promise("G-202")
@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("_blizzard_fence/clicks_main.json", b'{"number": 2, "batch": "b"}'),
        ("_blizzard_fence/clicks_main~moved.json", b'{"moved_to": "events_main"}'),
        ("_blizzard/clicks_main_ledger/00000001~a.digests", b""),
    ],
)
def test_a_name_with_work_of_before_is_refused(path: str, data: bytes) -> None:
    world = RenameHarness()
    world.sink.put_atomic(path, data)
    before = dict(world.sink.objects)
    with pytest.raises(RenameRefused, match=r"(?s)work under the new name.*`id: events_main`"):
        world.rename()
    assert world.sink.objects == before


@pytest.mark.promise("G-202")
def test_an_old_name_returns_by_id() -> None:
    world = RenameHarness()
    world.rename()
    for path in [path for path in world.sink.objects if "/events_main" in path]:
        if not path.startswith("_blizzard_fence"):  # what may be deleted by then
            del world.sink.objects[path]
    with pytest.raises(RenameRefused, match=r"renamed to clicks_main; .*`id: clicks_main`"):
        Rename(world.parts(), "clicks_main").run()
    parts = world.parts()
    parts = replace(parts, source=parts.source.model_copy(update={"id": "clicks_main"}))
    world.drain(source_pipeline(parts))
    assert world.rows() == [*ROWS, "new"]


def stopped_while(phase: str) -> RenameHarness:
    """A world whose daemon died with a batch in that phase."""
    return next(
        world
        for _, world, _ in each_death(RenameHarness, RenameHarness.drain)
        if any(batch["phase"] == phase for batch in world.checkpoint().get("in_flight", []))
    )


def test_a_publishing_batch_is_finished_under_its_old_name() -> None:
    world = stopped_while("publishing")
    before = dict(world.sink.objects)
    with pytest.raises(RenameRefused, match="being published"):
        world.rename()
    assert world.sink.objects == before
    world.drain()
    world.rename()
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "new"]


def test_a_running_batch_is_dropped_and_its_files_come_again() -> None:
    world = stopped_while("running")
    world.rename()
    assert not any("staging/events_main/" in path for path in world.sink.objects)
    world.go_on_renamed()
    assert world.rows() == [*ROWS, "new"]


def test_invalid_renames_are_refused_and_write_nothing() -> None:
    world = RenameHarness()
    before = dict(world.sink.objects)
    with pytest.raises(
        RenameRefused, match=r"does not exist; there are states named .*events_main"
    ):
        Rename(world.renamed_parts(), "nobody").run()
    elsewhere = replace(
        world.renamed_parts(),
        stores=replace(world.parts().stores, source=MemoryStorage("mem://other")),
    )
    with pytest.raises(RenameRefused, match="--moved-from mem://raw"):
        Rename(elsewhere, "events_main").run()
    with pytest.raises(RenameRefused, match="is of the files below mem://raw and not of"):
        Rename(elsewhere, "events_main", "mem://third").run()
    assert world.sink.objects == before
    world.rename()
    with pytest.raises(RenameRefused, match="was renamed to clicks_main before"):
        Rename(replace(world.parts(), pipeline="third"), "events_main").run()
    world.sink.objects[OLD] = before[OLD]
    with pytest.raises(RenameRefused, match="has a state already"):
        world.rename()
    del world.sink.objects[NEW]
    with pytest.raises(RenameRefused, match="under the new name"):
        world.rename()


def test_a_concurrent_start_under_the_new_name_is_noticed() -> None:
    world = RenameHarness()
    with pytest.raises(ColdStartRefused):
        source_pipeline(world.renamed_parts()).cycle(threading.Event())
    world = next(
        world
        for _, world, _ in each_death(RenameHarness, RenameHarness.rename)
        if "moving" in world.checkpoint() and NEW not in world.sink.objects
    )
    with pytest.raises(ColdStartRefused, match="`blizzard rename` has to finish"):
        source_pipeline(world.renamed_parts()).cycle(threading.Event())
    source_pipeline(world.renamed_parts(), fresh=True).cycle(threading.Event())
    with pytest.raises(FencedError, match="has started under this name"):
        world.rename()


# -- another place -----------------------------------------------------------------


def moved(world: RenameHarness, *left_behind: str) -> SourceContext:
    """The source's files at another place, under the same names."""
    world.source.uri = "mem://moved"
    for path in left_behind:
        del world.source.objects[path]
    parts = world.parts()
    return replace(
        parts, ingest=replace(parts.ingest, source=type(parts.ingest.source)("mem://moved"))
    )


def test_the_same_files_at_another_place_are_taken_over() -> None:
    world = RenameHarness()
    parts = moved(world)
    with pytest.raises(StateError, match="blizzard rename"):
        world.drain(source_pipeline(parts))
    told = Rename(parts, "events_main", "mem://raw").run()
    assert (told.old_uri, told.new_uri) == ("mem://raw", "mem://moved")
    world.drain(source_pipeline(parts))
    assert world.rows() == [*ROWS, "new"]
    uris = {letter["path"] for letter in world.letters() if "~records" not in letter["path"]}
    assert uris == {f"mem://moved/{DAY}/6.json", f"mem://moved/{DAY}/7.json"}
    world.put(f"{DAY}/6.json", "mended")
    assert ingest_files(parts, f"{DAY}/6.json") == ["ingested"]
    assert Rename(parts, "events_main", "mem://raw").run().old_uri == "mem://moved"


@pytest.mark.promise("G-057")
def test_names_and_place_may_change_together() -> None:
    world = RenameHarness()
    parts = replace(moved(world), pipeline="clicks")
    Rename(parts, "events_main", "mem://raw").run()
    world.drain(source_pipeline(parts))
    assert world.rows() == [*ROWS, "new"]


@pytest.mark.promise("G-057")
def test_a_letter_written_during_a_move_is_rewritten() -> None:
    world = RenameHarness()
    daemon = world.drain()
    parts = moved(world)
    world.put(f"{DAY}/9.json", "bad")

    def goes_on(op: str, path: str) -> None:
        if op == "remove" and path.endswith(".moving.tmp"):  # a letter is rewritten
            world.dlq.after_mutation = lambda _op, _path: None
            with suppress(FencedError):
                daemon.cycle(threading.Event())

    world.dlq.after_mutation = goes_on
    Rename(parts, "events_main", "mem://raw").run()
    world.drain(source_pipeline(parts))
    places = {letter["path"].rpartition("/date")[0] for letter in world.letters()}
    assert places == {"mem://moved", "mem://dlq/events_main~records"}


def test_a_restored_letter_with_the_old_place_is_rewritten() -> None:
    world = RenameHarness()
    parts = moved(world)
    letter = next(
        each.path
        for each in world.open_letters()
        if f"mem://raw/{DAY}/6.json".encode() in world.dlq.read(each.path)
    )
    before = world.dlq.objects[letter]
    Rename(parts, "events_main", "mem://raw").run()
    world.dlq.objects[letter] = before

    def replayed() -> set[str]:
        ids = [each.id for each in world.open_letters()]
        request_id = submit(parts, {"letters": ids})
        world.drain(source_pipeline(parts))
        return set(outcomes_of(parts, request_id).values())

    assert "refused" in replayed()
    Rename(parts, "events_main", "mem://raw").run()
    world.put(f"{DAY}/6.json", "mended")
    assert "refused" not in replayed()
    assert "mended" in world.rows()


def test_a_place_without_the_newest_files_is_another_place() -> None:
    world = RenameHarness()
    before = dict(world.sink.objects)
    parts = moved(world, f"{DAY}/7.json")
    with pytest.raises(RenameRefused, match=r"1 of the 1 newest files .*7\.json"):
        Rename(parts, "events_main", "mem://raw").run()
    assert world.sink.objects == before


def test_letters_are_rewritten_only_where_their_file_moved() -> None:
    heads = [("mem://raw/", "mem://moved/")]
    line = json.dumps({"path": "mem://raw/a", "raw": "x"}).encode() + b"\n"
    assert json.loads(letter_for(line, heads)) == {"path": "mem://moved/a", "raw": "x"}
    for other in (b"junk\n", b'{"path": 3}\n', b'["mem://raw/a"]\n', b'{"path": "mem://x"}\n'):
        assert letter_for(other, heads) == other


# -- the command ----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["local", "s3"])
def test_the_command_moves_a_real_source(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    scenario = scenario_on(place, request)
    scenario.put_rows("date=2024-01-01/1.json.gz", 1)
    scenario.put("date=2024-01-01/2.json.gz", b"no gzip")
    scenario.ingest()
    events = scenario.document["pipelines"].pop("events")
    scenario.document["pipelines"]["clicks"] = events
    scenario.write_config()

    def rename(*more: str) -> Result:
        command = ["rename", str(scenario.config), "--pipeline=clicks", "--source=main"]
        return CliRunner().invoke(blizzard, [*command, *more])

    same = rename("--from", "clicks_main")
    assert (same.exit_code, "give the old one" in same.stderr) == (2, True)
    assert rename("--from", "nobody").exit_code == 1
    dry = rename("--from", "events_main", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "events_main -> clicks_main: 1 batches" in dry.stdout
    assert "Nothing was written." in dry.stdout
    counts = {"journal": 1, "letters": 1, "begun": False, "over": False}
    uris = {"old_uri": scenario.source.uri, "new_uri": scenario.source.uri}
    told = {"old_id": "events_main", "new_id": "clicks_main", **uris, **counts}
    dry = rename("--from", "events_main", "--dry-run", "--json")
    assert json.loads(dry.stdout) == {**told, "dry_run": True}
    done = rename("--from", "events_main", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {**told, "dry_run": False}
    assert "renamed to clicks_main before" in rename("--from", "events_main").stdout
    scenario.put_rows("date=2024-01-01/3.json.gz", 3)
    scenario.ingest()
    listed = CliRunner().invoke(blizzard, ["dlq", "list", str(scenario.config), "--json"])
    assert "2.json.gz" in listed.stdout
    raw = json.loads(scenario.table.read(checkpoint_path("clicks_main")))
    assert state_from_json(raw, "x").source is not None
    scenario.commit()
    assert scenario.ids() == [1, 3]

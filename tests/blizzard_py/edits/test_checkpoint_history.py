"""The copies that changes by hand keep: told, compared, and brought back where that is exact."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import FencedError
from blizzard_py.__main__ import main as blizzard
from blizzard_py.dead_letters.reader import objects
from blizzard_py.edits import checkpoint_edit, checkpoint_store, history
from blizzard_py.edits.checkpoint_store import EditRefused, current_user
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.checkpoint_edits import DAY, ingested, set_to, store
from tests.support.pipeline_harness import PipelineHarness
from tests.support.request_harness import drain_requests, ingest_files, outcomes_of, submit
from tests.support.scenario import Scenario

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


def changed() -> tuple[PipelineHarness, SourcePipeline]:
    """Three files are in, two more wait, and somebody has passed them over by mistake."""
    world = ingested()
    daemon = world.drain()
    world.put(f"{DAY}/4.json", "4")
    world.put(f"{DAY}/5.json", "5")
    world.now += 10
    set_to(world, "9.json")
    return world, daemon


def names(world: PipelineHarness) -> list[str]:
    return [each.name for each in store(world).versions()]


def rolled_back(world: PipelineHarness, name: str) -> None:
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    after = history.roll_back(source, seen, store(world).version(name))
    checkpoint_edit.change(source, seen, lambda _state: after, world.now, why="by mistake")


def test_history_shows_author_time_and_content_of_a_change() -> None:
    world, _ = changed()
    now, before = store(world).versions()
    assert (now.name, now.until) == ("now", None)
    assert before.until == world.now
    assert (before.note.by, before.note.at) == (current_user(), world.now)
    assert "9.json" in before.note.why
    told = {what: (old, new) for what, old, new in history.differences(before.state, now.state)}
    old, new = told[f"partition {DAY}"]
    assert (old.partition(",")[0], new) == ("3.json", "9.json")
    with pytest.raises(EditRefused, match="there are: now, epoch-"):
        store(world).version("epoch-99")


def test_a_pending_replays_letter_is_open_after_a_rollback() -> None:
    world = PipelineHarness(grace_period="1s")
    for name, row in (("1", "a"), ("2", "bad")):
        world.put(f"{DAY}/{name}.json", row)
    world.drain()
    world.now += 100
    world.drain()
    [letter] = [each.id for each in objects(world.dlq, "events_main")]
    set_to(world, "1.json")  # by mistake
    world.put(f"{DAY}/2.json", "b")
    request_id = submit(world.parts(), {"letters": [letter]})
    drain_requests(world.parts())
    assert outcomes_of(world.parts(), request_id) == {f"{DAY}/2.json": "left"}
    rolled_back(world, names(world)[1])
    world.drain()
    assert world.rows() == ["a"]
    request_id = submit(world.parts(), {"letters": [letter]})
    world.drain()
    assert outcomes_of(world.parts(), request_id) == {f"{DAY}/2.json": "ingested"}
    assert world.rows() == ["a", "b"]


@pytest.mark.promise("G-193")
def test_files_skipped_by_mistake_come_once_after_a_rollback() -> None:
    world, daemon = changed()
    rows = world.rows()
    rolled_back(world, names(world)[1])
    with pytest.raises(FencedError):
        daemon.cycle(threading.Event())
    world.drain()
    assert world.rows() == sorted([*rows, "4", "5"])
    world.now += 1000
    world.drain()
    assert world.rows() == sorted([*rows, "4", "5"])
    assert world.checkpoint()["totals"]["files"] == 6


def test_rollback_cancels_a_pending_reingestion() -> None:
    world = ingested()
    rows = world.rows()
    world.now += 10
    set_to(world, "1.json")
    rolled_back(world, names(world)[1])
    world.drain()
    assert world.rows() == rows


def test_rollback_undoes_a_reset_before_the_daemon_runs() -> None:
    world = ingested()
    rows = world.rows()
    world.now += 10
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    rolled_back(world, names(world)[1])
    world.drain()
    assert world.rows() == rows
    assert "reset_ts" not in world.checkpoint()


@pytest.mark.promise("G-193")
def test_rollback_is_refused_after_a_later_publish() -> None:
    world, _ = changed()
    world.now += 10
    world.put("date=2024-01-03/1.json", "later")
    world.drain()
    before = world.sink.read("_blizzard/events_main_checkpoint.json")
    with pytest.raises(EditRefused, match="checkpoint rebuild"):
        rolled_back(world, next(name for name in names(world) if name != "now"))
    assert world.sink.read("_blizzard/events_main_checkpoint.json") == before


def test_a_batch_between_the_look_and_the_change_refuses_it() -> None:
    world, _ = changed()
    source = world.pipeline()
    seen = checkpoint_edit.read_checkpoint(source)
    after = history.roll_back(source, seen, store(world).version(names(world)[1]))
    world.put("date=2024-01-03/1.json", "later")
    world.drain()
    with pytest.raises(EditRefused, match="has changed since"):
        checkpoint_edit.change(source, seen, lambda _state: after, world.now)


@pytest.mark.promise("G-193")
def test_rollback_is_refused_when_segments_are_missing() -> None:
    world = PipelineHarness(use_watermark=False)
    world.put("a.json", "a")
    world.drain()
    world.now += 10
    source = world.pipeline()
    checkpoint_edit.change(
        source, checkpoint_edit.read_checkpoint(source), checkpoint_edit.reset, world.now
    )
    for path in [path for path in world.sink.objects if "_processed/" in path]:
        world.sink.delete(path)
    with pytest.raises(EditRefused, match="missing data"):
        rolled_back(world, names(world)[1])


def test_only_the_newest_copies_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_store, "COPIES_KEPT", 3)
    world = ingested()
    for number in range(6):
        world.now += 10
        set_to(world, f"{number % 2 + 1}.json")
    copies = [path for path in world.sink.objects if ".epoch-" in path]
    assert len([path for path in copies if path.endswith(".bak")]) == 3
    assert len([path for path in copies if path.endswith(".note.json")]) == 3


def test_the_commands_tell_compare_and_bring_back(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.put_rows(f"{DAY}/1.json.gz", 1)
    scenario.ingest()
    scenario.put_rows(f"{DAY}/2.json.gz", 2)

    def run_command(command: str, *more: str) -> Result:
        given = ["checkpoint", command, str(scenario.config), "--pipeline=events", "--source=main"]
        return CliRunner().invoke(blizzard, [*given, *more])

    moved = ("--partition", DAY, "--watermark", "9.json.gz", "--yes")
    assert run_command("set", *moved, "--why", "sent again").exit_code == 0
    told = json.loads(run_command("log", "--json").stdout)["versions"]
    name = told[1]["version"]
    assert told[1]["note"]["by"] == current_user()
    assert told[1]["note"]["why"] == "sent again"
    text = run_command("log")
    assert (text.exit_code, name in text.stdout, current_user() in text.stdout) == (0, True, True)
    found = json.loads(run_command("diff", name, "--json").stdout)
    assert found["files"] == {"skipped": [f"{DAY}/2.json.gz"], "again": []}
    assert f"partition {DAY}" in run_command("diff", name).stdout
    back = ("--to", name, "--why", "a typo")
    dry = run_command("rollback", *back, "--dry-run")
    assert (dry.exit_code, f"{DAY}/2.json.gz" in dry.stdout) == (0, True), dry.output
    assert len(json.loads(run_command("log", "--json").stdout)["versions"]) == 2
    assert run_command("rollback", "--to", name).exit_code == 2
    done = run_command("rollback", *back, "--yes")
    assert done.exit_code == 0, done.output
    assert "a typo" in run_command("log").stdout
    scenario.ingest()
    refused = run_command("rollback", *back, "--yes")
    assert (refused.exit_code, "checkpoint rebuild" in refused.stderr) == (1, True)
    assert run_command("reset", "--why", " all anew ", "--yes").exit_code == 0
    notes = [each["note"] for each in json.loads(run_command("log", "--json").stdout)["versions"]]
    assert "all anew" in [note and note["why"] for note in notes]


@pytest.mark.promise("G-193")
def test_a_damaged_copy_costs_itself_alone() -> None:
    world, _ = changed()
    world.now += 10
    set_to(world, "8.json")
    world.now += 10
    set_to(world, "7.json")
    oldest, middle, newest = [each.entry.path for each in store(world).copies()]
    world.sink.put_atomic(newest, world.sink.read(newest)[:40])
    world.sink.put_atomic(f"{middle}.note.json", b'{"by": "an')
    found = list(store(world).versions())
    errors = {each.path: each.error for each in found if each.error}
    assert errors.keys() == {newest, middle}
    assert [each.path for each in found if not each.error][1:] == [oldest]
    with pytest.raises(EditRefused, match="cannot be read"):
        rolled_back(world, newest.removeprefix(f"{CHECKPOINT}.").removesuffix(".bak"))
    rolled_back(world, oldest.removeprefix(f"{CHECKPOINT}.").removesuffix(".bak"))
    world.drain()
    assert world.rows() == ["1", "2", "3", "4", "5", "x"]


def test_a_clock_that_was_put_right_removes_no_new_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_store, "COPIES_KEPT", 3)
    world = ingested()
    world.now += 30 * 86_400
    for number in range(3):
        set_to(world, f"{number % 2 + 1}.json")
    world.now -= 30 * 86_400
    for number in range(3):
        world.now += 10
        set_to(world, f"{number % 2 + 1}.json")
    told = [each.note for each in store(world).versions()][1:]
    assert [note.number for note in told if note is not None] == [6, 5, 4]


@pytest.mark.promise("G-193")
@pytest.mark.parametrize("by", ["the daemon", "a request"])
def test_later_rows_refuse_a_rollback_on_any_clock(
    by: str,
) -> None:
    """The clock was ahead when the version was replaced, and was put right before the batch."""
    world = PipelineHarness()
    for name in ("1", "2", "3"):
        world.put(f"{DAY}/{name}.json", name)
    world.drain()
    world.put(f"{DAY}/4.json", "4")
    world.now += 86_400
    set_to(world, "9.json")
    world.now -= 86_000
    if by == "the daemon":
        world.put(f"{DAY}/99.json", "99")
        world.drain()
    else:
        assert ingest_files(world.parts(), f"{DAY}/4.json") == ["ingested"]
    with pytest.raises(EditRefused, match="batches had ended when epoch-"):
        rolled_back(world, names(world)[1])


def test_a_version_that_was_stale_itself_is_not_restored() -> None:
    world = ingested()
    copy = world.sink.objects[CHECKPOINT]
    world.put(f"{DAY}/4.json", "4")
    world.drain()
    world.sink.objects[CHECKPOINT] = copy
    world.now += 10
    job = Rebuild(world.parts())
    job.write(job.plan(None))
    with pytest.raises(EditRefused, match=r"batches when|is stale"):
        rolled_back(world, names(world)[1])
    world.drain()
    assert world.rows() == ["1", "2", "3", "4", "x"]

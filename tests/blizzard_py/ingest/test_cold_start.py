"""Starts without a checkpoint: refused where there was work before, unless somebody insists."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import BlizzardError, ColdStartRefused, FencedError
from blizzard_core.storage.opening import open_storage
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.workers import source_pipeline
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rename import Rename
from blizzard_py.ingest.source_pipeline import SourcePipeline
from tests.support.direct_engine import DirectEngine
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import gated, letter_paths, polls, sweeps
from tests.support.request_harness import ingest_files
from tests.support.scenario import Scenario, ndjson

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Two sources of one table, each with a file that is done."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Scenario(tmp_path, str(tmp_path))
    found.document["pipelines"]["events"]["sources"]["other"] = {
        "source_uri": str(tmp_path / "other"),
        "poll_interval": "200ms",
    }
    found.write_config()
    found.put_rows("date=2024-01-01/1.json.gz", 1)
    put_other(found, "1", 10)
    found.ingest()
    return found


def put_other(scenario: Scenario, name: str, number: int) -> None:
    other = open_storage(str(scenario.folder / "other"), {})
    other.put_atomic(f"date=2024-01-01/{name}.json.gz", ndjson({"id": number, "text": "t"}))


def run(scenario: Scenario, *more: str) -> Result:
    return CliRunner().invoke(blizzard, ["run", str(scenario.config), "--once", *more])


@pytest.mark.promise("G-048")
def test_a_missing_checkpoint_is_refused_for_its_source_alone(
    scenario: Scenario,
) -> None:
    whole = CliRunner().invoke(blizzard, ["validate", str(scenario.config)])
    assert (whole.exit_code, "is missing" in whole.stderr) == (0, False)
    scenario.table.delete(CHECKPOINT)
    put_other(scenario, "2", 20)
    valid = CliRunner().invoke(blizzard, ["validate", str(scenario.config)])
    assert valid.exit_code == 0
    [note] = [line for line in valid.stderr.splitlines() if "is missing" in line]
    assert note.startswith("note: events/main: ")
    assert "--fresh" in note
    planned = CliRunner().invoke(blizzard, ["plan", str(scenario.config)])
    assert planned.exit_code == 1
    assert "is missing, but" in planned.stderr
    assert "_blizzard_fence/events_main.json says that batch" in planned.stderr
    assert planned.stderr.count("events/main: ") == 1
    assert "events/other" in planned.stdout
    done = run(scenario)
    assert done.exit_code == 2
    for remedy in ("checkpoint rebuild", "blizzard rename", "`id:`", "--fresh"):
        assert remedy in done.stderr
    assert scenario.table.stat(CHECKPOINT) is None
    scenario.commit()
    assert scenario.ids() == [1, 10, 20]


def test_fresh_starts_over_and_keeps_other_checkpoints(
    scenario: Scenario,
) -> None:
    scenario.table.delete(CHECKPOINT)
    put_other(scenario, "2", 20)
    assert run(scenario, "--fresh").exit_code == 0
    scenario.commit()
    assert scenario.ids() == [1, 1, 10, 20]


def test_a_new_name_over_the_same_files_is_refused(scenario: Scenario) -> None:
    sources = scenario.document["pipelines"]["events"]["sources"]
    sources["renamed"] = sources.pop("main")
    scenario.write_config()
    done = run(scenario)
    assert done.exit_code == 2
    assert "events_main_checkpoint.json is of the same files" in done.stderr


def test_rows_in_the_log_are_a_trace_of_their_own(scenario: Scenario) -> None:
    scenario.commit()
    scenario.table.delete(CHECKPOINT)
    scenario.table.delete_tree("_blizzard/journal/events_main")
    scenario.table.delete_tree("_blizzard_fence")
    done = run(scenario)
    assert done.exit_code == 2
    assert "the table's log commits batches of" in done.stderr


def test_a_source_that_never_was_begins_without_a_word() -> None:
    world = PipelineHarness()
    world.put("d=1/1.json", "a")
    world.drain()
    assert world.rows() == ["a"]
    assert json.loads(world.sink.read(CHECKPOINT))["writer"]["epoch"] == 1
    del world.sink.objects[CHECKPOINT]
    with pytest.raises(ColdStartRefused, match=r"says that batch .* was committed"):
        world.drain()
    world.drain(source_pipeline(world.parts(), fresh=True))
    assert world.rows() == ["a", "a"]


@pytest.mark.promise("G-013")
def test_a_late_file_after_a_fresh_start_has_a_letter() -> None:
    world = PipelineHarness(grace_period="1s")
    for name in ("1", "3", "9"):
        world.put(f"d=1/{name}.json", name)
    world.drain()
    del world.sink.objects[CHECKPOINT]
    late = world.source.objects.pop("d=1/3.json")
    daemon = source_pipeline(world.parts(), fresh=True)
    polls(world, daemon)
    world.source.objects["d=1/3.json"] = late
    sweeps(world, daemon)
    assert letter_paths(world) == ["d=1/3.json"]
    assert world.rows() == ["1", "1", "3", "9", "9"]


@pytest.mark.promise("G-048")
@pytest.mark.parametrize("call", range(5))
def test_a_checkpoint_lost_during_a_start_is_no_cold_start(call: int) -> None:
    world = PipelineHarness()
    world.put("d=1/1.json", "a")
    world.drain()
    calls = itertools.count()

    def gate(_call: str) -> None:
        if next(calls) == call:
            world.sink.objects.pop(CHECKPOINT, None)

    with contextlib.suppress(ColdStartRefused, FencedError):
        polls(world, gated(world, gate), 1)
    assert world.rows() == ["a"]
    assert CHECKPOINT not in world.sink.objects


def world_with_outcomes() -> PipelineHarness:
    world = PipelineHarness()
    world.put("d=1/1.json", "a")
    world.put("d=1/2.json", "bad")
    world.drain()
    return world


def commanded(worker: SourcePipeline, command: str) -> None:
    """One of the commands that take a checkpoint over."""
    parts = worker.parts
    match command:
        case "rebuild":
            job = Rebuild(parts)
            job.write(job.plan(None))
        case "set":
            edit = partial(checkpoint_edit.with_watermark, partition="d=1", name="1.json")
            seen = checkpoint_edit.read_checkpoint(worker)
            edit(seen.state)
            checkpoint_edit.change(worker, seen, edit, 0.0)
        case "reset":
            checkpoint_edit.change(
                worker, checkpoint_edit.read_checkpoint(worker), checkpoint_edit.reset, 0.0
            )
        case "rename":
            Rename(replace(parts, pipeline="clicks"), "events_main").run()
        case "move":
            Rename(parts, "events_main", parts.stores.source.uri).run()
        case _:
            ingest_files(parts, "d=1/2.json")


@pytest.mark.promise("G-048")
@pytest.mark.parametrize("command", ["rebuild", "set", "reset", "rename", "move", "request"])
def test_a_checkpoint_lost_during_a_command_is_not_invented(command: str) -> None:
    for call in itertools.count():
        world = world_with_outcomes()
        calls = itertools.count()

        def gate(_call: str) -> None:
            if next(calls) == call:  # noqa: B023  # called in its own round only
                world.sink.objects.pop(CHECKPOINT, None)  # noqa: B023  # called in its own round only

        worker = gated(world, gate)
        with contextlib.suppress(BlizzardError):
            commanded(worker, command)
        if next(calls) <= call:
            break
        # Whatever is there was looked at, and is whole.
        if CHECKPOINT in world.sink.objects:
            document = world.checkpoint()
            assert "schema_version" in document
            state = document.get("moving", document)
            known = state.get("watermark", {"state": "moved"})
            assert known["state"] != "Initial" or command == "reset", call

"""Files: state that is older than the table, lost, or shared with a process that slept.

The start is refused and names the command that mends it, whatever else is lost or older with it:
no row comes twice, and nothing is passed over.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from blizzard_core.daemon import run
from blizzard_core.errors import FencedError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.local import LocalStorage
from blizzard_py.app.workers import build
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.ingest.batch_records import BatchRecords
from blizzard_py.ingest.batch_runner import BatchRunner
from blizzard_py.ingest.publish import OutputIdGenerator
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import one_cycle, poll
from tests.support.table_drill import ALL, CHECKPOINT, ONCE, Drill

STATE = "_blizzard"
FENCE = "_blizzard_fence"


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    made = Drill(tmp_path, str(tmp_path / "place"))
    made.rounds()
    return made


def others_commit(drill: Drill, count: int) -> None:
    """Another writer of the table commits, and its log is cleaned up behind a checkpoint."""
    table = DeltaTable(str(drill.lake))
    for number in range(count):
        table.alter.set_table_properties(
            {"delta.logRetentionDuration": f"interval {30 + number} days"}
        )
    table.create_checkpoint()
    for number in range(count):
        (drill.lake / "_delta_log" / f"{number:020d}.json").unlink()


@pytest.mark.promise("G-196")
@pytest.mark.parametrize("parts", [(STATE,), (STATE, FENCE), (STATE, FENCE, "_penguin")])
def test_older_state_is_refused_however_long_the_log_went_on(
    drill: Drill, parts: tuple[str, ...]
) -> None:
    others_commit(drill, 12)
    drill.put_back(*parts)
    drill.arrive(3)
    workers = build(load_config(drill.config), DirectEngine())
    assert run(workers, ONCE, threading.Event()) == 1
    said = workers[0].activity.pulse.error or ""
    assert "is stale" in said
    assert "blizzard checkpoint rebuild" in said
    assert drill.ids() == ALL[:9]


@pytest.mark.promise("G-196")
@pytest.mark.parametrize("parts", [(STATE,), (STATE, FENCE), (STATE, FENCE, "_penguin")])
def test_lost_state_is_no_cold_start_after_a_long_log(drill: Drill, parts: tuple[str, ...]) -> None:
    others_commit(drill, 12)
    for part in parts:
        shutil.rmtree(drill.lake / part)
    assert drill.start_once() == 2
    assert "is missing, but" in drill.told
    assert drill.ids() == ALL[:9]


def with_outputs_that_wait(tmp_path: Path) -> Drill:
    """Return a drill whose second round waits for its commit: Penguin is down."""
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    assert drill.start_once() == 0
    shutil.copytree(drill.lake, drill.copy(0))
    drill.arrive(1)
    assert run(build(load_config(drill.config), DirectEngine()), ONCE, threading.Event()) == 0
    return drill


@pytest.mark.promise("G-196", "G-197")
@pytest.mark.parametrize("parts", [(STATE, FENCE), (STATE, FENCE, "_penguin")])
def test_older_state_and_fence_are_refused_while_outputs_wait(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    drill = with_outputs_that_wait(tmp_path)
    drill.put_back(*parts)
    workers = build(load_config(drill.config), DirectEngine())
    assert run(workers, ONCE, threading.Event()) == 1
    told = workers[0].activity.pulse.error or ""
    assert ".parquet waits for its commit, and it is of batch" in told
    assert "blizzard checkpoint rebuild" in told
    assert drill.rebuild() == 1
    assert drill.rebuild("--done-before", "date=2024-01-22") == 0
    drill.arrive(2)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:9]


@pytest.mark.promise("G-197")
def test_older_state_is_refused_at_each_start_under_a_new_name(tmp_path: Path) -> None:
    drill = with_outputs_that_wait(tmp_path)
    drill.put_back(STATE, FENCE)
    sources = drill.document["pipelines"]["events"]["sources"]
    sources["clicks"] = sources.pop("main") | {"id": "events_main"}
    drill.write_config()
    for _ in range(2):
        workers = build(load_config(drill.config), DirectEngine())
        assert run(workers, ONCE, threading.Event()) == 1
        assert ".parquet waits for its commit" in (workers[0].activity.pulse.error or "")
    where = ("--pipeline", "events", "--source", "clicks")
    done = drill.call("blizzard", "checkpoint", "rebuild", str(drill.config), *where)
    assert done.returncode == 1
    assert "--done-before" in done.stderr


@pytest.mark.promise("G-197")
@pytest.mark.parametrize("ahead", [7200, -3600], ids=["ahead of now", "passed since"])
def test_waiting_outputs_keep_order_when_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    fresh, clock = OutputIdGenerator.fresh, [ahead]

    def at_that_time(names: OutputIdGenerator, count: int, now: float, last: str) -> list[str]:
        return fresh(names, count, now + clock[0], last)

    monkeypatch.setattr(OutputIdGenerator, "fresh", at_that_time)
    drill.arrive(0)
    assert run(build(load_config(drill.config), DirectEngine()), ONCE, threading.Event()) == 0
    shutil.copytree(drill.lake, drill.copy(0))
    clock[0] -= 7200
    drill.arrive(1)
    assert run(build(load_config(drill.config), DirectEngine()), ONCE, threading.Event()) == 0
    drill.put_back(STATE, FENCE)
    workers = build(load_config(drill.config), DirectEngine())
    assert run(workers, ONCE, threading.Event()) == 1
    assert ".parquet waits for its commit" in (workers[0].activity.pulse.error or "")


@pytest.mark.promise("G-197")
def test_lost_state_and_fence_are_refused_while_outputs_wait(tmp_path: Path) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    assert run(build(load_config(drill.config), DirectEngine()), ONCE, threading.Event()) == 0
    for part in (STATE, FENCE):
        shutil.rmtree(drill.lake / part)
    assert drill.start_once() == 2
    assert ".parquet waits for its commit" in drill.told
    assert drill.ids() == ALL[:3]


@pytest.mark.promise("G-195")
def test_state_newer_than_the_rest_of_the_table_is_refused(drill: Drill) -> None:
    held = drill.folder / "newer"
    shutil.copytree(drill.lake / STATE, held)
    shutil.rmtree(drill.lake)
    shutil.copytree(drill.copy(0), drill.lake)
    shutil.rmtree(drill.lake / STATE)
    shutil.copytree(held, drill.lake / STATE)
    assert drill.start_once() == 1
    assert "parts of the table's folder are of another moment" in drill.told
    assert "rows of later batches may be missing" in drill.told
    drill.put_back(STATE)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:9]


def test_stale_fence_record_is_refused_until_deleted(drill: Drill) -> None:
    drill.put_back(FENCE)
    drill.arrive(3)
    assert drill.start_once() == 1
    assert "delete _blizzard_fence/events_main.json" in drill.told
    (drill.lake / FENCE / "events_main.json").unlink()
    assert drill.start_once() == 0
    assert drill.ids() == ALL


@pytest.mark.promise("G-212")
def test_an_old_name_is_refused_with_its_old_checkpoint(tmp_path: Path) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    assert drill.start_once() == 0
    record = drill.lake / FENCE / "events_main.json"
    old, older = (drill.lake / CHECKPOINT).read_bytes(), record.read_bytes()
    pipelines = drill.document["pipelines"]
    drill.document["pipelines"] = {"clicks": pipelines["events"]}
    drill.write_config()
    where = ("--from", "events_main", "--pipeline", "clicks", "--source", "main")
    assert drill.call("blizzard", "rename", str(drill.config), *where).returncode == 0
    drill.arrive(1)
    assert drill.start_once() == 0
    drill.document["pipelines"] = pipelines
    drill.write_config()
    (drill.lake / CHECKPOINT).write_bytes(old)
    assert drill.start_once() == 1
    assert "renamed to clicks_main" in drill.told
    (drill.lake / CHECKPOINT).write_bytes(old)
    record.write_bytes(older)
    assert drill.start_once() == 1
    assert "renamed to clicks_main" in drill.told
    (drill.lake / CHECKPOINT).unlink()
    assert drill.start_once() == 2
    assert drill.rebuild() == 1
    assert drill.ids() == ALL[:6]


def renamed(drill: Drill, *more: str) -> int:
    """Rename the source, which has its new name from now on; the exit code."""
    drill.document["pipelines"] = {"clicks": drill.document["pipelines"].pop("events")}
    drill.write_config()
    where = ("--from", "events_main", "--pipeline", "clicks", "--source", "main")
    done = drill.call("blizzard", "rename", str(drill.config), *where, *more)
    drill.told = done.stdout + done.stderr
    return done.returncode


def rebuilt(drill: Drill, *more: str) -> int:
    return drill.rebuild(*more, pipeline="clicks")


@pytest.mark.promise("G-202", "G-205")
def test_a_rename_of_older_state_is_refused(drill: Drill) -> None:
    drill.put_back(STATE)
    assert renamed(drill) == 1
    assert "is stale" in drill.told
    assert "give the source `id: events_main`" in drill.told
    source = drill.document["pipelines"]["clicks"]["sources"]["main"]
    source["id"] = "events_main"
    drill.write_config()
    assert rebuilt(drill, "--done-before", "date=2024-01-23") == 0
    assert drill.start_once() == 0
    del source["id"]
    drill.document["pipelines"]["events"] = drill.document["pipelines"].pop("clicks")
    assert renamed(drill) == 0
    drill.arrive(3)
    assert drill.start_once() == 0
    assert drill.ids() == ALL


@pytest.mark.promise("G-199")
@pytest.mark.parametrize("waits", [False, True])
def test_lost_state_is_no_cold_start_after_a_rename(tmp_path: Path, *, waits: bool) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    if waits:
        assert run(build(load_config(drill.config), DirectEngine()), ONCE, threading.Event()) == 0
    else:
        assert drill.start_once() == 0
    assert renamed(drill) == 0
    for part in (STATE, FENCE):
        shutil.rmtree(drill.lake / part)
    workers = build(load_config(drill.config), DirectEngine())
    assert run(workers, ONCE, threading.Event()) == 2
    told = workers[0].activity.pulse.error or ""
    assert ("the state of every source is gone" if waits else "batches of events/main") in told
    assert rebuilt(drill) == 1
    assert "--done-before" in drill.told
    assert rebuilt(drill, "--done-before", "date=2024-01-21") == 0
    drill.arrive(1)
    assert drill.start_once() == 0
    assert drill.ids() == ALL[:6]


@pytest.mark.promise("G-200")
def test_state_of_before_a_rename_is_refused_under_its_old_name(tmp_path: Path) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    assert drill.start_once() == 0
    shutil.copytree(drill.lake, drill.copy(0))
    assert renamed(drill) == 0
    drill.arrive(1)
    assert drill.start_once() == 0
    drill.put_back(STATE, FENCE)
    drill.document["pipelines"]["events"] = drill.document["pipelines"].pop("clicks")
    drill.write_config()
    drill.arrive(2)
    assert drill.start_once() == 1
    assert "the table's log commits newer batches of clicks/main, events/main" in drill.told
    assert drill.rebuild() == 1
    assert drill.rebuild("--done-before", "date=2024-01-22") == 0
    for _ in range(2):
        assert drill.start_once() == 0
    assert drill.ids() == ALL[:9]


@pytest.mark.promise("G-199")
@pytest.mark.parametrize("left", ["a tombstone", "a replay"])
def test_lost_state_with_remains_is_no_cold_start(tmp_path: Path, left: str) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    name = "date=2024-01-20/1600-bad.ndjson.gz"
    drill.put(name, b"no gzip")
    assert drill.start_once() == 0
    drill.put_rows(name, 3)
    ingest(drill, name)
    assert drill.start_once() == 0
    lost = CHECKPOINT
    if left == "a tombstone":
        assert renamed(drill) == 0
        drill.arrive(2)
        assert drill.start_once() == 0
        lost = "_blizzard/clicks_main_checkpoint.json"
    (drill.lake / lost).unlink()
    before, pipelines = drill.ids(), drill.document["pipelines"]
    drill.document["pipelines"] = {"views": pipelines[next(iter(pipelines))]}
    drill.write_config()
    assert drill.start_once() == 2
    assert "the table's log commits batches of" in drill.told
    assert drill.ids() == before


def test_files_at_another_location_come_under_another_id(drill: Drill) -> None:
    shutil.copytree(Path(drill.place) / "raw", Path(drill.place) / "other")
    drill.main_source["source_uri"] = f"{drill.place}/other"
    drill.write_config()
    assert drill.start_once() == 1
    assert "another `id:` and start once with --fresh" in drill.told
    drill.main_source["id"] = "events_other"
    drill.write_config()
    assert (
        run(build(load_config(drill.config), DirectEngine(), fresh=True), ONCE, threading.Event())
        == 0
    )
    assert drill.start_once() == 0
    assert drill.ids() == sorted([*ALL[:9], *ALL[:9]])


def ingest(drill: Drill, path: str) -> int:
    """``blizzard ingest`` of a file, in this process; its exit code."""
    done = drill.call(
        "blizzard", "ingest", str(drill.config), f"{drill.main_source['source_uri']}/{path}"
    )
    drill.told = done.stdout + done.stderr
    return done.returncode


@pytest.mark.promise("G-198")
def test_state_older_than_a_requested_file_is_refused_by_the_log(
    drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As it is once the committer has passed them.
    monkeypatch.setattr("blizzard_py.sources.stale.newest_waiting", lambda *_: None)
    names = [f"date=2024-01-25/1799-{number}.ndjson.gz" for number in range(2)]
    for name in names:
        drill.put(name, b"no gzip")
    assert drill.start_once() == 0
    drill.put_rows(names[0], 9)
    assert ingest(drill, names[0]) == 0
    shutil.copytree(drill.lake, drill.copy(9))
    drill.put_rows(names[1], 10)
    assert ingest(drill, names[1]) == 0
    assert drill.start_once() == 0
    before = drill.ids()
    drill.put_back(STATE, FENCE, number=9)
    assert ingest(drill, names[1]) == 1
    assert "is stale" in drill.told
    assert drill.start_once() == 1
    assert "is stale" in drill.told
    assert drill.ids() == before == [*ALL[:9], 9, 10]


@pytest.mark.promise("G-205")
@pytest.mark.parametrize("parts", [(STATE, FENCE), (CHECKPOINT, FENCE)], ids=["all", "checkpoint"])
def test_older_state_is_refused_when_a_clock_was_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    drill.arrive(0)
    with monkeypatch.context() as machine:
        ahead = OutputIdGenerator().fresh(1, time.time() + 7200)[0]
        machine.setattr("blizzard_py.ingest.batch_loop.uuid7", lambda: ahead)
        assert drill.start_once() == 0
    shutil.copytree(drill.lake, drill.copy(0))
    for number in (1, 2):
        drill.arrive(number)
        assert drill.start_once() == 0
    drill.put_back(*parts)
    drill.arrive(3)
    assert drill.start_once() == 1
    assert "is stale" in drill.told
    assert drill.ids() == ALL[:9]


@pytest.mark.promise("G-206")
@pytest.mark.parametrize("parts", [(CHECKPOINT,), (STATE,)])
def test_state_of_older_release_is_refused_after_a_newer_one(
    drill: Drill, parts: tuple[str, ...]
) -> None:
    drill.put_back(*parts)
    checkpoint = drill.lake / CHECKPOINT
    document = json.loads(checkpoint.read_text())
    for key in ("last_batch", "committed", "unfolded"):  # which it did not write down
        del document[key]
    checkpoint.write_text(json.dumps(document))
    drill.arrive(3)
    assert drill.start_once() == 1
    assert "is stale" in drill.told
    assert drill.ids() == ALL[:9]


@pytest.mark.promise("G-204")
def test_swapped_states_of_two_tables_are_not_replayed(tmp_path: Path) -> None:
    drill = Drill(tmp_path, str(tmp_path / "place"))
    home = tmp_path / "place" / "lake"
    sink = drill.document["pipelines"]["events"]["sink"]
    for number in range(2):
        drill.arrive(number)
        for name in ("other", "events"):
            sink["table_uri"] = f"{home}/{name}"
            drill.write_config()
            assert drill.start_once() == 0
    for part in (STATE, FENCE):
        shutil.rmtree(home / "other" / part)
        shutil.copytree(home / "events" / part, home / "other" / part)
    sink["table_uri"] = f"{home}/other"
    drill.write_config()
    drill.call("penguin", "run", str(drill.config), "--once")
    refused = drill.call("blizzard", "replay", str(drill.config), "--refused", "--dry-run")
    assert refused.returncode == 1
    assert "_blizzard is of another table or another moment" in refused.stdout + refused.stderr


# -- a process that sleeps ------------------------------------------------------------------

DAY = "date=2024-01-01"


def slept(folder: Path) -> PipelineHarness:
    """Return a source whose daemon slept while its successor published, with the old checkpoint."""
    world = PipelineHarness()
    world.sink = world.engine.sink = LocalStorage(str(folder))
    world.put(f"{DAY}/1.json", "1")
    sleeper = poll(world)
    checkpoint = folder / CHECKPOINT
    saved = checkpoint.read_bytes()
    world.put(f"{DAY}/2.json", "2")
    world.now += 60
    poll(world)
    checkpoint.write_bytes(saved)
    world.now += 60
    with pytest.raises(FencedError, match="another process has published"):
        one_cycle(sleeper)
    return world


def rows(folder: Path) -> list[str]:
    return sorted(row for path in folder.glob("*.parquet") for row in path.read_text().splitlines())


@pytest.mark.promise("G-209")
def test_a_sleeper_publishes_nothing_when_its_version_returns(tmp_path: Path) -> None:
    world = slept(tmp_path)
    assert rows(tmp_path) == ["1", "2"]
    world.put(f"{DAY}/3.json", "3")
    rebuild = Rebuild(world.parts())
    rebuild.write(rebuild.plan(None))  # and drops what it has committed
    world.drain()
    assert rows(tmp_path) == ["1", "2", "3"]


# -- a second run of a checkpoint that was put back --------------------------------------------


def killed(*_arguments: object) -> None:
    raise Died


@pytest.mark.promise("G-203")
@pytest.mark.parametrize("back", ["first", "second"])
def test_unrecorded_second_attempt_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    world = PipelineHarness()
    world.sink = world.engine.sink = LocalStorage(str(tmp_path))
    world.put(f"{DAY}/1.json", "1")
    poll(world)
    world.put(f"{DAY}/2.json", "2")
    paths = [tmp_path / CHECKPOINT, tmp_path / FENCE / "events_main.json"]
    running: list[bytes] = []
    start = BatchRunner.start

    def copied(*arguments: Any) -> Any:
        running[:] = running or [path.read_bytes() for path in paths]
        return start(*arguments)

    with monkeypatch.context() as dying:
        dying.setattr(BatchRunner, "start", copied)
        # Its commit point is in the fence record, and not in the journal yet.
        dying.setattr(BatchRecords, "write", killed)
        with pytest.raises(Died):
            poll(world)
        first = paths[0].read_bytes()
        for path, data in zip(paths, running, strict=True):
            path.write_bytes(data)
        world.now += 60
        with pytest.raises(Died):
            poll(world)
    attempts = [json.loads(data)["in_flight"][0] for data in (first, paths[0].read_bytes())]
    assert [each["attempt"] for each in attempts] == [1, 2]
    assert attempts[0]["batch"] == attempts[1]["batch"]
    if back == "first":
        paths[0].write_bytes(first)
    world.now += 60
    poll(world)
    assert rows(tmp_path) == ["1", "2"]

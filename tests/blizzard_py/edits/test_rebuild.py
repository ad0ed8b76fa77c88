"""A lost checkpoint made again: what was done stays done, what was not is found, nothing twice."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.errors import ColdStartRefused, FencedError, StateError, Unfinished
from blizzard_core.storage.protocol import order_key
from blizzard_core.watermark.progress import is_new
from blizzard_core.watermark.scan import scan
from blizzard_py.__main__ import main as blizzard
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rebuild.decide import (
    BatchDecision,
    Frame,
    Rebuilt,
    bound_of,
    depth_from,
    new_progress,
    origin_of,
)
from blizzard_py.ingest.publish import OutputIdGenerator
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died, Dying, MemoryStorage, each_death
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import killed, letter_paths, poll, polls, sweeps
from tests.support.request_harness import RequestHarness
from tests.support.scenario import scenario_on

CHECKPOINT = "_blizzard/events_main_checkpoint.json"
DAY = "date=2024-01-01"


def rebuilt(world: PipelineHarness, done_before: str | None = None) -> Rebuilt:
    found = Rebuild(world.parts())
    made = found.plan(done_before)
    found.write(made)
    return made


def forget(world: PipelineHarness, *folders: str) -> None:
    for path in [p for p in world.sink.objects if p.startswith(folders)]:
        del world.sink.objects[path]


def several(**source: Any) -> PipelineHarness:
    """Three partitions, one file given up, one that nobody has done yet."""
    world = PipelineHarness(**{"grace_period": "1s", **source})
    for day in ("01", "02", "03"):
        for name in ("1", "2", "3"):
            world.put(f"date=2024-01-{day}/{name}.json", f"{day}-{name}")
        world.drain()
        world.now += 100
    world.put("date=2024-01-02/4.json", "bad")
    world.drain()
    world.put("date=2024-01-03/4.json", "new")
    return world


ROWS = [f"{day}-{name}" for day in ("01", "02", "03") for name in ("1", "2", "3")]


# -- the arithmetic against brute force ------------------------------------------

NAMES = st.sampled_from(["1.json", "2.json", "3.json", "sub/1.json", "10.json", "é.json", "x"])
PLACES = st.sampled_from(["", "d=1/", "d=2/", "d=2-late/", "d=3/h=1/", "d=3/h=2/"])
PATHS = st.builds(lambda place, name: place + name, PLACES, NAMES)


@pytest.mark.promise("G-049")
@settings(max_examples=300, deadline=None)
@given(
    listed=st.sets(PATHS, max_size=25),
    gone=st.sets(PATHS, max_size=6),
    seen=st.dictionaries(PATHS, st.sampled_from([0.0, 50.0, 99.0, 100.0])),
    held=st.sets(PATHS, max_size=3),
    depth=st.sampled_from([0, 1, 2]),
    tracked=st.integers(1, 4),
    floor=st.sampled_from([None, None, "d=2"]),
)
def test_polls_find_exactly_what_is_not_done(
    listed: set[str],
    gone: set[str],
    seen: dict[str, float],
    held: set[str],
    depth: int,
    tracked: int,
    floor: str | None,
) -> None:
    done = {path: at for path, at in seen.items() if path in listed or path in gone}
    for path in held:
        done.pop(path, None)
    frame = Frame(depth, floor, 100.0, 10.0, tracked, None)
    progress = new_progress(listed, done, held, frame)
    source = MemoryStorage()
    for path in listed:
        source.put_atomic(path, b"")
    found = {entry.path for entry in scan(source, progress, lambda _file: True, 1).entries}
    expected = {
        path
        for path in listed - done.keys()
        if floor is None or order_key(path) > order_key(f"{floor}/")
    }
    assert found == expected
    # What is going to be finished by its batch must not have been passed.
    for path in held & listed:
        if floor is None or order_key(path) > order_key(f"{floor}/"):
            assert is_new(progress, path)


@given(seen=st.dictionaries(PATHS, st.sampled_from([0.0, 85.0, 95.0]), min_size=1))
def test_scans_start_behind_no_name_whose_grace_is_not_over(seen: dict[str, float]) -> None:
    progress = new_progress(seen.keys(), seen, (), Frame(1, None, 100.0, 10.0, 64, None))
    for partition, known in progress.partitions.items():
        for path, at in seen.items():
            if at == 95.0 and known.before and path.startswith(f"{partition}/"):
                name = path.removeprefix(f"{partition}/")
                above = order_key(name) > order_key(known.before)
                assert above or any(
                    other > name and older <= 85.0 for other, older in _named(seen, partition)
                )


def _named(seen: dict[str, float], partition: str) -> list[tuple[str, float]]:
    head = f"{partition}/"
    return [(p.removeprefix(head), at) for p, at in seen.items() if p.startswith(head)]


def test_depth_bound_and_origin() -> None:
    assert depth_from(["x.json", "d=1/a.json"]) == 1
    assert depth_from(["x.json"]) is None
    assert depth_from([f"{n}.json" for n in range(1100)]) == 0
    accepts = str.endswith
    assert bound_of("d=1", lambda p: accepts(p, ".json")) == b"d=1/"
    assert bound_of("d=1/a.json", lambda p: accepts(p, ".json")) == b"d=1/a.json"
    assert origin_of(["d=2/a", "d=3/a"], (), ["d=1/a", "d=2/a"], 1) == "d=2"
    assert origin_of(["d=1/a"], {"d=1/b", "d=2/b"}, ["d=1/a", "d=2/b", "d=3/a"], 1) == "d=3"
    assert origin_of((), (), (), 1) == ""


# -- the whole of it ---------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_checkpoint_is_made_again_and_no_row_comes_twice(kept: bool) -> None:
    world = several()
    if not kept:
        world.now += 90_000
        world.drain()  # a sweep folds the journal
        world.put("date=2024-01-03/5.json", "newer")
    before = world.checkpoint()
    del world.sink.objects[CHECKPOINT]
    with pytest.raises(ColdStartRefused):
        world.drain()
    made = rebuilt(world)
    assert made.new == (("date=2024-01-03/4.json",) if kept else ("date=2024-01-03/5.json",))
    assert world.checkpoint()["writer"]["epoch"] >= 1
    assert world.checkpoint()["partition_depth"] == before["partition_depth"]
    world.drain()
    expected = sorted([*ROWS, "new"] if kept else [*ROWS, "new", "newer"])
    assert world.rows() == expected
    world.now += 90_000
    world.drain()
    world.now += 90_000
    world.drain()
    assert world.rows() == expected
    assert len(world.letters()) == 1  # the one that was there


def test_rebuild_backs_up_a_damaged_checkpoint() -> None:
    world = several()
    world.sink.put_atomic(CHECKPOINT, b'{"schema_version": 1, "wat')
    found = Rebuild(world.parts())
    made = found.plan(None)
    backup = found.write(made)
    assert backup is not None
    assert world.sink.read(backup) == b'{"schema_version": 1, "wat'
    world.drain()
    assert world.rows() == sorted([*ROWS, "new"])


def test_a_checkpoint_of_a_newer_release_is_left_alone() -> None:
    world = several()
    document = {**world.checkpoint(), "unheard_of": 1}
    world.sink.put_atomic(CHECKPOINT, json.dumps(document).encode())
    with pytest.raises(StateError, match="run the release that wrote it"):
        Rebuild(world.parts()).plan(None)


def test_a_rebuild_fences_and_notices_a_running_daemon() -> None:
    world = several()
    daemon = world.pipeline()
    daemon.cycle(threading.Event())
    found = Rebuild(world.parts())
    made = found.plan(None)
    world.put("date=2024-01-03/6.json", "6")
    daemon.cycle(threading.Event())
    with pytest.raises(EditRefused, match="has changed since it was shown"):
        found.write(made)
    found.write(found.plan(None))
    world.put("date=2024-01-03/7.json", "7")
    with pytest.raises(FencedError):
        daemon.cycle(threading.Event())
    world.drain()
    assert world.rows() == sorted([*ROWS, "new", "6", "7"])


@pytest.mark.promise("G-051")
def test_refused_rebuild_writes_nothing_and_can_be_planned_again() -> None:
    world = several()
    daemon = world.pipeline()
    daemon.cycle(threading.Event())
    world.put("date=2024-01-03/6.json", "6")
    found = Rebuild(world.parts())
    made = found.plan("date=2024-01-03/8.json")
    assert made.by_operator == ("date=2024-01-03/6.json",)
    daemon.release()  # which writes the checkpoint
    before = set(world.sink.objects)
    with pytest.raises(EditRefused, match="has changed since it was shown"):
        found.write(made)
    assert set(world.sink.objects) == before
    assert found.plan("date=2024-01-03/8.json").by_operator == made.by_operator
    again = found.plan(None)
    assert (again.by_operator, again.new) == ((), ("date=2024-01-03/6.json",))


def test_somebody_who_begins_at_the_same_moment_is_noticed() -> None:
    world = several()
    checkpoint = world.sink.objects.pop(CHECKPOINT)
    found = Rebuild(world.parts())
    made = found.plan(None)
    world.sink.put_atomic(CHECKPOINT, checkpoint[0])
    with pytest.raises(EditRefused, match="has changed since it was shown"):
        found.write(made)
    assert world.sink.read(CHECKPOINT) == checkpoint[0]


def test_rebuild_counts_requested_files_as_done() -> None:
    world = RequestHarness()
    world.put(f"{DAY}/3.json", "given")
    world.ingest(f"{DAY}/3.json")
    del world.sink.objects[CHECKPOINT]
    assert rebuilt(world).new == ()
    world.go_on()
    assert world.rows() == ["1", "5", "52", "given"]


def test_history_below_a_lookback_stays_history() -> None:
    template = {"prefix_template": "date=%Y-%m-%d", "lookback": 2}
    world = PipelineHarness(partition_filter=template, grace_period="1s")
    world.put("date=2025-01-01/1.json", "history")
    world.put("date=2025-06-14/1.json", "a")
    world.put("date=2025-06-15/1.json", "b")
    world.drain()
    for folded in (False, True):
        if folded:
            world.now += 90_000
            world.drain()
        del world.sink.objects[CHECKPOINT]
        assert rebuilt(world).new == ()
        world.now += 90_000
        world.drain()
        assert world.rows() == ["a", "b"]
    assert world.letters() == []


def test_an_origin_without_files_below_it_is_dropped() -> None:
    template = {"prefix_template": "date=%Y-%m-%d", "lookback": 5}
    world = PipelineHarness(partition_filter=template, grace_period="1s")
    daemon = polls(world, None, 1, 0)
    assert world.checkpoint()["origin"] < "date=2025-06-13"
    world.put("date=2025-06-14/1.json", "a")
    polls(world, daemon, 1, 30 * 86_400)
    del world.sink.objects[CHECKPOINT]
    rebuilt(world)
    # Whether the cold start would have wanted this partition, the lost checkpoint knew.
    world.put("date=2025-06-13/1.json", "late")
    sweeps(world)
    assert world.rows() == ["a"]
    assert letter_paths(world) == ["date=2025-06-13/1.json"]


def test_without_a_watermark_the_set_is_made_again() -> None:
    world = several(use_watermark=False)
    del world.sink.objects[CHECKPOINT]
    made = rebuilt(world)
    assert made.new == ("date=2024-01-03/4.json",)
    world.drain()
    assert world.rows() == sorted([*ROWS, "new"])
    # With the set gone as well the journal has it all.
    forget(world, CHECKPOINT, "_blizzard/events_main_processed/")
    assert rebuilt(world).new == ()
    world.drain()
    assert world.rows() == sorted([*ROWS, "new"])


# -- batches that were being published ----------------------------------------------


def dying_world(at: int) -> tuple[PipelineHarness, bool]:
    """A world that died at its ``at``-th change, and whether it did."""
    world = PipelineHarness(grace_period="1s")
    world.template = "date=%Y-%m-%d"
    world.put(f"{DAY}/1.json", "a", "?bad record")
    world.put(f"{DAY}/2.json", "bad")
    world.put("date=2024-01-02/1.json", "b")
    world.put("date=2024-01-02/2.json", "c")
    return world, Dying(world.sink, world.dlq).dies(at, world.drain)


@pytest.mark.promise("G-049")
@pytest.mark.parametrize("lost", [True, False])
def test_a_checkpoint_lost_anytime_loses_and_doubles_nothing(lost: bool) -> None:
    at = 0
    while True:
        world, died = dying_world(at)
        if CHECKPOINT in world.sink.objects:
            if lost:
                del world.sink.objects[CHECKPOINT]
            rebuilt(world)
            world.drain()
            assert world.rows() == ["a", "b", "c"], at
            assert {letter["path"] for letter in world.letters()} == {f"mem://raw/{DAY}/2.json"}
            assert [len(records) for records in world.records()] == [1], at
            world.now += 90_000
            world.drain()
            assert world.rows() == ["a", "b", "c"], at
        if not died:
            break
        at += 1
    assert at > 40


@pytest.mark.promise("G-049")
@pytest.mark.parametrize("lost", [True, False])
def test_a_rebuild_that_dies_at_any_moment_is_run_again(lost: bool) -> None:
    def prepared() -> PipelineHarness:
        world, _ = dying_world(35)
        assert world.checkpoint()["in_flight"]
        if lost:
            del world.sink.objects[CHECKPOINT]
        return world

    for step, world, died in each_death(prepared, rebuilt):
        if died:
            rebuilt(world)
        world.drain()
        assert world.rows() == ["a", "b", "c"], step
    assert step >= (2 if lost else 6)


def publishing() -> tuple[PipelineHarness, dict[str, Any]]:
    """A world whose last batch is committed, in the journal and not published."""
    for at in range(60):
        world, _ = dying_world(at)
        batches = world.checkpoint().get("in_flight", []) if world.sink.objects else []
        for batch in batches:
            journaled = f"_blizzard/journal/events_main/{batch['batch']}.json" in world.sink.objects
            if journaled and batch["files"][0]["path"].startswith("date=2024-01-02"):
                return world, batch
    raise AssertionError("no batch was caught while it was published")


@pytest.mark.parametrize("lost", [True, False])
def test_files_of_lost_uncommitted_outputs_are_ingested_again(
    lost: bool,
) -> None:
    world, batch = publishing()
    for output in batch["results"]["outputs"]:
        world.sink.delete(output["staged"])
        world.sink.objects.pop(output["final"], None)
    if lost:
        del world.sink.objects[CHECKPOINT]
    else:
        with pytest.raises(StateError, match="checkpoint rebuild"):
            world.drain()
    made = rebuilt(world)
    assert [each.judgement for each in made.batches if each.judgement != "done"] == ["again"]
    world.drain()
    assert world.rows() == ["a", "b", "c"]


def test_a_journal_entry_after_a_takeover_changes_nothing() -> None:
    world, batch = publishing()
    entry = f"_blizzard/journal/events_main/{batch['batch']}.json"
    sent = world.sink.objects[entry]
    world.drain()  # the batch is taken over, and its outputs get names made then
    assert batch["results"]["outputs"][-1]["final"] not in world.sink.objects
    world.sink.objects[entry] = sent
    del world.sink.objects[CHECKPOINT]
    assert rebuilt(world).new == ()
    world.drain()
    assert world.rows() == ["a", "b", "c"]


def test_lost_outputs_of_a_partial_batch_are_dead_lettered() -> None:
    world = PipelineHarness(grace_period="1s")
    world.template = "date=%Y-%m-%d"
    world.put(f"{DAY}/1.json", "a")
    world.put("date=2024-01-02/1.json", "b")
    for at in range(60):
        world.sink.objects.clear()
        Dying(world.sink).arm(at)
        try:
            world.drain()
        except Died:
            if world.rows() == ["a"]:
                break
    [batch] = world.checkpoint()["in_flight"]
    [lost] = [o for o in batch["results"]["outputs"] if o["final"] not in world.sink.objects]
    world.sink.delete(lost["staged"])
    with pytest.raises(StateError, match="checkpoint rebuild"):
        world.drain()
    made = rebuilt(world)
    [told] = [each for each in made.batches if isinstance(each, BatchDecision)]
    assert told.judgement == "letters"
    assert "rows would come twice" in told.why
    world.drain()
    assert world.rows() == ["a"]
    assert len(world.letters()) == 2
    assert all("1 of 2 outputs are lost" in letter["error"] for letter in world.letters())
    world.now += 90_000
    world.drain()
    assert world.rows() == ["a"]


def half_published() -> RequestHarness:
    """A batch with one of its two outputs in the table and the other one lost."""

    def prepared() -> RequestHarness:
        world = RequestHarness()
        world.put(f"{DAY}/6.json", "a")
        world.put("date=2024-01-02/1.json", "b")
        return world

    world = next(
        world
        for _, world, _ in each_death(prepared, RequestHarness.drain)
        if world.rows() == ["1", "5", "52", "a"]
    )
    [batch] = world.checkpoint()["in_flight"]
    [lost] = [o for o in batch["results"]["outputs"] if o["final"] not in world.sink.objects]
    world.sink.delete(lost["staged"])
    return world


def test_replay_refuses_files_whose_rows_are_uncertain() -> None:
    world = half_published()
    rebuilt(world)
    world.drain()
    files = {f"{DAY}/6.json", "date=2024-01-02/1.json"}
    assert {letter["stage"] for letter in world.letters()} == {"rows_unknown"}
    assert world.replay() == dict.fromkeys(files, "refused")
    assert world.ingest(*files) == ["refused", "refused"]
    assert world.rows() == ["1", "5", "52", "a"]
    assert len(world.open_letters()) == 1
    # Somebody looked into the table.
    assert world.ingest("date=2024-01-02/1.json", assume_missing=True) == ["ingested"]
    assert world.replay() == {f"{DAY}/6.json": "refused", "date=2024-01-02/1.json": "present"}
    world.go_on()
    assert world.rows() == ["1", "5", "52", "a", "b"]


# -- where it would be guessing --------------------------------------------------------


def test_outputs_in_no_journal_need_the_operators_decision() -> None:
    world = several()
    forget(world, CHECKPOINT, "_blizzard/journal/", "_blizzard/events_main_ledger/")
    with pytest.raises(EditRefused, match=r"output .*parquet is in no journal \(20.* UTC\)") as no:
        rebuilt(world)
    assert "--done-before" in str(no.value)
    assert CHECKPOINT not in world.sink.objects
    made = rebuilt(world, "date=2024-01-03/4.json")
    assert (len(made.by_operator), made.new) == (10, ("date=2024-01-03/4.json",))
    world.drain()
    for _ in range(3):
        world.now += 90_000
        world.drain()
    assert world.rows() == sorted([*ROWS, "new"])
    assert len(world.letters()) == 1


def test_batches_in_the_log_that_nobody_knows_are_a_doubt() -> None:
    world = several()
    forget(world, "_blizzard_fence/")  # it would confirm that the checkpoint is the newest
    batch = "019aa000-0000-7000-8000-000000000001"
    commit = {
        "add": {"path": "x.parquet", "tags": {"blizzard.output_id": f"events/main/{batch}/1/0"}}
    }
    world.sink.put_atomic(f"_delta_log/{0:020d}.json", json.dumps(commit).encode())
    with pytest.raises(EditRefused, match=f"log commits batch {batch}"):
        rebuilt(world)


@pytest.mark.promise("G-050")
def test_own_batches_in_the_log_are_of_no_other_name() -> None:
    world = several()
    forget(world, "_blizzard/", "_blizzard_fence/")
    batch = "019aa000-0000-7000-8000-000000000001"
    txn = {"appId": "blizzard:events/main", "version": int(batch[:13].replace("-", ""), 16)}
    world.sink.put_atomic(f"_delta_log/{0:020d}.json", json.dumps({"txn": txn}).encode())
    with pytest.raises(EditRefused, match="things tell of work") as no:
        rebuilt(world)
    assert "--done-before" in str(no.value)
    assert "other names" not in str(no.value)


def test_rebuild_is_refused_when_a_ledger_segment_is_missing() -> None:
    world = several()
    world.now += 90_000
    world.drain()
    forget(world, "_blizzard/events_main_ledger/")
    with pytest.raises(EditRefused, match="which the checkpoint names, is missing"):
        rebuilt(world)


# -- the command -------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["local", "s3"])
def test_the_command_says_what_it_found_and_the_daemon_goes_on(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    scenario = scenario_on(place, request)
    scenario.put_rows("date=2024-01-01/1.json.gz", 1)
    scenario.ingest()
    scenario.commit()
    scenario.put_rows("date=2024-01-01/2.json.gz", 2)
    scenario.ingest()
    scenario.put_rows("date=2024-01-01/3.json.gz", 3)
    scenario.table.delete(CHECKPOINT)

    def rebuild(*more: str) -> Result:
        command = ["checkpoint", "rebuild", str(scenario.config), "--pipeline=events"]
        return CliRunner().invoke(blizzard, [*command, "--source=main", *more])

    dry = rebuild("--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "3 files listed, 2 of them done" in dry.stdout
    assert "1 new file, among them:\n  date=2024-01-01/3.json.gz" in dry.stdout
    assert scenario.table.stat(CHECKPOINT) is None
    assert "--yes to confirm" in rebuild().stderr
    assert "cannot ask for a confirmation" in rebuild("--json").stderr
    told = {
        "listed": 3,
        "done": 2,
        "said": 0,
        "watermark": "date=2024-01-01/2.json.gz",
        "floor": None,
        "floors": {},
        "batches": [],
        "new": ["date=2024-01-01/3.json.gz"],
        "unknown": [],
        "backup": None,
    }
    assert json.loads(rebuild("--dry-run", "--json").stdout) == {**told, "dry_run": True}
    assert scenario.table.stat(CHECKPOINT) is None
    assert json.loads(rebuild("--yes", "--json").stdout) == {**told, "dry_run": False}
    scenario.table.delete(CHECKPOINT)
    done = rebuild("--yes")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "Rebuilt."), done.output
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3]
    scenario.table.delete(CHECKPOINT)
    scenario.table.delete_tree("_blizzard/journal/events_main")
    refused = rebuild("--yes")
    assert refused.exit_code == 1
    assert "--done-before" in refused.stderr


@pytest.mark.promise("G-052")
def test_rebuild_finds_the_last_batch_by_the_store_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PipelineHarness(grace_period="1m")
    ahead = 3600.0
    monkeypatch.setattr(
        "blizzard_py.ingest.batch_loop.uuid7",
        lambda: OutputIdGenerator().fresh(1, world.now + ahead)[0],
    )
    for number in range(3):
        world.put(f"d=1/{number}.json", f"r{number}")
        poll(world)
        world.now += 60
    # Another machine, an hour behind, dies between the journal and the letter.
    ahead = 0.0
    world.put("d=1/9.json", "bad")
    killed(world, lambda _op, path: "/journal/" in path)
    forget(world, CHECKPOINT, "_blizzard/staging/")
    assert not world.letters()
    rebuilt(world)
    poll(world)
    assert letter_paths(world) == ["d=1/9.json"]
    assert world.rows() == ["r0", "r1", "r2"]


@pytest.mark.promise("G-056")
def test_rebuild_counts_files_as_done_whatever_their_ending() -> None:
    world = PipelineHarness(grace_period="1m", compression="auto")
    for day in "123":
        for name in ("a.json", "b.json.gz", "c.json"):
            world.put(f"d={day}/{name}", f"{day}{name}")
        poll(world)
        world.now += 1000
    expected = world.rows()
    forget(world, CHECKPOINT)
    world.settings["compression"] = "gzip"
    world.put("d=2/d.json", "not of today's endings")
    made = rebuilt(world)
    assert (made.listed, made.processed, made.new) == (9, 9, ())
    world.settings["compression"] = "auto"
    polls(world)
    assert [row for row in world.rows() if row in expected] == expected
    assert len(world.rows()) == len(set(world.rows()))


@pytest.mark.promise("G-056")
def test_retries_survive_a_change_of_accepted_endings() -> None:
    world = PipelineHarness(grace_period="1m", compression="auto")
    for name in ("a.json", "b.json", "c.json"):
        world.put(f"d=1/{name}", name)
    world.engine.flaky["d=1/b.json"] = 2
    with contextlib.suppress(Unfinished):
        world.pipeline().cycle(threading.Event())
    assert list(world.checkpoint()["retries"]) == ["d=1/b.json"]
    world.now += 1000
    world.settings["compression"] = "gzip"
    made = rebuilt(world)
    assert (made.listed, made.processed, made.new) == (3, 2, ())
    assert list(world.checkpoint()["retries"]) == ["d=1/b.json"]
    world.settings["compression"] = "auto"
    sweeps(world)
    assert world.rows() == ["a.json", "b.json", "c.json"]
    assert letter_paths(world) == []


@pytest.mark.promise("G-052")
def test_a_machine_whose_clock_is_ahead_has_the_same_doubts() -> None:
    world = PipelineHarness(grace_period="1m")
    world.put("d=1/1.json", "a")
    pipeline = sweeps(world, poll(world))
    world.put("d=2/2.json", "b")
    poll(world, pipeline)
    # A copy that lacks the last batch is brought back.
    last = max(
        (path for path in world.sink.objects if path.startswith("_blizzard/journal/")),
        key=lambda path: world.sink.objects[path][1],
    )
    forget(world, CHECKPOINT, last)
    for ahead in (-40, 0, 40):
        clock = partial(float, world.now + ahead * 86_400)
        parts = replace(world.parts(), clock=clock)
        with pytest.raises(EditRefused, match=r"is in no journal"):
            Rebuild(parts).plan(None)


@pytest.mark.promise("G-055")
@pytest.mark.parametrize("ahead", [-40, 40])
def test_a_wrong_clock_closes_no_wanted_partition(ahead: int) -> None:
    world = PipelineHarness(
        grace_period="1m", partition_filter={"prefix_template": "date=%Y-%m-%d", "lookback": 3}
    )

    def day(back: int) -> str:
        return f"date={datetime.fromtimestamp(world.now - back * 86_400, UTC):%Y-%m-%d}"

    pipeline = world.pipeline()
    for back in (2, 1, 0):
        world.put(f"{day(back)}/5.json", f"5-{back}")
        poll(world, pipeline)
    polls(world, pipeline, 3)
    floor = world.checkpoint()["floor"]
    forget(world, CHECKPOINT)
    clock = partial(float, world.now + ahead * 86_400)
    found = Rebuild(replace(world.parts(), clock=clock))
    made = found.plan(None)
    assert (made.state.position.progress.floor, made.state.position.origin) == (floor, "")
    found.write(made)
    world.put(f"{day(2)}/6.json", "6-2")
    polls(world, None, 3)
    assert "6-2" in world.rows()

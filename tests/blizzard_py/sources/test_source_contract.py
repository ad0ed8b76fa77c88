"""The contract of every source kind: `blizzard_py.sources.protocol` in tests.

A kind is held to it by a world in `KINDS`: a source with rows that arrive, and the engine of
`tests.support.pipeline_harness` to read them. Half of the tests ask a source alone, with the states
in their hands; the others run it through the real batch protocol and let its process die.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import uuid
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from blizzard_core.errors import Unavailable
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.storage.protocol import Entry
from blizzard_py.app.source_kinds import open_files
from blizzard_py.connections.query_spec import QuerySpec, Units
from blizzard_py.explain import Explanation, explain
from blizzard_py.explain.location import Located
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import FinishedFile
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.ranges import UnitRange
from blizzard_py.slices.units.state import key_parts
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.meter import BatchLimits
from blizzard_py.sources.protocol import CheckpointServices, Source
from blizzard_py.sources.tables.source import WindowSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.sources.tables.window_tasks import item_name
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.source_state import Position, Retry, SourceState
from blizzard_py.state.transitions import begin_batch, end_batch, prepare_batch
from tests.support.group_reader import groups_of
from tests.support.memory_store import Died, Dying
from tests.support.pipeline_harness import PipelineHarness
from tests.support.promise_scenarios import (
    COMMIT_POINT,
    is_running_batch,
    killed,
    poll,
    take_over_between,
)
from tests.support.row_source import RowSource, Table
from tests.support.toy_connection import ToyConnection, ToyTable, toy_rows

CHECKPOINT = "_blizzard/events_main_checkpoint.json"


class FilesByWatermark(PipelineHarness):
    """A row is a file, in the order of their names."""

    opens = staticmethod(open_files)
    gives_up = True  # an item that cannot be ingested is passed; else it is tried for ever
    finds_waiting = True  # a look finds items that wait for another try
    bad_item = ("bad",)
    not_ours = "d=1/_hidden.ndjson"
    changes = 40  # that working off a little makes in the stores, at least

    def arrive(self, *rows: str) -> None:
        for row in rows:
            self.put(f"d=1/{len(self.source.objects):06}.ndjson", row)

    def passed_to(self, state: SourceState) -> str | None:
        return state.position.progress.value

    def pipeline(self) -> SourcePipeline:
        return SourcePipeline(self.parts(), self.opens)


class FilesBySet(FilesByWatermark):
    """A row is a file, its name says nothing."""

    def __init__(self) -> None:
        super().__init__(use_watermark=False)

    def arrive(self, *rows: str) -> None:
        for row in rows:
            name = uuid.uuid5(uuid.NAMESPACE_OID, str(len(self.source.objects)))
            self.put(f"d=1/{name}.ndjson", row)

    def passed_to(self, _state: SourceState) -> str | None:
        return None  # the highest name is shown, and nothing goes by it


class Rows(PipelineHarness):
    """Rows of a table, in windows of two."""

    gives_up = finds_waiting = True
    bad_item = ("bad", "bad")
    not_ours = "no window"
    changes = 40

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.engine.source = self  # type: ignore[assignment]

    def arrive(self, *rows: str) -> None:
        self.table.rows += rows

    def read(self, name: str) -> bytes:
        return "\n".join(self.table.read(name)).encode()

    def passed_to(self, state: SourceState) -> str | None:
        return state.position.progress.value

    def opens(self, parts: Any, upkeep: CheckpointServices) -> RowSource:
        return RowSource(self.table, parts, upkeep)

    def pipeline(self) -> SourcePipeline:
        return SourcePipeline(self.parts(), self.opens)


class QueryWindows(PipelineHarness):
    """Rows behind a connection, in windows of tasks of two."""

    gives_up = finds_waiting = True
    bad_item = ("bad", "bad")
    not_ours = "no task"
    changes = 20  # a window is one batch

    def __init__(self) -> None:
        super().__init__()
        # No ties: the toy engine does not know rows again.
        self.table = ToyTable("contract", kind="clock")
        self.engine.source = self  # type: ignore[assignment]

    def arrive(self, *rows: str) -> None:
        self.table.rows += [
            {"n": number, "text": text}
            for number, text in enumerate(rows, len(self.table.rows) + 1)
        ]

    def read(self, name: str) -> bytes:
        pipeline = self.pipeline()
        known = pipeline.source.preview(pipeline.load())
        [spec] = [t.spec for t in known.tasks if item_name(known.seq, t.name) == name]
        return "\n".join(row["text"] for row in toy_rows(self.table, spec)).encode()

    def passed_to(self, _state: SourceState) -> str | None:
        return None  # a watermark is no name

    def parts(self) -> SourceContext:
        mark = {"columns": ["n"]}
        source = TableSourceSettings(kind="table", connection="toy", table="t", watermark=mark)
        asked = QuerySpec(ToyConnection(self.table), self.table.access, ("n",))
        return replace(super().parts(), source=source, query_spec=asked)

    def opens(self, parts: Any, upkeep: CheckpointServices) -> WindowSource:
        return WindowSource(parts, upkeep, parts.query_spec)

    def pipeline(self) -> SourcePipeline:
        return SourcePipeline(self.parts(), self.opens)


class ByUnits(PipelineHarness):
    """Rows behind a connection, which are work units: each arrives when its day is over."""

    gives_up = finds_waiting = False
    bad_item = ("bad",)
    not_ours = "no unit"
    changes = 20  # units are one batch

    def __init__(self) -> None:
        super().__init__()
        self.begin = self.today()
        self.table = ToyTable("contract of units", "at")
        self.engine.source = self  # type: ignore[assignment]

    def arrive(self, *rows: str) -> None:
        for text in rows:
            today = self.today()
            self.table.rows.append({"at": today, "text": text})
            self.now = (today + dt.timedelta(days=1, hours=1)).timestamp()

    def today(self) -> dt.datetime:
        now = dt.datetime.fromtimestamp(self.now, dt.UTC)
        return now.replace(hour=0, minute=0, second=0, microsecond=0)

    def read(self, name: str) -> bytes:
        low, _ = key_parts(name)
        span = {"from": low.isoformat(), "to": (low + dt.timedelta(days=1)).isoformat()}
        return "\n".join(row["text"] for row in toy_rows(self.table, span)).encode()

    def passed_to(self, _state: SourceState) -> str | None:
        return None  # each unit has a watermark of its own

    def published(self) -> dict[str, list[str]]:
        """Return the rows of all files that groups add; no unit is read twice here."""
        objects = {path: data for path, (data, _) in self.sink.objects.items()}
        named = {file.path for group in groups_of(objects, self.parts().id) for file in group.files}
        return {path: objects[path].decode().splitlines() for path in named}

    def parts(self) -> SourceContext:
        source = TableSourceSettings(
            kind="table", connection="toy", table="t", watermark={"columns": ["at"]}
        )
        units = Units(
            UnitRange(f"{self.begin:%F}", "P0D", partition="daily"),
            Terms(),
            bounds=frozenset({"from", "to"}),
        )
        asked = QuerySpec(
            ToyConnection(self.table), self.table.access, (), replaces=True, units=units
        )
        return replace(super().parts(), source=source, query_spec=asked)

    def opens(self, parts: Any, upkeep: CheckpointServices) -> UnitSource:
        return UnitSource(parts, upkeep, parts.query_spec)

    def pipeline(self) -> SourcePipeline:
        return SourcePipeline(self.parts(), self.opens)


KINDS = (FilesByWatermark, FilesBySet, Rows, QueryWindows, ByUnits)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def world(request: pytest.FixtureRequest) -> Any:
    return request.param()


def numbered(first: int, last: int) -> list[str]:
    return [f"r{number}" for number in range(first, last + 1)]


def arrived(world: Any, rows: int = 8) -> Any:
    world.arrive(*numbered(1, rows))
    return world


# -- a source alone --------------------------------------------------------------------


class Owner:
    """A process that owns the checkpoint, in an epoch; a state counts once it was saved."""

    def __init__(self, world: Any, epoch: int = 1) -> None:
        parts = world.parts()
        activity = SourceActivity("events/main", "mem://raw", parts.clock)
        upkeep = CheckpointServices(
            self.save,
            parts.clock,
            lambda: epoch,
            lambda _state: None,
            self.finish,
            lambda: activity,
        )
        self.source: Source[Any] = world.opens(parts, upkeep)
        self.epoch = epoch
        self.saved: list[SourceState] = []
        self.now = parts.clock

    def save(self, state: SourceState) -> SourceState:
        self.saved.append(state)
        return state

    def finish(self, *_arguments: Any) -> SourceState:
        raise AssertionError("there is nothing to finish but what was planned")

    def recover(self, state: SourceState | None = None) -> SourceState:
        return self.source.recover(SourceState() if state is None else state, self.epoch)

    def done(self, state: SourceState, work: Any, *files: Entry, outcome: Any = "ingested") -> Any:
        """Return the state after a batch of these items; ``work=None``: another process planned."""
        return self.advanced(committed(state, *files, outcome=outcome, now=self.now()), work)

    def advanced(self, state: SourceState, work: Any) -> SourceState:
        [batch] = state.work.in_flight
        after = end_batch(self.source.advance(state, batch, work, self.now()), batch, self.now())
        self.source.clean_up()
        return after


def committed(state: SourceState, *files: Entry, outcome: Any, now: float) -> SourceState:
    """Return the state with a committed batch of these items, not yet published."""
    batch = Batch("b1", 1, "running", now, files, now)
    finished = tuple(FinishedFile(entry.path, outcome) for entry in files)
    results = BatchResults(finished=finished, committed_ts=now)
    return prepare_batch(begin_batch(state, batch), batch, results)[0]


def stored(state: SourceState) -> SourceState:
    """Return the state as another process reads it."""
    document = json.loads(json.dumps(state_to_json(state, 1.0)))
    return state_from_json(document, "checkpoint")


def names(files: Any) -> list[str]:
    return [entry.path for entry in files]


def found_by_all(world: Any, owner: Owner, state: SourceState) -> list[str]:
    """Return the items found, equal after a takeover and above every watermark."""
    own = names(owner.source.discover(state).files)
    passed = world.passed_to(state)
    assert passed is None or all(name > passed for name in own)
    after = Owner(world, owner.epoch + 1)
    taken_over = after.recover(stored(state))
    assert names(after.source.discover(taken_over).files) == own
    return own


def test_plan_has_all_found_items_and_batches_respect_limits(world: Any) -> None:
    owner = Owner(arrived(world))
    state = owner.recover()
    looked = owner.source.discover(state)
    assert len(set(names(looked.files))) == len(looked.files) > 2
    work = owner.source.plan(state).work
    assert names(work.files) == names(looked.files)
    assert len(work) == len(looked.files)
    assert work.size == sum(entry.size for entry in looked.files)
    taken = [*work.take(BatchLimits(100, 1, 60), None)]
    # More than the limit in bytes, but one it has to be; where nobody knows sizes all count as 0.
    assert len(taken) == (1 if looked.files[0].size else len(looked.files))
    while work:
        batch = work.take(BatchLimits(2, 1 << 30, 60), None)
        assert 1 <= len(batch) <= 2
        taken += batch
    assert taken == list(looked.files)
    assert (len(work), work.size) == (0, 0)
    assert names(work.files) == names(looked.files)


def test_plan_saves_its_state_and_survives_a_restart(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    assert [stored(state) for state in owner.saved] == [
        state.with_summary(last_update_ts=1) for state in owner.saved
    ]
    assert found_by_all(world, owner, plan.state) == names(plan.work.files)


def test_items_in_backoff_are_not_planned_until_due(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    first, *others = names(plan.work.files)
    state = plan.state.with_work(retries={first: Retry(1, world.now + 100)})
    assert names(owner.source.plan(state).work.files) == others
    world.now += 101
    assert names(owner.source.plan(state).work.files) == [first, *others]


def test_a_batch_alone_says_what_the_job_is_to_read(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    files = tuple(plan.work.files)
    batch = Batch("b1", 1, "running", world.now, files, world.now)
    state = begin_batch(plan.state, batch)
    placed = Owner(world).source.job_items(stored(state), batch)  # a process that planned nothing
    assert placed == owner.source.job_items(state, batch)
    jobs, lost = placed
    assert sorted([job.path for job in jobs] + names(lost)) == sorted(names(files))


@pytest.mark.parametrize("known", [True, False], ids=["planned", "recovered"])
@pytest.mark.parametrize("chosen", [slice(0, 1), slice(1, 3), slice(3, 4), slice(0, 4)])
def test_source_finds_only_items_that_are_not_done(world: Any, chosen: slice, known: bool) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    files = tuple(plan.work.files)
    work = None
    if known:
        work = plan.work
        work.take(BatchLimits(chosen.stop, 1 << 30, 60), None)
        chosen = slice(0, chosen.stop)
    state = owner.done(plan.state, work, *files[chosen])
    assert state.work.in_flight == ()
    left = [path for path in names(files) if path not in names(files[chosen])]
    assert found_by_all(world, owner, state) == left
    again = owner.source.plan(state)
    assert names(again.work.files) == left
    assert found_by_all(world, owner, again.state) == left


def test_items_are_done_in_any_order_one_by_one(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    state, files = plan.state, list(plan.work.files)
    random.Random(7).shuffle(files)
    while files:
        entry = files.pop()
        state = owner.done(state, None, entry)
        assert found_by_all(world, owner, state) == sorted(names(files))
        state = owner.source.plan(state).state
    world.arrive("more")
    assert len(found_by_all(world, owner, state)) == 1


def test_an_item_to_be_tried_again_is_not_passed(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    files = tuple(plan.work.files)
    plan.work.take(BatchLimits(100, 1 << 30, 60), None)
    tried = owner.done(plan.state, plan.work, files[0], outcome="retry")
    state = owner.done(tried, plan.work, *files[1:])
    waits = [files[0].path]
    assert found_by_all(world, owner, state) == (waits if world.finds_waiting else [])
    assert names(owner.source.plan(state).work.files) == []
    world.now += 10_000
    assert found_by_all(world, owner, state) == waits
    assert names(owner.source.plan(state).work.files) == waits


@pytest.mark.parametrize("outcome", ["quarantined", "reported"])
def test_failed_item_is_skipped_or_retried(world: Any, outcome: str) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    first, *others = plan.work.files
    state = owner.done(plan.state, None, first, outcome=outcome)
    assert found_by_all(world, owner, state) == names(others)
    world.now += 10_000
    left = names(others) if world.gives_up else names([first, *others])
    assert found_by_all(world, owner, state) == left


def test_whoever_advances_what_was_saved_comes_to_the_same_end(world: Any) -> None:
    first = Owner(arrived(world))
    plan = first.source.plan(first.recover())
    files = tuple(plan.work.files)
    saved = committed(plan.state, *files[:2], outcome="ingested", now=world.now)
    first.source.advance(saved, saved.work.in_flight[0], plan.work, world.now)  # and dies
    second = Owner(world, 2)
    state = second.advanced(second.recover(stored(saved)), None)
    assert found_by_all(world, second, state) == names(files[2:])


def test_an_insisted_start_from_nothing_finds_everything_again(world: Any) -> None:
    owner = Owner(arrived(world))
    plan = owner.source.plan(owner.recover())
    files = tuple(plan.work.files)
    assert found_by_all(world, owner, owner.done(plan.state, plan.work, *files)) == []
    again = Owner(world, 3)
    state = again.source.start_over(SourceState(position=Position(reset_ts=world.now)), 3)
    state = again.recover(stored(state))
    assert names(again.source.plan(state).work.files) == names(files)


# -- who only looks --------------------------------------------------------------------


def is_committed(world: Any) -> Any:
    return lambda _op, path: path == CHECKPOINT and COMMIT_POINT in world.sink.read(path)


def is_in_flight(world: Any, name: str) -> Any:
    return lambda _op, path: (
        path == CHECKPOINT
        and any(
            name in (entry["path"] for entry in batch["files"])
            for batch in world.checkpoint().get("in_flight", [])
        )
    )


def never_run(_world: Any) -> None:
    """Leave the source as it is: it never ran."""


def left_running(world: Any) -> None:
    killed(world, is_running_batch(world))


def left_publishing(world: Any) -> None:
    killed(world, is_committed(world))


def worked_off(world: Any) -> None:
    world.drain()
    world.arrive("new")


@pytest.mark.parametrize("scene", [never_run, left_running, left_publishing, worked_off])
def test_preview_writes_nothing_and_repeats_its_result(world: Any, scene: Any) -> None:
    scene(arrived(world))
    stores = (world.source, world.sink, world.dlq)
    before = [dict(store.objects) for store in stores]
    seen = [preview(world) for _ in range(2)]
    assert seen[0] == seen[1]
    assert [dict(store.objects) for store in stores] == before
    assert seen[0]["files"]
    # What was looked at does not disturb who owns it.
    poll(world)
    world.drain()
    assert len(world.rows()) == len(set(world.rows()))


def preview(world: Any) -> dict[str, Any]:
    pipeline = world.pipeline()
    state = pipeline.load()
    files = pipeline.discover(state).files
    return {
        "files": files,
        "outlook": pipeline.outlook(state),
        "backlog": pipeline.backlog(state),
        "shown": json.dumps(pipeline.source.status_fields(state)),
        "first": explained(world, files[0].path),
        "other": explained(world, world.not_ours),
    }


def explained(world: Any, name: str) -> Explanation:
    pipeline = world.pipeline()
    place = Located(f"mem://raw/{name}", "events/main", name, "", ())
    return explain(pipeline.parts, pipeline.source, place)


def test_every_item_tells_its_story(world: Any) -> None:
    world.arrive(*world.bad_item, "r1", "r2")
    files = names(world.pipeline().discover(SourceState()).files)
    bad = next(path for path in files if b"bad" in world.engine.source.read(path))
    good = next(path for path in files if path != bad)
    new = explained(world, good)
    assert (new.verdict, new.pending.behind) == ("pending", "poll")
    killed(world, is_in_flight(world, good))
    flying = explained(world, good)
    assert (flying.verdict, flying.pending.behind) == ("pending", "in_flight")
    world.drain()
    ingested = explained(world, good)
    assert ingested.verdict == "ingested"
    assert ingested.outputs
    quarantined = explained(world, bad)
    assert quarantined.verdict == "quarantined"
    assert quarantined.dead_letter is not None
    assert explained(world, world.not_ours).verdict == "ignored"
    pipeline = world.pipeline()
    standing = pipeline.source.explain(good).status_in(pipeline.load())
    assert not standing.is_new()
    assert standing.verdict(lambda: None).verdict in {"done", "closed"}


# -- the real batch protocol -----------------------------------------------------------


def troubled(world: Any) -> list[str]:
    """Rows arrived, an item is bad, and another cannot be read twice; the good rows.

    Where nothing is given up none is bad: that would never come to an end.
    """
    world.arrive(*(world.bad_item if world.gives_up else ()), *numbered(1, 7))
    good = [
        path
        for path in names(world.pipeline().discover(SourceState()).files)
        if b"bad" not in world.engine.source.read(path)
    ]
    world.engine.flaky[good[1]] = 2
    return numbered(1, 7)


def run_until_idle(world: Any) -> None:
    for _ in range(4):
        world.now += 1000
        with contextlib.suppress(Unavailable):
            world.drain()


def test_everything_is_published_once_in_few_batches(world: Any) -> None:
    rows = troubled(world)
    run_until_idle(world)
    assert world.rows() == sorted(rows)
    assert len(world.letters()) == int(world.gives_up)
    totals = world.checkpoint()["totals"]
    assert (totals["rows"], totals["quarantined"]) == (7, int(world.gives_up))
    assert world.checkpoint()["watermark"]["state"] == "Idle"
    jobs = len(world.engine.jobs)
    run_until_idle(world)
    assert len(world.engine.jobs) == jobs
    world.arrive("r8", "r9")
    run_until_idle(world)
    assert world.rows() == sorted([*rows, "r8", "r9"])


def running(world: Any) -> list[str]:
    """Batches that are begun and not committed."""
    batches = world.checkpoint().get("in_flight", []) if CHECKPOINT in world.sink.objects else []
    return [batch["batch"] for batch in batches if batch["phase"] == "running"]


@pytest.mark.promise("G-006", "G-017", "G-128", "G-153")
def test_death_at_any_change_neither_loses_nor_doubles_a_row(world: Any) -> None:
    kind = type(world)
    for at in count():
        world = kind()
        rows = troubled(world)
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        with contextlib.suppress(Died, Unavailable):
            world.drain()
        died = dying.countdown == -1
        dying.arm(-1)
        told = [*world.dlq.objects, *(path for path in world.sink.objects if "/journal/" in path)]
        # Nothing of a batch that runs counts, so nothing is told of it.
        assert not [path for path in told if any(name in path for name in running(world))], at
        world.arrive("later")
        run_until_idle(world)
        assert not [path for path in world.sink.objects if "staging" in path], at
        assert world.rows() == sorted([*rows, "later"]), at
        assert len(world.letters()) == int(world.gives_up), at
        assert world.checkpoint()["totals"]["rows"] == len(rows) + 1, at
        if not died:
            assert at > world.changes
            return


@pytest.mark.promise("G-017")
@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_deaths_while_rows_arrive(world: Any, seed: int) -> None:
    chance = random.Random(seed)
    rows = troubled(world)
    dying = Dying(world.sink, world.dlq)
    for number in range(12):
        rows.append(f"a{number}")
        world.arrive(rows[-1])
        dying.arm(chance.randrange(60))
        with contextlib.suppress(Died, Unavailable):
            world.drain()
        world.now += chance.choice([1, 20, 400])
    dying.arm(-1)
    run_until_idle(world)
    assert world.rows() == sorted(rows)
    assert len(world.letters()) == int(world.gives_up)


@pytest.mark.promise("G-018", "G-129", "G-153")
def test_replaced_process_takes_nothing_from_its_successor(world: Any) -> None:
    kind = type(world)
    for pauses in range(0, 60, 3):
        world = kind()
        rows = troubled(world)
        take_over_between(world, pauses, 7 + pauses % 11)
        run_until_idle(world)
        assert world.rows() == sorted(rows), pauses
        assert world.checkpoint()["totals"]["rows"] == len(rows), pauses

"""Backfill: a range beside the live daemon, never a row that is the live daemon's."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import FencedError, Unavailable
from blizzard_core.storage.protocol import Page
from blizzard_core.watermark.progress import Progress
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.wiring import source_pipeline
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.opening import open_files
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import (
    Range,
    RangeRefused,
    begins_over,
    check_earlier,
    check_range,
    is_ours,
)
from blizzard_py.state.checkpoint_file import read_ledger, read_state
from blizzard_py.state.journal import Journal
from blizzard_py.state.backfills import BACKFILL
from blizzard_py.state.source_state import Retry, SourceState, checkpoint_path, under_way
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died, Dying
from tests.support.promise_world import gated
from tests.support.request_world import DAY, RequestWorld, ingest_files
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario

LATE = f"{DAY}/3.json"
LIVE = SourceState(Progress("Idle", "date=2024-01-30/9", depth=1), origin="date=2024-01-28")


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)


def test_a_range_below_the_live_start_is_free() -> None:
    check_range(Range("date=2024-01-01", "date=2024-01-27"), LIVE, [], replay=False)


@pytest.mark.parametrize(
    ("chosen", "live", "others", "message"),
    [
        (Range("b", "a"), LIVE, [], "sorts above"),
        (Range("a", "b"), None, [], "has not ingested anything yet"),
        (Range("a", "b"), SourceState(), [], "has not ingested anything yet"),
        (Range("date=2024-01-01", "date=2024-01-28"), LIVE, [], "'date=2024-01-28' on belongs"),
        (Range("date=2024-01-01", "date=2024-01-2"), LIVE, [], "belongs to the live daemon"),
        (
            Range("a", "b"),
            SourceState(Progress("Idle", "x/1", depth=1), origin=""),
            [],
            "the whole source belongs",
        ),
        (
            Range("a", "b"),
            SourceState(Progress("Idle", "x/1", depth=1)),
            [],
            "the whole source belongs",
        ),
        (
            Range("date=2024-01-01", "date=2024-01-05"),
            replace(LIVE, processed=()),
            [],
            "no watermark",
        ),
        (
            Range("date=2024-01-01", "date=2024-01-05"),
            LIVE,
            [Range("date=2024-01-05", "date=2024-01-09")],
            "overlaps with the backfill from 'date=2024-01-05'",
        ),
    ],
)
def test_a_range_that_is_not_free_is_refused_with_the_reason(
    chosen: Range, live: SourceState | None, others: list[Range], message: str
) -> None:
    with pytest.raises(RangeRefused, match=message):
        check_range(chosen, live, others, replay=False)


def test_replay_overrides_what_is_done_but_not_a_live_daemon_that_never_began() -> None:
    check_range(Range("a", "z"), LIVE, [Range("a", "b")], replay=True)
    with pytest.raises(RangeRefused):
        check_range(Range("a", "z"), SourceState(), [], replay=True)


def test_a_source_without_a_watermark_replays_no_range_rather_than_everything(
    tmp_path: Path,
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    scenario.main_source["use_watermark"] = False
    scenario.write_config()
    for number in (1, 2):
        scenario.put_rows(f"date=2024-01-0{number}/1.json.gz", number)
    scenario.ingest()
    done = backfill(scenario, "date=2024-01-01", "date=2024-01-01", "--replay")
    assert (done.exit_code, "no watermark" in done.stderr) == (1, True)
    scenario.commit()
    assert scenario.ids() == [1, 2]


def test_a_range_survives_its_file_name() -> None:
    chosen = Range("date=2024-01-01/hour=00", "ü ä/50%")
    assert Range.from_slug(chosen.slug) == chosen
    assert "/" not in chosen.slug
    assert Range.from_slug("nonsense") is None


def backfill(scenario: Scenario, first: str, last: str, *more: str) -> Result:
    return CliRunner().invoke(
        blizzard,
        [
            "backfill",
            str(scenario.config),
            "--pipeline=events",
            "--source=main",
            f"--from={first}",
            f"--to={last}",
            *more,
        ],
    )


class Today:
    """One for all of a test, in which a day may begin."""

    at = dt.datetime.now(dt.UTC)


@pytest.fixture(autouse=True)
def today() -> None:
    Today.at = dt.datetime.now(dt.UTC)


def day(back: int) -> str:
    return f"date={Today.at - dt.timedelta(days=back):%Y-%m-%d}"


@pytest.fixture
def scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Scenario:
    """Ten days of files; the live daemon began two days back and is up to date."""
    if getattr(request, "param", "local") == "local":
        found = Scenario(tmp_path, str(tmp_path))
    else:
        server: S3Server = request.getfixturevalue("s3")
        found = Scenario(tmp_path, f"s3://{server.new_bucket()}/base", server.options)
    found.main_source["partition_filter"] = {"prefix_template": "date=%Y-%m-%d", "lookback": 2}
    found.write_config()
    for back in range(10):
        found.put_rows(f"{day(back)}/1.json.gz", back)
    found.ingest()
    return found


@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_history_is_filled_in_once_beside_the_live_daemon(scenario: Scenario) -> None:
    live = scenario.status("blizzard")
    done = backfill(scenario, day(6), day(4))
    assert done.exit_code == 0, done.stderr
    assert backfill(scenario, day(6), day(4)).exit_code == 0  # again: nothing to do
    assert backfill(scenario, day(9), day(7)).exit_code == 0
    scenario.commit()
    assert scenario.ids() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert scenario.status("blizzard") == live
    # What arrives now is the live daemon's, wherever it lies.
    scenario.put_rows(f"{day(0)}/2.json.gz", 100)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 100]


class RangeWorld(RequestWorld):
    """Somebody has deleted a range's rows and has it ingested again."""

    def delete_rows(self, *but: str) -> None:
        for path, rows in self.published().items():
            if not set(but).issuperset(rows):
                self.sink.delete(path)

    def replay_day(self, parts: Parts | None = None, *, anew: bool = False) -> None:
        parts = self.parts() if parts is None else parts
        state, chosen = read_state(self.sink, parts.id), Range(DAY, DAY)
        check_range(chosen, state, [], replay=True)
        assert state is not None
        takes = partial(is_ours, state, read_ledger(self.sink, parts.id), replay=True)
        source = parts.files.for_range(state.progress.depth)
        ours = replace(parts, source=source, suffix=f"{BACKFILL}{chosen.slug}")
        over = partial(begins_over, anew=anew)
        opens = partial(open_files, scope=Scope(chosen.gap, takes))
        self.drain(SourcePipeline(ours, opens, begins_over=over))


def test_a_replay_brings_again_what_was_ingested_by_hand_and_dying_costs_nothing() -> None:
    at = 0
    while True:
        world = RangeWorld()
        world.put(f"{DAY}/3.json", "three")
        assert world.ingest(f"{DAY}/3.json") == ["ingested"]
        world.put(f"{DAY}/6.json", "6")
        world.drain()
        world.now += 100
        world.delete_rows()
        dying = Dying(world.sink)
        dying.arm(at)
        try:
            world.replay_day()
            died = False
        except Died:
            died = True
            world.replay_day()
        dying.arm(-1)
        assert world.rows() == ["1", "5", "52", "6", "three"], at
        if not died:
            break
        at += 1
    assert at > 5


def test_what_waits_in_the_live_queue_is_left_to_the_live_daemon_also_in_a_replay() -> None:
    world = RangeWorld(late_files="ingest")
    world.go_on(2)
    late = f"{DAY}/3.json"
    world.put(late, "late")
    world.engine.flaky[late] = 1
    live = world.pipeline()
    while not world.checkpoint().get("queue"):
        world.now += 86_400.0
        with contextlib.suppress(Unavailable):
            live.cycle(threading.Event())
    world.delete_rows()
    world.replay_day()
    assert world.rows() == ["1", "5", "52"]
    world.drain(live)
    assert world.rows() == ["1", "5", "52", "late"]


def run_of(world: RangeWorld, kind: str, parts: Parts) -> None:
    """One of the runs that may come upon a late file, from its beginning to its end."""
    match kind:
        case "backfill":
            others = (read_state(world.sink, f"events_main{run}") for run in ("", "~replay"))
            # What another run is about to publish is its, and stays.
            taken = any(LATE in under_way(state) for state in others if state is not None)
            world.delete_rows(*(["late"] if taken else []))
            world.now += 1
            world.replay_day(parts)
        case "ingest":
            ingest_files(parts, LATE)
        case "sweep":
            daemon = source_pipeline(parts)
            for _ in range(2):
                world.now += 86_401.0
                world.drain(daemon)


def beside(world: RangeWorld, first: str, second: str, at: int) -> bool:
    """The second run falls into the first one at its call ``at``; False if it has fewer."""
    calls = itertools.count()
    states = itertools.count()
    ours = f"events_main{BACKFILL}{Range(DAY, DAY).slug}"

    def gate(_call: str) -> None:
        # What others do before a backfill has begun it is to do again.
        begun = read_state(world.sink, ours) if first == "backfill" else None
        ready = first != "backfill" or (begun is not None and begun.ledger)
        if ready and next(calls) == at:
            world.now += 1
            run_of(world, second, world.parts())
            world.now += 1
            next(states)

    run_of(world, first, gated(world, gate).parts)
    return next(states) > 0


@pytest.mark.parametrize(
    ("first", "second", "late_files"),
    [
        ("backfill", "sweep", "ingest"),
        ("sweep", "backfill", "ingest"),
        ("backfill", "ingest", "quarantine"),
        ("ingest", "backfill", "report"),
    ],
)
def test_a_late_file_that_is_taken_beside_a_replayed_range_comes_once(
    first: str, second: str, late_files: str
) -> None:
    at, reached = 0, True
    while reached:
        world = RangeWorld(late_files=late_files)
        world.put(f"{DAY}/6.json", "6")
        world.go_on(1)
        world.put(LATE, "late")
        if late_files == "report":
            world.go_on(2)
        world.now += 100
        reached = beside(world, first, second, at)
        # Who was told to come again does, and the daemon goes on.
        for kind in {first, second} - {"backfill"}:
            run_of(world, kind, world.parts())
        world.go_on(1)
        if reached:
            assert world.rows() == ["1", "5", "52", "6", "late"], at
        at += 1
    assert at > 10


def rebuild_within(world: RangeWorld, at: int) -> bool:
    """A rebuild falls into a replayed range at its call ``at``; False if it has fewer."""
    calls = itertools.count()

    def gate(_call: str) -> None:
        if next(calls) == at:
            job = Rebuild(world.parts())
            with contextlib.suppress(EditRefused):  # the range has saved meanwhile
                job.write(job.plan(None))

    with contextlib.suppress(FencedError):
        world.replay_day(gated(world, gate).parts)
    return next(calls) > at


def test_a_late_file_comes_once_when_a_rebuild_falls_into_a_replayed_range() -> None:
    at, reached = 0, True
    while reached:
        world = RangeWorld(late_sweep_interval=0)
        world.put(LATE, "late")  # nobody has noticed, and a rebuild takes it for new
        world.delete_rows()
        reached = rebuild_within(world, at)
        world.replay_day()
        world.drain()
        assert world.rows() == ["1", "5", "52", "late"], at
        at += 1
    assert at > 10


def test_the_live_daemons_range_is_refused_unless_replayed(scenario: Scenario) -> None:
    refused = backfill(scenario, day(5), day(1))
    assert refused.exit_code == 1
    assert "belongs to the live daemon" in refused.stderr
    scenario.put_rows(f"{day(1)}/2.json.gz", 100)  # still to be done by the live daemon
    assert backfill(scenario, day(1), day(1), "--replay").exit_code == 0
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [0, 1, 1, 2, 100]


def test_a_file_that_a_fast_clock_dates_after_the_replays_begin_is_replayed() -> None:
    world = RangeWorld()
    world.put(f"{DAY}/6.json", "6")
    world.now += 0.9  # S3 tells whole seconds: who counts on from one may be behind by almost one
    world.drain()
    world.now -= 0.9
    world.delete_rows()
    world.replay_day()
    assert world.rows() == ["1", "5", "52", "6"]


def test_what_a_slow_clock_dates_before_the_replays_begin_does_not_come_twice() -> None:
    world = RangeWorld(late_files="ingest")
    world.put(f"{DAY}/6.json", "6")
    world.go_on(2)
    world.put(LATE, "late")
    late_in = itertools.count()

    def gate(_call: str) -> None:
        begun = read_state(world.sink, f"events_main{BACKFILL}{Range(DAY, DAY).slug}")
        if begun is not None and begun.ledger and not next(late_in):
            now = world.now
            world.now = now - 172_810.0
            run_of(world, "sweep", world.parts())
            world.now = now

    world.delete_rows()
    world.replay_day(gated(world, gate).parts)
    world.go_on(1)
    assert world.rows() == ["1", "5", "52", "6", "late"]
    assert next(late_in) > 1


def test_a_replay_that_an_older_release_began_goes_by_times() -> None:
    ours, tried = f"events_main{BACKFILL}{Range(DAY, DAY).slug}", 0
    for at in itertools.count():
        world = RangeWorld()
        world.put(f"{DAY}/6.json", "6")
        world.drain()
        world.now += 100
        world.delete_rows()
        dying = Dying(world.sink)
        dying.arm(at)
        try:
            world.replay_day()
            break
        except Died:
            dying.arm(-1)
        state = read_state(world.sink, ours)
        if state is None or state.progress.state == "Initial":
            continue
        path = checkpoint_path(ours)
        older = json.loads(world.sink.read(path)) | {"ledger": None}
        world.sink.put_atomic(path, json.dumps(older).encode())
        world.replay_day()
        assert world.rows() == ["1", "5", "52", "6"], at
        tried += 1
    assert tried > 5


@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_a_range_is_replayed_once_and_once_more_if_told_so(scenario: Scenario) -> None:
    def again(*more: str) -> list[int]:
        done = backfill(scenario, day(6), day(6), *more)
        assert done.exit_code == 0, done.stderr
        scenario.commit()
        return [found for found in scenario.ids() if found == 6]

    assert again() == [6]
    assert again("--replay") == [6, 6]  # what a backfill has filled in comes again as well
    assert again("--replay") == [6, 6]
    assert again("--replay", "--anew") == [6, 6, 6]
    assert again("--replay") == [6, 6, 6]
    wrong = backfill(scenario, day(6), day(6), "--anew")
    assert (wrong.exit_code, "goes with --replay" in wrong.stderr) == (2, True)


def test_a_range_begun_over_has_its_journal_counted() -> None:
    world = RangeWorld()
    for _ in range(3):
        world.delete_rows()
        world.replay_day(anew=True)
    run = f"{world.parts().id}{BACKFILL}{Range(DAY, DAY).slug}"
    state = read_state(world.sink, run)
    assert state is not None
    assert state.unfolded is not None
    assert state.unfolded.agrees_with(Journal(world.sink, run).batches())
    assert not read_ledger(world.sink, run).not_settled([f"{DAY}/1.json"])
    assert world.rows() == ["1", "5", "52"]


def test_a_listing_that_fails_first_does_not_end_a_range_that_begins_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = RangeWorld()
    world.delete_rows()
    world.replay_day()
    world.delete_rows()

    def fails(*_arguments: object) -> Iterator[Page]:
        monkeypatch.undo()
        raise Unavailable("not now")

    monkeypatch.setattr(world.source, "list_range", fails)
    parts = world.parts()
    drain = world.drain

    def twice(worker: SourcePipeline | None = None) -> SourcePipeline:
        with pytest.raises(Unavailable):
            drain(worker)
        return drain(worker)

    monkeypatch.setattr(world, "drain", twice)
    world.replay_day(parts, anew=True)
    assert world.rows() == ["1", "5", "52"]


def test_a_backfill_that_is_not_finished_is_finished_before_it_is_replayed() -> None:
    unfinished = SourceState(Progress("Active", "x/1", depth=1))
    with pytest.raises(RangeRefused, match="finish it first"):
        check_earlier(unfinished, replay=True)
    check_earlier(unfinished, replay=False)
    check_earlier(replace(unfinished, anew_ts=1.0), replay=True)
    for earlier in (None, SourceState(), SourceState(Progress("Idle", "x/1", depth=1))):
        check_earlier(earlier, replay=True)


def test_what_a_replay_has_still_to_do_is_not_begun_over() -> None:
    idle = SourceState(Progress("Idle", "x/1", depth=1), anew_ts=1.0)
    assert begins_over(idle, anew=True)
    assert not begins_over(idle, anew=False)
    assert not begins_over(replace(idle, retries={"x/2": Retry(1)}), anew=True)
    assert not begins_over(replace(idle, progress=Progress("Active", "x/1", depth=1)), anew=True)


def test_mistakes_are_told(scenario: Scenario) -> None:
    wrong = CliRunner().invoke(
        blizzard,
        ["backfill", str(scenario.config), "--pipeline=x", "--source=y", "--from=a", "--to=b"],
    )
    assert wrong.exit_code == 2
    assert "there is no x/y; known: events/main" in wrong.stderr
    assert "--from and --to are partitions" in backfill(scenario, "a", "b/1.json.gz").stderr


@pytest.mark.parametrize(
    ("first", "last"),
    [("d=1", "d=2/h=3"), ("d=a..b", "d=c"), ("d=a", "b..c"), ("d=1.", ".d"), ("d=\udcff", "d=%2E")],
)
def test_a_range_is_read_from_the_name_of_its_state(first: str, last: str) -> None:
    chosen = Range(first, last)
    assert Range.from_slug(chosen.slug) == chosen
    chosen.slug.encode()

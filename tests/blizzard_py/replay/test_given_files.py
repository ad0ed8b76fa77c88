"""Files that somebody names: taken once, whatever their names, beside a daemon that goes on."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import FencedError, Unavailable
from blizzard_core.settings.sources import CheckpointSettings
from blizzard_core.signals import INTERRUPTED
from blizzard_py.__main__ import main as blizzard
from blizzard_py.dead_letters import reader as letters
from blizzard_py.edits import checkpoint_edit
from blizzard_py.ingest.publish import OutputNames
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import IngestJob, IngestResult
from blizzard_py.replay import Given, GivenFiles, Replay, Taken, file_parts
from blizzard_py.state.journal import Journal
from tests.blizzard_py.replay.test_replay import ReplayWorld, ask, quarantined
from tests.support.blizzard_world import overtaking
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import Died, Dying
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario

DAY = "date=2024-01-01"


class IngestWorld(ReplayWorld):
    """A live source that is up to date, and whose grace is over."""

    def __init__(self, **source: Any) -> None:
        super().__init__(**{"grace_period": "1s", **source})
        for name in ("1", "5"):
            self.put(f"{DAY}/{name}.json", name)
        self.drain()
        self.now += 100
        self.put(f"{DAY}/52.json", "52")  # the save of its batch says that the grace is over
        self.drain()

    def given(self, *, insist: bool = False) -> GivenFiles:
        replay: Replay = self.replay()
        return GivenFiles(replay.live, replay.files, replay.drain, insist=insist)

    def ingest(self, *paths: str, insist: bool = False) -> Given:
        return self.given(insist=insist).run(paths)

    def states(self, *paths: str, insist: bool = False) -> list[str]:
        return [told.state for told in self.ingest(*paths, insist=insist).files]

    def go_on(self, days: int = 3) -> None:
        """The daemon polls and sweeps for some days."""
        for _ in range(days * 2):
            self.now += 86_400 / 2 + 1
            self.drain()


ODD = [
    f"{DAY}/3.json",  # late: below the watermark, and passed
    f"{DAY}/_hidden.json",
    f"{DAY}/other.txt",
    f"{DAY}/zz%2Fodd ü.json.bak",
    "date=9999-12-31/1.json",  # kept apart
]


@pytest.mark.parametrize("path", ODD)
def test_whatever_the_name_it_comes_once_and_never_again(path: str) -> None:
    world = IngestWorld()
    world.put(path, "given")
    preview = world.given().preview([path])
    assert [told.state for told in preview.files] == ["would ingest"]
    assert "given" not in world.rows()
    live = world.checkpoint()
    done = world.ingest(path)
    assert ([told.state for told in done.files], done.rows, done.exit_code) == (["ingested"], 1, 0)
    assert world.checkpoint() == live
    world.put(f"{DAY}/6.json", "6")
    world.go_on()
    assert world.rows() == ["1", "5", "52", "6", "given"]
    assert world.letters() == []
    assert [told.state for told in world.given().preview([path]).files] == ["done"]
    again = world.ingest(path)
    assert (again.files[0].state, again.exit_code, again.rows) == ("done", 0, 0)
    assert "a replay has ingested it" in again.files[0].reason
    # Written again it is another file, of which nothing is in.
    world.put(path, "mended")
    refused = world.ingest(path)
    assert (refused.files[0].state, refused.exit_code, refused.rows) == ("refused", 1, 0)
    assert "not known to be the same file still" in refused.files[0].reason


@pytest.mark.parametrize("before", [0, 1, 2])
def test_whoever_is_told_to_run_it_again_hears_that_all_is_in(before: int) -> None:
    """Some are in, a signal comes before the others are."""
    world = IngestWorld()
    paths = [f"{DAY}/3.json", f"{DAY}/_hidden.json", f"{DAY}/x.txt"]
    for path in paths:
        world.put(path, path)

    world.ingest(*paths[:before])
    given = world.given()
    first = GivenFiles(given.live, given.files, lambda _worker: INTERRUPTED).run(paths)
    assert first.exit_code == INTERRUPTED
    assert [told.state for told in first.files] == ["done"] * before + ["taken"] * (3 - before)
    again = world.ingest(*paths)
    assert [told.state for told in again.files] == ["done"] * before + ["ingested"] * (3 - before)
    assert (again.exit_code, again.rows) == (0, 3 - before)


def test_explain_tells_of_a_given_file_also_where_its_name_is_ignored() -> None:
    world = IngestWorld()
    for path in (f"{DAY}/_hidden.json", f"{DAY}/3.json"):
        world.put(path, "given")
        world.ingest(path)
        found = ask(world, path)
        assert (found.verdict, "`blizzard ingest`" in found.reason) == ("ingested", True)
    assert ask(world, f"{DAY}/_other.json").verdict == "ignored"


def test_explain_tells_that_a_given_file_waits_also_where_its_name_is_ignored() -> None:
    world = IngestWorld()
    path = f"{DAY}/_hidden.json"
    world.put(path, "given")

    def dies(_worker: SourcePipeline) -> int:
        raise Died

    given = world.given()
    with contextlib.suppress(Died):
        GivenFiles(given.live, given.files, dies).run([path])
    found = ask(world, path)
    assert (found.verdict, "ingest by hand" in found.reason) == ("pending", True)
    assert world.states(path) == ["ingested"]


def test_a_closed_partition_is_no_obstacle() -> None:
    world = IngestWorld(max_tracked_partitions=1)
    for day in ("02", "03"):
        for _ in range(2):
            world.now += 100
            world.put(f"date=2024-01-{day}/{world.now:.0f}.json", day)
            world.drain()
    assert world.checkpoint()["floor"] > DAY
    world.put("date=2023-01-01/1.json", "closed")
    assert world.states("date=2023-01-01/1.json") == ["ingested"]
    world.go_on()
    assert world.rows() == ["02", "02", "03", "03", "1", "5", "52", "closed"]


def test_a_file_whose_partition_was_ahead_of_time_is_passed_when_its_time_has_come() -> None:
    world = IngestWorld()
    world.put("date=2025-06-20/1.json", "early")  # five days ahead of the world's clock
    world.drain()
    assert world.states("date=2025-06-20/1.json") == ["ingested"]
    world.put("date=2025-06-20/2.json", "other")
    world.put(f"{DAY}/6.json", "6")
    world.go_on(days=6)
    assert world.rows() == ["1", "5", "52", "6", "early", "other"]
    partitions = world.checkpoint()["partition_watermarks"]
    assert partitions["date=2025-06-20"] == "2.json"
    assert world.letters() == []


@pytest.mark.parametrize("behind", [0.0, 2 * 3600.0, -2 * 3600.0])
def test_whose_a_partition_is_whose_time_has_just_come_no_machine_clock_decides(
    behind: float,
) -> None:
    """The daemon works off a backlog in it, batch by batch, and has found all of it."""
    world = IngestWorld(max_ahead=0, checkpoint=CheckpointSettings(interval_files=1))
    world.template = ""
    day = datetime.fromtimestamp(world.now, UTC).strftime("date=%Y-%m-%d-%H")
    paths = [f"{day}/{number}.json" for number in range(3)]
    for path in paths:
        world.put(path, path[-6:])
    told: list[str] = []
    ingest = world.engine.ingest

    def beside(job: IngestJob) -> IngestResult:
        if not told:
            given = world.given()
            live = replace(given.live, clock=lambda: world.now - behind)
            off = GivenFiles(live, file_parts(live, world.replays), given.drain)
            told.extend(file.state for file in off.run(paths[-1:]).files)
        return ingest(job)

    world.engine.ingest = beside  # type: ignore[method-assign]  # the daemon's only
    world.drain()
    assert told == ["left"]
    assert world.rows() == ["0.json", "1", "1.json", "2.json", "5", "52"]


def test_a_preview_by_a_clock_that_is_behind_says_what_would_be_done() -> None:
    world = IngestWorld()
    path = f"{datetime.fromtimestamp(world.now, UTC):date=%Y-%m-%d}/1.json"
    world.put(path, "now")
    given = world.given()
    behind = replace(given.live, clock=lambda: world.now - 30 * 86_400)
    preview = GivenFiles(behind, file_parts(behind, world.replays), given.drain).preview([path])
    assert [told.state for told in preview.files] == world.states(path) == ["left"]


def test_an_ending_that_counts_later_does_not_bring_the_file_again() -> None:
    world = IngestWorld()
    world.put(f"{DAY}/8.json.gz", "zipped")
    assert world.states(f"{DAY}/8.json.gz") == ["ingested"]
    world.settings["compression"] = "auto"
    world.drain()
    assert world.rows() == ["1", "5", "52", "zipped"]


@pytest.mark.parametrize("name", ["6.json", "7.json"])
def test_what_the_daemon_has_still_to_do_is_left_to_it(name: str) -> None:
    world = IngestWorld()
    world.put(f"{DAY}/{name}", "new")
    world.engine.flaky[f"{DAY}/7.json"] = 1
    if name == "7.json":
        with contextlib.suppress(Unavailable):
            world.pipeline().cycle(threading.Event())  # waits for another try now
    found = world.ingest(f"{DAY}/{name}")
    assert (found.files[0].state, found.exit_code) == ("left", 0)
    assert "live daemon has still to do it" in found.files[0].reason
    world.drain()
    assert world.rows() == ["1", "5", "52", "new"]


def test_what_has_rows_or_is_not_there_is_refused_and_the_others_are_taken() -> None:
    world = IngestWorld()
    world.put(f"{DAY}/3.json", "late")
    found = world.ingest(f"{DAY}/1.json", f"{DAY}/3.json", f"{DAY}/4.json")
    assert [told.state for told in found.files] == ["refused", "ingested", "missing"]
    assert (found.rows, found.exit_code) == (1, 1)
    assert "the live daemon has ingested it" in found.files[0].reason


def test_what_the_sweep_ingests_is_left_to_it_and_comes_once() -> None:
    world = IngestWorld(late_files="ingest")
    world.put(f"{DAY}/3.json", "late")
    found = world.ingest(f"{DAY}/3.json")
    assert found.files[0].state == "left"
    assert "late sweep" in found.files[0].reason
    world.go_on()
    assert world.rows() == ["1", "5", "52", "late"]
    # Without sweeps nobody else takes it.
    other = IngestWorld(late_files="ingest", late_sweep_interval=0)
    other.put(f"{DAY}/3.json", "late")
    assert other.states(f"{DAY}/3.json") == ["ingested"]


@pytest.mark.parametrize("late_files", ["report", "quarantine"])
def test_what_the_sweep_has_told_of_is_taken_and_its_letter_left_out(late_files: str) -> None:
    world = IngestWorld(late_files=late_files)
    world.put(f"{DAY}/3.json", "late")
    world.go_on()
    assert world.rows() == ["1", "5", "52"]
    assert len(world.letters()) == (late_files == "quarantine")
    assert world.states(f"{DAY}/3.json") == ["ingested"]
    report = world.run()
    assert report.rows == 0
    reasons = [reason for told in report.outcomes for _, reason in told.left_to_others]
    assert all("a replay has ingested it" in reason for reason in reasons)
    world.go_on()
    assert world.rows() == ["1", "5", "52", "late"]


def test_a_quarantined_file_is_taken_once_it_is_mended() -> None:
    world = IngestWorld()
    world.put(f"{DAY}/6.json", "bad")
    world.drain()
    found = world.ingest(f"{DAY}/6.json")
    assert (found.files[0].state, found.exit_code) == ("quarantined", 1)
    world.go_on()
    world.put(f"{DAY}/6.json", "mended")
    assert world.states(f"{DAY}/6.json") == ["ingested"]
    assert world.run().rows == 0
    assert world.rows() == ["1", "5", "52", "mended"]


def test_a_late_file_that_failed_here_may_be_given_again_after_the_sweep_has_met_it() -> None:
    world = IngestWorld()
    world.put(f"{DAY}/3.json", "bad")
    assert world.states(f"{DAY}/3.json") == ["quarantined"]
    world.go_on()  # the sweep notes that somebody else has settled it
    world.put(f"{DAY}/3.json", "mended")
    assert world.states(f"{DAY}/3.json") == ["ingested"]


def test_nobody_knows_of_what_an_older_release_has_passed_so_somebody_has_to_insist() -> None:
    world = IngestWorld()
    # As a release leaves it that kept no ledger, and whose journal is pruned.
    document = world.checkpoint()
    del document["sweep"], document["unfolded"]
    for path in [p for p in world.sink.objects if p.startswith("_blizzard/journal/")]:
        world.sink.delete(path)
    world.sink.put_atomic("_blizzard/events_main_checkpoint.json", json.dumps(document).encode())
    world.put(f"{DAY}/3.json", "late?")
    found = world.ingest(f"{DAY}/1.json", f"{DAY}/3.json")
    assert [told.state for told in found.files] == ["refused", "refused"]
    assert "--insist" in found.files[0].reason
    world.go_on()  # notes them
    assert world.states(f"{DAY}/3.json") == ["refused"]
    assert world.states(f"{DAY}/3.json", insist=True) == ["ingested"]
    assert world.states(f"{DAY}/3.json", insist=True) == ["done"]


def test_without_a_watermark_the_set_says_what_is_the_daemons() -> None:
    world = IngestWorld(use_watermark=False)
    world.put(f"{DAY}/3.json", "new")
    world.put(f"{DAY}/x.txt", "text")
    assert world.states(f"{DAY}/3.json", f"{DAY}/x.txt", f"{DAY}/1.json") == [
        "left",
        "ingested",
        "refused",
    ]
    world.drain()
    assert world.rows() == ["1", "5", "52", "new", "text"]


def test_dying_before_and_after_every_write_neither_doubles_nor_loses_a_row() -> None:
    paths = [f"{DAY}/3.json", f"{DAY}/x.txt", f"{DAY}/4.json"]
    at = 0
    while True:
        world = IngestWorld()
        for number, path in enumerate(paths):
            world.put(path, f"g{number}" if number < 2 else "bad")
        dying = Dying(world.sink, world.dlq)
        dying.arm(at)
        try:
            world.ingest(*paths)
            died = False
        except Died:
            died = True
            world.ingest(*paths)
        dying.arm(-1)
        assert world.rows() == ["1", "5", "52", "g0", "g1"], at
        assert [letter["path"] for letter in world.letters()][:1] == [f"mem://raw/{DAY}/4.json"], at
        world.go_on()
        assert world.rows() == ["1", "5", "52", "g0", "g1"], at
        if not died:
            break
        at += 1
    assert at > 20


def test_of_two_at_once_one_is_fenced_and_the_file_comes_once() -> None:
    world = IngestWorld()
    world.put(f"{DAY}/3.json", "late")

    def overtaken(worker: SourcePipeline) -> int:
        with (
            overtaking(worker.parts.engine, lambda: world.ingest(f"{DAY}/3.json")),
            pytest.raises(FencedError),
        ):
            worker.cycle(threading.Event())
        return 3

    first = world.given()
    first = GivenFiles(first.live, first.files, overtaken)
    assert first.run([f"{DAY}/3.json"]).exit_code == 3
    assert world.rows() == ["1", "5", "52", "late"]


def test_a_replay_that_reads_before_another_takes_over_does_not_take_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = quarantined()
    world.put("date=2024-01-01/2.json", "c")
    world.put("date=2024-01-02/2.json", "d")
    opened = Taken.open
    raced: list[int] = []

    def race(self: Taken) -> Any:
        if not raced:
            raced.append(1)
            world.run()  # the whole of another replay, just before this one takes over
        return opened(self)

    monkeypatch.setattr(Taken, "open", race)
    world.run()
    assert world.rows() == ["a", "b", "c", "d"]


def test_a_run_that_takes_no_file_writes_nothing() -> None:
    world = IngestWorld()
    before = dict(world.sink.objects)
    world.given().preview([f"{DAY}/1.json", f"{DAY}/none.json"])
    assert world.sink.objects == before
    assert list(Journal(world.sink, "events_main~replay").batches()) == []
    assert list(letters.objects(world.dlq, "events_main")) == []


# -- the command ---------------------------------------------------------------


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scenario:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    if getattr(request, "param", "local") == "local":
        found = Scenario(tmp_path, str(tmp_path))
    else:
        server: S3Server = request.getfixturevalue("s3")
        found = Scenario(tmp_path, f"s3://{server.new_bucket()}/base", server.options)
    found.put_rows("date=2024-01-01/5.json.gz", 1)
    found.ingest()
    return found


def command(scenario: Scenario, *arguments: str) -> Result:
    return CliRunner().invoke(blizzard, ["ingest", str(scenario.config), *arguments])


@pytest.mark.parametrize("scenario", ["local", "s3"], indirect=True)
def test_the_command_takes_files_by_their_uri_and_tells_of_each(scenario: Scenario) -> None:
    scenario.put_rows("date=2024-01-01/_h.json.gz", 2)
    scenario.put("date=2024-01-01/plain.txt", b'{"id": 3, "text": "t"}\n')
    root = f"{scenario.place}/raw/date=2024-01-01"
    dry = command(scenario, f"{root}/_h.json.gz", "--dry-run")
    assert (dry.exit_code, "would ingest" in dry.stdout) == (0, True), dry.output
    done = command(scenario, f"{root}/_h.json.gz", f"{root}/plain.txt", f"{root}/x.json", "--json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert [file["state"] for file in document["files"]] == ["ingested", "ingested", "missing"]
    assert (document["rows"], document["files"][0]["source"]) == (2, "events/main")
    folder = command(scenario, root)
    assert (folder.exit_code, "missing" in folder.stdout) == (1, True)
    shown = command(scenario, f"{root}/plain.txt")
    assert "a replay has ingested it" in shown.stdout
    assert "0 rows of 0 files are in." in shown.stdout
    assert (shown.exit_code, "1 file is in from before." in shown.stdout) == (0, True)
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 3]


def test_a_uri_must_name_one_source(scenario: Scenario) -> None:
    elsewhere = command(scenario, "/nowhere/1.json")
    assert (elsewhere.exit_code, "names no file below" in elsewhere.stderr) == (2, True)
    wrong = command(scenario, f"{scenario.place}/raw/1.json.gz", "--pipeline", "none")
    assert (wrong.exit_code, "known: events/main" in wrong.stderr) == (2, True)
    # The account may stand in the options, so the URI alone does not tell them apart.
    for name in ("one", "two"):
        scenario.document["pipelines"]["events"]["sources"][name] = {
            "source_uri": "az://box/raw",
            "storage_options": {"AZURE_STORAGE_ACCOUNT_NAME": name},
        }
    scenario.write_config()
    both = command(scenario, "az://box/raw/1.json.gz")
    assert both.exit_code == 2
    assert "lies below the roots of events/one, events/two; say which" in both.stderr


def test_what_replays_took_is_remembered_when_their_journal_is_cut_and_it_does_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, names = IngestWorld(), OutputNames()
    for place in ("blizzard_py.ingest.source_pipeline", "blizzard_py.sources.files.late_files"):
        monkeypatch.setattr(f"{place}.uuid7", lambda: names.fresh(1, world.now)[0])
    taken = [f"{DAY}/2.json", f"{DAY}/_hidden.json", "date=2060-12-31/1.json"]
    for path in taken:
        world.put(path, path)
        assert world.states(path) == ["ingested"]
    for number in range(3):
        world.now += 20 * 86_400.0
        world.put(f"{DAY}/3{number}.json", f"3{number}")
        assert world.states(f"{DAY}/3{number}.json") == ["ingested"]
    journal = [path for path in world.sink.objects if "/journal/events_main~replay/" in path]
    assert len(journal) == 2
    assert world.states(*taken) == ["refused"] * 3
    for path in taken:
        assert ask(world, path).verdict == "ingested", path
    # The time of a partition that was ahead has come: the daemon passes what is in.
    world.settings["max_ahead"] = "36500d"
    world.put("date=2060-12-31/2.json", "other")
    world.go_on(2)
    rows = ["1", "30", "31", "32", "5", "52", "other"]
    assert world.rows() == sorted([*rows, *taken])


def test_who_starts_over_takes_again_what_replays_took_before_however_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, names = IngestWorld(), OutputNames()
    for place in ("blizzard_py.ingest.source_pipeline", "blizzard_py.sources.files.late_files"):
        monkeypatch.setattr(f"{place}.uuid7", lambda: names.fresh(1, world.now)[0])
    before, after = f"{DAY}/2.json", "date=2060-12-31/1.json"
    world.put(before, "before")
    assert world.states(before) == ["ingested"]
    world.now += 100
    source = world.pipeline()
    checkpoint_edit.change(source, checkpoint_edit.stored(source), checkpoint_edit.over, world.now)
    world.now += 100
    world.drain()
    world.put(after, "after")
    assert world.states(after) == ["ingested"]
    for number in range(2):
        world.now += 40 * 86_400.0
        world.put(f"{DAY}/_{number}.json", f"_{number}")
        assert world.states(f"{DAY}/_{number}.json") == ["ingested"]
    # Twice those that the new start has found again, once what was given after it.
    world.settings["max_ahead"] = "36500d"
    world.put("date=2060-12-31/2.json", "other")
    world.go_on(2)
    counts = Counter(world.rows())
    assert (counts["before"], counts["after"], counts["1"], counts["other"]) == (2, 1, 2, 1)

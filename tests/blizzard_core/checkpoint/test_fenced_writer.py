"""One writer per state file: a replaced daemon is refused before it can move anything."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from blizzard_core.checkpoint.fenced_writer import FencedFile, writer_of
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.daemon import Loop, run
from blizzard_core.errors import BucketMissing, Conflict, FencedError, StateError, Unavailable
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Storage
from blizzard_py.app.workers import build
from blizzard_py.job import IngestJob, IngestResult
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import MemoryStorage
from tests.support.pipeline_harness import PipelineHarness
from tests.support.s3_server import S3Server
from tests.support.scenario import Scenario, ndjson, scenario_on

PATH = "_blizzard/x.json"


def plain(document: object, _where: str) -> object:
    return document


@pytest.fixture(params=["double", "local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "double":
        return MemoryStorage()
    if request.param == "local":
        return open_storage(str(tmp_path), {})
    server: S3Server = request.getfixturevalue("s3")
    return open_storage(f"s3://{server.new_bucket()}/x", server.options)


def epoch(storage: Storage) -> int:
    found = writer_of(json.loads(storage.read(PATH)), "x")
    return found.epoch


def test_each_start_raises_the_epoch_and_fences_the_previous(storage: Storage) -> None:
    first, second = FencedFile(storage, PATH), FencedFile(storage, PATH)
    assert first.take(plain, lambda: {"a": 0}) is None
    first.save({"a": 1})
    assert epoch(storage) == 1
    taken = second.take(plain, lambda: {"a": 0})
    assert isinstance(taken, dict)
    assert taken["a"] == 1
    assert epoch(storage) == 2
    with pytest.raises(FencedError, match=r"x\.json: has been taken over by writer .*, epoch 2"):
        first.save({"a": 99})
    with pytest.raises(FencedError):
        first.take(plain, lambda: {"a": 0})
    second.save({"a": 2})
    second.save({"a": 3})
    assert json.loads(storage.read(PATH))["a"] == 3


def test_check_fails_after_another_writer_takes_the_file() -> None:
    storage = MemoryStorage()
    first, second = FencedFile(storage, "state.json"), FencedFile(storage, "state.json")
    first.check()  # has taken nothing yet
    first.take(plain, dict)
    first.check()
    second.take(plain, dict)
    second.check()
    with pytest.raises(FencedError, match="taken over by writer"):
        first.check()


def test_a_removed_file_is_not_reported_as_taken_over(storage: Storage) -> None:
    file = FencedFile(storage, PATH)
    file.take(plain, dict)
    storage.delete(PATH)
    for does in (lambda: file.take(plain, dict), file.check, lambda: file.save({"a": 1})):
        with pytest.raises(FencedError, match="was removed or overwritten") as error:
            does()
        assert "taken over" not in str(error.value)


def test_a_writer_continues_when_a_missing_bucket_returns(
    s3: S3Server,
) -> None:
    bucket = s3.new_bucket()
    storage = open_storage(f"s3://{bucket}/x", s3.options)
    file, other = FencedFile(storage, PATH), FencedFile(storage, PATH)
    file.take(plain, dict)
    kept = storage.read(PATH)
    s3.drop_bucket(bucket)
    for does in (
        lambda: other.take(plain, dict),
        lambda: file.take(plain, dict),
        file.check,
        lambda: file.save({"a": 1}),
    ):
        with pytest.raises(BucketMissing, match="the bucket does not exist"):
            does()
    s3.make_bucket(bucket)
    storage.put_if(PATH, kept, None)
    file.take(plain, dict)
    file.save({"a": 2})
    assert json.loads(storage.read(PATH))["a"] == 2


def test_two_that_start_at_once_agree_on_one(storage: Storage) -> None:
    files = [FencedFile(storage, PATH) for _ in range(4)]
    barrier = threading.Barrier(4)
    survivors = []

    def start(file: FencedFile, number: int) -> None:
        barrier.wait(60)
        file.take(plain, lambda: {"a": 0})
        barrier.wait(60)
        with suppress(FencedError):
            file.save({"a": number})
            survivors.append(number)

    threads = [threading.Thread(target=start, args=(f, i)) for i, f in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [survivor] = survivors
    assert json.loads(storage.read(PATH))["a"] == survivor


class LosesAnswers(MemoryStorage):
    """Applies a conditional write, loses the answer, and refuses the repetition."""

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        super().put_if(path, data, version)
        raise Conflict(f"{path}: version changed")


def test_a_lost_answer_is_not_a_conflict() -> None:
    storage = LosesAnswers()
    file = FencedFile(storage, PATH)
    file.take(plain, lambda: {"a": 0})
    file.save({"a": 1})
    file.save({"a": 2})
    assert json.loads(storage.read(PATH))["a"] == 2


class Refuses(MemoryStorage):
    """Says to this many conditional writes that another was there, though nobody was."""

    left = 0

    def put_if(self, path: str, data: bytes, version: str | None) -> str:
        if self.left:
            self.left -= 1
            raise Conflict(f"{self.uri}/{path}: changed by another writer")
        return super().put_if(path, data, version)


@pytest.mark.promise("G-110")
def test_a_conflict_over_our_own_state_is_tried_again() -> None:
    storage = Refuses()
    file = FencedFile(storage, PATH)
    storage.left = 1
    file.take(plain, lambda: {"a": 0})
    storage.left = 2
    file.save({"a": 1})
    assert json.loads(storage.read(PATH))["a"] == 1
    storage.left = 99
    with pytest.raises(Unavailable, match="though nobody else has written it"):
        file.save({"a": 2})
    with pytest.raises(Unavailable, match="though nobody else has written it"):
        file.take(plain, lambda: {"a": 0})


def test_our_own_older_save_that_came_back_is_replaced() -> None:
    storage = MemoryStorage()
    file = FencedFile(storage, PATH)
    file.take(plain, lambda: {"a": 0})
    older = storage.read(PATH)
    file.save({"a": 1})
    storage.put_atomic(PATH, older)
    file.save({"a": 2})
    assert json.loads(storage.read(PATH))["a"] == 2


def test_a_deleted_state_file_fences_instead_of_starting_over() -> None:
    storage = MemoryStorage()
    file = FencedFile(storage, PATH)
    file.take(plain, lambda: {"a": 0})
    storage.delete(PATH)
    with pytest.raises(FencedError):
        file.save({"a": 1})
    assert storage.objects == {}


@pytest.mark.parametrize("writer", ["x", {"id": 1, "epoch": 1}, {"id": "a"}])
def test_a_writer_that_is_not_understood_is_refused(writer: object) -> None:
    with pytest.raises(StateError, match="writer"):
        writer_of({"writer": writer}, "x")
    assert writer_of({}, "x") is None
    assert writer_of({"writer": {"id": "a", "epoch": 3}}, "x") == Writer("a", 3)


def test_a_replaced_pipeline_stops_at_its_commit_point() -> None:
    world = PipelineHarness()
    world.put("d=1/1.ndjson", "r1")
    old = world.pipeline()
    ingest = world.engine.ingest

    def replaced(job: object) -> object:
        result = ingest(job)  # type: ignore[arg-type]  # passed through as it is
        world.engine.ingest = ingest  # type: ignore[method-assign]  # once is enough
        world.drain()  # the new daemon does everything while the old one is paused
        return result

    world.engine.ingest = replaced  # type: ignore[method-assign, assignment]  # the pause
    with pytest.raises(FencedError) as caught:
        old.cycle(threading.Event())
    assert caught.value.exit_code == 3
    assert world.rows() == ["r1"]
    before = dict(world.sink.objects)
    with pytest.raises(FencedError):
        old.cycle(threading.Event())
    assert world.sink.objects == before


def swept() -> PipelineHarness:
    """A source whose checkpoint lists a segment of its ledger."""
    world = PipelineHarness(late_sweep_interval="1m")
    world.put("d=1/1.ndjson", "r1")
    first = world.drain()
    world.now += 61
    world.drain(first)
    assert world.checkpoint()["ledger"]
    return world


def lose_segments(world: PipelineHarness) -> None:
    for path in [path for path in world.sink.objects if path.endswith(".digests")]:
        world.sink.delete(path)


@pytest.mark.promise("G-021")
def test_a_replaced_daemon_says_so_and_not_that_state_is_lost() -> None:
    world = swept()
    old = world.drain()
    world.drain()
    lose_segments(world)  # as the other one does when it has merged them
    world.now += 61
    with pytest.raises(FencedError, match="taken over by writer"):
        old.cycle(threading.Event())


@pytest.mark.promise("G-021")
def test_a_daemon_is_fenced_after_its_successor_published() -> None:
    world = PipelineHarness()
    world.put("date=2024-01-01/1.json", "a")
    old = world.pipeline()

    def replace_first(operation: str, path: str) -> None:
        if operation == "put" and "/journal/" in path:
            world.sink.before_mutation = lambda *_: None
            world.drain()

    world.sink.before_mutation = replace_first
    with pytest.raises(FencedError, match="taken over by writer"):
        old.cycle(threading.Event())
    assert world.rows() == ["a"]


def test_daemon_reports_its_missing_ledger_segments_as_missing() -> None:
    world = swept()
    lose_segments(world)
    world.now += 61
    with pytest.raises(StateError, match="it is missing"):
        world.drain()


@pytest.mark.promise("G-026")
@pytest.mark.parametrize("store", ["local", "s3"])
def test_of_two_daemons_one_exits_with_3_and_no_row_comes_twice(
    store: str, request: pytest.FixtureRequest
) -> None:
    scenario = scenario_on(store, request)
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1)
    # Without Spark, which is not the point.
    program = ("tests.support.dying_main", "DIRECT:never", "blizzard")
    command = ("run", str(scenario.config), "--take-over")
    daemons = [scenario.start(*program, *command) for _ in range(2)]
    ids = [1]
    number = 2
    # Files keep coming until the one that was replaced has noticed.
    while all(daemon.poll() is None for daemon in daemons):
        scenario.put_rows(f"date=2024-01-01/{number:09d}.ndjson.gz", number)
        ids.append(number)
        number += 1
        try:
            daemons[0].wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    [fenced] = [daemon for daemon in daemons if daemon.poll() is not None]
    [alive] = [daemon for daemon in daemons if daemon is not fenced]
    _, err = fenced.communicate(timeout=60)
    assert fenced.returncode == 3, err
    assert "has been taken over by writer" in err
    alive.terminate()
    _, err = alive.communicate(timeout=60)
    assert alive.returncode == 0, err
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == ids


@pytest.mark.promise("G-190")
def test_a_changed_checkpoint_ends_the_daemon(
    tmp_path: Path,
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    other = open_storage(str(tmp_path / "other"), {})
    sources = scenario.document["pipelines"]["events"]["sources"]
    sources["other"] = {**scenario.main_source, "source_uri": str(tmp_path / "other")}
    scenario.write_config()
    day = "date=2024-01-01"

    def put(number: int) -> None:
        scenario.put_rows(f"{day}/{number}.ndjson.gz", number)
        other.put_atomic(f"{day}/{number}.ndjson.gz", ndjson({"id": 10 + number, "text": "t"}))

    class Interrupted(DirectEngine):
        """Somebody moves the watermark of one source to where it is, while its job runs."""

        fenced = False

        def ingest(self, job: IngestJob) -> IngestResult:
            if job.settings.source.uri == scenario.main_source["source_uri"] and not self.fenced:
                self.fenced = True
                where = ["--pipeline", "events", "--source", "main", "--partition", day]
                command = ["blizzard", "checkpoint", "set", str(scenario.config), *where]
                scenario.run(*command, "--watermark", "1.ndjson.gz", "--yes")
            return super().ingest(job)

    put(1)
    scenario.ingest()
    put(2)
    loop, stop = Loop(once=False, jitter_secs=0, grace_secs=60), threading.Event()
    workers = build(load_config(scenario.config), Interrupted())
    assert run(workers, loop, stop) == 3
    codes = {worker.name: worker.activity.pulse.exit_code for worker in workers}
    assert codes == {"events/main": 3, "events/other": 0}
    scenario.ingest()
    scenario.commit()
    assert scenario.ids() == [1, 2, 11, 12]

"""The real Spark engine: the same results as the kernels alone, on workers of its own."""

from __future__ import annotations

import dataclasses
import gzip
import os
import signal
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from blizzard_py.core.errors import Cancelled, EngineError
from blizzard_py.core.model import IngestResult
from blizzard_py.kernels.merge import MergeTask, merge_tasks
from blizzard_py.settings import IngestJob, Place
from blizzard_py.spark import SparkEngine
from blizzard_py.spark.engine import reason_of
from blizzard_py.spark.session import _packed, retrying, settings
from tests.ingest_world import IngestWorld, by_path, lines


@pytest.fixture
def world(tmp_path: Path) -> IngestWorld:
    return IngestWorld(tmp_path)


def large(world: IngestWorld) -> IngestJob:
    """A batch that is large enough for several tasks, judged by its listed sizes."""
    for number in range(12):
        world.put(
            f"{number:02d}.gz", gzip.compress(lines(*range(number * 1000, (number + 1) * 1000)))
        )
    world.put("zz-bad.gz", b"not gzip")
    job = world.job()
    return dataclasses.replace(
        job, files=tuple(dataclasses.replace(file, size=1 << 20) for file in job.files)
    )


class Pipe:
    """A source file that keeps its task waiting until the test writes to it.

    The test holds both ends, so no attempt ever sees an end of file too early.
    """

    def __init__(self, world: IngestWorld, name: str) -> None:
        world.source.mkdir(exist_ok=True)
        self._path = world.source / name
        os.mkfifo(self._path)
        self._file = os.fdopen(os.open(self._path, os.O_RDWR), "wb", buffering=0)
        self._killed: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def wait_for_reader(self, running: Future[IngestResult]) -> set[int]:
        """The processes that read from it, once there are any that were not killed."""
        while not (found := self._readers() - self._killed):
            assert not running.done()
        return found

    def kill_reader(self, running: Future[IngestResult]) -> None:
        found = self.wait_for_reader(running)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        self._killed |= found

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def _readers(self) -> set[int]:
        found = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                # A child of ours that is about to become the JVM has our descriptors, too.
                if link.readlink() == self._path and (worker := _worker_of(link.parts[2])):
                    found.add(worker)
            except OSError:
                continue  # the process or the descriptor is gone by now
        return found


def _worker_of(pid: str) -> int | None:
    """The worker that the process is or reads for, None for one of this test's own."""
    for _ in range(3):  # a nursery's child, the nursery, the worker
        if b"pyspark.daemon" in Path("/proc", pid, "cmdline").read_bytes():
            return int(pid)
        pid = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1]
    return None


def test_the_work_is_done_by_several_tasks_on_workers(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    job = dataclasses.replace(large(world), output_prefix="visible/work")
    with spark_engine._registered(job.output_prefix) as running:
        reports = spark_engine._reports(job, running)
    assert len(reports) > 1
    assert os.getpid() not in {report.pid for report in reports}

    tracker = spark_engine.session().sparkContext.statusTracker()
    (job_id,) = tracker.getJobIdsForGroup("visible/work")
    info = tracker.getJobInfo(job_id)
    assert info is not None
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds]
    assert [stage.numTasks for stage in stages if stage] == [len(reports)]


def test_small_outputs_of_several_tasks_become_one(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    result = spark_engine.ingest(large(world))
    assert result.tasks > 1
    [output] = result.outputs
    assert output.rows == 12_000
    # Tasks follow each other in path order, and so do their rows.
    assert [row["id"] for row in world.rows(result)] == list(range(12_000))


def test_a_merge_that_fails_costs_nothing_but_files(
    world: IngestWorld,
    spark_engine: SparkEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_a_file_that_is_gone(*args: Any) -> list[MergeTask]:
        tasks = merge_tasks(*args)
        first = tasks[0].groups[0]
        gone = dataclasses.replace(first[0], staged=f"{first[0].staged}.gone")
        return [dataclasses.replace(tasks[0], groups=((gone, *first[1:]),))]

    monkeypatch.setattr("blizzard_py.spark.engine.merge_tasks", with_a_file_that_is_gone)
    with capture_logs() as logs:
        result = spark_engine.ingest(large(world))
    assert len(result.outputs) == result.tasks > 1
    assert world.ids(result) == list(range(12_000))
    [log] = [log for log in logs if log["event"] == "merge_failed"]
    assert ".parquet.gone" in log["error"]
    staged = {name for name in world.staged() if name.endswith(".parquet")}
    assert staged == {output.staged for output in result.outputs}


def test_a_batch_has_the_rows_and_verdicts_of_the_kernels(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    result = spark_engine.ingest(large(world))
    assert result.tasks > 1
    assert world.ids(result) == list(range(12_000))
    assert {file.path: file.rows for file in result.files} == {
        **{f"{number:02d}.gz": 1000 for number in range(12)},
        "zz-bad.gz": 0,
    }
    assert by_path(result)["zz-bad.gz"].stage == "decompress"
    assert len({output.output_id for output in result.outputs}) == len(result.outputs)
    assert [output.staged for output in result.outputs] == sorted(
        output.staged for output in result.outputs
    )


def test_an_empty_batch_needs_no_spark(world: IngestWorld) -> None:
    engine = SparkEngine("spark://nowhere:1")
    assert engine.ingest(world.job()).tasks == 0
    engine.cancel("nothing/runs")
    engine.stop()


def test_several_threads_share_the_session(tmp_path: Path, spark_engine: SparkEngine) -> None:
    def run(number: int) -> list[int]:
        world = IngestWorld(tmp_path / str(number))
        world.put("a.ndjson", lines(number))
        job = dataclasses.replace(world.job(), output_prefix=f"p/{number}")
        return world.ids(spark_engine.ingest(job))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [[number] for number in range(8)]


def test_a_failed_sink_fails_the_job_in_one_line(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1))
    world.table.write_text("a file where the directory should be")
    job = world.job()
    secret = dataclasses.replace(
        job.settings, sink=Place(str(world.table), {"AWS_SECRET_ACCESS_KEY": "hush"})
    )
    with pytest.raises(EngineError) as caught:
        spark_engine.ingest(dataclasses.replace(job, settings=secret))
    message = str(caught.value)
    assert str(world.table) in message
    assert message.startswith("p/s/1/1: ")
    assert "\n" not in message
    assert "Traceback" not in message
    assert "hush" not in message
    assert caught.value.__cause__ is None


def test_cancel_ends_that_job_and_no_other(world: IngestWorld, spark_engine: SparkEngine) -> None:
    job = dataclasses.replace(world.job("stuck.ndjson"), output_prefix="to/cancel")
    world.put("other.ndjson", lines(1))
    other = dataclasses.replace(
        job, files=world.job().files, output_prefix="to/keep", staging="_blizzard/staging/other"
    )
    with ThreadPoolExecutor(1) as pool, Pipe(world, "stuck.ndjson") as pipe:
        stuck = pool.submit(spark_engine.ingest, job)
        pipe.wait_for_reader(stuck)
        assert world.ids(spark_engine.ingest(other)) == [1]
        spark_engine.cancel("to/cancel")
        with pytest.raises(Cancelled, match="to/cancel"):
            stuck.result()
    assert world.ids(spark_engine.ingest(other)) == [1]


def test_a_killed_worker_costs_a_retry_and_no_row(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1, 2))
    with ThreadPoolExecutor(1) as pool:
        with Pipe(world, "b.ndjson") as pipe:
            running = pool.submit(spark_engine.ingest, world.job("b.ndjson"))
            pipe.kill_reader(running)
            pipe.wait_for_reader(running)
            pipe.write(lines(3))
        result = running.result()
    assert world.ids(result) == [1, 2, 3]
    assert {file.outcome for file in result.files} == {"ingested"}


def test_a_worker_that_dies_every_time_fails_the_job(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    with ThreadPoolExecutor(1) as pool, Pipe(world, "a.ndjson") as pipe:
        running = pool.submit(spark_engine.ingest, world.job("a.ndjson"))
        for _ in range(3):
            pipe.kill_reader(running)
        with pytest.raises(EngineError, match="Python worker") as caught:
            running.result()
    assert "\n" not in str(caught.value)


def test_a_line_that_kills_its_worker_costs_a_retry_and_that_line(
    world: IngestWorld, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1, 2))
    world.put("b.ndjson.gz", gzip.compress(lines(3) + b'{"id":4,"x":"POISON"}\n' + lines(5)))
    world.put("c.ndjson", lines(6))
    context = spark_engine.session().sparkContext
    poisoned = str(Path(__file__).parent / "poison")
    context.environment["PYTHONPATH"] = poisoned
    try:
        result = spark_engine.ingest(world.job())
    finally:
        del context.environment["PYTHONPATH"]
    assert world.ids(result) == [1, 2, 3, 5, 6]
    [letter] = world.letters(result)
    assert (letter["path"], letter["line"]) == (f"{world.source}/b.ndjson.gz", 2)
    assert letter["error"] == "the parser died of this line: signal 9 (SIGKILL)"
    assert {file.path: file.bad_rows for file in result.files} == {
        "a.ndjson": 0,
        "b.ndjson.gz": 1,
        "c.ndjson": 0,
    }


def test_one_job_runs_once_at_a_time(world: IngestWorld, spark_engine: SparkEngine) -> None:
    job = world.job("slow.ndjson")
    with ThreadPoolExecutor(1) as pool:
        with Pipe(world, "slow.ndjson") as pipe:
            first = pool.submit(spark_engine.ingest, job)
            pipe.wait_for_reader(first)
            with pytest.raises(EngineError, match="running already"):
                spark_engine.ingest(job)
            pipe.write(lines(1))
        assert world.ids(first.result()) == [1]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,3]"),
        ("local[*]", "local[*,3]"),
        ("local[2]", "local[2,3]"),
        ("local[2,9]", "local[2,9]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_retry(master: str, expected: str) -> None:
    assert retrying(master) == expected


def test_the_users_settings_win_and_clusters_keep_their_addresses() -> None:
    assert settings("local[*]", {})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("spark://host:7077", {})
    assert settings("local", {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


def test_the_package_is_packed_for_executors(tmp_path: Path) -> None:
    with zipfile.ZipFile(_packed(tmp_path)) as archive:
        names = archive.namelist()
    assert {"blizzard_py/__init__.py", "blizzard_py/kernels/task.py"} <= set(names)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            (
                "[PYTHON_EXCEPTION] thrown: Traceback (most recent call last):\n"
                '  File "x.py", line 1, in f\n    raise\n'
                "blizzard_py.core.errors.AccessDenied: s3://lake/x: access denied (403)\n"
                " SQLSTATE: 38000\n\tat org.apache.spark"
            ),
            "s3://lake/x: access denied (403)",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 1, in f\nMemoryError\n\tat x',
            "MemoryError",
        ),
        (
            "Traceback (most recent call last):\n  File\nKeyError: 'x'\n",
            "KeyError: 'x'",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            (
                "the JVM did not start; Java 17 or newer must be on PATH or in JAVA_HOME"
                " (what it printed is in the log, event `jvm`)"
            ),
        ),
        (
            "Job aborted due to stage failure: Task 0 failed 3 times\nDriver stacktrace:\n\tat",
            "Job aborted due to stage failure: Task 0 failed 3 times",
        ),
    ],
)
def test_the_reason_is_the_tasks_own_exception(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason

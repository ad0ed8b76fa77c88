"""The real Spark engine: the same results as the kernels alone, on workers of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from blizzard_core.errors import Cancelled, EngineError
from blizzard_py.engines.spark import session, worker, worker_daemon
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.failures import reason_of
from blizzard_py.engines.spark.masters import settings, with_retries
from blizzard_py.engines.spark.numbered_tasks import run_numbered
from blizzard_py.engines.spark.session import zipped_packages
from blizzard_py.engines.spark.worker import REPORTS
from blizzard_py.job import IngestJob, Place, StagedOutput
from blizzard_py.kernels.merge import MergeTask, merge_tasks
from tests.support.captured_logs import captured_logs
from tests.support.ingest_job_harness import IngestJobHarness, by_path, lines
from tests.support.pipe import Pipe
from tests.support.scenario import ROOT


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def forebear(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return command line and threads of the process that forked this worker."""
    for _ in batches:
        parent = Path("/proc") / str(os.getppid())
        command = parent.joinpath("cmdline").read_text().split("\0")
        threads = [p.joinpath("comm").read_text() for p in parent.joinpath("task").iterdir()]
        yield pa.RecordBatch.from_pydict({"result": [json.dumps([command, threads])]})


def test_workers_fork_from_a_loaded_daemon_without_threads(
    spark_engine: SparkEngine,
) -> None:
    frame = spark_engine.session().range(0, 1, 1, 1).mapInArrow(forebear, REPORTS)
    command, threads = json.loads(frame.collect()[0]["result"])
    assert command[1:3] == ["-m", worker_daemon.__name__]
    assert len(threads) == 1, threads


def test_objects_of_a_workers_first_task_are_frozen_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = itertools.count()
    frozen: list[str] = []
    monkeypatch.setattr(worker, "_begun", begun)
    monkeypatch.setattr(worker, "prepare_worker", lambda: None)
    monkeypatch.setattr(worker, "TaskContext", Mock())
    monkeypatch.setattr(worker.gc, "freeze", lambda: frozen.append(repr(begun)))
    for _ in range(4):
        worker.task_context()
    assert frozen == ["count(2)"]  # as the second of them began


def test_a_signal_to_the_process_group_does_not_reach_the_jvm(
    spark_engine: SparkEngine,
) -> None:
    gateway = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    assert os.getpgid(gateway.proc.pid) != os.getpgid(0)


def test_a_warm_up_runs_a_job_without_work(spark_engine: SparkEngine) -> None:
    spark_engine.warm_up()
    tracker = spark_engine.session().sparkContext.statusTracker()
    assert tracker.getJobIdsForGroup(None)
    assert not tracker.getActiveJobsIds()


def test_the_jvm_keeps_no_stream_of_the_caller_open(spark_engine: SparkEngine) -> None:
    gateway = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    streams, own = (
        [Path(f"/proc/{process}/fd/{number}").readlink() for number in (1, 2)]
        for process in (gateway.proc.pid, "self")
    )
    assert len(set(streams)) == 1
    assert streams[0] not in own


# A daemon like Spark's, with one worker that ends with its standard input.
DAEMON = """
import os, signal
from blizzard_py.engines.spark.worker_daemon import end_without_workers

end_without_workers(0.05)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    os.read(0, 1)
    os._exit(0)
while True:
    signal.pause()
"""


def test_the_daemon_of_workers_ends_after_the_last_of_them() -> None:
    command = [sys.executable, "-c", DAEMON]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as running:
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(1.0)  # twenty looks
        running.stdin.close()
        assert running.wait(60.0) == 0


def test_spark_starts_an_ended_daemon_of_workers_again(spark_engine: SparkEngine) -> None:
    def daemon_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"result": [str(os.getppid())]})

    frame = spark_engine.session().range(0, 1, 1, 1).mapInArrow(daemon_of, REPORTS)
    first = int(frame.collect()[0]["result"])
    ended = os.pidfd_open(first)
    os.kill(first, signal.SIGTERM)
    assert select.select([ended], [], [], 60.0)[0]
    os.close(ended)
    assert int(frame.collect()[0]["result"]) != first


def test_a_worker_that_spark_lets_go_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[bytes] = []

    def task(sock: socket.socket, _authenticated: bool) -> int:
        served.append(sock.recv(10))
        return 0

    monkeypatch.setattr(worker_daemon, "serve_task", task)
    here, there = socket.socketpair()
    with here:
        with there:
            there.sendall(b"a task")
            assert worker_daemon.serve(here, True) == 0
        assert worker_daemon.serve(here, True) == 1
    assert served == [b"a task"]


def large(world: IngestJobHarness) -> IngestJob:
    """A batch that is large enough for several tasks, judged by its listed sizes."""
    for number in range(12):
        world.put(
            f"{number:02d}.gz", gzip.compress(lines(*range(number * 1000, (number + 1) * 1000)))
        )
    world.put("zz-bad.gz", gzip.compress(b"")[:-1])
    job = world.job()
    return dataclasses.replace(
        job, files=tuple(dataclasses.replace(file, size=1 << 20) for file in job.files)
    )


def test_the_work_is_done_by_several_tasks_on_workers(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    job = dataclasses.replace(large(world), output_prefix="visible/work")
    result = spark_engine.ingest(job)
    assert result.tasks > 1

    tracker = spark_engine.session().sparkContext.statusTracker()
    # What is merged afterwards is a job of the same group.
    info = tracker.getJobInfo(min(tracker.getJobIdsForGroup("visible/work")))
    stages = [tracker.getStageInfo(stage) for stage in info.stageIds]
    assert [stage.numTasks for stage in stages if stage] == [result.tasks]


def test_small_outputs_of_several_tasks_become_one(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    result = spark_engine.ingest(large(world))
    assert result.tasks > 1
    [output] = result.outputs
    assert output.rows == 12_000
    # Tasks follow each other in path order, and so do their rows.
    assert [row["id"] for row in world.rows(result)] == list(range(12_000))


def test_a_merge_that_fails_costs_nothing_but_files(
    world: IngestJobHarness,
    spark_engine: SparkEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_a_missing_file(*args: Any) -> list[MergeTask]:
        tasks = merge_tasks(*args)
        first = tasks[0].groups[0]
        gone = dataclasses.replace(first[0], staged=f"{first[0].staged}.gone")
        return [dataclasses.replace(tasks[0], groups=((gone, *first[1:]),))]

    monkeypatch.setattr("blizzard_py.engines.spark.engine.merge_tasks", with_a_missing_file)
    with captured_logs("warning") as logs:
        result = spark_engine.ingest(large(world))
    assert len(result.outputs) == result.tasks > 1
    assert world.ids(result) == list(range(12_000))
    [log] = [log for log in logs if log["event"] == "merge_failed"]
    assert ".parquet.gone" in log["error"]
    staged = {name for name in world.staged() if name.endswith(".parquet")}
    assert staged == {output.staged for output in result.outputs}


def test_a_batch_has_the_rows_and_verdicts_of_the_kernels(
    world: IngestJobHarness, spark_engine: SparkEngine
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


def test_an_empty_batch_needs_no_spark(world: IngestJobHarness) -> None:
    engine = SparkEngine("spark://nowhere:1", {"spark.authenticate.secret": "hush"})
    assert engine.ingest(world.job()).tasks == 0
    engine.cancel("nothing/runs")
    engine.stop()


def test_several_threads_share_the_session(tmp_path: Path, spark_engine: SparkEngine) -> None:
    def run(number: int) -> list[int]:
        world = IngestJobHarness(tmp_path / str(number))
        world.put("a.ndjson", lines(number))
        job = dataclasses.replace(world.job(), output_prefix=f"p/{number}")
        return world.ids(spark_engine.ingest(job))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [[number] for number in range(8)]


def test_a_failed_sink_fails_the_job_in_one_line(
    world: IngestJobHarness, spark_engine: SparkEngine
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


def test_cancel_ends_that_job_and_no_other(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
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
        pipe.wait_for_no_reader()
    assert world.ids(spark_engine.ingest(other)) == [1]


def test_a_running_job_tells_which_share_of_its_tasks_is_done(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1))
    with ThreadPoolExecutor(1) as pool, Pipe(world, "b.ndjson") as pipe:
        job = dataclasses.replace(world.job("b.ndjson"), output_prefix="how/far")
        # Large enough for a task each, as the driver is told.
        files = tuple(dataclasses.replace(file, size=1 << 20) for file in job.files)
        assert spark_engine.progress(job.output_prefix) is None
        running = pool.submit(spark_engine.ingest, dataclasses.replace(job, files=files))
        while spark_engine.progress(job.output_prefix) != 0.5:
            assert not running.done()
            time.sleep(0.01)
        pipe.wait_for_reader(running)
        assert spark_engine.progress(job.output_prefix) == 0.5
        spark_engine.cancel(job.output_prefix)
        with pytest.raises(Cancelled):
            running.result()
    assert spark_engine.progress(job.output_prefix) is None


@pytest.mark.promise("G-023")
def test_a_killed_worker_costs_a_retry_and_no_row(
    world: IngestJobHarness, spark_engine: SparkEngine
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
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    with ThreadPoolExecutor(1) as pool, Pipe(world, "a.ndjson") as pipe:
        running = pool.submit(spark_engine.ingest, world.job("a.ndjson"))
        for _ in range(3):
            pipe.kill_reader(running)
        with pytest.raises(EngineError, match="Python worker") as caught:
            running.result()
    assert "\n" not in str(caught.value)


def test_a_line_that_kills_its_worker_costs_a_retry_and_itself(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1, 2))
    world.put("b.ndjson.gz", gzip.compress(lines(3) + b'{"id":4e0,"x":"POISON"}\n' + lines(5)))
    world.put("c.ndjson", lines(6))
    context = spark_engine.session().sparkContext
    poisoned = str(Path(__file__).parents[2] / "support/poison")
    before = context.environment["PYTHONPATH"]
    context.environment["PYTHONPATH"] = poisoned
    try:
        result = spark_engine.ingest(world.job())
    finally:
        context.environment["PYTHONPATH"] = before
    assert world.ids(result) == [1, 2, 3, 5, 6]
    [letter] = world.letters(result)
    assert (letter["path"], letter["line"]) == (f"{world.source}/b.ndjson.gz", 2)
    assert letter["error"] == "the parser died of this record: signal 9 (SIGKILL)"
    assert {file.path: file.bad_rows for file in result.files} == {
        "a.ndjson": 0,
        "b.ndjson.gz": 1,
        "c.ndjson": 0,
    }


def test_a_killed_driver_is_replaced_and_only_logged(
    world: IngestJobHarness, spark_engine: SparkEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    world.put("a.ndjson", lines(1))
    world.ingest(engine=spark_engine)  # with which the JVM calls pyspark for the first time
    gateway: Any = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    with ThreadPoolExecutor(1) as pool, Pipe(world, "b.ndjson") as pipe:
        running = pool.submit(spark_engine.ingest, world.job("b.ndjson"))
        pipe.wait_for_reader(running)
        gateway.proc.kill()
        with pytest.raises(EngineError):
            running.result()
    (world.source / "b.ndjson").unlink()
    assert world.ids(world.ingest(engine=spark_engine)) == [1]
    assert "Traceback" not in capsys.readouterr().err


def test_a_driver_that_was_killed_while_nothing_ran_costs_no_job(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1))
    gateway: Any = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    gateway.proc.kill()
    gateway.proc.wait()
    assert world.ids(world.ingest(engine=spark_engine)) == [1]


def test_released_spark_leaves_no_jvm_and_starts_again(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1))
    gateway: Any = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    spark_engine.release()
    assert gateway.proc.poll() == 0
    assert world.ids(world.ingest(engine=spark_engine)) == [1]


def test_nothing_of_a_job_stays_with_its_thread(
    world: IngestJobHarness, spark_engine: SparkEngine
) -> None:
    world.put("a.ndjson", lines(1))
    world.ingest(engine=spark_engine)
    context = spark_engine.session().sparkContext
    for name in ("jobGroup.id", "job.description", "job.interruptOnCancel", "scheduler.pool"):
        assert context.getLocalProperty(f"spark.{name}") is None, name


def weighed(burden: bytes, numbers: Iterable[int]) -> Iterator[str]:
    return (str(len(burden) + number) for number in numbers)


def test_large_task_data_leaves_no_temporary_file(spark_engine: SparkEngine) -> None:
    context = spark_engine.session().sparkContext
    folder = Path(context._temp_dir)  # type: ignore[arg-type]  # noqa: SLF001  # no public name
    before = set(folder.iterdir())
    burden = os.urandom(3 << 20)
    found = run_numbered(context, functools.partial(weighed, burden), 2, 2)
    assert found == [str(len(burden)), str(len(burden) + 1)]
    assert set(folder.iterdir()) == before


def test_a_half_started_session_does_not_block_the_next(
    world: IngestJobHarness, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a JVM that goes away between the context and the first query."""
    world.put("a.ndjson", lines(1))
    spark_engine.stop()
    with monkeypatch.context() as patch:
        patch.setattr(session, "SparkSession", Mock(side_effect=Py4JError("gone")))
        with pytest.raises(EngineError, match="gone"):
            spark_engine.session()
    assert world.ids(world.ingest(engine=spark_engine)) == [1]


def test_a_short_job_does_not_wait_for_another_pipelines_job(
    world: IngestJobHarness, tmp_path: Path, spark_engine: SparkEngine
) -> None:
    """Two slots, both taken by four tasks that wait: the first slot to be free is the other's."""
    other = IngestJobHarness(tmp_path / "other")
    other.put("a.ndjson", lines(9))
    short_job = dataclasses.replace(other.job(), output_prefix="short/s/1/1")
    names = [f"{number}.ndjson" for number in range(4)]
    with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(Pipe(world, name)) for name in names]
        job = world.job(*names)
        # So much that each has a task of its own, and a directory: outputs of one would be merged.
        files = tuple(
            dataclasses.replace(file, size=64 << 20, partition=f"of={file.path}")
            for file in job.files
        )
        long = pool.submit(
            spark_engine.ingest, dataclasses.replace(job, files=files, output_prefix="long/s/1/1")
        )
        while len(waiting := [pipe for pipe in pipes if pipe.readers()]) < 2:
            assert not long.done()
        context = spark_engine.session().sparkContext._jsc.sc()  # noqa: SLF001  # no public name
        short = pool.submit(spark_engine.ingest, short_job)
        while (pool_of := context.getPoolForName("short")).isEmpty() or (
            pool_of.get().schedulableQueue().isEmpty()
        ):
            assert not short.done()
        for number, pipe in enumerate(sorted(pipes, key=lambda pipe: pipe not in waiting)):
            pipe.wait_for_reader(long)
            pipe.write(lines(number))
            pipe.__exit__()
            if number == 0:
                assert other.ids(short.result()) == [9]
        assert world.ids(long.result()) == [0, 1, 2, 3]
    started = sorted(_attempt(output) for output in long.result().outputs)
    (between,) = (_attempt(output) for output in short.result().outputs)
    assert started[1] < between < started[2]


def _attempt(output: StagedOutput) -> int:
    """The number of the task's attempt, which counts starts over all jobs."""
    return int(Path(output.staged).name.split("-")[1])


def test_one_job_runs_once_at_a_time(world: IngestJobHarness, spark_engine: SparkEngine) -> None:
    job = world.job("slow.ndjson")
    with ThreadPoolExecutor(1) as pool:
        with Pipe(world, "slow.ndjson") as pipe:
            first = pool.submit(spark_engine.ingest, job)
            pipe.wait_for_reader(first)
            with pytest.raises(EngineError, match="already running"):
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
    assert with_retries(master) == expected


def test_user_settings_win_and_clusters_keep_their_addresses() -> None:
    assert settings("local[*]", {})["spark.driver.host"] == "127.0.0.1"
    secret = {"spark.authenticate.secret": "hush"}
    assert "spark.driver.host" not in settings("spark://host:7077", secret)
    assert settings("local", {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


def test_the_package_is_packed_for_executors(tmp_path: Path) -> None:
    with zipfile.ZipFile(zipped_packages(tmp_path)) as archive:
        names = archive.namelist()
    wanted = {"blizzard_core/errors.py", "blizzard_py/__init__.py", "blizzard_py/kernels/task.py"}
    assert wanted <= set(names)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            (
                "[PYTHON_EXCEPTION] thrown: Traceback (most recent call last):\n"
                '  File "x.py", line 1, in f\n    raise\n'
                "blizzard_core.errors.AccessDenied: s3://lake/x: access denied (403)\n"
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
            (
                "Traceback (most recent call last):\n  File\n"
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH]"
                " Python in worker has different version: 3.12 than that in driver: 3.11,"
                " PySpark cannot run with different minor versions.\n"
            ),
            (
                "the executors run Python 3.12 and this driver runs 3.11; both must be the"
                " same: use one image for both, or set spark.pyspark.python in spark.conf"
            ),
        ),
        (
            "Traceback (most recent call last):\n  F\nModuleNotFoundError: No module named 'x'\n",
            (
                "the executors' Python cannot run this package (No module named 'x'); install its"
                " dependencies in their image, or set spark.pyspark.python in spark.conf"
            ),
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            (
                "the JVM did not start; check spark.conf, JAVA_TOOL_OPTIONS and the memory of this"
                " machine (what it printed is in the log, event `jvm`)"
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


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "x")]
)
def test_reason_says_that_the_jvm_has_ended(error: Exception) -> None:
    assert reason_of(error).startswith("the JVM has ended: it was killed")

"""Starting is cheap: what only work needs is neither loaded nor started before there is work."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from blizzard_core.errors import Cancelled, EngineError
from blizzard_core.settings.document import Config
from blizzard_py.app.engine import computes_in_driver
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.engines.spark import gateway
from blizzard_py.engines.spark.gateway import quick_start_settings
from blizzard_py.job import IngestJob, IngestResult, IngestSettings, OutputLayout, Place, RowSchema

# Runs a command line in a fresh interpreter and says what it loaded.
PROBE = """\
import json, sys
from {package}.__main__ import main
try:
    main(["run", sys.argv[1], "--once"])
except SystemExit as end:
    code = end.code
print(json.dumps({{"code": code, "modules": sorted(sys.modules)}}))
"""
# Hundreds of milliseconds each; the stores' clients are for those who use them.
STORES = {"adlfs", "azure", "botocore", "gcsfs", "google.auth", "s3fs"}
SPARK = {"grpc", "pandas", "py4j", "pyspark"}
SETTINGS = IngestSettings(Place("raw"), Place("lake"), RowSchema(()), OutputLayout("snappy", 1))


def loaded_by_a_run(package: str, config: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(package=package), str(config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0, done.stderr
    return set(found["modules"])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    pipeline = {
        "sources": {"main": {"source_uri": str(tmp_path / "raw")}},
        "sink": {"table_uri": str(tmp_path / "lake")},
        "schema": {"fields": [{"name": "n", "type": "int64"}]},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"pipelines": {"events": pipeline}}))
    return path


def test_blizzard_polls_without_loading_spark(config: Path) -> None:
    loaded = loaded_by_a_run("blizzard_py", config)
    assert "blizzard_py.sources.files.discovery" in loaded
    assert not loaded & (
        SPARK | STORES | {"blizzard_py.engines.spark", "deltalake", "pyarrow.compute"}
    )


def test_penguin_commits_without_loading_spark(config: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    ours = pa.table({"n": [1, 2]}).replace_schema_metadata({"blizzard.output_id": "a/b/1/1/0"})
    pq.write_table(ours, tmp_path / "lake" / "0.parquet")
    loaded = loaded_by_a_run("penguin_py", config)
    assert "deltalake" in loaded
    assert list((tmp_path / "lake" / "_delta_log").glob("*.json"))
    assert not loaded & (SPARK | STORES | {"aiohttp", "pyarrow.dataset", "rich.console"})


def loaded_by(*modules: str) -> set[str]:
    program = f"import json, sys; import {', '.join(modules)}; print(json.dumps([*sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(done.stdout))


def test_planning_processes_of_spark_load_no_settings() -> None:
    """They import it at each start of a query."""
    loaded = loaded_by("blizzard_py.streaming.source")
    assert "blizzard_py.job" in loaded
    assert not loaded & {"pydantic", "fsspec", "structlog", "pandas"}


def test_workers_of_spark_load_no_settings_but_of_formats() -> None:
    """Each batch may begin with new workers."""
    loaded = loaded_by("blizzard_py.engines.spark.worker")
    settings = {name.split(".")[2] for name in loaded if name.startswith("blizzard_core.settings.")}
    assert "formats" in settings
    assert not settings & {"document", "event_time", "notifications", "sources", "tables"}


def test_what_a_first_batch_imports_loads_no_pandas() -> None:
    """pyarrow loads it with the first array that is made of Python's values."""
    loaded = loaded_by("blizzard_py.app.table_check", "blizzard_py.engines.spark.engine")
    assert "pyarrow" in loaded
    assert "pandas" not in loaded


def job(prefix: str = "events/main/1/1") -> IngestJob:
    return IngestJob(SETTINGS, "staging", prefix, ())


class Recording:
    """An engine whose jobs wait until they are cancelled, or end at once."""

    def __init__(self, *, waits: bool = False) -> None:
        self.waits = waits
        self.running: dict[str, threading.Event] = {}
        self.stopped = 0
        self.released = 0
        self.started, self.may_start = threading.Event(), threading.Event()
        self.warmed_up = threading.Event()
        self.failures: list[EngineError] = []

    def warm_up(self) -> None:
        self.warmed_up.set()

    def start(self) -> None:
        self.started.set()
        assert self.may_start.wait(60)
        if self.failures:
            raise self.failures.pop()

    def ingest(self, job: IngestJob) -> IngestResult:
        cancelled = self.running[job.output_prefix] = threading.Event()
        if self.waits and cancelled.wait(60):
            raise Cancelled(job.output_prefix)
        return IngestResult((), (), 0)

    def cancel(self, output_prefix: str) -> None:
        if output_prefix in self.running:
            self.running[output_prefix].set()

    def progress(self, output_prefix: str) -> float | None:
        """Nobody asks."""

    def stop(self) -> None:
        self.stopped += 1

    def release(self) -> None:
        self.released += 1

    def session(self) -> str:
        return "session"


def counted(engine: Recording, made: list[Recording]) -> Callable[[], Recording]:
    def make() -> Recording:
        made.append(engine)
        return engine

    return make


def test_the_engine_is_made_once_with_the_first_job() -> None:
    engine, made = Recording(), list[Recording]()
    late = LazyEngine(counted(engine, made))
    late.cancel("events/main/1/1")
    late.stop()
    assert made == []
    late.ingest(job())
    late.ingest(job())
    assert made == [engine]
    late.stop()
    late.stop()
    assert engine.stopped == 1


def test_an_engine_starts_in_the_background_and_stops_afterwards() -> None:
    engine, made = Recording(), list[Recording]()
    engine.failures = [EngineError("no Java")]  # the job meets it again, or does not
    late = LazyEngine(counted(engine, made))
    late.start_in_background()
    late.start_in_background()
    assert engine.started.wait(60)
    stopping = threading.Thread(target=late.stop)
    stopping.start()
    assert engine.stopped == 0
    engine.may_start.set()
    stopping.join(60)
    assert (made, engine.stopped) == ([engine], 1)


def test_an_engine_of_a_standby_is_warmed_up() -> None:
    engine = Recording()
    late = LazyEngine(lambda: engine)
    late.start_in_background(warm=True)
    assert engine.warmed_up.wait(60)
    late.stop()
    assert not engine.started.is_set()


def test_an_engine_that_cannot_be_made_fails_that_job_only() -> None:
    engine = Recording()
    failures = [EngineError("no Java")]

    def make() -> Recording:
        if failures:
            raise failures.pop()
        return engine

    late = LazyEngine(make)
    with pytest.raises(EngineError, match="no Java"):
        late.ingest(job())
    late.cancel("events/main/1/1")  # returns: the job is over
    assert late.ingest(job()) == IngestResult((), (), 0)


def test_a_job_is_cancelled_while_its_engine_is_being_made() -> None:
    engine = Recording(waits=True)
    making, may_go_on = threading.Event(), threading.Event()

    def make() -> Recording:
        making.set()
        assert may_go_on.wait(60)
        return engine

    late = LazyEngine(make)
    outcome: list[object] = []

    def ingest() -> None:
        try:
            outcome.append(late.ingest(job()))
        except Cancelled as cancelled:
            outcome.append(cancelled)

    worker = threading.Thread(target=ingest)
    worker.start()
    assert making.wait(60)
    canceller = threading.Thread(target=late.cancel, args=("events/main/1/1",))
    canceller.start()
    may_go_on.set()
    canceller.join(60)
    worker.join(60)
    assert [type(found) for found in outcome] == [Cancelled]


class Timers:
    """Timers that end when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.daemon = False

    def __call__(self, secs: float, call: Callable[[], None]) -> Timers:
        assert secs == 900
        self.waiting.append(call)
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def start(self) -> None:
        assert self.daemon  # it does not hold up the end of the process

    def end(self) -> None:
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()


def test_an_idle_engine_is_released_and_made_again() -> None:
    engine, made, timers = Recording(), list[Recording](), Timers()
    late = LazyEngine(counted(engine, made), 900, timers)
    late.ingest(job())
    timers.end()
    assert engine.released == 1
    late.ingest(job())
    assert made == [engine, engine]


def test_an_engine_that_is_used_again_is_not_released() -> None:
    engine, made, timers = Recording(), list[Recording](), Timers()
    late = LazyEngine(counted(engine, made), 900, timers)
    late.ingest(job())
    first = timers.waiting.pop()
    late.ingest(job())
    first()
    assert engine.released == 0
    timers.end()
    assert engine.released == 1


def test_an_engine_with_a_running_job_is_not_released() -> None:
    engine, timers = Recording(), Timers()

    class Meeting(Recording):
        """An engine whose job outlives the timer of another one."""

        def ingest(self, job: IngestJob) -> IngestResult:
            if job.output_prefix.endswith("/1/1"):
                late.ingest(IngestJob(SETTINGS, "staging", "events/main/2/1", ()))
                timers.end()
                assert self.released == 0
            return IngestResult((), (), 0)

    engine = Meeting()
    late = LazyEngine(lambda: engine, 900, timers)
    late.ingest(job())
    timers.end()
    assert engine.released == 1


def test_a_query_keeps_its_session() -> None:
    engine, made, timers = Recording(), list[Recording](), Timers()
    late = LazyEngine(counted(engine, made), 900, timers)
    late.ingest(job())
    assert late.session() == "session"
    late.ingest(job())
    timers.end()
    assert engine.released == 0


def config_of(pipeline: dict[str, Any], connections: dict[str, Any] | None = None) -> Config:
    source = {"source_uri": "/raw"}
    whole = {
        "sources": {"main": source},
        "sink": {"table_uri": "/lake"},
        "schema": {"fields": [{"name": "n", "type": "int64"}, {"name": "at", "type": "timestamp"}]},
        **pipeline,
    }
    found = {"pipelines": {"events": whole}, "connections": connections or {}}
    return Config.model_validate(found)


@pytest.mark.parametrize(
    ("pipeline", "connections"),
    [
        ({"transform": "SELECT n FROM source"}, None),
        ({"deduplicate_by": ["n"]}, None),
        ({"event_time": {"column": "at", "delay": "1 hour", "deduplicate": ["n"]}}, None),
        ({}, {"erp": {"driver": "jdbc", "uri": "jdbc:postgresql://db/erp"}}),
    ],
)
def test_a_driver_that_computes_compiles_all_it_can(
    pipeline: dict[str, Any], connections: dict[str, Any] | None
) -> None:
    assert computes_in_driver(config_of(pipeline, connections))


@pytest.mark.parametrize(
    ("conf", "environment"),
    [
        ({"spark.driver.extraJavaOptions": "-ea -XX:+UseZGC"}, {}),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}),
        ({"spark.driver.extraJavaOptions": "-XX:MinHeapFreeRatio=40"}, {}),
    ],
)
def test_a_driver_has_one_collector(conf: dict[str, str], environment: dict[str, str]) -> None:
    given = quick_start_settings({}, {})["spark.driver.defaultJavaOptions"]
    assert "-XX:+UseSerialGC" in given
    given = quick_start_settings(conf, environment)["spark.driver.defaultJavaOptions"]
    assert "-XX:+UseSerialGC" not in given


def test_a_driver_starts_quickly_and_user_options_win(
    tmp_path: Path,
) -> None:
    assert not computes_in_driver(config_of({}))
    mine = {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}
    assert quick_start_settings(mine) == mine
    told = quick_start_settings({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})
    gateway._files(tmp_path, told, tmp_path, "tasks")  # noqa: SLF001  # what the JVM is told, of which the last counts
    options = (tmp_path / "jvm.options").read_text().splitlines()
    assert [one for one in options if "Tiered" in one] == [
        '"-XX:TieredStopAtLevel=1"',
        '"-XX:TieredStopAtLevel=4"',
    ]

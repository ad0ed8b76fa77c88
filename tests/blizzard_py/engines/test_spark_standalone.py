"""The engine on a standalone cluster: a master and two workers of their own processes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blizzard_core.errors import EngineError
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.gateway import forget_gateway
from tests.support import engine_scenarios as scenarios
from tests.support.event_time_harness import TUMBLING, EventTimeHarness
from tests.support.event_time_oracle import Oracle, row, windows_of
from tests.support.ingest_job_harness import IngestJobHarness, lines
from tests.support.pipe import Pipe
from tests.support.spark_servers import standalone_cluster


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, spark_engine: SparkEngine
) -> Iterator[SparkEngine]:
    spark_engine.stop()  # a process has one driver; the other tests start theirs again
    # A local session leaves its secret with the JVM, which would use it for the cluster, too.
    forget_gateway()
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        found = SparkEngine(cluster.master, cluster.conf)
        yield found
        found.stop()
    forget_gateway()  # what the cluster's driver was started with is not for the others


@pytest.fixture
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def test_a_batch(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.ingests_a_batch(engine, world)


def test_a_transform(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.transforms_a_batch(engine, world)


def test_both_workers_are_used_and_the_package_reaches_them(
    engine: SparkEngine, world: IngestJobHarness
) -> None:
    scenarios.the_package_comes_along(engine)
    # Each worker has one core, so two tasks that wait at the same time are on both.
    job = world.job("a.ndjson", "b.ndjson")
    files = tuple(dataclasses.replace(file, size=2 << 20) for file in job.files)
    with ThreadPoolExecutor(1) as pool, Pipe(world, "a.ndjson") as a, Pipe(world, "b.ndjson") as b:
        running = pool.submit(engine.ingest, dataclasses.replace(job, files=files))
        assert a.wait_for_reader(running) != b.wait_for_reader(running)
        a.write(lines(1))
        a.__exit__()
        b.write(lines(2))
        b.__exit__()
        assert world.ids(running.result()) == [1, 2]


def test_a_query_over_event_time_with_state_that_executors_share(
    engine: SparkEngine, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    settings = TUMBLING | {"state_path": str(shared)}
    world, oracle = EventTimeHarness(tmp_path, engine, settings), Oracle(settings)
    draw = random.Random(3)
    for life in range(2):
        for number in range(3):
            rows = [
                row(100 + 40 * life + 9 * number + draw.uniform(-24, 6), draw.choice("ab"), id_)
                for id_ in range(12)
            ]
            oracle.add_batch({world.put(rows): rows})
        world.drain()  # a process's life: the next one restores the state from its packs
    assert [one.watermark_ms for one in world.stream().history] == oracle.watermarks
    assert sum(oracle.late_counts) > 0
    assert world.late() == oracle.late
    assert windows_of(world.table()) == oracle.emitted
    assert world.stream().unaccounted_rows == 0
    assert list(shared.glob("*/*")) == []  # nothing stays of the working copies


def test_cancel(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.cancels_the_first_job(engine, world)


def test_cancel_in_the_second_job(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.cancels_the_second_job(engine, world)


def test_a_killed_worker(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.survives_a_killed_worker(engine, world)


def test_a_killed_worker_of_the_second_job(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.survives_a_killed_worker_of_the_second_job(engine, world)


def test_another_python_version_is_named(
    engine: SparkEngine, world: IngestJobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a.ndjson", lines(1))
    engine.session()
    monkeypatch.setattr(engine.session().sparkContext, "pythonVer", "3.99")
    with pytest.raises(EngineError) as caught:
        world.ingest(engine=engine)
    assert "the executors run Python 3." in str(caught.value)
    assert "this driver runs 3.99" in str(caught.value)


def test_a_python_without_our_dependencies_is_named(
    engine: SparkEngine, world: IngestJobHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a.ndjson", lines(1))
    context = engine.session().sparkContext
    blocked = tmp_path / "blocked" / "isal"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'isal'\")")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={blocked.parent}:$PYTHONPATH exec {context.pythonExec} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(context, "pythonExec", str(python))
    with pytest.raises(EngineError, match=r"No module named 'isal'.*install its dependencies"):
        world.ingest(engine=engine)

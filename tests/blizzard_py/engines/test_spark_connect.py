"""The engine on a Spark Connect server: the driver is another process, and gRPC lies between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError, EngineError
from blizzard_py.engines.spark import SparkEngine
from tests.support import engine_scenarios as scenarios
from tests.support.ingest_world import IngestWorld, lines
from tests.support.spark_servers import connect_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[SparkEngine]:
    found = SparkEngine(url)
    yield found
    found.stop()


@pytest.fixture
def world(tmp_path: Path) -> IngestWorld:
    return IngestWorld(tmp_path)


def test_a_batch(engine: SparkEngine, world: IngestWorld) -> None:
    scenarios.ingests_a_batch(engine, world)


def test_a_transform(engine: SparkEngine, world: IngestWorld) -> None:
    scenarios.transforms_a_batch(engine, world)


def test_the_package_reaches_the_workers(engine: SparkEngine) -> None:
    scenarios.the_package_comes_along(engine)


def test_statements_are_judged_as_by_a_driver_of_our_own(
    engine: SparkEngine,
    world: IngestWorld,
    spark_engine: SparkEngine,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert scenarios.refuses_statements(engine, world) == scenarios.refuses_statements(
        spark_engine, world
    )
    out, err = capfd.readouterr()
    # gRPC tells of the fork that started the other engine's JVM.
    assert (out, [line for line in err.splitlines() if "fork_posix.cc" not in line]) == ("", [])


def test_cancel(engine: SparkEngine, world: IngestWorld) -> None:
    scenarios.cancels_the_first_job(engine, world)


def test_cancel_in_the_second_job(engine: SparkEngine, world: IngestWorld) -> None:
    scenarios.cancels_the_second_job(engine, world)


def test_a_killed_worker(engine: SparkEngine, world: IngestWorld) -> None:
    scenarios.survives_a_killed_worker(engine, world)


def test_a_failed_sink_is_told_in_one_line(engine: SparkEngine, world: IngestWorld) -> None:
    world.put("a.ndjson", lines(1))
    world.table.write_text("a file where the directory should be")
    with pytest.raises(EngineError) as caught:
        world.ingest(engine=engine)
    assert str(world.table) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lost_session_costs_one_try(engine: SparkEngine, world: IngestWorld) -> None:
    """A server that was restarted, or that an idle daemon's session expired on."""
    world.put("a.ndjson", lines(1))
    assert world.ids(world.ingest(engine=engine)) == [1]
    engine.session().client.release_session()
    with pytest.raises(EngineError):
        world.ingest(engine=engine)
    assert world.ids(world.ingest(engine=engine)) == [1]


def test_a_setting_of_the_server_is_refused_by_name(url: str) -> None:
    engine = SparkEngine(url, {"spark.executor.memory": "8g"})
    with pytest.raises(ConfigError, match=r"spark.executor.memory: .* where the server is started"):
        engine.session()

"""The engine on a Spark Connect server: the driver is another process, and gRPC lies between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError, EngineError
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.transform_guard import refusal_of
from tests.support import engine_scenarios as scenarios
from tests.support.ingest_job_harness import IngestJobHarness, lines
from tests.support.spark_servers import connect_server

VIEW = "blizzard_source_corpus"
PLAIN = (
    "SELECT id, upper(name) AS name FROM source WHERE id > 1 AND name LIKE 'a%'",
    "WITH a AS (SELECT id + 1 AS n FROM source) SELECT n, lpad(n, 10, '0') AS padded FROM a",
    "SELECT id, n FROM source LATERAL VIEW explode(sequence(0, 9)) AS n",
    "SELECT try_cast(name AS int) AS n, CASE WHEN id IN (1, 2) THEN 'x' END AS c FROM source",
    "SELECT id FROM source UNION ALL SELECT -id FROM source",
)

REFUSED = (
    "SELECT count(*) AS n FROM source",
    "SELECT DISTINCT id FROM source",
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM source",
    "SELECT id FROM source LIMIT 1",
    "SELECT a.id FROM source a JOIN source b ON a.id = b.id",
    "SELECT id FROM source WHERE id = (SELECT max(id) FROM source)",
    "SELECT id FROM range(5)",
    "SELECT 1 AS one",
    "SELECT rand() AS r FROM source",
    "SELECT uuid() AS r FROM source",
    "SELECT current_timestamp AS r FROM source",
    "SELECT user AS r FROM source",
    "SELECT reflect('java.util.UUID', 'randomUUID') AS r FROM source",
    "SELECT monotonically_increasing_id() AS r FROM source",
    "SELECT spark_partition_id() AS r FROM source",
)


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
def world(tmp_path: Path) -> IngestJobHarness:
    return IngestJobHarness(tmp_path)


def test_a_batch(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.ingests_a_batch(engine, world)


def test_a_transform(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.transforms_a_batch(engine, world)


def test_the_package_reaches_the_workers(engine: SparkEngine) -> None:
    scenarios.the_package_comes_along(engine)


def test_statements_are_judged_as_by_a_driver_of_our_own(
    engine: SparkEngine,
    world: IngestJobHarness,
    spark_engine: SparkEngine,
    capfd: pytest.CaptureFixture[str],
) -> None:
    here, there = (scenarios.refuses_statements(each, world) for each in (spark_engine, engine))
    # Of the form of a statement a server without trees says other words.
    assert there[1:3] == here[1:3]
    out, err = capfd.readouterr()
    # gRPC tells of the fork that started the other engine's JVM.
    assert (out, [line for line in err.splitlines() if "fork_posix.cc" not in line]) == ("", [])


def test_a_plan_as_text_shows_operators_and_calls(engine: SparkEngine) -> None:
    spark = engine.session()
    spark.range(1).selectExpr("id", "'a' AS name", "now() AS time").createOrReplaceTempView(VIEW)
    for statement in PLAIN:
        assert refusal_of(spark, statement, VIEW) is None
    for statement in REFUSED:
        assert refusal_of(spark, statement, VIEW) is not None, statement


def test_cancel(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.cancels_the_first_job(engine, world)


def test_cancel_in_the_second_job(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.cancels_the_second_job(engine, world)


def test_a_killed_worker(engine: SparkEngine, world: IngestJobHarness) -> None:
    scenarios.survives_a_killed_worker(engine, world)


def test_sink_error_fits_on_one_line(engine: SparkEngine, world: IngestJobHarness) -> None:
    world.put("a.ndjson", lines(1))
    world.table.write_text("a file where the directory should be")
    with pytest.raises(EngineError) as caught:
        world.ingest(engine=engine)
    assert str(world.table) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lost_session_costs_one_try(engine: SparkEngine, world: IngestJobHarness) -> None:
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

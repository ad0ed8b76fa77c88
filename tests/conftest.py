"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from concurrent.futures import Executor
from pathlib import Path

import hypothesis
import pytest

from blizzard_core import log
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.gateway import forget_gateway, quick_start_settings
from blizzard_py.kernels import task
from tests.support.azurite_server import AzuriteServer, azurite_server
from tests.support.event_time_harness import CONTRARY, EAGER_SNAPSHOTS
from tests.support.gcs_server import GcsServer, gcs_server
from tests.support.mariadb_server import MariadbServer, mariadb_server
from tests.support.pipe import PIPES
from tests.support.postgresql_server import PostgresqlServer, postgresql_server
from tests.support.s3_server import S3Server, s3_server
from tests.support.short_lived_java import shorten_starts
from tests.support.table_bench import Bench, copied, tables_below
from tests.support.table_harness import HARNESSES, footer_pool, unsound
from tests.support.warm_children import WarmChild

# Folders of tests of what stands in a table's files and in its log.
ABOUT_READERS = {"delta", "intake", "planning", "table"}
JDBC_JAR = Path("/usr/share/java/postgresql.jar")

# A shared machine is slow at times; no test may fail for that. Nor for an example that nobody had
# tried before: `make test ARGS=--hypothesis-profile=fresh` draws others.
hypothesis.settings.register_profile("fresh", deadline=None)
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fixed")


# Such a limit marks a test of many seconds.
LONG_LIMIT = 600


def pytest_configure() -> None:
    """Before any JVM starts."""
    shorten_starts()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage: all of their million objects stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest tests begin first: at the end, one process would wait for the other's."""
    items.sort(key=lambda item: not _is_long(item))


def _is_long(item: pytest.Item) -> bool:
    limit = item.get_closest_marker("timeout")
    return limit is not None and limit.args[0] >= LONG_LIMIT


@pytest.fixture(autouse=True)
def quiet_logs() -> None:
    """Keep the daemons' own logs out of failure reports; tests of logging configure it anew."""
    log.silence()


@pytest.fixture(scope="session", autouse=True)
def unsynced_disk() -> Iterator[None]:
    """Wait for no disk: processes die in these tests, and no machine does.

    Tests of what is synced, and in which order, put their own function there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_children() -> Iterator[None]:
    """Start no interpreter for each task that is tried again in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "ChildProcess", WarmChild)
        yield
    WarmChild.end_idle()


@pytest.fixture(scope="session")
def bench() -> Bench:
    """Return the record of the tables that the readers have read in this run."""
    return Bench()


@pytest.fixture(autouse=True)
def sound_tables(request: pytest.FixtureRequest, bench: Bench) -> Iterator[None]:
    """Hold the tables that the test left against the protocol's text, and have them read."""
    HARNESSES.clear()
    yield
    assert not unsound(HARNESSES)
    broken = {world.uri for world in HARNESSES if world.tampered}
    made = {world.uri: world for world in HARNESSES if world.uri not in broken}
    HARNESSES.clear()
    if request.node.get_closest_marker("unreadable_tables") is not None:
        return
    every = not ABOUT_READERS.isdisjoint(request.node.path.parts)
    place: Path | None = request.node.funcargs.get("tmp_path")
    if place is not None:
        left = (root for root in tables_below(place) if str(root) not in broken)
        bench.take(left, every=every, stay=True)
    remote = [world for world in made.values() if not world.table().is_local]
    with copied(remote, lambda root: every or bench.is_new(root)) as roots:
        bench.take(roots, every=every, stay=False)


@pytest.fixture(scope="session")
def pool() -> Iterator[Executor]:
    """Yield the thread pool with which Penguins read footers."""
    with footer_pool() as found:
        yield found


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """Yield an S3 API over HTTP, one for the whole run; each test takes its own bucket."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """Google's JSON API over HTTP, one for the whole run; take a bucket of your own."""
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzuriteServer]:
    """Azure's Blob API over HTTP, one for the whole run; take a container of your own."""
    with azurite_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """Yield PostgreSQL, one for the whole run; take a database of your own."""
    with postgresql_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    """MariaDB, one for the whole run; take a database of your own."""
    with mariadb_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark_engine(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """One real Spark session for the whole run; it starts with the first job."""
    # Spark takes jars and options at its start only, and a command may have started it.
    forget_gateway()
    conf = {"spark.jars": str(JDBC_JAR)} if JDBC_JAR.exists() else {}
    conf |= EAGER_SNAPSHOTS | CONTRARY | {"spark.executorEnv.PYTHONPATH": PIPES}
    # It lives as long as the run, and listeners keep something of each of a thousand jobs.
    conf = quick_start_settings(conf | {"spark.driver.memory": "2g"})
    engine = SparkEngine("local[2]", conf)
    yield engine
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    try:
        bench.take_by_spark(engine.session(), shared / "read-by-spark")
    finally:
        engine.stop()

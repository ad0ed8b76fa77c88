"""What every test gets."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import hypothesis
import pytest
import structlog

from blizzard_py.spark import SparkEngine
from tests.azurite_server import AzuriteServer, azurite_server
from tests.gcs_server import GcsServer, gcs_server
from tests.penguin_world import WORLDS, unsound
from tests.s3_server import S3Server, s3_server

# A shared machine is slow at times; no test may fail for that.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Keep the daemons' own logs out of failure reports; tests of logging configure it anew."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def sound_logs() -> Iterator[None]:
    """Hold the log of every table that the test made against the protocol's text."""
    WORLDS.clear()
    yield
    assert not unsound(WORLDS)
    WORLDS.clear()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 API over HTTP, one for the whole run; take a bucket of your own."""
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
def spark_engine() -> Iterator[SparkEngine]:
    """One real Spark session for the whole run; it starts with the first job."""
    engine = SparkEngine("local[2]")
    yield engine
    engine.stop()

"""What every test gets."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.s3_server import S3Server, s3_server


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Keep the daemons' own logs out of failure reports; tests of logging configure it anew."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 API over HTTP, one for the whole run; take a bucket of your own."""
    with s3_server() as server:
        yield server

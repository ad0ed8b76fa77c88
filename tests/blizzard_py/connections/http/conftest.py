from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.blizzard_py.connections.http.world import FakeTime
from tests.support.api_server import ApiServer, api_server


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with api_server() as server:
        yield server


@pytest.fixture
def other() -> Iterator[ApiServer]:
    """Another origin: another port of the same machine."""
    with api_server() as server:
        yield server


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()

"""Database servers, one of each for the whole run; take a database of your own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mariadb_server import MariadbServer, mariadb_server
from tests.support.postgresql_server import PostgresqlServer, postgresql_server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    with postgresql_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbServer]:
    with mariadb_server() as server:
        yield server

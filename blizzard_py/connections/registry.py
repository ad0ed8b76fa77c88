"""Which driver reads what: one entry each. No driver's package is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blizzard_py.connections.mysql.connection import MysqlConnection
from blizzard_py.connections.mysql.reader import read as read_mysql
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.postgresql.reader import read as read_postgresql
from blizzard_py.connections.protocol import Connection, Reader, Selection
from blizzard_py.connections.sqlite.connection import SqliteConnection
from blizzard_py.connections.sqlite.reader import read as read_sqlite
from blizzard_py.reading import Access

# Makes the driver's side. `jdbc` is not among them: it plans through the engine.
CONNECTIONS: Mapping[str, Callable[[Access, Selection], Connection]] = {
    "postgresql": PostgresqlConnection,
    "sqlite": SqliteConnection,
    "mysql": MysqlConnection,
}

# What tasks call. `jdbc` is not among them: Spark itself reads there.
READERS: Mapping[str, Reader] = {
    "postgresql": read_postgresql,
    "sqlite": read_sqlite,
    "mysql": read_mysql,
}

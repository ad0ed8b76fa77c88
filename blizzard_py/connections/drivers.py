"""The drivers by name: each has a connection for the driver process and a reader for tasks.

Neither is imported before it is needed. An installation has only the libraries that it uses, and a
Spark worker needs only the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias, cast

from blizzard_core.errors import ConfigError
from blizzard_py.connections.protocol import Reader, ReadSelection, SourceConnection
from blizzard_py.reading import Access

Connects: TypeAlias = Callable[[Access, ReadSelection], SourceConnection]


class Driver(NamedTuple):
    """A driver's two halves, each as ``module:name``."""

    connects: str
    reads: str


def _own_driver(connects: str, reads: str) -> Driver:
    return Driver(f"{__package__}.{connects}", f"{__package__}.{reads}")


# Folders of files in a format that is scanned.
_SCANNED = _own_driver("lakes.scanned:connect", "lakes.scanned:read")
DRIVERS: dict[str, Driver] = {
    "postgresql": _own_driver(
        "postgresql.connection:PostgresqlConnection", "postgresql.session:read"
    ),
    "sqlite": _own_driver("sqlite:SqliteConnection", "sqlite_session:read"),
    "mysql": _own_driver("mysql:MysqlConnection", "mysql_session:read"),
    "delta": _own_driver("lakes.delta:DeltaConnection", "lakes.window_rows:read"),
    "iceberg": _own_driver("lakes.iceberg:IcebergConnection", "lakes.window_rows:read"),
    "parquet": _own_driver("lakes.parquet:connect", "lakes.window_rows:read"),
    **dict.fromkeys(("csv", "json", "avro", "orc", "xml", "excel"), _SCANNED),
    "http": _own_driver("http.connection:connect", "http.reader:read"),
}


def connect(access: Access, selection: ReadSelection) -> SourceConnection:
    """Return a connection to one table, query or API. Opens nothing.

    Raises `ConfigError` for an unknown driver, or if its libraries are missing.
    """
    found = cast("Connects", _loaded(_driver(access.driver).connects))
    return found(access, selection)


def reader_of(driver: str) -> Reader:
    """Return the reader of a driver's tasks. Raises `ConfigError` as `connect` does."""
    return cast("Reader", _loaded(_driver(driver).reads))


def _driver(name: str) -> Driver:
    found = DRIVERS.get(name)
    if found is None:
        raise ConfigError(f"driver {name}", [f"is not known; known: {', '.join(DRIVERS)}"])
    return found


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)

"""Sessions of SQLite: files are opened with ``mode=ro`` and never created."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from blizzard_core.errors import BlizzardError, Unavailable
from blizzard_core.extras import optional_module
from blizzard_py.connections.sql.errors import ErrorTranslator, ServerLabel, guarded
from blizzard_py.reading import Access

# How long to wait for a writer's lock.
_BUSY_MS = 30_000
_BUSY_WORDS = ("locked", "busy", "disk I/O", "unable to open", "failed to open", "malformed")


def path_of(access: Access) -> str:
    """Return the file's path.

    It is ``sqlite:///folder/file.db`` (absolute), ``sqlite://file.db``, or a plain path. Four
    slashes, which other tools use for an absolute path, work as well.
    """
    path = access.uri
    for scheme in ("sqlite://", "file://", "sqlite:", "file:"):
        if path.startswith(scheme):
            path = path.removeprefix(scheme)
            break
    # Text after two slashes would be read as a host.
    return f"/{path.lstrip('/')}" if path.startswith("//") else path


def connect(access: Access) -> Any:
    """Return a session that sees committed states only.

    Raises `Unavailable` if the file is missing.
    """
    path = path_of(access)
    if not Path(path).is_file():
        raise Unavailable(f"{path} does not exist")
    dbapi = optional_module("adbc_driver_sqlite.dbapi", "sqlite")
    uri = f"file:{quote(path)}?mode=ro"

    def opened() -> Any:
        session = dbapi.connect(uri, autocommit=True)
        with session.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return session

    return guarded(opened, error_translator(access))


def error_translator(access: Access) -> ErrorTranslator:
    """Return a function that translates errors of ADBC and Arrow."""
    place = ServerLabel(path_of(access))

    def translate(error: BaseException) -> BlizzardError | None:
        if isinstance(error, BlizzardError) or not isinstance(error, Exception):
            return None
        text = str(error)
        passing = any(word in text for word in _BUSY_WORDS)
        return place.error("unavailable" if passing else "refused", text, quotes_data=True)

    return translate

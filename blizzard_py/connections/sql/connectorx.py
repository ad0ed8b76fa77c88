"""connectorx, which reads MySQL and MariaDB.

It connects for each statement and retries a refused connection for half a minute. If a value does
not fit, it panics with an error that is no `Exception`. Its stream ends with an error if the server
is cut off, never early.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from blizzard_core.extras import optional_module
from blizzard_py.connections.sql.address import Address
from blizzard_py.connections.sql.batches import MAX_ROWS
from blizzard_py.connections.sql.errors import ErrorTranslator, guarded, guarded_each

_CONNECT_SECS = 10.0


def reach(where: Address, port: int) -> None:
    """Raise `Unavailable` at once if no server listens; ``port`` is the default port."""
    problem = ""
    for host, given in where.hosts:
        try:
            socket.create_connection((host, int(given or port)), _CONNECT_SECS).close()
        except OSError as error:
            problem = f"cannot connect: {error.strerror or error}"
        else:
            return
    raise where.label.error("unavailable", problem)


def stream(
    uri: str,
    statement: str,
    before: Sequence[str],
    translate: ErrorTranslator,
    rows: int = MAX_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the statement's batches of ``rows`` rows; ``before`` prepares the session."""
    connectorx = optional_module("connectorx", "mysql")

    def opened() -> Any:
        return connectorx.read_sql(
            uri,
            statement,
            return_type="arrow_stream",
            batch_size=rows,
            pre_execution_query=list(before) or None,
        )

    yield from guarded_each(iter(guarded(opened, translate)), translate)


def fetch_table(
    uri: str, statement: str, before: Sequence[str], translate: ErrorTranslator
) -> pa.Table:
    """Return the complete result of a short query."""
    connectorx = optional_module("connectorx", "mysql")

    def fetch() -> pa.Table:
        found = connectorx.read_sql(
            uri,
            statement,
            return_type="arrow_stream",
            pre_execution_query=list(before) or None,
        )
        return found.read_all()

    return guarded(fetch, translate)

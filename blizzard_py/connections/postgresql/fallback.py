"""PostgreSQL by connectorx, if ADBC's driver is not installed.

One statement sees one state; several statements do not share one, so there are no snapshots. Times
are read as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pyarrow as pa

from blizzard_py.connections.postgresql.session import PLANS, READS, error_translator
from blizzard_py.connections.sql import connectorx
from blizzard_py.connections.sql.address import address
from blizzard_py.reading import Access

_EXTRA = "postgresql"
_PORT = 5432
_BEFORE = (
    "SET default_transaction_read_only = on",
    "SET TimeZone = 'UTC'",
    "SET standard_conforming_strings = on",
)


def ask(access: Access, statement: str) -> pa.Table:
    """Return the complete result of a short query."""
    where = address(access)
    connectorx.reach(where, _PORT)
    return connectorx.fetch_table(
        _uri(access, PLANS), statement, _BEFORE, _EXTRA, error_translator(where.label)
    )


def stream(access: Access, statement: str) -> Iterator[pa.RecordBatch]:
    """Yield the statement's batches."""
    where = address(access)
    connectorx.reach(where, _PORT)
    return connectorx.stream(
        _uri(access, READS), statement, _BEFORE, _EXTRA, error_translator(where.label)
    )


def _uri(access: Access, name: str) -> str:
    where = address(access)
    hosts = ",".join(host + (f":{port}" if port else "") for host, port in where.hosts)
    settings = {"connect_timeout": "10", **where.settings, "application_name": name}
    credentials = f"{quote(where.user, safe='')}:{quote(where.password, safe='')}"
    query = urlencode(settings, quote_via=quote)
    return f"postgresql://{credentials}@{hosts}/{quote(where.database, safe='')}?{query}"

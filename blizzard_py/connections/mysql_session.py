"""Sessions of MySQL and MariaDB: read-only, in UTC, with a statement timeout.

A task reads by one streamed statement (`read`). connectorx connects for each statement and retries
a refused connection for half a minute. If a value does not fit, it panics with an error that is no
`Exception`. Its stream ends with an error if the server is cut off, never early.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from blizzard_core.errors import BlizzardError
from blizzard_core.extras import optional_module
from blizzard_py.connections.sql.address import Address, address
from blizzard_py.connections.sql.batches import SAMPLE_ROWS, pieces, rows_like
from blizzard_py.connections.sql.errors import (
    ErrorTranslator,
    ServerLabel,
    guarded,
    guarded_each,
)
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

_PORT = 3306
_CONNECT_SECS = 10.0
# Of a batch, unless a task knows better.
_ROWS = 10_000
_PLAN_SECS, _READ_SECS = 300, 6 * 3600
_CODE = re.compile(r"ERROR (\d{4}) \(\w+\):?\s*")
# No access to server, database, table, column, file or procedure.
_DENIED = {"1044", "1045", "1142", "1143", "1227", "1370", "1698", "3118", "1862"}
# Connections, shut-downs, locks, time-outs, a killed statement.
_PASSING = {
    *("1037", "1040", "1041", "1042", "1053", "1077", "1129", "1135", "1152", "1158", "1159"),
    *("1160", "1161", "1203", "1205", "1213", "1226", "1317", "1927", "1969", "2002", "2003"),
    *("2006", "2013", "2055", "3024", "4031"),
}
_GONE_WORDS = ("timed out waiting", "DriverError", "IO error", "CodecError", "IoError")


def ask(access: Access, statement: str) -> pa.Table:
    """Return the complete result of a short query."""
    named = _named(statement, "plans")
    return guarded(lambda: _opened(access, named, _PLAN_SECS).read_all(), _translator(access))


def stream(access: Access, statement: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the statement's batches of ``rows`` rows."""
    named, translate = _named(statement, "reads"), _translator(access)
    found = guarded(lambda: _opened(access, named, _READ_SECS, rows), translate)
    yield from guarded_each(iter(found), translate)


def _opened(access: Access, statement: str, seconds: int, rows: int = _ROWS) -> Any:
    """Return the statement's stream of batches."""
    where = address(access)
    _reach(where)
    return optional_module("connectorx", "mysql").read_sql(
        _uri(where),
        statement,
        return_type="arrow_stream",
        batch_size=rows,
        pre_execution_query=_before(access, seconds),
    )


def _reach(where: Address) -> None:
    """Raise `Unavailable` at once if no server listens."""
    problem = ""
    for host, given in where.hosts:
        try:
            socket.create_connection((host, int(given or _PORT)), _CONNECT_SECS).close()
        except OSError as error:
            problem = f"cannot connect: {error.strerror or error}"
        else:
            return
    raise where.label.error("unavailable", problem)


def _translator(access: Access) -> ErrorTranslator:
    return error_translator(address(access).label)


def _before(access: Access, seconds: int) -> list[str]:
    """Return session statements; each server runs what the comment of its kind contains."""
    allowed = int(access.options.get("statement_timeout_secs") or seconds)
    for_mysql = f"/*!50708 , max_execution_time = {allowed * 1000} */"
    return [
        f"SET time_zone = '+00:00' /*M!100100 , max_statement_time = {allowed} */ {for_mysql}",
        "SET SESSION TRANSACTION READ ONLY",
    ]


def _named(statement: str, what: str) -> str:
    """Return the statement with a comment that SHOW PROCESSLIST displays."""
    return re.sub(r"^SELECT ", f"SELECT /* blizzard {what} */ ", statement)


def _uri(where: Address) -> str:
    host, port = where.hosts[0]
    credentials = f"{quote(where.user, safe='')}:{quote(where.password, safe='')}"
    query = f"?{urlencode(where.settings, quote_via=quote)}" if where.settings else ""
    database = quote(where.database, safe="")
    return f"mysql://{credentials}@{host}:{port or _PORT}/{database}{query}"


def error_translator(place: ServerLabel) -> ErrorTranslator:
    """Return a function that translates errors of connectorx.

    It panics if a value does not fit.
    """

    def translate(error: BaseException) -> BlizzardError | None:
        if isinstance(error, BlizzardError | KeyboardInterrupt | SystemExit | GeneratorExit):
            return None
        text = str(error)
        code = _CODE.search(text)
        message = text[code.end() :].rstrip(" })") if code else text
        if code and code[1] in _DENIED:
            return place.error("denied", message)
        if (code and code[1] in _PASSING) or (
            not code and any(word in text for word in _GONE_WORDS)
        ):
            return place.error("unavailable", message)
        # The text of a panic quotes the value that did not fit.
        return place.error("refused", message if code else _unquoted(text), quotes_data=not code)

    return translate


def _unquoted(text: str) -> str:
    return text.partition("Couldn't convert the value")[0] or text


_MOST_ROWS = 16_384


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the rows of a task; the statement was made for ``fields``.

    See `blizzard_py.connections.protocol.Reader`.
    """
    del fields
    statement: str = spec["statement"]
    rows = rows_like(ask(access, f"{statement} LIMIT {SAMPLE_ROWS}"), _MOST_ROWS)
    for batch in stream(access, statement, rows):
        yield from pieces(batch)

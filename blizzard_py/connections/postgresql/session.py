"""Sessions of PostgreSQL: read-only, named, with a statement timeout, in UTC.

All of it is set in the connection options. So it costs no statement, and no pooler can lose it. A
pooler of statements or transactions refuses ``options``: use its session mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError
from blizzard_core.extras import optional_module
from blizzard_py.connections.sql.adbc import AdbcSession, stream
from blizzard_py.connections.sql.address import Address, address
from blizzard_py.connections.sql.batches import MAX_BYTES, pieces
from blizzard_py.connections.sql.errors import ErrorTranslator, FaultKind, ServerLabel, guarded
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

# Names of our sessions in pg_stat_activity. They never write, so they delay no read bound.
PLANS, READS = "blizzard plans", "blizzard reads"
# The longest planning query, and the longest reading of a task.
_PLAN_SECS, _READ_SECS = 300, 6 * 3600
_DRIVER = "adbc_driver_postgresql.dbapi"

# A dead peer is noticed within about a minute instead of two hours.
_NETWORK = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_DENIED = ("28", "42501")
# Connections, resources, operators' interventions, rollbacks, locks, snapshots, internal errors.
_PASSING = ("08", "53", "57", "58", "40", "55", "25", "72", "XX", "F0")
_READ_ONLY = "25006"  # of the class of transactions that failed
_DENIED_WORDS = (
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "permission denied",
)
_REFUSED_WORDS = ('database "', "unsupported frontend", "invalid connection option")
_GONE_WORDS = ("FATAL: ", "connection", "canceling", "terminating", "timeout", "SSL", "socket")


def connect(access: Access, name: str) -> Any:
    """Return a session that commits each statement. Errors as in `protocol`."""
    where = address(access)
    dbapi = optional_module(_DRIVER, "postgresql")
    seconds = access.options.get("statement_timeout_secs") or (
        _PLAN_SECS if name == PLANS else _READ_SECS
    )
    info = conninfo(where, name, float(seconds))
    return guarded(lambda: dbapi.connect(info, autocommit=True), error_translator(where.label))


def conninfo(where: Address, name: str, statement_secs: float) -> str:
    """Return the options for libpq as keywords: it would quote an invalid URI in its error."""
    fixed = {
        "default_transaction_read_only": "on",
        "statement_timeout": f"{int(statement_secs * 1000)}",
        "idle_in_transaction_session_timeout": "0",  # a snapshot is held while others read
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "standard_conforming_strings": "on",  # literals rely on it
    }
    options = [where.settings.get("options", ""), *(f"-c {k}={v}" for k, v in fixed.items())]
    settings = {
        **_NETWORK,
        **where.settings,
        "host": ",".join(host for host, _ in where.hosts),
        "port": ",".join(port for _, port in where.hosts),
        "dbname": where.database,
        "user": where.user,
        "password": where.password,
        "application_name": name,
        "client_encoding": "UTF8",  # else text comes in the encoding of the database
        "options": " ".join(filter(None, options)),
    }
    return " ".join(
        f"{key}={_quoted(value)}" for key, value in settings.items() if value.strip(",")
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def error_translator(place: ServerLabel) -> ErrorTranslator:
    """Return a function that translates errors of ADBC and Arrow."""

    def translate(error: BaseException) -> BlizzardError | None:
        if isinstance(error, BlizzardError) or not isinstance(error, Exception):
            return None
        state = getattr(error, "sqlstate", None) or ""
        text = str(error)
        kind = _by_state(state, text) if state else _by_text(text)
        # Own classes for values that cannot be converted: the text quotes them.
        return place.error(kind, text, quotes_data=state.startswith("22") or not state)

    return translate


def _by_state(state: str, text: str) -> FaultKind:
    if state.startswith(_DENIED):
        return "denied"
    if state == _READ_ONLY:
        return "refused"
    if state.startswith(_PASSING) or "snapshot" in text:
        return "unavailable"  # an exported snapshot dies with its session; the attempt is repeated
    return "refused"


def _by_text(text: str) -> FaultKind:
    """Return the kind of an error without SQLSTATE: a failed connection, or one within a stream."""
    if any(word in text for word in _DENIED_WORDS):
        return "denied"
    if "Failed to connect" in text:
        return "refused" if any(word in text for word in _REFUSED_WORDS) else "unavailable"
    return "unavailable" if any(word in text for word in _GONE_WORDS) else "refused"


def snapshot_of(session: Any) -> str:
    """Begin a transaction that sees one state, and return the name of its snapshot."""
    with session.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        (found,) = cursor.fetchone()
        return str(found)


def end(session: Any) -> None:
    """End the transaction and the session; from then on nobody can join the snapshot."""
    try:
        with session.cursor() as cursor:
            cursor.execute("ROLLBACK")
    finally:
        session.close()


def join_snapshot(session: Any, name: str) -> None:
    """Begin a transaction that sees the exported state ``name``."""
    with session.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        quoted = name.replace("'", "''")
        cursor.execute(f"SET TRANSACTION SNAPSHOT '{quoted}'")


# For the tables that this transaction has read: pg_class shows the file of their rows when the
# snapshot was taken, the function shows the current one.
_REWRITTEN = """
SELECT c.oid::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'm')
  AND c.relfilenode <> 0 AND c.relfilenode <> pg_relation_filenode(c.oid) LIMIT 1
"""


def check_not_rewritten(session: Any, place: ServerLabel) -> None:
    """Raise `Unavailable` if a table was rewritten between joining the snapshot and reading.

    PostgreSQL shows such a table (ALTER TABLE … TYPE, TRUNCATE) as empty, without an error. From
    the first read on, the transaction's lock protects the table.
    """
    with session.cursor() as cursor:
        cursor.execute(_REWRITTEN)
        found = cursor.fetchone()
    if found is not None:
        raise place.error("unavailable", f"{found[0]} was rewritten during the read")


def planning_session(access: Access) -> AdbcSession:
    """Return a session for planning queries; it is opened when it is first used."""
    return AdbcSession(
        lambda: connect(access, PLANS), error_translator(address(access).label), _without_copy
    )


def _without_copy(cursor: Any, statement: str) -> None:
    # COPY does not accept a statement that begins with a word like EXPLAIN.
    if not statement.lstrip().startswith(("SELECT", "WITH")):
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})


def read(
    access: Access, spec: Mapping[str, Any], fields: Sequence[FieldSpec]
) -> Iterator[pa.RecordBatch | bytes]:
    """Yield the rows of a task by one COPY stream; the statement was made for ``fields``.

    See `blizzard_py.connections.protocol.Reader`.
    """
    del fields
    label = address(access).label
    session = connect(access, READS)

    def executed() -> Any:
        if access.session:
            join_snapshot(session, access.session)
        cursor = session.cursor()
        size = {"adbc.postgresql.batch_size_hint_bytes": str(MAX_BYTES)}
        cursor.adbc_statement.set_options(**size)
        cursor.execute(spec["statement"])
        return cursor

    def check() -> None:
        if access.session:
            check_not_rewritten(session, label)

    with closing(stream(session, executed, error_translator(label), check)) as batches:
        for batch in batches:
            yield from pieces(batch)

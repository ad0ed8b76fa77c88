"""Reading of databases by Spark's JDBC source, with the driver's jar from the operator.

The jar is named in ``spark.conf`` (``spark.jars``, or ``spark.driver.extraClassPath`` and
``spark.executor.extraClassPath``). Its class is named in the connection's options (``driver``) if
it does not register itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from blizzard_core.errors import BlizzardError
from blizzard_py.connections.sql.errors import FaultKind, ServerLabel, guarded
from blizzard_py.reading import Access

T = TypeVar("T")

_PLAN_SECS, _READ_SECS = 300, 6 * 3600
_FETCH_ROWS = 10_000

# Run once in each session, if the dialect supports it. One statement.
_SESSIONS = {
    "jdbc:postgresql:": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "jdbc:mysql:": "SET time_zone = '+00:00'",
    "jdbc:mariadb:": "SET time_zone = '+00:00'",
}
_SQL_SAID = re.compile(r"\w*SQL\w*Exception: ([^\n]+)")
_SAID = re.compile(r"(?:[A-Z]\w*Exception|Error): ([^\n]+)")
_DENIED = ("authentication failed", "Access denied", "permission denied", "ORA-01017", "ORA-01031",
           "Login failed")  # fmt: skip
# Spark's wrapper of self-registered drivers cannot be made from `spark.jars`.
_REFUSED = ("ClassNotFoundException", "No suitable driver", "DriverWrapper")
_PASSING = ("onnection", "timeout", "timed out", "ORA-12")
_GONE = ("UnknownHostException", "ConnectException", "SocketTimeoutException", "SocketException")
_NO_JAR = "no JDBC driver: put its jar into spark.conf (spark.jars) and name its class in options"


def query(spark: SparkSession, access: Access) -> Callable[[str], pa.Table]:
    """Return a function that runs a planner's short queries. Errors as in `protocol`."""

    def run(statement: str) -> pa.Table:
        return _guarded(access, lambda: _frame(spark, access, statement, _PLAN_SECS).toArrow())

    return run


def frame(spark: SparkSession, access: Access, specs: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the tasks' rows: a partition for each of ``specs``, in order, by one statement each.

    The first statement's types are read at once; rows are read when the job runs.
    """
    statements = [spec["statement"] for spec in specs]
    frames = [_guarded(access, partial(_frame, spark, access, s, _READ_SECS)) for s in statements]
    return reduce(DataFrame.unionAll, frames)


def _frame(spark: SparkSession, access: Access, statement: str, seconds: int) -> DataFrame:
    given = {key: str(value) for key, value in access.options.items() if value is not None}
    timeout = given.pop("statement_timeout_secs", str(seconds))
    options = {
        "fetchsize": str(_FETCH_ROWS),
        "queryTimeout": str(int(float(timeout))),
        "preferTimestampNTZ": "true",  # else a time without a zone gets the JVM's zone
        "readOnly": "true",
        **given,
        "url": access.uri,
        "query": statement,
    }
    for prefix, once in _SESSIONS.items():
        if access.uri.startswith(prefix):
            options["sessionInitStatement"] = once
    return spark.read.format("jdbc").options(**options).load()


def database_error(access: Access, error: BaseException) -> BlizzardError | None:
    """Return a database's error in a job that reads it; None if the database did not fail."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    return _translate(access, error) if _SQL_SAID.search(text) else None


def _guarded(access: Access, call: Callable[[], T]) -> T:
    return guarded(call, partial(_translate, access))


def _translate(access: Access, error: BaseException) -> BlizzardError | None:
    if not isinstance(error, PySparkException | Py4JError):
        return None
    place = server_label(access)
    # If Spark has its own message, the driver's message is in the trace.
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    if any(word in text for word in _REFUSED):
        return place.error("refused", _NO_JAR)
    # Causes come last; the first is Spark's own wrapper.
    messages = _SQL_SAID.findall(text) or _SAID.findall(text)
    return place.error(_kind(text, messages), messages[-1] if messages else text, quotes_data=True)


def _kind(text: str, found: Sequence[str]) -> FaultKind:
    """Return the kind of error by its message, or by the name of an unambiguous exception.

    Traces contain many other names.
    """
    messages = "\n".join(found) or text
    if any(word in messages for word in _DENIED):
        return "denied"
    passing = any(word in messages for word in _PASSING) or any(word in text for word in _GONE)
    return "unavailable" if passing else "refused"


def server_label(access: Access) -> ServerLabel:
    """Return the server as people may see it: a JDBC URL may have a password anywhere behind it."""
    location = re.split(r"[?;]", access.uri, maxsplit=1)[0]
    _, _, host = location.rpartition("@") if "@" in location else location.partition("//")
    name = f"{':'.join(location.split(':')[:2])}://{host.lstrip('/')}"
    secrets = [str(value) for key, value in access.options.items() if "pass" in key.lower()]
    secrets += re.findall(r"(?i)password=([^&;]+)", access.uri)
    return ServerLabel(name, tuple(secrets))

"""Values as SQL literals of their type, and names that may be part of a statement.

Statements contain literals and no bound parameters: a parameter disables PostgreSQL's COPY stream.
So this is the only place where a value becomes SQL. Sessions run in UTC, so times with a zone are
written in UTC if a dialect's literal has no zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from blizzard_core.errors import SourceError, WatermarkError
from blizzard_py.slices.compare import as_utc, is_finite, is_zoned, shown

# A longer number is no watermark, and Python does not write much longer integers.
_DIGITS = 4000

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_ALIASES = {
    "postgres": "postgresql",
    "mariadb": "mysql",
    "mssql": "sqlserver",
    "databricks": "spark",
}


@dataclass(frozen=True, slots=True)
class _Dialect:
    """A server's form of literals; the fields' defaults fit most servers.

    Templates have a placeholder for the value's ISO text with a blank. ``zoned`` is for times with
    a zone, and ``keeps_zone`` says whether its text includes it. ``escape`` prepares text for
    quotes.
    """

    moment: str = "'{}'"
    zoned: str = "'{}'"
    keeps_zone: bool = True
    day: str = "'{}'"
    clock: str = "'{}'"
    truths: tuple[str, str] = ("FALSE", "TRUE")
    escape: Callable[[str], str] = lambda text: text.replace("'", "''")
    text: str = "'{}'"


def _doubled_backslashes(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")


def _hexadecimal(text: str) -> str:
    """Return a literal without backslashes, which means the same in every mode of the server.

    It is for drivers that parse statements themselves: some mistake ``:name`` after a quoted
    backslash for a parameter.
    """
    if "\\" in text:
        return f"_utf8mb4 X'{text.encode().hex()}'"
    return "'" + text.replace("'", "''") + "'"


def _with_backslashes(text: str) -> str:
    """Escape quotes for Spark, where ``''`` between quotes is dropped in some releases."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


_ORACLE_MOMENT = "TO_TIMESTAMP('{}', 'YYYY-MM-DD HH24:MI:SS.FF6')"

_MYSQL = _Dialect(
    moment="TIMESTAMP '{}'",
    zoned="TIMESTAMP '{}'",
    keeps_zone=False,
    day="DATE '{}'",
    clock="TIME '{}'",
    escape=_doubled_backslashes,
)
_DIALECTS: Mapping[str, _Dialect] = {
    "postgresql": _Dialect(
        moment="timestamp '{}'", zoned="timestamptz '{}'", day="date '{}'", clock="time '{}'"
    ),
    "mysql": _MYSQL,
    "mysql_hex": replace(_MYSQL, escape=_hexadecimal, text="{}"),
    "oracle": _Dialect(
        moment=_ORACLE_MOMENT,
        zoned=_ORACLE_MOMENT,
        keeps_zone=False,
        day="TO_DATE('{}', 'YYYY-MM-DD')",
        truths=("0", "1"),
    ),
    "sqlserver": _Dialect(
        moment="CAST('{}' AS datetime2(6))",
        zoned="CAST('{}' AS datetimeoffset(6))",
        day="CAST('{}' AS date)",
        clock="CAST('{}' AS time(6))",
        truths=("0", "1"),
        text="N'{}'",
    ),
    "sqlite": _Dialect(truths=("0", "1")),
    "spark": _Dialect(
        moment="TIMESTAMP_NTZ '{}'",
        zoned="TIMESTAMP '{}'",
        day="DATE '{}'",
        escape=_with_backslashes,
    ),
    "duckdb": _Dialect(
        moment="TIMESTAMP '{}'", zoned="TIMESTAMPTZ '{}'", day="DATE '{}'", clock="TIME '{}'"
    ),
}

# For any server: quoted text, which takes the type of the column it is compared with.
_GENERIC = _Dialect()


def column_name(name: Any) -> str:
    """Return the name as it is written in a statement.

    Raises `SourceError` unless it consists of letters, digits and ``_``, with dots between parts:
    nothing else is ever put into a statement unquoted.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise SourceError(
        f"{shown(name)} cannot be a watermark column: letters, digits and _ only, with dots "
        "between parts; rename it in a query"
    )


def literal(value: Any, dialect: str = "") -> str:
    """Return the value as a literal of the dialect; an unknown dialect gets a portable form.

    Raises `WatermarkError` for a value without a literal: NaN, infinities, text with NUL, other
    types.
    """
    key = dialect.lower()
    rules = _DIALECTS.get(_ALIASES.get(key, key), _GENERIC)
    if isinstance(value, bool):
        return rules.truths[value]
    if isinstance(value, (int, float, Decimal)) and _is_writable(value):
        return f"{value:f}" if isinstance(value, Decimal) else repr(value)
    if isinstance(value, str) and "\0" not in value:
        return rules.text.format(rules.escape(value))
    if isinstance(value, datetime):
        return _moment(value, rules)
    if isinstance(value, date):
        return rules.day.format(value.isoformat())
    if isinstance(value, time):
        return rules.clock.format(value.isoformat())
    raise WatermarkError(f"{shown(value)} ({type(value).__name__}) has no literal in SQL")


def _is_writable(number: float | Decimal) -> bool:
    if isinstance(number, Decimal):
        return number.is_finite() and abs(number.adjusted()) < _DIGITS
    return is_finite(number) and (isinstance(number, float) or abs(number) < 10**_DIGITS)


def _moment(value: datetime, rules: _Dialect) -> str:
    if not is_zoned(value):
        return rules.moment.format(value.isoformat(" "))
    if rules.keeps_zone:
        return rules.zoned.format(value.isoformat(" "))
    return rules.zoned.format(as_utc(value).replace(tzinfo=None).isoformat(" "))

"""SQL text for one table or query: its name, its window, its select list.

All foreign text passes here. Names are checked or quoted, values become literals, and a query or a
filter is wrapped so that it cannot be more than one expression. Both end with a line of their own;
otherwise a comment at their end would swallow the parenthesis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.connections.literals import column_name, literal
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.connections.sql.conditions import window_where
from blizzard_py.reading import Window

_PART = r"(?:[A-Za-z_][\w$]*|\"[^\"\0]+\"|`[^`\0]+`|\[[^\]\0]+\])"
_TABLE = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
# Parentheses inside these do not count: text, quoted names, comments. MySQL escapes by backslash.
_ASIDE = r"\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_ASIDES = re.compile(r"'(?:[^']|'')*'|" + _ASIDE, re.DOTALL)
_MYSQL_ASIDES = re.compile(r"'(?:[^'\\]|\\.|'')*'|#[^\n]*|" + _ASIDE, re.DOTALL)
# The longest list of columns that is shown in full.
_SHOWN = 400

TRUE = "1 = 1"

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
# Words that at least one database refuses as a column's name.
_WORDS = """
accessible add all alter analyse analyze and any array as asc asymmetric authorization before
between bigint binary blob both by call cascade case cast change char character check collate
collation column commit condition constraint continue convert create cross cube current_catalog
current_date current_role current_schema current_time current_timestamp current_user cursor
database databases dec decimal declare default deferrable delayed delete desc describe
deterministic distinct distinctrow div do double drop dual each else elseif empty enclosed end
escape escaped except exists exit explain false fetch float for force foreign freeze from full
fulltext function generated get grant group grouping groups having if ignore ilike in index
infile initially inner inout insensitive insert int integer intersect interval into is isnull
iterate join key keys kill lag lateral lead leading leave left like limit linear lines load
localtime localtimestamp lock long loop match mediumint mod modifies natural not nothing notnull
null numeric of offset on only optimize option optionally or order out outer outfile over
overlaps partition placing precision primary procedure purge range rank read reads real
recursive references regexp release rename repeat replace require resignal restrict return
returning revoke right rlike row rows schema schemas select sensitive separator session_user set
show signal similar smallint some spatial specific sql ssl starting stored symmetric system
system_user table tablesample terminated then tinyint to trailing transaction trigger true undo
union unique unlock unsigned update usage use user using utc_date utc_time utc_timestamp values
varbinary varchar variadic varying verbose virtual when where while window with write xor
year_month zerofill
"""
_RESERVED = frozenset(_WORDS.split())


def identifier(name: str, dialect: str) -> str:
    """Return a column's name, quoted: exactly that column, whatever its letters.

    SQLite treats an unknown name in double quotes as text, so it gets backquotes.
    """
    if "\0" in name:
        raise SourceError("a column's name holds a NUL character")
    if dialect in ("mysql", "mysql_hex", "sqlite"):
        return "`" + name.replace("`", "``") + "`"
    if dialect == "sqlserver":
        return "[" + name.replace("]", "]]") + "]"
    return '"' + name.replace('"', '""') + '"'


def plain_identifier(name: str, dialect: str) -> str:
    """Return a column's name as people write it: quoted only if the server needs that."""
    plain = _PLAIN.fullmatch(name) and name not in _RESERVED
    return name if plain else identifier(name, dialect)


def relation(selection: ReadSelection) -> str:
    """Return the text after FROM, named ``t1``.

    A table's name is used as given, so the server folds its case; a name with other characters is
    given in quotes. Raises `SourceError` for an invalid name.
    """
    if selection.query:
        return f"(\n{selection.query}\n) t1"  # no AS, which Oracle does not know here
    if not _TABLE.fullmatch(selection.table):
        raise SourceError(
            f"{selection.table!r} is not a table's name; quote characters other than letters,"
            " digits and _, or give a query"
        )
    return f"{selection.table} t1"


def without_end(text: str, dialect: str) -> str:
    """Remove the semicolon that ends a statement, and the comments after it.

    A client needs it, but inside a wrapping statement it is an error.
    """
    asides = _MYSQL_ASIDES if dialect.startswith("mysql") else _ASIDES

    def blank(found: re.Match[str]) -> str:
        sign = " " if found[0].startswith(("--", "/*", "#")) else "x"
        return sign * len(found[0])

    plain = asides.sub(blank, text)
    end = len(plain.rstrip(" \t\r\n;"))
    return text[:end] if ";" in plain[end:] else text


def check_filter(text: str, dialect: str) -> None:
    """Raise `SourceError` for a filter that closes the parenthesis around it.

    ``a) OR (b`` would be valid, and every window would contain rows of all windows.
    """
    depth = 0
    for sign in (_MYSQL_ASIDES if dialect.startswith("mysql") else _ASIDES).sub(" ", text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth < 0:
            raise SourceError("filter: it closes a parenthesis that it does not open")


def within(window: Window, selection: ReadSelection, dialect: str) -> str:
    """Return the condition of a window with the user's filter; `TRUE` if everything is in it."""

    def named(name: str) -> str:
        return identifier(column_name(name), dialect)

    return window_where(window, selection.columns, dialect, selection.filter, named) or TRUE


def all_null(columns: Iterable[str], dialect: str) -> str:
    """Return the condition of a row that has no watermark at all."""
    return " AND ".join(f"{identifier(column_name(name), dialect)} IS NULL" for name in columns)


def select(expressions: Sequence[str], source: str, *conditions: str) -> str:
    """Return a statement; conditions that are `TRUE` are left out."""
    needed = [condition for condition in conditions if condition != TRUE]
    both = (
        " AND ".join(f"({condition})" for condition in needed)
        if len(needed) > 1
        else "".join(needed)
    )
    where = f" WHERE {both}" if needed else ""
    return f"SELECT {', '.join(expressions)} FROM {source}{where}"  # noqa: S608  # see the module


def for_people(expressions: Sequence[str], source: str, *conditions: str) -> str:
    """Return the statement with a long column list cut, for the checkpoint and for people."""
    whole = ", ".join(expressions)
    if len(whole) > _SHOWN:
        expressions = [f"{expressions[0]}, … ({len(expressions)} columns)"]
    return select(expressions, source, *conditions)


def between(column: str, low: Any, high: Any, dialect: str) -> str:
    """Return a range of ``column``, ``low`` included and ``high`` excluded; None is no end.

    Nulls belong to the range without a lower end; otherwise no task would read them.
    """
    name = identifier(column, dialect)
    parts = [f"{name} >= {literal(low, dialect)}"] if low is not None else []
    parts += [f"{name} < {literal(high, dialect)}"] if high is not None else []
    text = " AND ".join(parts) or TRUE
    return f"({text} OR {name} IS NULL)" if low is None and high is not None else text

"""Any text stands in a statement as itself, on each real server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blizzard_py.connections.literals import literal
from blizzard_py.connections.mysql_session import ask as ask_mysql
from blizzard_py.connections.postgresql.session import planning_session
from blizzard_py.connections.protocol import ReadSelection, WindowSplit
from blizzard_py.connections.sql.adbc import AdbcSession
from blizzard_py.connections.sqlite import SqliteConnection
from blizzard_py.reading import Access, Window
from tests.support.database_reading import rows_of
from tests.support.mariadb_server import MariadbServer
from tests.support.postgresql_server import PostgresqlServer

# Whatever a quote, a backslash or a comment could do, between any other characters.
HOSTILE = st.lists(
    st.sampled_from(["'", "''", "\\", "\\'", '"', "`", ";", "--", "/*", "*/", "#", "$$", "%", "\n",
                     "\r", "\x1a", "é", "\U0001f600", "E'", "N'", ":x", "?", "{d '1'}", "\x7f"])
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4),
    max_size=12,
).map("".join)  # fmt: skip
MANY = st.lists(HOSTILE, min_size=1, max_size=200)
FUZZ = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Ask = Callable[[str], list[Any]]


def comes_back(ask: Ask, dialect: str, texts: list[str]) -> None:
    asked = ", ".join(f"{literal(text, dialect)} AS c{n}" for n, text in enumerate(texts))
    assert ask(f"SELECT {asked}") == texts


@pytest.fixture(scope="module")
def questions(postgresql: PostgresqlServer) -> Iterator[AdbcSession]:
    found = planning_session(Access("postgresql", postgresql.uri()))
    yield found
    found.close()


@pytest.mark.promise("G-140")
@FUZZ
@given(texts=MANY)
def test_postgresql_reads_text_as_it_is(questions: AdbcSession, texts: list[str]) -> None:
    def ask(statement: str) -> list[Any]:
        return list(questions.ask(statement).to_pylist()[0].values())

    comes_back(ask, "postgresql", texts)


def test_mysql_doubles_backslashes(mariadb: MariadbServer) -> None:
    asked = f"SELECT {literal(chr(92) + 'x', 'mysql')} AS v"
    assert ask_mysql(Access("mysql", mariadb.uri()), asked).to_pylist() == [{"v": "\\x"}]


@pytest.mark.promise("G-140")
@FUZZ
@given(texts=MANY)
def test_mysql_reads_text_as_it_is(mariadb: MariadbServer, texts: list[str]) -> None:
    access = Access("mysql", mariadb.uri())

    def ask(statement: str) -> list[Any]:
        return list(ask_mysql(access, statement).to_pylist()[0].values())

    comes_back(ask, "mysql_hex", texts)


def test_mysql_reads_backslashes_whatever_the_servers_mode(mariadb: MariadbServer) -> None:
    mariadb.execute("SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
    try:
        access = Access("mysql", mariadb.uri())
        asked = f"SELECT {literal('a' + chr(92) + chr(39), 'mysql_hex')} AS v"
        assert ask_mysql(access, asked).to_pylist() == [{"v": "a\\'"}]
    finally:
        mariadb.execute("SET GLOBAL sql_mode = DEFAULT")


def test_postgresql_reads_backslashes_with_any_database_setting(
    postgresql: PostgresqlServer,
) -> None:
    name = postgresql.new_database()
    postgresql.execute(f"ALTER DATABASE {name} SET standard_conforming_strings = off")
    questions = planning_session(Access("postgresql", postgresql.uri(name)))
    asked = f"SELECT {literal('a' + chr(92) + chr(39), 'postgresql')} AS v"
    assert questions.ask(asked).to_pylist() == [{"v": "a\\'"}]
    questions.close()


@pytest.mark.promise("G-140")
@FUZZ
@given(texts=MANY)
def test_sqlite_windows_of_any_text_hold_that_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.db"
    file = sqlite3.connect(path)
    file.execute("CREATE TABLE t (v TEXT)")
    file.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])
    file.commit()
    file.close()
    _each_is_found(Access("sqlite", str(path)), texts[:5])


def _each_is_found(access: Access, texts: list[str]) -> None:
    connection = SqliteConnection(access, ReadSelection(table="t", columns=("v",)))
    for text in texts:
        window = Window({"v": text}, {"v": text}, {"v": text}, inclusive=True)
        found = rows_of(access, connection.tasks(window, WindowSplit()))
        assert {row["v"] for row in found} == {text}
    connection.close()


@pytest.mark.promise("G-140")
def test_times_mean_the_same_instant_on_each_server(
    questions: AdbcSession, mariadb: MariadbServer
) -> None:
    instant = datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
    (row,) = questions.ask(f"SELECT {literal(instant, 'postgresql')} AS v").to_pylist()
    assert row["v"] == instant
    access = Access("mysql", mariadb.uri())
    (row,) = ask_mysql(access, f"SELECT {literal(instant, 'mysql')} AS v").to_pylist()
    assert row["v"].replace(tzinfo=UTC) == instant

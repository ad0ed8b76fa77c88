"""Units of another zone than UTC: no row of a date, a wall time or an instant is lost."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from blizzard_core.errors import SourceError
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.placeholders import Values
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access, ReadTask
from tests.support.database_reading import rows_of
from tests.support.mariadb_server import MariadbServer
from tests.support.postgresql_server import PostgresqlServer

FIELDS = (FieldSpec("id", "int64", nullable=True),)
# Clocks are put back in the middle of each.
ZONES = {
    "America/Los_Angeles": datetime(2026, 11, 1, 9, tzinfo=UTC),
    "Europe/Berlin": datetime(2026, 10, 25, 1, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 4, 4, 15, tzinfo=UTC),
}


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Access, Callable[..., object]]:
    """A fresh database, and what runs statements in it."""
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        name = server.new_database()
        access = Access("postgresql", server.uri(name))
        return access, lambda *statements: server.execute(*statements, database=name)
    if request.param == "mysql":
        maria: MariadbServer = request.getfixturevalue("mariadb")
        name = maria.new_database()
        return Access("mysql", maria.uri(name)), lambda *statements: maria.execute(
            "SET time_zone = '+00:00'", *statements, database=name
        )

    def execute(*statements: str) -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as session, session:
            for statement in statements:
                session.execute(statement)

    return Access("sqlite", f"sqlite://{tmp_path / 't.db'}"), execute


def filled(base: tuple[Access, Callable[..., object]], zone: str) -> Access:
    """A row for each twenty minutes, four days around the time at which clocks are put back."""
    access, execute = base
    zoned = {"postgresql": "timestamptz", "mysql": "timestamp", "sqlite": "timestamp"}
    plain = "datetime" if access.driver == "mysql" else "timestamp"
    rows = []
    for number in range(-144, 144):
        moment = ZONES[zone] + timedelta(minutes=20 * number, seconds=7)
        wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        offset = "+00" if access.driver == "postgresql" else ""
        told = f"{moment:%Y-%m-%d %H:%M:%S}{offset}"
        rows.append(f"({number}, '{wall.date()}', '{wall}', '{told}')")
    execute(
        f"CREATE TABLE t (id int, day date, wall {plain}, moment {zoned[access.driver]} NULL)",
        f"INSERT INTO t VALUES {', '.join(rows)}",
    )
    return access


def cuts(zone: str) -> list[datetime]:
    """Ends of units and slices: midnights, and times around that at which clocks are put back."""
    where, at = ZoneInfo(zone), ZONES[zone]
    middle = [at + timedelta(minutes=m) for m in (-90, -31, -29, 0, 10, 44, 59, 75)]
    found = [at - timedelta(days=4), *middle, at + timedelta(days=4)]
    return [cut.astimezone(where) for cut in found]


def read_ids(access: Access, condition: str, ends: Sequence[datetime]) -> Counter[int]:
    units: list[Values] = [{"from": low, "to": high} for low, high in pairwise(ends)]
    selection = ReadSelection(table="t", filter=condition, fields=FIELDS)
    with contextlib.closing(connect(access, selection)) as connection:
        tasks = connection.unit_tasks(units)
    assert all(isinstance(task, ReadTask) for task in tasks)
    found = [task for task in tasks if isinstance(task, ReadTask)]
    return Counter(row["id"] for row in rows_of(access, found))


@pytest.mark.promise("G-154")
@pytest.mark.parametrize("zone", ZONES)
def test_each_row_is_in_one_unit_of_a_zone(
    base: tuple[Access, Callable[..., object]], zone: str
) -> None:
    access = filled(base, zone)
    for column, form in (("day", "date"), ("wall", "datetime"), ("moment", "iso")):
        query = f"{column} >= {{from:{form}}} AND {column} < {{to:{form}}}"
        assert read_ids(access, query, cuts(zone)) == Counter(range(-144, 144)), (column, zone)
        closed = f"{column} BETWEEN {{from:{form}}} AND {{to:{form}!}}"
        assert read_ids(access, closed, cuts(zone)) == Counter(range(-144, 144)), (column, zone)


@pytest.mark.promise("G-154")
def test_an_end_without_a_format_is_an_instant_or_refused(
    base: tuple[Access, Callable[..., object]],
) -> None:
    zone = "America/Los_Angeles"
    access = filled(base, zone)
    query = "{0} >= {{from}} AND {{to}} > {0}"
    for expression in ("day", "wall", "moment", "coalesce(moment, moment)", "t1.wall"):
        text = query.format(expression)
        if expression == "moment" and access.driver != "sqlite":
            assert read_ids(access, text, cuts(zone)) == Counter(range(-144, 144))
            continue
        with pytest.raises(SourceError, match=r"say|Say .*\{from:date\} for dates of that zone"):
            read_ids(access, text, cuts(zone))
        in_utc = [cut.astimezone(UTC) for cut in cuts(zone)]
        assert read_ids(access, text, in_utc)  # UTC's wall times are instants

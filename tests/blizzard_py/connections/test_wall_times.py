"""Times without a zone: windows end by the clocks of those who write them."""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from blizzard_core.errors import SourceError
from blizzard_core.settings.query_sources import TableWatermark
from blizzard_py.connections.drivers import connect
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.connections.sqlite_session import until
from blizzard_py.reading import Access
from tests.support.mariadb_server import MariadbServer
from tests.support.postgresql_server import PostgresqlServer

ZONES = ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Auckland"]


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def access(request: pytest.FixtureRequest, tmp_path: Path) -> Access:
    """A table of times without a zone, one of them long ago."""
    plain = "datetime(6)" if request.param == "mysql" else "timestamp"
    made = (
        f"CREATE TABLE t (at {plain}, day date)",
        "INSERT INTO t VALUES ('2020-01-01 00:00:00', '2020-01-01')",
    )
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        name = server.new_database()
        server.execute(*made, database=name)
        return Access("postgresql", server.uri(name))
    if request.param == "mysql":
        maria: MariadbServer = request.getfixturevalue("mariadb")
        name = maria.new_database()
        maria.execute(*made, database=name)
        return Access("mysql", maria.uri(name))
    return in_sqlite(tmp_path, *made)


def in_sqlite(folder: Path, *statements: str) -> Access:
    with contextlib.closing(sqlite3.connect(folder / "t.db")) as session, session:
        for statement in statements:
            session.execute(statement)
    return Access("sqlite", f"sqlite://{folder / 't.db'}")


@pytest.mark.promise("G-132")
@pytest.mark.parametrize("zone", ZONES)
def test_a_clock_s_bound_is_the_wall_time_of_the_zone(access: Access, zone: str) -> None:
    selection = ReadSelection(table="t", columns=("at", "day"), zone=zone)
    with contextlib.closing(connect(access, selection)) as connection:
        found = connection.bound("clock", 0).value
        notes = [note for note in connection.warnings() if "without a zone" in note]
    wall = datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
    ends = datetime.fromisoformat(str(found["at"]))
    assert timedelta(0) < wall - ends < timedelta(minutes=1)
    assert str(found["day"]) == str((ends - timedelta(days=1)).date())
    assert notes == []


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("driver", ["delta", "parquet"])
def test_a_lakes_clock_uses_the_zone_for_times_without_one(
    tmp_path: Path, driver: str, zone: str
) -> None:
    early = datetime(2020, 1, 1)  # noqa: DTZ001  # the case is a time without a zone
    rows = {"at": [early], "day": [early.date()], "instant": [early.replace(tzinfo=UTC)]}
    if driver == "delta":
        write_deltalake(str(tmp_path), pa.table(rows))
    else:
        pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    selection = ReadSelection(columns=("at", "day", "instant"), zone=zone)
    with contextlib.closing(connect(Access(driver, str(tmp_path)), selection)) as connection:
        found = connection.bound("clock", 0).value
    now = datetime.now(UTC)
    wall = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    assert timedelta(0) < wall - found["at"] < timedelta(hours=1, seconds=30)
    assert wall.date() - found["day"] in {timedelta(1), timedelta(2)}
    assert timedelta(0) < now - found["instant"] < timedelta(seconds=30)


def test_warnings_mention_times_without_a_zone(access: Access) -> None:
    with contextlib.closing(
        connect(access, ReadSelection(table="t", columns=("at",)))
    ) as connection:
        assert any("set watermark.advanced.zone" in note for note in connection.warnings())


def test_text_that_says_its_zone_is_left_in_it() -> None:
    moment, zone = datetime(2026, 2, 3, 12, tzinfo=UTC), ZoneInfo("America/Los_Angeles")
    assert until(moment, "2026-01-01 00:00:00", zone) == "2026-02-03 03:59:58"
    assert until(moment, "2026-01-01T00:00:00Z", zone) == "2026-02-03T11:59:58Z"
    early = datetime(2026, 2, 3, 2, tzinfo=UTC)
    assert until(early, "2026-01-01", zone) == "2026-02-01"
    # The hour that comes twice is over when it has come twice.
    first = datetime(2026, 11, 1, 8, 30, tzinfo=UTC)
    assert until(first, "2026-01-01 00:00:00", zone) == "2026-11-01 00:59:58"
    assert until(first + timedelta(hours=1), "2026-01-01 00:00:00", zone) == "2026-11-01 01:29:58"


MIXED = [
    ("2026-02-03 10:00:00", "2026-02-03T11:00:00"),
    ("2026-02-03 10:00:00", "2026-02-03 11:00:00Z"),
    ("2026-02-03 10:00:00", "2026-02-03"),
    ("2026-02-03 10:00:00", "2026-02-03 11:00:00.5"),
    ("03.02.2026", "2026-02-03"),
]


@pytest.mark.promise("G-132")
@pytest.mark.parametrize(("one", "other"), MIXED)
def test_text_times_of_two_forms_are_refused(tmp_path: Path, one: str, other: str) -> None:
    # Neither the lowest nor the highest: a poll would not see it.
    values = [one, other, one, one.replace("3", "2", 1), one.replace("3", "4", 1)]
    rows = ", ".join(f"('{value}')" for value in values)
    access = in_sqlite(tmp_path, "CREATE TABLE t (at TIMESTAMP)", f"INSERT INTO t VALUES {rows}")
    connection = connect(access, ReadSelection(table="t", columns=("at",)))
    with contextlib.closing(connection), pytest.raises(SourceError, match="different forms"):
        connection.warnings()


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        TableWatermark.model_validate({"columns": ["at"], "advanced": {"zone": "Mars/X"}})

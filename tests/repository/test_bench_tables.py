"""The benchmark of tables: its goals and its measurements."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.tables_poll import polled
from benchmarks.tables_reading import ADBC, CONTENDERS, PSYCOPG, Order, contenders
from benchmarks.tables_report import Measured, Turn, goals, report
from benchmarks.tables_shapes import SCHEMA, fill_postgresql, fill_sqlite
from benchmarks.tables_spark import ADBC_SPARK, JAR, JDBC, OURS_SPARK, cpu_secs, statement_of
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ReadBound
from blizzard_py.reading import BoundKind
from tests.support.direct_engine import DirectEngine
from tests.support.postgresql_server import PostgresqlServer, postgresql_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_server() as found:
        yield found


def measured(ours: float, jdbc: float, mb: float = 300, tenth: float = 280) -> Measured:
    """``ours`` is CPU beside 1.0 of ADBC's, ``jdbc`` seconds beside our 5."""
    turns = {
        ADBC: [Turn(4, 1.0, 0, 250)] * 3,
        OURS_SPARK: [Turn(1, 0, 0, mb), Turn(5, ours, 0.5, 9), Turn(99, 99, 9, 9)],
        ADBC_SPARK: [Turn(4, 1.0, 0, 250)] * 3,
        JDBC: [Turn(jdbc, 0.0, 6.5, 900)] * 3,
    }
    return Measured("PostgreSQL", 1_500_000, turns, tenth)


@pytest.mark.parametrize(
    ("one", "statements", "saved", "missed"),
    [
        (measured(1.10, 10), 2, 0, []),
        (measured(1.11, 10), 2, 0, ["Spark task", "bare ADBC"]),
        (measured(1, 9.9), 2, 0, ["2 times as fast"]),
        (measured(1, 10, mb=351), 2, 0, ["350 MB"]),
        (measured(1, 10, tenth=351), 2, 0, ["350 MB"]),
        (measured(1, 10), 2.1, 0, ["2 statements"]),
        (measured(1, 10), 2, 1, ["no save"]),
    ],
)
def test_goals_are_met_or_missed(
    one: Measured, statements: float, saved: int, missed: list[str]
) -> None:
    found = [goal.wanted for goal in goals([one], statements, saved) if not goal.met]
    assert len(found) == len(missed)
    assert all(part in wanted for part, wanted in zip(missed, found, strict=True))


def test_the_report_is_markdown_with_medians_and_ratios() -> None:
    text = report([measured(1.5, 15)], 2, 0)
    assert "| ours, Spark task | 300,000 | 1.50 | 1.50 | 0.50 | 300 | 1 5 99 |" in text
    assert "| spark.read.jdbc | 100,000 | - | - | 6.50 | 900 | 15 15 15 |" in text
    assert "| PostgreSQL: a worker's CPU at most 1.10 x bare ADBC | 1.50 x | missed |" in text
    assert "| 3.0 times | met |" in text


def test_contenders_without_spark_write_the_same_rows(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    fill_postgresql(server, 3000)
    fill_sqlite(tmp_path / "shop.db", 3000)
    for driver, uri in (("postgresql", server.uri()), ("sqlite", str(tmp_path / "shop.db"))):
        statement, found = statement_of(driver, uri), {}
        names = contenders(driver)
        assert (PSYCOPG in names) == (driver == "postgresql")
        for name in names:
            folder = tmp_path / f"{driver}-{name}"
            assert CONTENDERS[name](Order(name, driver, uri, statement, str(folder))) == 3000
            (file,) = folder.rglob("*.parquet")
            table = pq.ParquetFile(file).read().select(SCHEMA.names)
            assert table.schema.types == SCHEMA.types
            found[name] = table.sort_by("id").to_pylist()
        assert all(rows == found[ADBC] for rows in found.values())
        assert len(found) >= 3
        assert found[ADBC][0]["country"] is not None
        assert found[ADBC][6]["country"] is None


def test_statements_of_a_poll_are_counted_by_the_server(
    server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    assert polled(server, tmp_path / "a", DirectEngine()) == (2, 0)
    bound = PostgresqlConnection.bound

    def extra_statements(
        self: PostgresqlConnection, kind: BoundKind, settle_secs: float
    ) -> ReadBound:
        self.columns()
        (tmp_path / "b/lake/touched").touch()
        return bound(self, kind, settle_secs)

    monkeypatch.setattr(PostgresqlConnection, "bound", extra_statements)
    (tmp_path / "b/lake").mkdir(parents=True)
    server.execute("DROP TABLE polled")
    statements, saved = polled(server, tmp_path / "b", DirectEngine())
    assert statements > 2
    assert saved > 0


def test_cpu_time_includes_children() -> None:
    code = "sum(range(10_000_000)); print(flush=True); input()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code[:22]!r}]);{code}"
    process: subprocess.Popen[Any] = subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        process.stdout.readline()
        assert 0.02 < cpu_secs(process.pid) < 60
        process.stdin.write(b"\n")
    assert cpu_secs(process.pid) == 0


@pytest.mark.timeout(600)
def test_program_reports_all_contenders() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tables", "--rows", "15000", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line[:2] == "| "]
    names = [name for name in rows if name and ":" not in name]
    spark = [OURS_SPARK, ADBC_SPARK]
    jdbc = [JDBC] if JAR.exists() else []
    assert names == [
        *contenders("postgresql"),
        *spark,
        *jdbc,
        *contenders("sqlite"),
        *spark,
        "goal",
    ]
    assert "| a poll without rows: at most 2 statements | 2 | met |" in done.stdout
    assert "batch_started" not in done.stdout

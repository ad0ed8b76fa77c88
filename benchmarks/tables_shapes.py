"""The table that `benchmarks.tables` reads: the same rows in PostgreSQL and in SQLite.

Orders of nine columns, some of them null, with what drivers differ about: exact decimals and
times with a zone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pyarrow as pa

from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import arrow_type
from tests.support.postgresql_server import PostgresqlServer

FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    FieldSpec("created_at", "timestamp", nullable=False),
    FieldSpec("updated_at", "timestamp", nullable=False),
    FieldSpec("customer", "string", nullable=False),
    FieldSpec("country", "string", nullable=True),
    FieldSpec("amount", "decimal", nullable=False, precision=12, scale=2),
    FieldSpec("quantity", "int32", nullable=False),
    FieldSpec("weight", "float64", nullable=True),
    FieldSpec("paid", "boolean", nullable=False),
)
COLUMNS = ", ".join(field.name for field in FIELDS)
SCHEMA = pa.schema([(field.name, arrow_type(field)) for field in FIELDS])

_POSTGRESQL = """INSERT INTO orders SELECT g,
  '2024-01-01 00:00+00'::timestamptz + g * interval '1 s',
  '2024-01-01 00:00+00'::timestamptz + g * interval '1001 ms',
  'customer ' || g % 9973, CASE g % 7 WHEN 0 THEN NULL ELSE chr(65 + g % 26) || 'X' END,
  (g % 1000000)::numeric / 100, g % 90, CASE g % 11 WHEN 0 THEN NULL ELSE g * 0.125 END, g % 3 = 0
  FROM generate_series(1, {rows}) g"""
# Times without fractions of a second are the same text everywhere; the second one is later.
_SQLITE = """INSERT INTO orders WITH RECURSIVE s(g) AS
  (SELECT 1 UNION ALL SELECT g + 1 FROM s WHERE g < {rows}) SELECT g,
  strftime('%Y-%m-%dT%H:%M:%SZ', 1704067200 + g, 'unixepoch'),
  strftime('%Y-%m-%dT%H:%M:%SZ', 1704067260 + g, 'unixepoch'),
  'customer ' || g % 9973, CASE g % 7 WHEN 0 THEN NULL ELSE char(65 + g % 26) || 'X' END,
  printf('%d.%02d', g % 1000000 / 100, g % 100), g % 90,
  CASE g % 11 WHEN 0 THEN NULL ELSE g * 0.125 END, g % 3 = 0 FROM s"""


def fill_postgresql(server: PostgresqlServer, rows: int) -> None:
    """Make ``orders`` with so many rows, with an index on its watermark, vacuumed."""
    server.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, created_at timestamptz NOT NULL,"
        " updated_at timestamptz NOT NULL, customer text NOT NULL, country text,"
        " amount numeric(12,2) NOT NULL, quantity int NOT NULL, weight double precision,"
        " paid boolean NOT NULL)",
        _POSTGRESQL.format(rows=rows),
        "CREATE INDEX ON orders (updated_at)",
        "VACUUM ANALYZE orders",
    )


def fill_sqlite(base: Path, rows: int) -> None:
    """Fill a file as `fill_postgresql` fills a server."""
    with contextlib.closing(sqlite3.connect(base)) as shop, shop:
        shop.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, created_at TEXT, updated_at TEXT,"
            " customer TEXT, country TEXT, amount TEXT, quantity INTEGER, weight REAL,"
            " paid INTEGER)"
        )
        shop.execute(_SQLITE.format(rows=rows))

"""Every type of PostgreSQL arrives without loss, or as text that says what it was."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blizzard_core.errors import SourceError
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.reading import Access
from tests.support.database_reading import declared, everything
from tests.support.postgresql_server import PostgresqlServer

# Type, a value as SQL, what is declared for it, what the reader gives.
ROWS: list[tuple[str, str, str, Any]] = [
    ("smallint", "-32768", "int32", -32768),
    ("integer", "2147483647", "int32", 2147483647),
    ("bigint", "-9223372036854775808", "int64", -9223372036854775808),
    ("real", "1.5", "float32", 1.5),
    ("double precision", "0.1", "float64", 0.1),
    ("boolean", "true", "boolean", True),
    ("numeric(38,18)", "12345678901234567890.123456789012345678", "decimal",
     "12345678901234567890.123456789012345678"),
    ("numeric(12,2)", "-0.01", "decimal", "-0.01"),
    ("numeric", "1e-30", "string", "0.000000000000000000000000000001"),
    ("numeric", "1e60", "string", "1" + "0" * 60),
    ("numeric(5,-2)", "12345", "string", "12300"),
    ("text", "'é ''\\'", "string", "é '\\"),
    ("varchar(9)", "'x'", "string", "x"),
    ("character(3)", "'x'", "string", "x  "),
    ("name", "'x'", "string", "x"),
    ("bytea", "'\\x00ff'", "binary", b"\x00\xff"),
    ("date", "'2024-02-29'", "date", date(2024, 2, 29)),
    ("timestamp", "'2024-02-29 23:59:59.999999'", "timestamp",
     datetime(2024, 2, 29, 23, 59, 59, 999999)),  # noqa: DTZ001  # it has none
    ("timestamptz", "'2024-02-29 23:59:59.999999-05'", "timestamp",
     datetime(2024, 3, 1, 4, 59, 59, 999999, tzinfo=UTC)),
    ("timestamptz", "'0001-01-01 00:00+00'", "timestamp", datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamptz", "'9999-12-31 23:59:59.999999+00'", "timestamp",
     datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("time", "'24:00'", "string", "24:00:00"),
    ("timetz", "'12:30:00.5+02'", "string", "12:30:00.5+02"),
    ("interval", "'1 year 2 days 03:04:05.6'", "string", "1 year 2 days 03:04:05.6"),
    ("json", "'{\"a\": 1.10}'", "json", '{"a": 1.10}'),
    ("jsonb", "'{\"a\": 1.10}'", "json", '{"a": 1.10}'),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "string",
     "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("inet", "'10.0.0.1/8'", "string", "10.0.0.1/8"),
    ("cidr", "'10.0.0.0/8'", "string", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "string", "08:00:2b:01:02:03"),
    ("bit(3)", "B'101'", "string", "101"),
    ("bit varying", "B'1'", "string", "1"),
    ("int4range", "'[1,5)'", "string", "[1,5)"),
    ("tstzmultirange", "'{}'", "string", "{}"),
    ("xml", "'<a/>'", "string", "<a/>"),
    ("money", "'12.34'", "string", "$12.34"),
    ("point", "'(1,2)'", "string", "(1,2)"),
    ("tsvector", "'a b'", "string", "'a' 'b'"),
    ("pg_lsn", "'0/1'", "string", "0/1"),
    ("oid", "4294967295", "int64", 4294967295),
    ("regclass", "'pg_class'", "string", "pg_class"),
    ("integer[]", "'{1,null,3}'", "list", "[1,null,3]"),
    ("integer[]", "'{{1,2},{3,4}}'", "list", "[[1,2],[3,4]]"),
    ("text[]", "'{a,\"b,c\"}'", "list", '["a","b,c"]'),
    ("numeric(5,2)[]", "'{1.10}'", "list", "[1.10]"),
    ("timestamptz[]", "'{2024-01-01 00:00+00}'", "list", '["2024-01-01T00:00:00+00:00"]'),
    ("mood", "'glad'", "string", "glad"),
    ("positive", "7", "int32", 7),
    ("price", "7.10", "decimal", "7.10"),
    ("pair", "'(1,x)'", "json", '{"a":1,"b":"x"}'),
]  # fmt: skip


@pytest.fixture(scope="module")
def typed(postgresql: PostgresqlServer) -> Access:
    """A table with a column of each type and two rows: the values, and nulls."""
    database = postgresql.new_database()
    columns = ", ".join(f"c{n} {row[0]}" for n, row in enumerate(ROWS))
    values = ", ".join(f"CAST({row[1]} AS {row[0]})" for row in ROWS)
    postgresql.execute(
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
        "CREATE DOMAIN cost AS numeric(9,2)",
        "CREATE DOMAIN price AS cost",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE typed ({columns})",
        f"INSERT INTO typed VALUES ({values})",
        "INSERT INTO typed DEFAULT VALUES",
        database=database,
    )
    return Access("postgresql", postgresql.uri(database))


@pytest.mark.promise("G-141")
@pytest.mark.parametrize("source", ["table", "query"])
def test_each_type_is_proposed_and_read_without_loss(typed: Access, source: str) -> None:
    selection = (
        ReadSelection(table="typed")
        if source == "table"
        else ReadSelection(query="SELECT * FROM typed")
    )
    connection = PostgresqlConnection(typed, selection)
    proposed = {column.name: column.field.type for column in connection.columns()}
    connection.close()
    (batch,) = everything(typed, selection)
    values, nulls = batch.to_pylist()
    assert all(value is None for value in nulls.values())
    for number, (kind, _, expected, value) in enumerate(ROWS):
        if kind == "pair" and source == "query":
            continue  # a query's answer does not say that a type is composite: text
        assert (kind, proposed[f"c{number}"]) == (kind, expected)
        assert (kind, values[f"c{number}"]) == (kind, value)


def test_the_declared_types_reach_parquet(typed: Access, tmp_path: Path) -> None:
    connection = PostgresqlConnection(typed, ReadSelection(table="typed"))
    fields = [c.field for c in connection.columns() if c.field.type != "list"]
    connection.close()
    (batch,) = everything(typed, ReadSelection(table="typed", fields=tuple(fields)))
    pq.write_table(pa.Table.from_batches([declared(batch, fields)]), tmp_path / "out.parquet")
    (row, _) = (
        duckdb.connect().sql(f"SELECT c6, c7, c10, c39 FROM '{tmp_path}/out.parquet'").fetchall()
    )
    assert row == (Decimal("12345678901234567890.123456789012345678"), Decimal("-0.01"), "12300",
                   4294967295)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("timestamptz", "infinity", "infinity"),
        ("timestamptz", "-infinity", "-infinity"),
        ("timestamp", "infinity", "infinity"),
        ("timestamp", "-infinity", "-infinity"),
        ("date", "infinity", "infinity"),
        ("date", "-infinity", "-infinity"),
        ("timestamptz", "0044-03-15 BC", "-043-03-15T00:00:00.000000"),
        ("timestamp", "10000-01-01", "10000-01-01T00:00:00.000000"),
        ("date", "10000-01-01", "10000-01-01"),
        ("date", "5874897-12-31", "5874897-12-31"),
    ],
)
def test_out_of_range_times_are_read_as_text(
    postgresql: PostgresqlServer, kind: str, value: str, told: str
) -> None:
    access = Access("postgresql", postgresql.uri())
    query = f"SELECT v::{kind} FROM (VALUES ('2024-01-02'), (null), ('{value}')) x(v)"
    plain, odd = everything(access, ReadSelection(query=query))
    zoned = pa.timestamp("us", tz="UTC") if kind == "timestamptz" else pa.timestamp("us")
    # The others are as they would be without it: so are their digests.
    assert plain.schema.types == [pa.date32() if kind == "date" else zoned]
    good, null = plain.column(0).to_pylist()
    assert (good.isoformat()[:10], null) == ("2024-01-02", None)
    assert odd.column(0).to_pylist() == [told]
    with pytest.raises(pa.ArrowInvalid):
        odd.column(0).cast(plain.schema.types[0])


def test_nan_is_text_that_no_decimal_takes(postgresql: PostgresqlServer) -> None:
    access = Access("postgresql", postgresql.uri())
    (batch,) = everything(access, ReadSelection(query="SELECT 'NaN'::numeric AS n"))
    with pytest.raises(pa.ArrowInvalid):
        batch.column(0).cast(pa.decimal128(10, 2))


def test_text_of_another_encoding_is_utf8(postgresql: PostgresqlServer) -> None:
    access = _encoded(postgresql, "LATIN1", "convert_from('\\xe9', 'LATIN1')")
    (batch,) = everything(access, ReadSelection(table="t"))
    assert batch.column(0).to_pylist() == ["a", "é"]


def test_text_that_has_no_encoding_is_refused(postgresql: PostgresqlServer) -> None:
    access = _encoded(postgresql, "SQL_ASCII", "E'\\xe9'")
    with pytest.raises(SourceError, match="invalid byte sequence"):
        everything(access, ReadSelection(table="t"))


def _encoded(postgresql: PostgresqlServer, encoding: str, text: str) -> Access:
    name = postgresql.new_database() + "x"
    postgresql.execute(
        f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    )
    postgresql.execute(
        "CREATE TABLE t AS SELECT 'a'::text AS v", f"INSERT INTO t SELECT {text}", database=name
    )
    return Access("postgresql", postgresql.uri(name))

"""The same filters for each reader of a Delta table and for the rows in memory."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder

from tests.support.penguin_readers import duck

COLUMN = "c"
Ids = list[int]
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Filter:
    """One filter on `COLUMN`; ``value`` counts for comparisons and lists alone."""

    sign: str
    value: Any = None

    def arrow(self, kind: pa.DataType) -> ds.Expression:
        column, value = ds.field(COLUMN), pa.scalar(self.value, kind)
        if self.sign in COMPARISONS:
            return COMPARISONS[self.sign](column, value)
        listed = column.isin(pa.array([self.value], kind))
        return {
            "in": listed,
            "not in": ~listed,
            "is null": column.is_null(),
            "is not null": column.is_valid(),
        }[self.sign]

    def polars(self) -> pl.Expr:
        column, value = pl.col(COLUMN), self.value
        if self.sign in COMPARISONS:
            return COMPARISONS[self.sign](column, value)
        return {
            "in": lambda: column.is_in([value]),
            "not in": lambda: ~column.is_in([value]),
            "is null": column.is_null,
            "is not null": column.is_not_null,
        }[self.sign]()

    def sql(self, literal: str) -> str:
        if self.sign in COMPARISONS:
            return f"{COLUMN} {self.sign} {literal}"
        return (
            f"{COLUMN} {self.sign} ({literal})"
            if "in" in self.sign.split()
            else (f"{COLUMN} {self.sign}")
        )


def filters_of(values: list[Any]) -> Iterator[Filter]:
    """Every filter with every value; Arrow's lists tell the two zeros of floats apart."""
    for value in values:
        lists = () if isinstance(value, float) and value == 0 else ("in", "not in")
        for sign in (*COMPARISONS, *lists):
            yield Filter(sign, value)
    yield Filter("is null")
    yield Filter("is not null")


def literal(value: Any, kind: pa.DataType) -> str:
    """Return the value in DataFusion's SQL."""
    if isinstance(value, dt.datetime):
        micros = pa.scalar(value, kind).cast(pa.int64()).as_py()
        zone = "None" if kind.tz is None else 'Some("UTC")'
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, {zone})')"
    if isinstance(value, dt.date):
        return f"arrow_cast({(value - dt.date(1970, 1, 1)).days}, 'Date32')"
    if isinstance(value, Decimal):
        return f"cast('{value}' as decimal({kind.precision},{kind.scale}))"
    if isinstance(value, float):
        return f"cast('{value}' as {'real' if kind == pa.float32() else 'double'})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def by_arrow(rows: pa.Table | ds.Dataset, asked: Filter, kind: pa.DataType) -> Ids:
    expression = asked.arrow(kind)
    found = (
        rows.filter(expression)
        if isinstance(rows, pa.Table)
        else rows.to_table(columns=["id"], filter=expression)
    )
    return sorted(found["id"].to_pylist())


def by_duckdb(rows: pa.Table | ds.Dataset, asked: Filter) -> Ids:
    db: duckdb.DuckDBPyConnection = duck()
    db.register("asked", rows)
    try:
        given = [] if asked.value is None else [asked.value]
        # The limit keeps the filter from being pushed into rows in memory.
        place = "(select * from asked limit 1000000)" if isinstance(rows, pa.Table) else "asked"
        found = db.execute(f"select id from {place} where {asked.sql('?')}", given).fetchall()
    finally:
        db.unregister("asked")
    return sorted(row[0] for row in found)


def by_polars(rows: pl.LazyFrame, asked: Filter) -> Ids:
    return sorted(rows.filter(asked.polars()).select("id").collect()["id"].to_list())


def by_datafusion(table: DeltaTable, asked: Filter, kind: pa.DataType) -> Ids:
    value = "" if asked.value is None else literal(asked.value, kind)
    query = QueryBuilder().register("t", table)
    found = pa.table(query.execute(f"select id from t where {asked.sql(value)}").read_all())
    return sorted(found["id"].to_pylist())


def differences(table: DeltaTable, rows: pa.Table, asked: list[Filter]) -> list[str]:
    """Return the filters by which a reader finds other rows in the table than in memory."""
    kind = rows.schema.field(COLUMN).type
    scanned, lazy = table.to_pyarrow_dataset(), pl.scan_delta(table)
    frame = pl.LazyFrame(rows)
    found = []
    for one in asked:
        memory = by_duckdb(rows, one)
        for reader, seen, expected in (
            ("pyarrow", by_arrow(scanned, one, kind), by_arrow(rows, one, kind)),
            ("duckdb", by_duckdb(scanned, one), memory),
            ("polars", by_polars(lazy, one), by_polars(frame, one)),
            ("datafusion", by_datafusion(table, one, kind), memory),
        ):
            if seen != expected:
                found.append(f"{reader}: {one} finds {seen}, not {expected}")
    return found

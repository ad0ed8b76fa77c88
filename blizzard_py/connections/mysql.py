"""The planning side of MySQL and MariaDB. See `blizzard_py.connections.protocol`.

connectorx cuts decimals to ten fractional digits, and panics at zero dates, times beyond a day,
geometries and bits. So these are read as text, or as numbers if possible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.settings.schema import DECIMAL_DIGITS, FieldType
from blizzard_py.connections.literals import literal
from blizzard_py.connections.mysql_session import ask
from blizzard_py.connections.protocol import ColumnKind, ReadBound, ReadSelection, SourceColumn
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.statements import identifier, select
from blizzard_py.connections.sql.values import endless, without_index, without_zone
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

_COLUMNS = """SELECT column_name AS name, CAST(data_type AS CHAR) AS type,
 CAST(column_type AS CHAR) AS declared, is_nullable AS nullable,
 CAST(numeric_precision AS SIGNED) AS places, CAST(numeric_scale AS SIGNED) AS scale,
 CAST(datetime_precision AS SIGNED) AS digits
 FROM information_schema.columns WHERE {where} ORDER BY ordinal_position"""

# Only users with the right to monitor replication see the lag of a replica.
_REPLICA = (
    "this server is read-only, as replicas are: rows that are replicated later than settle"
    " after their time are missed; set advanced.settle above its greatest lag, or read the primary"
)


class MysqlConnection(SqlConnection):
    """One table or query. connectorx opens a connection for each statement."""

    dialect = "mysql_hex"

    def __init__(self, access: Access, selection: ReadSelection) -> None:
        super().__init__(selection)
        self._access = access
        self._types: Mapping[str, MyType] = {}
        self._read_only = False

    def warnings(self) -> Sequence[str]:
        self._now()
        found = [_REPLICA] if self._read_only else []
        for column in self._watermark_columns():
            kind = self._types[column.name].name
            if kind in ("datetime", "date") and not self._selection.zone:
                found.append(without_zone(column, kind))
            if self._selection.table and not self._is_indexed(column):
                found.append(without_index(column, f"{self._estimate()} rows"))
        return found

    def key(self) -> Sequence[str]:
        where = f"{self._named_table()} AND index_name = 'PRIMARY'"
        answer = self._ask(
            "SELECT column_name AS name FROM information_schema.statistics"  # noqa: S608  # literals
            f" WHERE {where} ORDER BY seq_in_index"
        )
        return [str(name) for name in answer.column("name").to_pylist()]

    def _ask(self, statement: str) -> pa.Table:
        return ask(self._access, statement)

    def _described(self) -> Sequence[SourceColumn]:
        found = self._of_query() if self._selection.query else self._of_table()
        self._types = {name: kind for name, kind, _ in found}
        return [declared_column(name, kind, nullable=nullable) for name, kind, nullable in found]

    def _of_query(self) -> list[tuple[str, MyType, bool]]:
        schema = self._ask(select(["*"], self._source, "1 = 0")).schema
        return [(field.name, from_arrow(str(field.type)), True) for field in schema]

    def _of_table(self) -> list[tuple[str, MyType, bool]]:
        answer = self._ask(_COLUMNS.format(where=self._named_table())).to_pylist()
        if not answer:
            # The server reports whether the table is missing or may not be read.
            self._ask(select(["1 AS one"], self._source, "1 = 0"))
            raise SourceError(f"{self._selection.table} has no columns")
        return [
            (
                row["name"],
                MyType(
                    row["type"].lower(),
                    "unsigned" in row["declared"],
                    row["places"] or 0,
                    row["scale"] or 0,
                    row["digits"] or 0,
                ),
                row["nullable"] == "YES",
            )
            for row in answer
        ]

    def _named_table(self) -> str:
        parts = [part.strip('`"') for part in self._selection.table.split(".")]
        database = literal(parts[0], self.dialect) if len(parts) > 1 else "DATABASE()"
        return f"table_schema = {database} AND table_name = {literal(parts[-1], self.dialect)}"

    def _is_indexed(self, column: SourceColumn) -> bool:
        where = f"{self._named_table()} AND seq_in_index = 1"
        answer = self._ask(
            f"SELECT COUNT(*) AS found FROM information_schema.statistics WHERE {where}"  # noqa: S608  # literals
            f" AND column_name = {literal(column.name, self.dialect)}"
        )
        return bool(answer.column("found")[0].as_py())

    def _estimate(self) -> int:
        answer = self._ask(
            "SELECT CAST(COALESCE(MAX(table_rows), 0) AS SIGNED) AS rows_ FROM"  # noqa: S608  # literals
            f" information_schema.tables WHERE {self._named_table()}"
        )
        return int(answer.column("rows_")[0].as_py())

    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        del field
        return exact_expression(identifier(column.name, self.dialect), self._types[column.name])

    def _exact(self, column: SourceColumn, expression: str) -> str:
        if self._types[column.name].name == "bit":
            return f"CAST({expression} AS UNSIGNED)"
        cast = column.kind in ("time", "date") or self._types[column.name].name == "decimal"
        return f"CAST({expression} AS CHAR)" if cast else expression

    def _value(self, column: SourceColumn, value: Any) -> Any:
        if column.kind not in ("time", "date"):
            return super()._value(column, value)
        try:
            if column.kind == "date":
                return date.fromisoformat(value)
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None:
            raise endless(column, value)
        return found.replace(tzinfo=UTC) if self._zoned(column) else found

    def _zoned(self, column: SourceColumn) -> bool:
        return self._types[column.name].name == "timestamp"

    def _clock(self, settle_secs: float) -> ReadBound:
        bound = super()._clock(settle_secs)
        return replace(bound, warnings=(_REPLICA,)) if self._read_only else bound

    def _now(self) -> datetime:
        answer = self._one(
            # A number or a word, depending on server and release.
            "SELECT UTC_TIMESTAMP(6) AS now,"
            " CAST(@@GLOBAL.read_only NOT IN ('0', 'OFF') AS SIGNED) AS locked"
        )
        self._read_only = bool(answer["locked"])
        now: datetime = answer["now"]
        return now.replace(tzinfo=UTC)


_INTEGERS: dict[str, FieldType] = {
    "tinyint": "int32",
    "smallint": "int32",
    "mediumint": "int32",
    "int": "int32",
    "bigint": "int64",
    "year": "int32",
    "float": "float32",
    "double": "float64",
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_GEOMETRIES = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
               "multipolygon", "geometrycollection", "geomcollection")  # fmt: skip
_TIMES = ("datetime", "timestamp")


@dataclass(frozen=True)
class MyType:
    """A type from ``information_schema``. ``digits`` are the fractional digits of seconds."""

    name: str
    unsigned: bool = False
    precision: int = 0
    scale: int = 0
    digits: int = 0

    @property
    def label(self) -> str:
        """The type's name for people."""
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name in _TIMES:
            return f"{self.name}({self.digits})"
        return f"{self.name} unsigned" if self.unsigned else self.name


def declared_column(name: str, kind: MyType, *, nullable: bool) -> SourceColumn:
    """Return the column with the field that holds it."""
    return SourceColumn(name, kind.label, _order(kind), _field(name, kind, nullable))


def _order(kind: MyType) -> ColumnKind:
    if kind.name in _INTEGERS or kind.name in ("decimal", "bit"):
        return "number"
    if kind.name in _TIMES:
        return "time"
    if kind.name == "date":
        return "date"
    return "text" if kind.name in _TEXTS else "other"


def _field(name: str, kind: MyType, nullable: bool) -> FieldSpec:
    if kind.name == "bit" or (kind.unsigned and kind.name == "bigint"):
        return FieldSpec(name, "decimal", nullable, (), 20, 0)  # up to 2^64 - 1
    if kind.name in _INTEGERS:
        wide = kind.unsigned and kind.name == "int"
        return FieldSpec(name, "int64" if wide else _INTEGERS[kind.name], nullable)
    if kind.name == "decimal" and kind.precision <= DECIMAL_DIGITS:
        return FieldSpec(name, "decimal", nullable, (), kind.precision, kind.scale)
    if kind.name in _TIMES:
        return FieldSpec(name, "timestamp", nullable)
    if kind.name in _BYTES:
        return FieldSpec(name, "binary", nullable)
    known: dict[str, FieldType] = {"date": "date", "json": "json"}
    return FieldSpec(name, known.get(kind.name, "string"), nullable)


def exact_expression(quoted: str, kind: MyType) -> str:
    """Return the expression that selects the column so that connectorx loses nothing."""
    if kind.name in ("year", "bit"):
        return f"CAST({quoted} AS UNSIGNED)"
    if kind.name in _GEOMETRIES:
        return f"ST_AsText({quoted})"
    if kind.name in _INTEGERS or kind.name in _TEXTS or kind.name in _BYTES:
        return quoted
    return f"CAST({quoted} AS CHAR)"


_DECIMAL = re.compile(r"decimal\d+\((\d+), (\d+)\)")
_ARROW: dict[str, MyType] = {
    "int8": MyType("tinyint"),
    "int16": MyType("smallint"),
    "int32": MyType("int"),
    "int64": MyType("bigint"),
    "uint8": MyType("tinyint", unsigned=True),
    "uint16": MyType("smallint", unsigned=True),
    "uint32": MyType("int", unsigned=True),
    "uint64": MyType("bigint", unsigned=True),
    "float": MyType("float"),
    "double": MyType("double"),
    "large_binary": MyType("blob"),
    "binary": MyType("blob"),
    "timestamp[us]": MyType("datetime", digits=6),
    "date32[day]": MyType("date"),
    "time64[us]": MyType("time"),
}


def from_arrow(kind: str) -> MyType:
    """Return the type of a query's column, as far as connectorx reports it."""
    if _DECIMAL.fullmatch(kind):
        return MyType("decimal", precision=65, scale=30)
    return _ARROW.get(kind, MyType("text"))

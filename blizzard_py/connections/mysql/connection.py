"""The planning side of MySQL and MariaDB. See `blizzard_py.connections.protocol`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_py.connections.literals import literal
from blizzard_py.connections.mysql import types
from blizzard_py.connections.mysql.session import ask
from blizzard_py.connections.protocol import ReadBound, ReadSelection, SourceColumn
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.statements import identifier, select
from blizzard_py.connections.sql.values import endless
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
    " after their time are missed; set settle above its greatest lag, or read the primary"
)


class MysqlConnection(SqlConnection):
    """One table or query. connectorx opens a connection for each statement."""

    dialect = "mysql_hex"

    def __init__(self, access: Access, selection: ReadSelection) -> None:
        super().__init__(selection)
        self._access = access
        self._types: Mapping[str, types.MyType] = {}
        self._read_only = False

    def warnings(self) -> Sequence[str]:
        self._now()
        found = [_REPLICA] if self._read_only else []
        for column in self._watermark_columns():
            kind = self._types[column.name].name
            if kind in ("datetime", "date") and not self._selection.zone:
                found.append(
                    f"{column.name} is a {kind}, which has no zone, and its values are treated"
                    " as UTC: rows of writers in zones west of UTC would be missed; set"
                    " watermark.zone to their zone"
                )
            if self._selection.table and not self._is_indexed(column):
                found.append(
                    f"no index gives the order of {column.name}: each window reads the"
                    f" whole table (EXPLAIN: {self._estimate()} rows); create an index on it"
                )
        return found

    def key(self) -> Sequence[str]:
        where = f"{self._named_table()} AND index_name = 'PRIMARY'"
        answer = self._ask(
            "SELECT column_name AS name FROM information_schema.statistics"  # noqa: S608  # literals
            f" WHERE {where} ORDER BY seq_in_index"
        )
        return [str(name) for name in answer.column("name").to_pylist()]

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _ask(self, statement: str) -> pa.Table:
        return ask(self._access, statement)

    def _described(self) -> Sequence[SourceColumn]:
        found = self._of_query() if self._selection.query else self._of_table()
        self._types = {name: kind for name, kind, _ in found}
        return [types.column(name, kind, nullable=nullable) for name, kind, nullable in found]

    def _of_query(self) -> list[tuple[str, types.MyType, bool]]:
        schema = self._ask(select(["*"], self._source, "1 = 0")).schema
        return [(field.name, types.from_arrow(str(field.type)), True) for field in schema]

    def _of_table(self) -> list[tuple[str, types.MyType, bool]]:
        answer = self._ask(_COLUMNS.format(where=self._named_table())).to_pylist()
        if not answer:
            # The server reports whether the table is missing or may not be read.
            self._ask(select(["1 AS one"], self._source, "1 = 0"))
            raise SourceError(f"{self._selection.table} has no columns")
        return [
            (
                row["name"],
                types.MyType(
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
        return types.expression(identifier(column.name, self.dialect), self._types[column.name])

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

"""The planning side of SQLite. See `blizzard_py.connections.protocol`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from blizzard_core.errors import BlizzardError, SourceError
from blizzard_py.connections.literals import literal
from blizzard_py.connections.protocol import ReadBound, ReadSelection, SourceColumn
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.errors import guarded
from blizzard_py.connections.sql.statements import identifier, select
from blizzard_py.connections.sqlite import types
from blizzard_py.connections.sqlite.clock import has_zone, is_time, same_form, unlike, until
from blizzard_py.connections.sqlite.session import connect, error_translator, path_of
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

_ARROW_WORDS = {"int64": "INTEGER", "double": "REAL", "binary": "BLOB"}
_SAMPLE_ROWS = 1000


class SqliteConnection(SqlConnection):
    """One table, view or query of one file."""

    dialect = "sqlite"

    def __init__(self, access: Access, selection: ReadSelection) -> None:
        super().__init__(selection)
        self._access = access
        self._session: Any = None

    def warnings(self) -> Sequence[str]:
        found = [
            f"no index gives the order of {column.name}: each window reads the whole table"
            " (EXPLAIN: a sort of all rows); create an index on it"
            for column in self._watermark_columns()
            if not self._is_indexed(column)
        ]
        return [*found, *self._doubts_of_times()]

    def _doubts_of_times(self) -> Iterator[str]:
        """Check some times of each column. Raises `SourceError` if their forms differ."""
        for column in self._watermark_columns():
            if column.kind not in ("time", "date"):
                continue
            name = identifier(column.name, self.dialect)
            rows = select([f"{name} AS v"], self._source, f"{name} IS NOT NULL", *self._filter())
            values: list[Any] = []
            for order in ("", f" ORDER BY {name}", f" ORDER BY {name} DESC"):
                part = f"SELECT CAST(v AS TEXT) AS v FROM ({rows}{order} LIMIT {_SAMPLE_ROWS})"  # noqa: S608  # of our own statement
                values += self._ask(part).column("v").to_pylist()
            odd = unlike(values)
            if odd:
                raise SourceError(
                    f"column {column.name}: times are compared as text, but {' and '.join(odd)}"
                    " have different forms: rows would be missed; rewrite them in one form, or"
                    f" use a query with strftime('%Y-%m-%d %H:%M:%f', {column.name})"
                )
            if values and not is_time(values[0]):
                yield (
                    f"column {column.name} has {values[0]!r}, which is not written as"
                    " YYYY-MM-DD[ HH:MM:SS[.ffffff]][Z]: bound: clock cannot read it; use max"
                )
            elif values and not self._selection.zone and not has_zone(values[0]):
                yield (
                    f"column {column.name} is a time without a zone and is treated as UTC: rows of"
                    " writers in zones west of UTC would be missed; set watermark.zone to theirs"
                )

    def key(self) -> Sequence[str]:
        return [row["name"] for row in self._table_info("pk > 0 ORDER BY pk")]

    def close(self) -> None:
        """Close the file; the next query opens it again."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # it is gone either way
                session.close()

    def _ask(self, statement: str) -> pa.Table:
        if self._session is None:
            self._session = connect(self._access)
        try:
            return guarded(lambda: self._answered(statement), error_translator(self._access))
        except BlizzardError:
            self.close()
            raise

    def _answered(self, statement: str) -> pa.Table:
        with self._session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def _described(self) -> Sequence[SourceColumn]:
        if self._selection.query:
            return self._sampled()
        answer = self._table_info("hidden <> 1")
        if not answer:
            raise SourceError(f"{path_of(self._access)}: there is no table {self._table_name()}")
        return [
            types.column(row["name"], row["type"], nullable=not row["required"]) for row in answer
        ]

    def _table_name(self) -> str:
        return self._selection.table.split(".")[-1].strip('"`[]')

    def _table_info(self, which: str) -> list[dict[str, Any]]:
        quoted = literal(self._table_name(), self.dialect)
        found: list[dict[str, Any]] = self._ask(
            'SELECT name, type, "notnull" AS required'  # noqa: S608  # a literal
            f" FROM pragma_table_xinfo({quoted}) WHERE {which}"
        ).to_pylist()
        return found

    def _is_indexed(self, column: SourceColumn) -> bool:
        name = identifier(column.name, self.dialect)
        plan = self._ask(
            "EXPLAIN QUERY PLAN "
            + select([name], self._source, f"{name} IS NOT NULL")
            + f" ORDER BY {name} DESC LIMIT 1"
        )
        return not any("TEMP B-TREE" in text for text in plan.column("detail").to_pylist())

    def _sampled(self) -> Sequence[SourceColumn]:
        """Return a query's columns by its first rows: they have no declared types."""
        self._refuse_two_statements()
        schema = self._ask(select(["*"], self._source) + f" LIMIT {_SAMPLE_ROWS}").schema
        return [
            types.column(field.name, _ARROW_WORDS.get(str(field.type), "TEXT"), nullable=True)
            for field in schema
        ]

    def _refuse_two_statements(self) -> None:
        """Raise `SourceError` for several statements: ADBC runs only the first one."""
        import sqlite3  # noqa: PLC0415  # for queries only

        with sqlite3.connect(":memory:") as scratch:
            try:
                scratch.execute(f"EXPLAIN {select(['*'], self._source)}")
            except sqlite3.ProgrammingError as error:
                two = "one statement" in str(error)
            except sqlite3.Error:
                two = False  # its tables are missing; the server checks the rest
            else:
                two = False
        scratch.close()
        if two:
            raise SourceError("the query holds more than one statement")

    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        return types.cast_to(identifier(column.name, self.dialect), types.storage(field))

    def _now(self) -> datetime:
        answer = self._one("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') AS now")
        return datetime.fromisoformat(answer["now"]).replace(tzinfo=UTC)

    def _value(self, column: SourceColumn, value: Any) -> Any:
        # Times keep the form of text that the writer stored.
        return value if column.kind in ("time", "date") else super()._value(column, value)

    def _exact(self, column: SourceColumn, expression: str) -> str:
        exact = column.kind == "number" and column.field.type in ("string", "decimal")
        return f"CAST({expression} AS TEXT)" if exact else expression

    def _clock(self, settle_secs: float) -> ReadBound:
        columns = self._times("clock")
        expressions = ["strftime('%Y-%m-%d %H:%M:%f', 'now') AS now"]
        for place, column in enumerate(columns):
            expressions += [
                f"{self._only('MIN', column)} AS low{place}",
                f"{self._only('MAX', column)} AS high{place}",
            ]
        answer = self._one(f"SELECT {', '.join(expressions)}")
        now = datetime.fromisoformat(answer["now"]).replace(tzinfo=UTC)
        value = {}
        for place, column in enumerate(columns):
            low, high = answer[f"low{place}"], answer[f"high{place}"]
            if high is None:
                continue
            if not same_form(low, high):
                raise SourceError(
                    f"bound: clock cannot be compared with the values of {column.name}: they"
                    " are not all written as YYYY-MM-DD[ HH:MM:SS[.ffffff]][Z]; use bound: max"
                )
            value[column.name] = until(
                now - timedelta(seconds=settle_secs), high, self._selection.walls
            )
        return ReadBound("clock", value)

    def _spec(self, listed: Sequence[str], *conditions: str) -> dict[str, Any]:
        fields = {field.name: field for field in self._selection.fields}
        names = list(fields) or [column.name for column in self._columns_known()]
        names += [name for name in self._selection.columns if name not in names]
        kinds = [types.storage(fields.get(n, self._column(n).field)) for n in names]
        quoted = [identifier(name, self.dialect) for name in names]
        marker = identifier(types.OTHER_CLASS_COLUMN, self.dialect)
        first = [f"{types.first(k)} AS {q}" for q, k in zip(quoted, kinds, strict=True)]
        other_classes = types.other_class_values(list(zip(quoted, kinds, strict=True)))
        rows = select([*listed, f"{other_classes} AS {marker}"], self._source, *conditions)
        select_list = ", ".join([*first, f"'' AS {marker}"])
        return {"statement": f"SELECT {select_list} UNION ALL {rows}"}

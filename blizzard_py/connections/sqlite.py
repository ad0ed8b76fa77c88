"""The planning side of SQLite. See `blizzard_py.connections.protocol`.

Types belong to values and not to columns. ADBC takes a column's type from its first rows and fails
if a later value has another type. A cast turns text into 0. So each column is cast to the storage
class that its declared field needs. One more column, `OTHER_CLASS_COLUMN`, holds the values of
other storage classes as JSON, by the position of their column; it is ``''`` in rows without any.
The reader puts these values back where the cast has lost them. An additional first row fixes the
types of all columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

from blizzard_core.errors import SourceError
from blizzard_core.settings.schema import FieldType, decimal_digits
from blizzard_py.connections.literals import literal
from blizzard_py.connections.protocol import ColumnKind, ReadBound, ReadSelection, SourceColumn
from blizzard_py.connections.sql.adbc import AdbcSession
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.statements import identifier, select
from blizzard_py.connections.sql.values import without_index
from blizzard_py.connections.sqlite_session import (
    connect,
    error_translator,
    has_zone,
    is_time,
    path_of,
    same_form,
    unlike,
    until,
)
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
        self._questions = AdbcSession(lambda: connect(access), error_translator(access))

    def warnings(self) -> Sequence[str]:
        found = [
            without_index(column, "a sort of all rows")
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
                    " writers in zones west of UTC would be missed; set watermark.advanced.zone"
                    " to theirs"
                )

    def key(self) -> Sequence[str]:
        return [row["name"] for row in self._table_info("pk > 0 ORDER BY pk")]

    def close(self) -> None:
        """Close the file; the next query opens it again."""
        self._questions.close()

    def _ask(self, statement: str) -> pa.Table:
        return self._questions.ask(statement)

    def _described(self) -> Sequence[SourceColumn]:
        if self._selection.query:
            return self._sampled()
        answer = self._table_info("hidden <> 1")
        if not answer:
            raise SourceError(f"{path_of(self._access)}: there is no table {self._table_name()}")
        return [
            declared_column(row["name"], row["type"], nullable=not row["required"])
            for row in answer
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
            declared_column(field.name, _ARROW_WORDS.get(str(field.type), "TEXT"), nullable=True)
            for field in schema
        ]

    def _refuse_two_statements(self) -> None:
        """Raise `SourceError` for several statements: ADBC runs only the first one."""
        import sqlite3  # noqa: PLC0415  # for queries only

        has_two = False
        with closing(sqlite3.connect(":memory:")) as scratch:
            try:
                scratch.execute(f"EXPLAIN {select(['*'], self._source)}")
            except sqlite3.Error as error:  # or its tables are missing; the server checks the rest
                is_ours = isinstance(error, sqlite3.ProgrammingError)  # a table may be called so
                has_two = is_ours and "one statement" in str(error)
        if has_two:  # out here, so that no chain of errors quotes the query
            raise SourceError("the query holds more than one statement")

    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        # `OTHER_CLASS_COLUMN` holds values of other classes.
        return f"CAST({identifier(column.name, self.dialect)} AS {storage(field).upper()})"

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
        kinds = [storage(fields.get(n, self._column(n).field)) for n in names]
        quoted = [identifier(name, self.dialect) for name in names]
        marker = identifier(OTHER_CLASS_COLUMN, self.dialect)
        first = [f"{_FIRST[k]} AS {q}" for q, k in zip(quoted, kinds, strict=True)]
        other_classes = other_class_values(list(zip(quoted, kinds, strict=True)))
        rows = select([*listed, f"{other_classes} AS {marker}"], self._source, *conditions)
        select_list = ", ".join([*first, f"'' AS {marker}"])
        return {"statement": f"SELECT {select_list} UNION ALL {rows}"}


Storage = Literal["integer", "real", "text", "blob"]
OTHER_CLASS_COLUMN = "blizzard misfits"

# The values of the additional first row.
_FIRST: dict[Storage, str] = {"integer": "0", "real": "0.0", "text": "''", "blob": "x''"}
_GROUP = 50  # a function takes 127 arguments
_DIGITS = re.compile(r"(?:decimal|numeric)\s*(\(.*\))", re.IGNORECASE)


# The first of these words that a declared type contains decides, as in SQLite itself.
_WORDS: Sequence[tuple[str, ColumnKind, FieldType]] = (
    ("INT", "number", "int64"),
    ("CHAR", "text", "string"),
    ("CLOB", "text", "string"),
    ("TEXT", "text", "string"),
    ("JSON", "text", "string"),
    ("BLOB", "other", "binary"),
    ("REAL", "number", "float64"),
    ("FLOA", "number", "float64"),
    ("DOUB", "number", "float64"),
    ("BOOL", "number", "boolean"),
    ("TIME", "time", "timestamp"),
    ("DATE", "date", "date"),
)


def declared_column(name: str, declared: str, *, nullable: bool) -> SourceColumn:
    """Return the column by its declared type."""
    upper = declared.upper()
    for word, kind, held in _WORDS:
        if word in upper:
            return SourceColumn(name, declared, kind, FieldSpec(name, held, nullable))
    if not declared:
        return SourceColumn(name, "any", "other", FieldSpec(name, "string", nullable))
    return SourceColumn(name, declared, "number", _exact(name, upper, nullable=nullable))


def _exact(name: str, word: str, *, nullable: bool) -> FieldSpec:
    found = _DIGITS.match(word)
    if found:
        try:
            precision, scale = decimal_digits(f"decimal{found[1]}")
        except ValueError:  # more digits than any decimal has
            return FieldSpec(name, "string", nullable)
        return FieldSpec(name, "decimal", nullable, (), precision, scale)
    return FieldSpec(name, "string", nullable)


def storage(field: FieldSpec) -> Storage:
    """Return the storage class for the values of a field."""
    if field.type in ("int32", "int64", "boolean"):
        return "integer"
    if field.type == "timestamp" and field.unit != "iso":
        return "integer"
    if field.type in ("float32", "float64"):
        return "real"
    return "blob" if field.type == "binary" else "text"


def _has_other_class(quoted: str, kind: Storage) -> str:
    """Return the condition that a value is of another class; not true for null.

    Values of any class compare: numbers lie below all text, text below all blobs. That costs half
    of a call of ``typeof``.
    """
    match kind:
        case "integer":
            return f"typeof({quoted}) NOT IN ('integer', 'null')"
        case "real":
            return f"{quoted} >= ''"
        case "blob":
            return f"{quoted} < ''"
        case "text":
            return f"{quoted} >= x''"


def other_class_values(columns: Sequence[tuple[str, Storage]]) -> str:
    """Return the expression for a row's values of other classes."""
    if not columns:
        return "''"
    any_of = _balanced([_has_other_class(quoted, kind) for quoted, kind in columns], "({} OR {})")
    cases = [
        f"'{place}', CASE WHEN {_has_other_class(quoted, kind)} THEN {_as_sql_text(quoted)} END"
        for place, (quoted, kind) in enumerate(columns)
    ]
    groups = [
        f"json_object({', '.join(cases[start : start + _GROUP])})"
        for start in range(0, len(cases), _GROUP)
    ]
    # An empty patch removes the nulls.
    merged = _balanced([f"json_patch('{{}}', {group})" for group in groups], "json_patch({}, {})")
    return f"CASE WHEN {any_of} THEN {merged} ELSE '' END"


def _as_sql_text(quoted: str) -> str:
    return (
        f"CASE typeof({quoted}) WHEN 'blob' THEN 'X''' || hex({quoted}) || ''''"
        f" WHEN 'real' THEN printf('%!.17g', {quoted}) ELSE CAST({quoted} AS TEXT) END"
    )


def _balanced(parts: Sequence[str], pair: str) -> str:
    """Return all parts joined in pairs of pairs: SQLite allows a depth of 1,000 only."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return pair.format(_balanced(parts[:middle], pair), _balanced(parts[middle:], pair))

"""The planning side of any database with a JDBC driver. See `blizzard_py.connections.protocol`.

No Python driver exists, so the engine answers questions (`Query`) and reads the tasks itself: a
task's ``spec`` has its ``statement``. Columns are cast only where a dialect is known to need it;
for other types see the documentation of Spark's JDBC source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from blizzard_core.errors import ConfigError
from blizzard_core.settings.schema import FieldType
from blizzard_py.connections.protocol import ColumnKind, ReadSelection, SourceColumn
from blizzard_py.connections.sql.connection import SqlConnection
from blizzard_py.connections.sql.statements import identifier, select
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access

# Return the complete result of a short query. Errors as in `protocol`.
Query = Callable[[str], pa.Table]

_DIALECTS = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "oracle": "oracle",
    "sqlserver": "sqlserver",
    "sqlite": "sqlite",
}
# The server's clock in UTC. With the standard's function its zone is the session's.
_CLOCKS = {
    "postgresql": "now()",
    "mysql": "UTC_TIMESTAMP(6)",
    "oracle": "SYS_EXTRACT_UTC(SYSTIMESTAMP)",
    "sqlserver": "SYSUTCDATETIME()",
}
_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], ColumnKind, FieldType]] = (
    (pa.types.is_boolean, "other", "boolean"),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.int32()), "number", "int32"),
    (pa.types.is_integer, "number", "int64"),
    (pa.types.is_float32, "number", "float32"),
    (pa.types.is_floating, "number", "float64"),
    (pa.types.is_decimal, "number", "decimal"),
    (pa.types.is_timestamp, "time", "timestamp"),
    (pa.types.is_date, "date", "date"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "text", "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "other", "binary"),
)


def dialect_of(uri: str) -> str:
    """Return the dialect of ``jdbc:name:…``; ``""`` is standard SQL.

    Raises `ConfigError` for any other URI.
    """
    scheme, _, rest = uri.partition(":")
    name = rest.partition(":")[0]
    if scheme != "jdbc" or not name:
        raise ConfigError("uri", ["it has to begin like jdbc:oracle:thin:@//host:1521/service"])
    return _DIALECTS.get(name, "")


class JdbcConnection(SqlConnection):
    """One table or query; ``query`` runs its statements."""

    def __init__(self, access: Access, selection: ReadSelection, query: Query) -> None:
        self.dialect = dialect_of(access.uri)
        super().__init__(selection)
        self._from_nothing = " FROM DUAL" if self.dialect == "oracle" else ""
        self._ask_engine = query
        self._kinds: dict[str, pa.DataType] = {}

    def warnings(self) -> Sequence[str]:
        return [
            f"JDBC does not show whether an index gives the order of {column.name};"
            " without one each window reads the whole table"
            for column in self._watermark_columns()
        ]

    def _ask(self, statement: str) -> pa.Table:
        return self._ask_engine(statement)

    def _described(self) -> Sequence[SourceColumn]:
        schema = self._ask(select(["*"], self._source, "1 = 0")).schema
        self._kinds = {field.name: field.type for field in schema}
        return [_column(field) for field in schema]

    def _expression(self, column: SourceColumn, field: FieldSpec) -> str:
        del field
        quoted = identifier(column.name, self.dialect)
        kind = self._kinds[column.name]
        if self.dialect == "postgresql" and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return f"to_json({quoted}) #>> '{{}}'"  # its driver makes years of infinity
        if self.dialect == "postgresql" and pa.types.is_decimal(kind):
            return f"{quoted}::text"  # Spark takes no more than 38 digits, 18 behind the point
        return quoted

    def _tick(self, column: SourceColumn) -> str:
        # Spark turns Oracle's DATE, and every other type with seconds, into microseconds.
        return "datetime" if column.kind == "time" else column.type

    def _zoned(self, column: SourceColumn) -> bool:
        return getattr(self._kinds[column.name], "tz", None) is not None

    def _value(self, column: SourceColumn, value: Any) -> Any:
        found = super()._value(column, value)
        if isinstance(found, datetime) and found.tzinfo is not None:
            return found.astimezone(UTC)
        return found

    def _now(self) -> datetime:
        clock = _CLOCKS.get(self.dialect, "CURRENT_TIMESTAMP")
        now: datetime = self._one(f"SELECT {clock} AS now_{self._from_nothing}")["now_"]
        return now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)


def _column(field: pa.Field) -> SourceColumn:
    for is_one, kind, held in _KINDS:
        if is_one(field.type):
            decimal = pa.types.is_decimal(field.type)
            digits = (field.type.precision, field.type.scale) if decimal else (0, 0)
            spec = FieldSpec(field.name, held, True, (), *digits)
            return SourceColumn(field.name, str(field.type), kind, spec)
    spec = FieldSpec(field.name, "string", nullable=True)
    return SourceColumn(field.name, str(field.type), "other", spec)
